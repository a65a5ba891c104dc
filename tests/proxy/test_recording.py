"""What a client does is what the trace says: going on, editing, asking again, asking in parallel, going away."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from proxying import CHAT, CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH, Scripted, until, used

from agentgym_tok.proxy import ProxySession
from agentgym_tok.trace import Lineage, rows
from agentgym_tok.trace.laws import answered
from agentgym_tok.types import Request

Proxy_ = Callable[..., Any]
SLOW = "one two three four five six seven eight nine ten eleven twelve"


def numbered(_: Request, number: int) -> str:
    return f"answer {number}"


def test_a_conversation_goes_on_from_the_sampled_ids_and_trains_them(proxied: Proxy_) -> None:
    # A spelling that no tokenizer gives: every encoding of the text would lose it.
    odd = [*CHAT.encode("h"), *CHAT.encode("ello"), CHAT.stop_ids[0]]
    with proxied(lambda *_: odd) as at:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        for text in ("one", "two", "three"):
            assert at.client.say(messages, text)["content"] == "hello"
        episode = at.end(success=True)
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation", "continuation"]
    for (before, turn), request in zip(pairwise(episode.turns), at.policy.asked[1:], strict=True):
        assert np.array_equal(turn.context.ids, request.ids_T)
        assert np.array_equal(turn.context.ids[: len(answered(before))], answered(before).ids)
    (row,) = rows(episode)
    assert row.ids_T[row.mask_T].tolist() == odd * 3
    assert (episode.status, episode.success) == ("done", True)


@pytest.mark.parametrize("path", [CHAT_PATH, RESPONSES_PATH, MESSAGES_PATH])
@pytest.mark.parametrize("stream", [False, True])
def test_each_protocol_is_recorded_the_same(proxied: Proxy_, path: str, *, stream: bool) -> None:
    with proxied(numbered) as at:
        body: dict[str, Any] = {"model": "m", "stream": stream}
        said = [{"role": "user", "content": "hello"}]
        body |= {"input": said} if path == RESPONSES_PATH else {"messages": said}
        if path == MESSAGES_PATH:
            body["max_tokens"] = 50
        response = at.client.http.post(path, json=body)
        assert response.status_code == 200
        assert "answer 0" in response.text.replace('"}\n', "") or stream
        (turn,) = at.end().turns
    assert turn.text.startswith("answer 0")
    assert turn.facts["delivered"] == "whole"
    assert turn.used
    assert np.array_equal(turn.context.ids, CHAT.open(said).ids)


def test_calls_go_out_and_their_results_come_back(proxied: Proxy_) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
    with proxied(lambda _, number: call + call.replace("sky", "sea") if not number else "blue") as at:
        messages: list[dict[str, Any]] = []
        first = at.client.say(messages, "What colour?", tools=tools)
        assert [json.loads(one["function"]["arguments"]) for one in first["tool_calls"]] == [
            {"at": "sky"},
            {"at": "sea"},
        ]
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": "blue"} for one in first["tool_calls"]]
        at.client.ask(messages, tools=tools)
        episode = at.end()
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation"]
    assert [message.role for message in episode.turns[1].messages] == ["tool", "tool"]


def edited(messages: list[dict[str, Any]], how: str) -> list[dict[str, Any]]:
    system, rest = messages[0], messages[1:]
    match how:
        case "system":
            return [{"role": "system", "content": "Be long."}, *rest]
        case "compaction":
            return [system, {"role": "user", "content": "So far: " + rest[1]["content"] + ", " + rest[3]["content"]}]
        case "cut":
            return [system, *rest[2:]]
        case _:
            return [system, {**rest[0], "content": "another"}, *rest[1:]]


@pytest.mark.parametrize("how", ["system", "compaction", "cut", "edit"])
def test_an_edited_history_is_rendered_as_the_client_says_it_and_named(proxied: Proxy_, how: str) -> None:
    with proxied(lambda _, number: f"the answer of turn number {number}, which is long enough") as at:
        messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        for text in ("one", "two"):
            at.client.say(messages, text)
        messages = edited(messages, how)
        at.client.say(messages, "go on")
        episode = at.end()
    last = episode.turns[-1]
    assert np.array_equal(last.context.ids, CHAT.open(messages[:-1]).ids)  # untrusted here and there: no control tokens
    assert last.edge.kind not in {"continuation", "retry"}
    assert (last.edge.kind == "system_swap") == (how == "system")
    assert len(used(episode)) == 3
    assert sum(int(row.mask_T.sum()) for row in rows(episode)) == sum(len(t.completion.ids_T) for t in episode.turns)


def test_a_retry_after_a_failure_is_another_attempt_of_one_turn(proxied: Proxy_) -> None:
    def say(_: Request, number: int) -> str:
        if number == 0:
            raise ConnectionError("the engine is away")
        return "there"

    with proxied(say) as at:
        messages = [{"role": "user", "content": "hello"}]
        failed = at.client.http.post(CHAT_PATH, json={"model": "m", "messages": messages})
        assert failed.status_code == 502
        at.client.ask(messages, headers={"x-stainless-retry-count": "1"})
        episode = at.end()
    assert [(turn.index, turn.attempt, turn.used) for turn in episode.turns] == [(0, 0, False), (0, 1, True)]
    assert episode.turns[0].failure is not None
    assert episode.turns[0].failure.boundary == "policy"
    assert episode.turns[1].facts["retry"] == "retry_header"


@pytest.mark.parametrize("evidence", ["idempotency-key", "x-stainless-retry-count", "body"])
def test_an_answer_that_is_asked_for_again_is_trained_once(proxied: Proxy_, evidence: str) -> None:
    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
        for attempt in ("0", "1"):
            name = {"idempotency-key": "k"} if evidence == "idempotency-key" else {"x-stainless-retry-count": attempt}
            answer = at.client.ask(messages, headers=None if evidence == "body" else name)
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        at.client.say(messages, "and?")
        episode = at.end()
    assert [(turn.index, turn.attempt, turn.used) for turn in episode.turns] == [
        (0, 0, False),
        (0, 1, True),
        (1, 0, True),
    ]
    assert episode.turns[2].edge.kind == "continuation"
    trained = sum(int(row.mask_T.sum()) for row in rows(episode))
    assert trained == sum(len(turn.completion.ids_T) for turn in episode.turns[1:])


def test_the_attempt_that_the_client_went_on_from_counts_even_where_it_asked_again(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
        first = at.client.ask(messages)["choices"][0]["message"]["content"]
        at.client.ask(messages)
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "and?"}]
        at.client.ask(messages)
        episode = at.end()
    assert [turn.used for turn in episode.turns] == [True, False, True]
    assert episode.turns[2].edge.kind == "continuation"


def test_a_key_that_names_another_request_is_refused(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask([{"role": "user", "content": "a"}], headers={"idempotency-key": "k"})
        body = {"model": "m", "messages": [{"role": "user", "content": "b"}]}
        refused = at.client.http.post(CHAT_PATH, json=body, headers={"idempotency-key": "k"})
        assert refused.status_code == 400
        assert "another request" in refused.text
        assert len(at.end().turns) == 1


def test_of_several_choices_the_one_that_the_client_goes_on_from_counts(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
        choices = at.client.ask(messages, n=3)["choices"]
        assert [choice["message"]["content"] for choice in choices] == ["answer 0", "answer 1", "answer 2"]
        messages += [{"role": "assistant", "content": "answer 1"}, {"role": "user", "content": "and?"}]
        at.client.ask(messages)
        episode = at.end()
    assert [(turn.index, turn.attempt, turn.used) for turn in episode.turns] == [
        (0, 0, False),
        (0, 1, True),
        (0, 2, False),
        (1, 0, True),
    ]
    assert len({turn.seed for turn in episode.turns}) == 4


def test_of_several_choices_none_counts_where_nobody_knows(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask([{"role": "user", "content": "hello"}], n=2)
        assert not used(at.end())


def test_parallel_agents_share_a_session_and_each_goes_on_from_its_own_ids(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda request, _: f"{int(request.ids_T.sum()) % 97} it is", pace_s=0.005)) as at:

        def play(agent: int) -> None:
            messages: list[dict[str, Any]] = [{"role": "system", "content": f"You are agent {agent}."}]
            client = at.agent(at.session)
            for turn in range(5):
                client.say(messages, f"turn {turn}")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(play, range(8)))
        episode = at.end()
    kinds = [turn.edge.kind for turn in episode.turns]
    assert len(kinds) == 40
    assert kinds.count("continuation") == 32
    assert all(turn.used for turn in episode.turns)
    by_index = {turn.index: turn for turn in episode.turns}
    for turn in episode.turns:
        if turn.edge.kind == "continuation":
            own, source = turn.context.ids, by_index[turn.edge.source].context.ids  # type: ignore[index]
            assert CHAT.decode(own).split("You are agent ")[1][0] == CHAT.decode(source).split("You are agent ")[1][0]


def test_a_client_that_goes_away_stops_the_engine_and_what_it_saw_is_kept_and_never_trained(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda *_: SLOW, pace_s=0.05)) as at:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        seen = ""
        with at.client.http.stream("POST", CHAT_PATH, json=body) as response:
            for line in response.iter_lines():
                seen += line
                if "three" in seen:
                    break
        left = time.monotonic()
        assert until(lambda: at.policy.broken_off)
        assert at.policy.broken_off[0] - left < 1
        (turn,) = at.end().turns
    assert not turn.used
    assert turn.completion.finish_reason == "abort"
    assert turn.facts["delivered"] == "part"
    assert "three" in CHAT.decode(turn.completion.ids_T[: turn.facts["told_tokens"]])
    assert len(turn.completion.ids_T) < len(CHAT.encode_turn(SLOW))
    assert turn.failure is not None
    assert turn.failure.boundary == "client"


def test_a_client_that_goes_away_before_the_answer_stops_the_engine_too(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda *_: SLOW, pace_s=0.2)) as at:
        with pytest.raises(Exception, match="timed out"):
            at.client.http.post(
                CHAT_PATH, json={"model": "m", "messages": [{"role": "user", "content": "a"}]}, timeout=0.5
            )
        assert until(lambda: at.policy.broken_off, 1)
        (turn,) = at.end().turns
    assert (turn.used, turn.facts["delivered"]) == (False, "none")


def test_a_retry_of_a_request_that_is_still_drawn_takes_its_place(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda _, number: SLOW if not number else "here", pace_s=0.05)) as at:
        messages = [{"role": "user", "content": "hello"}]
        statuses: list[int] = []

        def first() -> None:
            body = {"model": "m", "messages": messages}
            headers = {"idempotency-key": "k"}
            statuses.append(at.agent(at.session).http.post(CHAT_PATH, json=body, headers=headers).status_code)

        asking = threading.Thread(target=first)
        asking.start()
        assert until(lambda: at.policy.asked)
        at.client.ask(messages, headers={"idempotency-key": "k"})
        asking.join()
        episode = at.end()
    assert statuses == [409]
    assert [turn.used for turn in episode.turns] == [False, True]
    assert [turn.completion.finish_reason for turn in episode.turns] == ["abort", "stop"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_was_broken_off_and_asked_for_anew_is_gone_on_from(proxied: Proxy_, *, stream: bool) -> None:
    with proxied(Scripted(lambda _, number: SLOW if number == 1 else f"answer {number}", pace_s=0.03)) as at:
        messages: list[dict[str, Any]] = []
        at.client.say(messages, "one")
        messages.append({"role": "user", "content": "two"})
        body = {"model": "m", "stream": True, "messages": messages}
        with at.client.http.stream("POST", CHAT_PATH, json=body) as response:
            next(response.iter_lines())
        assert until(lambda: at.policy.broken_off)
        if stream:
            with at.client.http.stream("POST", CHAT_PATH, json=body) as response:
                response.read()
            said = "answer 2"
        else:
            said = at.client.ask(messages)["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": said})
        at.client.say(messages, "three")
        episode = at.end()
    assert [turn.used for turn in episode.turns] == [True, False, True, True]
    assert [turn.edge.kind for turn in episode.turns[::3]] == ["fresh_prompt", "continuation"]
    again = episode.turns[2]
    assert (again.index, again.attempt, again.edge.kind) == ((1, 1, "retry") if stream else (2, 0, "continuation"))


def test_what_cannot_be_recorded_fails_its_session_and_leaves_the_rest(
    proxied: Proxy_, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = []
        at.client.say(messages, "one")
        with monkeypatch.context() as patch:
            patch.setattr(Lineage, "add", lambda *_: 1 / 0)
            messages.append({"role": "user", "content": "two"})
            assert at.client.http.post(CHAT_PATH, json={"model": "m", "messages": messages}).status_code == 500
        refused = at.client.http.post(CHAT_PATH, json={"model": "m", "messages": messages})
        assert (refused.status_code, "could not be written" in refused.text) == (500, True)
        another = at.proxy.open("another")
        at.agent(another).say([], "hello")
        assert len(another.end().turns) == 1
        assert at.proxy.url in at.session.environ.values()


def test_counted_are_the_ids_that_the_engine_would_get(proxied: Proxy_) -> None:
    odd = [*CHAT.encode("h"), *CHAT.encode("ello"), CHAT.stop_ids[0]]
    with proxied(lambda *_: odd) as at:
        said: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        first = at.client.http.post(MESSAGES_PATH, json={**said, "max_tokens": 9}).json()
        said["messages"] += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "and?"}]
        counted = at.client.http.post(MESSAGES_PATH + "/count_tokens", json=said).json()["input_tokens"]
        second = at.client.http.post(MESSAGES_PATH, json={**said, "max_tokens": 9}).json()
        assert counted == second["usage"]["input_tokens"]


def test_a_response_goes_on_from_an_earlier_one_by_its_id(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        first = at.client.http.post(
            RESPONSES_PATH, json={"model": "m", "input": "hello", "instructions": "Be brief."}
        ).json()
        body = {"model": "m", "input": "and?", "instructions": "Be brief.", "previous_response_id": first["id"]}
        second = at.client.http.post(RESPONSES_PATH, json=body)
        assert second.status_code == 200
        body["previous_response_id"] = "resp_none"
        assert at.client.http.post(RESPONSES_PATH, json=body).status_code == 400
        episode = at.end()
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation"]


def test_stop_strings_end_the_text_and_not_the_ids(proxied: Proxy_) -> None:
    ids = CHAT.encode("Thought: look\nObservation: ")
    with proxied(lambda *_: ids.tolist()) as at:
        messages: list[dict[str, Any]] = []
        said = at.client.say(messages, "hello", stop=["Observation:"])
        assert said["content"] == "Thought: look\n"
        at.client.say(messages, "and?", stop=["Observation:"])
        episode = at.end()
    assert episode.turns[0].completion.ids_T.tolist() == ids.tolist()
    assert episode.turns[1].edge.kind == "continuation"


def test_a_turn_that_the_client_began_is_told_without_its_beginning_and_goes_on_with_it(proxied: Proxy_) -> None:
    with proxied(lambda *_: " a nice day") as at:
        start: list[dict[str, Any]] = [{"role": "user", "content": "Say it."}]
        answer = at.client.ask([*start, {"role": "assistant", "content": "What"}])["choices"][0]["message"]["content"]
        assert answer.strip() == "a nice day"
        at.client.ask([*start, {"role": "assistant", "content": "What" + answer}, {"role": "user", "content": "and?"}])
        episode = at.end()
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation"]
    assert episode.turns[0].context.span.origin == "forced"


def test_rewards_and_facts_stand_on_turns_that_the_client_used(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        messages: list[dict[str, Any]] = []
        at.client.say(messages, "one")
        at.session.reward(0.25)
        at.client.say(messages, "two")
        at.session.reward(0.5)
        at.session.reward(0.25)
        at.session.note(judge="tests")
        episode = at.end(success=False)
    assert [turn.reward for turn in episode.turns] == [0.25, 0.75]
    assert episode.return_ == 1.0
    assert [turn.facts.get("session") for turn in episode.turns] == [None, {"judge": "tests"}]
    assert episode.success is False


def test_a_subagents_session_is_a_child_of_its_callers(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.say([], "one")
        child = at.session.child(role="searcher", parent_turn=0)
        at.agent(child).say([], "find it")
        child.end()
        episode = at.end()
    (found,) = episode.children
    assert (found.head.role, found.head.parent, found.head.parent_turn) == ("searcher", episode.id, 0)


def test_a_block_that_raises_leaves_a_failed_episode(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        opened: list[ProxySession] = []

        def play() -> None:
            with at.proxy.session("other") as session:
                opened.append(session)
                at.agent(session).say([], "one")
                raise RuntimeError("the agent broke")

        with pytest.raises(RuntimeError, match="the agent broke"):
            play()
        episode = opened[0].episode
        at.end()
    assert episode.status == "failed"
    assert episode.failure is not None
    assert (episode.failure.boundary, episode.failure.message) == ("client", "the agent broke")
    assert len(episode.turns) == 1
