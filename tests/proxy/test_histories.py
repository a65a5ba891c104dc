"""Histories that are easy to record wrongly: agents side by side, late retries, rewards that move, stores that fail."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import numpy as np
import pytest
from proxying import CHAT, CHAT_PATH, MESSAGES_PATH, RESPONSES_PATH, Scripted, until, used

from agentgym_tok.errors import ConfigError, ResetNeeded, TraceError, TransientPolicyError
from agentgym_tok.proxy import Limits
from agentgym_tok.proxy.contexts import Contexts
from agentgym_tok.proxy.waiting import RETRY_WINDOW_S
from agentgym_tok.trace import TraceStore, rows
from agentgym_tok.types import Request

Proxy_ = Callable[..., Any]
HELLO = [{"role": "user", "content": "hello"}]
OTHER = [{"role": "user", "content": "something else"}]


def numbered(_: Request, number: int) -> str:
    return f"answer {number}"


def behind(messages: list[dict[str, Any]], answer: str, text: str = "and?") -> list[dict[str, Any]]:
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": text}]


def test_a_fork_of_choices_that_is_repeated_verifies(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO, n=2)
        for answer in ("answer 0", "answer 1"):
            at.client.ask(behind(HELLO, answer))
        at.client.ask(OTHER)
        at.client.ask(behind(HELLO, "answer 1"))
        episode = at.end()
    kinds = {turn.index: turn.edge.kind for turn in episode.turns if not turn.attempt}
    assert [kinds[1], kinds[2], kinds[4]] == ["continuation", "unknown", "unknown"]


@pytest.mark.parametrize("how", ["choices", "asked twice"])
def test_only_an_answer_at_its_own_place_is_taken_for_used(proxied: Proxy_, how: str) -> None:
    with proxied(numbered) as at:
        if how == "choices":
            at.client.ask(HELLO, n=2)
        else:
            at.client.ask(HELLO)
            at.client.ask(HELLO)
        at.client.ask(behind(OTHER, "answer 0"))  # the same words by chance, in another conversation
        episode = at.end()
    first = [turn.used for turn in episode.turns if turn.index == 0]
    assert first == ([False, False] if how == "choices" else [False, True])


def test_choices_of_a_request_that_failed_never_count(proxied: Proxy_) -> None:
    def say(_: Request, number: int) -> str:
        if number == 1:
            raise TransientPolicyError("busy", where="engine")
        return "yes"

    with proxied(say) as at:
        body = {"model": "m", "messages": HELLO, "n": 2}
        assert at.client.http.post(CHAT_PATH, json=body).status_code == 503
        at.client.ask(behind(HELLO, "yes"))
        episode = at.end()
    assert [turn.used for turn in episode.turns] == [False, False, True]
    assert episode.turns[2].edge.kind != "continuation"


def test_agents_that_ask_the_same_and_try_again_do_not_kill_each_other(proxied: Proxy_) -> None:
    def say(_: Request, number: int) -> str:
        if number < 2:
            raise TransientPolicyError("busy", where="engine")
        return "here"

    with proxied(Scripted(say, pace_s=0.05)) as at, ThreadPoolExecutor(2) as threads:

        def agent(_: int) -> list[int]:
            client, statuses = at.agent(at.session), list[int]()
            for count in range(3):
                headers = {"x-stainless-retry-count": str(count)}
                statuses.append(
                    client.http.post(CHAT_PATH, json={"model": "m", "messages": HELLO}, headers=headers).status_code
                )
                if statuses[-1] == 200:
                    break
            return statuses

        assert [statuses[-1] for statuses in threads.map(agent, range(2))] == [200, 200]
        at.end()


def test_a_retry_beside_another_turn_holds_nothing_up(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda _, number: "slow " * 8 if number == 1 else f"answer {number}", pace_s=0.02)) as at:
        at.client.ask(HELLO)
        again = {"x-stainless-retry-count": "1"}
        with ThreadPoolExecutor(1) as threads:
            retrying = threads.submit(at.agent(at.session).ask, HELLO, headers=again)
            assert until(lambda: len(at.policy.asked) == 2)
            at.client.ask(OTHER)  # ends first
            retrying.result()
        messages: list[dict[str, Any]] = []
        for turn in range(6):
            at.client.say(messages, f"turn {turn}")
        waiting = at.proxy._app.sessions.by_id(at.session.id)._waiting._turns
        assert len(waiting) < 4
        at.end()


def test_a_retry_of_what_failed_counts_although_others_asked_meanwhile(proxied: Proxy_) -> None:
    def say(_: Request, number: int) -> str:
        if number == 0:
            raise TransientPolicyError("busy", where="engine")
        return f"answer {number}"

    with proxied(say) as at:
        body = {"model": "m", "messages": HELLO}
        assert at.client.http.post(CHAT_PATH, json=body).status_code == 503
        at.client.ask(OTHER)
        at.client.ask(HELLO, headers={"x-stainless-retry-count": "1"})
        episode = at.end()
    assert [turn.used for turn in episode.turns] == [False, True, True]


def test_a_retry_after_its_answer_was_counted_does_not_count_twice(
    proxied: Proxy_, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO, headers={"idempotency-key": "k"})
        at.client.ask(OTHER)  # settles the first one
        late = at.client.ask(HELLO, headers={"idempotency-key": "k"})["choices"][0]["message"]["content"]
        at.client.ask([{"role": "user", "content": "a third thing"}])
        episode = at.end()
    assert late == "answer 2"
    assert [turn.used for turn in episode.turns] == [True, True, False, True]
    assert "counted" in episode.turns[2].facts["doubt"]


def test_a_pool_of_samples_is_no_pile_of_retries(proxied: Proxy_) -> None:
    with proxied(Scripted(numbered, pace_s=0.02)) as at, ThreadPoolExecutor(3) as threads:
        agents = [at.agent(at.session) for _ in range(3)]
        list(threads.map(lambda agent: [agent.ask(HELLO) for _ in range(3)], agents))
        episode = at.end()
    assert len(episode.turns) == 9
    assert len(used(episode)) >= 7  # at the very ends nothing else is drawn beside one


def test_rewards_follow_the_attempt_that_counts(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO)
        at.session.reward(1.0)
        at.client.ask(HELLO)
        at.session.reward(0.25)
        at.client.ask(behind(HELLO, "answer 0"))
        episode = at.end()
    assert episode.return_ == 1.25
    assert [turn.reward for turn in episode.turns] == [1.25, 0.0, 0.0]


def test_a_reward_that_is_no_number_and_facts_that_are_no_json_are_refused(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        with pytest.raises(ResetNeeded, match="no turn to reward"):
            at.session.reward(1.0)
        at.client.ask(HELLO)
        with pytest.raises(ConfigError, match="finite"):
            at.session.reward(float("nan"))
        for wrong in (object(), float("nan"), np.float32(0.5)):
            with pytest.raises(ConfigError, match="JSON"):
                at.session.note(score=wrong)
        assert at.end().return_ == 0


def test_an_end_that_is_none_is_refused_and_the_session_goes_on(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        for status in ("failed", "running", "bogus"):
            with pytest.raises(ConfigError, match="no end of a session"):
                at.session.end(status)
        at.client.ask(HELLO)
        assert len(at.end().turns) == 1


@pytest.mark.parametrize("late", [False, True])
def test_an_episode_that_the_store_did_not_take_whole_has_failed(
    proxied: Proxy_, monkeypatch: pytest.MonkeyPatch, *, late: bool
) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO)
        with monkeypatch.context() as patch:
            patch.setattr(
                TraceStore, "append", lambda *_: (_ for _ in ()).throw(TraceError("the disk is full", where="run"))
            )
            if not late:
                at.client.ask(OTHER)
                assert until(lambda: at.client.http.get("/health").json()["store_errors"])
            with pytest.raises(TraceError, match="not whole"):
                at.session.end(success=True)
        episode = at.session.episode
    assert (episode.status, episode.success) == ("failed", None)
    assert episode.failure is not None
    assert episode.failure.boundary == "store"


def test_the_end_of_a_session_does_not_wait_for_other_sessions(
    proxied: Proxy_, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = TraceStore.append

    def slow(self: TraceStore, turn: Any) -> None:
        time.sleep(0.02)
        append(self, turn)

    with proxied(numbered) as at:
        at.client.ask(HELLO)
        busy, over = at.proxy.open("busy"), threading.Event()
        agent = at.agent(busy)

        def load() -> None:
            messages: list[dict[str, Any]] = []
            while not over.is_set():
                agent.say(messages[-4:], "more")

        monkeypatch.setattr(TraceStore, "append", slow)
        loading = threading.Thread(target=load)
        loading.start()
        try:
            assert len(at.session.end().turns) == 1
        finally:
            over.set()
            loading.join()
        busy.end()


def test_a_session_that_nobody_asks_is_abandoned_and_cannot_end_otherwise(proxied: Proxy_) -> None:
    with proxied(Scripted(numbered, pace_s=0.3), limits=Limits(idle_s=1.0)) as at:
        at.client.ask(HELLO)  # takes longer than the limit
        at.client.ask(OTHER)
        assert until(lambda: at.client.http.get("/health").json()["sessions"] == 0)
        with pytest.raises(ResetNeeded, match="abandoned"):
            at.session.end(success=True)
        episode = at.session.end("abandoned")
    assert (episode.status, len(used(episode))) == ("abandoned", 2)


def test_what_breaks_while_a_request_is_prepared_costs_that_request_alone(
    proxied: Proxy_, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxied(numbered) as at:
        with monkeypatch.context() as patch:
            patch.setattr(Contexts, "prepare", lambda *_: 1 / 0)
            assert at.client.http.post(CHAT_PATH, json={"model": "m", "messages": HELLO}).status_code == 500
        at.client.ask(HELLO)
        assert len(at.end().turns) == 1


def test_a_stream_that_the_session_ends_says_so(proxied: Proxy_) -> None:
    with proxied(Scripted(lambda *_: "one two three four five six seven eight", pace_s=0.1)) as at:
        body = {"model": "m", "stream": True, "messages": HELLO}
        with at.client.http.stream("POST", CHAT_PATH, json=body) as response:
            lines = response.iter_lines()
            next(lines)
            at.proxy._app.sessions  # noqa: B018
            ending = threading.Thread(target=at.session.end)
            ending.start()
            rest = [line for line in lines if line]
            ending.join()
    assert "the session ended before its answer" in rest[-1]
    (turn,) = at.session.session._waiting._turns or at.store.episode(at.session.id).turns
    assert turn.failure is not None
    assert (turn.failure.kind, turn.used) == ("SessionEnded", False)


def test_a_policy_that_gives_up_is_not_the_clients_fault(proxied: Proxy_) -> None:
    import asyncio

    def say(_: Request, __: int) -> str:
        raise asyncio.CancelledError

    with proxied(say) as at:
        assert at.client.http.post(CHAT_PATH, json={"model": "m", "messages": HELLO}).status_code == 502
        (turn,) = at.end().turns
    assert turn.failure is not None
    assert turn.failure.boundary == "policy"


def test_text_behind_a_stop_string_is_not_told_and_its_turn_is_marked(proxied: Proxy_) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    with proxied(lambda *_: CHAT.encode_turn("Thought\nObservation: fake " + call).tolist()) as at:
        said = at.client.ask(HELLO, stop=["Observation:"])["choices"][0]["message"]
        (turn,) = at.end().turns
    assert said["content"] == "Thought\n"
    assert not said.get("tool_calls")
    assert (turn.completion.ids_exact, "behind a stop string" in turn.completion.note) == (False, True)


def test_an_empty_id_of_a_response_names_nothing(proxied: Proxy_) -> None:
    with proxied(lambda *_: (_ for _ in ()).throw(TransientPolicyError("busy", where="engine"))) as at:
        assert at.client.http.post(RESPONSES_PATH, json={"model": "m", "input": "hello"}).status_code == 503
        body = {"model": "m", "input": "and?", "previous_response_id": ""}
        assert at.client.http.post(RESPONSES_PATH, json=body).status_code == 400


def test_a_key_of_a_refused_request_is_free_again(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        wrong = [{"role": "assistant", "content": "nothing to answer"}]
        headers = {"idempotency-key": "k"}
        assert (
            at.client.http.post(CHAT_PATH, json={"model": "m", "messages": wrong}, headers=headers).status_code == 400
        )
        at.client.ask(HELLO, headers=headers)
        assert len(at.end().turns) == 1


def test_results_of_calls_with_one_id_answer_them_in_order(proxied: Proxy_) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    call = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
    with proxied(lambda _, number: call + call.replace("sky", "sea") if not number else "blue") as at:
        messages: list[dict[str, Any]] = []
        first = at.client.say(messages, "look", tools=tools)
        own = [one["id"] for one in first["tool_calls"]]
        messages[-1] = {**messages[-1], "tool_calls": [{**one, "id": "same"} for one in first["tool_calls"]]}
        messages += [{"role": "tool", "tool_call_id": "same", "content": text} for text in ("blue", "green")]
        at.client.ask(messages, tools=tools)
        episode = at.end()
    assert [message.tool_call_id for message in episode.turns[1].messages] == own


def test_agents_and_requests_are_named_in_the_record(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        headers = {"x-agent-id": "searcher", "x-request-id": "r7"}
        at.client.ask(HELLO, headers=headers)
        (turn,) = at.end().turns
    assert (turn.facts["agent"], turn.facts["request_id"]) == ("searcher", "r7")


def test_an_answer_waits_so_long_as_sdks_may_ask_again(proxied: Proxy_, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxied(Scripted(numbered, pace_s=0.0)) as at:
        at.client.ask(HELLO)
        waiting = at.proxy._app.sessions.by_id(at.session.id)._waiting
        (turns,) = waiting._turns
        waiting.settle(alone=False)
        assert not turns.settled
        turns.ended -= RETRY_WINDOW_S + 1
        waiting.settle(alone=False)
        assert turns.settled
        at.end()


def test_a_proxy_that_never_ran_lets_go_of_its_port(proxied: Proxy_, tmp_path: Any) -> None:
    from agentgym_tok.proxy import Proxy

    with TraceStore(tmp_path / "other", chat=CHAT) as store:
        first = Proxy(Scripted(numbered), CHAT, store)
        port = int(first.url.rsplit(":", 1)[1])
        first.close()
        with Proxy(Scripted(numbered), CHAT, store, port=port) as second:
            assert httpx2.get(f"{second.url}/health").status_code == 200


def test_rows_of_a_forked_session_train_each_used_turn_once(proxied: Proxy_) -> None:
    with proxied(numbered) as at:
        at.client.ask(HELLO)
        at.client.ask(behind(HELLO, "answer 0", "left"))
        at.client.ask(behind(HELLO, "answer 0", "right"))
        body = {"model": "m", "max_tokens": 9, "messages": HELLO}
        assert at.client.http.post(MESSAGES_PATH, json=body).status_code == 200
        episode = at.end()
    assert sum(int(row.mask_T.sum()) for row in rows(episode)) == sum(len(t.completion.ids_T) for t in used(episode))
