"""An ATIF export is what an independent validator accepts, and comes back equal."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs import RecordTrace, TextAction
from agentgym_tok.envs.alfworld.env import ALFWorldEnv
from agentgym_tok.errors import FingerprintMismatch, TraceCorrupt, TraceError
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Edge, Episode, Failure, RunMeta, TraceStore, Turn, rows, sent_digest, verify
from agentgym_tok.trace.exchange.atif import export_atif, to_atif
from agentgym_tok.trace.exchange.atif_import import from_atif, import_atif
from agentgym_tok.types import Completion, Message

Document = dict[str, Any]
Validate = Callable[[Document], None]


@pytest.fixture(scope="session")
def validate() -> Validate:
    """Return what refuses a document: the models of a package that knows nothing of this library."""
    atif = pytest.importorskip("atif", reason="the independent validator is not installed: pip install atif==1.8.*")

    def check(document: Document) -> None:
        text = json.dumps(document, allow_nan=False)
        atif.Trajectory.model_validate_json(text, strict=True)
        # Rules of the format that this validator leaves out, and the schema's own validators have.
        assert document["steps"]
        for step in document["steps"]:
            calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            results = step.get("observation", {}).get("results", ())
            assert {result["source_call_id"] for result in results if "source_call_id" in result} <= calls
        for child in document.get("subagent_trajectories", ()):
            check(child)

    return check


def same(make: Any, one: Episode, other: Episode) -> bool:
    ends = ("head", "status", "success", "failure")
    return (
        all(getattr(one, name) == getattr(other, name) for name in ends)
        and len(one.turns) == len(other.turns)
        and all(map(make.same_turn, one.turns, other.turns))
        and len(one.children) == len(other.children)
        and all(same(make, *pair) for pair in zip(one.children, other.children, strict=True))
    )


def through_json(document: Document) -> Document:
    return json.loads(json.dumps(document, ensure_ascii=False, allow_nan=False).encode())


def written(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def planted(forest: list[tuple[Any, list[Turn]]], tree: Any) -> Episode:
    """Hang episodes under their parents, or under the first."""
    members = []
    for head, turns in forest:
        status = tree.pick("running", "done", "failed", "abandoned")
        failure = Failure("world", "Timeout", "no answer") if status == "failed" else None
        members.append(Episode(head, tuple(turns), status, tree.pick(True, False, None), failure))
    for place in range(len(members) - 1, 0, -1):
        child = members.pop(place)
        parent = next((k for k, member in enumerate(members) if member.id == child.head.parent), 0)
        child = replace(
            child, head=replace(child.head, parent=members[parent].id, parent_turn=tree.pick(None, 0, 1, 9))
        )
        members[parent] = replace(members[parent], children=(*members[parent].children, child))
    return members[0]


def dressed(tree: Any, turn: Turn) -> Turn:
    """Give a turn messages and texts."""
    roles = st.lists(st.sampled_from(["system", "user", "tool", "assistant"]), max_size=3)
    texts = st.sampled_from(["", "You see a desk.", "a \ud800 lone \udfff surrogate", "ünï <|im_end|>"])
    messages = tuple(Message(role, tree.data.draw(texts)) for role in tree.data.draw(roles))
    return replace(turn, messages=messages, text=tree.data.draw(texts), started=tree.pick(0.0, 1.5, 1e300))


def accept_and_return(make: Any, validate: Validate, data: st.DataObject) -> None:
    tree = make.tree(data)
    episode = planted([(head, [dressed(tree, turn) for turn in turns]) for head, turns in tree.forest()], tree)
    document = to_atif(episode, meta=tree.pick(None, make.meta), prompt_ids=tree.pick(True, False))
    validate(document)
    assert same(make, episode, from_atif(through_json(document)))


@settings(max_examples=60)
@given(data=st.data())
def test_random_episodes_are_accepted_and_come_back_equal(make: Any, validate: Validate, data: st.DataObject) -> None:
    accept_and_return(make, validate, data)


@pytest.mark.deep
@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_thousand_random_episodes_do(make: Any, validate: Validate, data: st.DataObject) -> None:
    accept_and_return(make, validate, data)


@given(bits=st.lists(st.integers(0x80000000, 0xFF7FFFFF), min_size=1, max_size=50))
def test_each_float32_comes_back_bit_for_bit(make: Any, bits: list[int]) -> None:
    logprobs = np.array(bits, np.uint32).view(np.float32)
    turn = make.turn("one", 0, make.prompt(1), [2] * len(bits), logprobs=logprobs)
    (back,) = from_atif(through_json(to_atif(make.episode([turn])))).turns
    assert back.completion.logprobs_T is not None
    assert back.completion.logprobs_T.tobytes() == logprobs.tobytes()


def test_turns_in_which_no_field_has_its_default_come_back_equal(make: Any, validate: Validate) -> None:
    turns = make.rich_turns("one")
    episode = make.episode(turns, status="failed", failure=Failure("policy", "Down", "\ud800"), success=False)
    document = to_atif(episode)
    validate(document)
    assert same(make, episode, from_atif(through_json(document)))
    gone = make.episode([replace(turns[0], redacted=frozenset({"ids", "texts"})), *turns[1:]])
    assert same(make, gone, from_atif(through_json(to_atif(gone))))


def plain_turns(make: Any) -> list[Turn]:
    return [replace(turn, messages=()) for turn in make.rich_turns("one")]


def test_only_used_attempts_are_steps_and_ids_stand_in_their_fields(make: Any) -> None:
    turns = plain_turns(make)
    document = to_atif(make.episode(turns))
    taken = [step for step in document["steps"] if "metrics" in step]
    assert [step["metrics"]["completion_token_ids"] for step in taken] == [[7, 8, 4999], [9, 2]]
    assert [step["metrics"]["logprobs"] for step in taken] == [[-0.5, -0.75, -1.0], [-0.5, -0.75]]
    assert [step["metrics"]["prompt_token_ids"] for step in taken] == [
        turn.context.ids.tolist() for turn in turns if turn.used
    ]
    assert document["final_metrics"]["total_prompt_tokens"] == 80 + 113
    assert [attempt["seq"] for attempt in document["extra"]["agentgym_tok"]["attempts"]] == [0]
    assert document["agent"]["tool_definitions"] == [{"name": "search", "parameters": {"q": "string"}}]
    short = to_atif(make.episode(turns), prompt_ids=False)
    assert not any("prompt_token_ids" in step.get("metrics", {}) for step in short["steps"])


def test_each_id_is_written_once_without_the_prompts(make: Any) -> None:
    turns = [make.turn("one", 0, make.prompt(*range(1000, 1100)), [1, 2, 3])]
    for index in range(1, 30):
        turns.append(make.turn("one", index, make.after(turns[-1], *range(2000, 2020)), [1, 2, 3]))
    text = json.dumps(to_atif(make.episode(turns), prompt_ids=False))
    assert text.count("1050") == 1
    assert text.count("2010") == 29
    assert text.count("[1, 2, 3]") == 30


# ---- what people read


def test_an_episode_of_alfworld_reads_as_it_was_played(validate: Validate, tmp_path: Path) -> None:
    chat = ChatFormat.builtin()
    meta = RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size, chat="builtin", config={"a": [1]})
    commands, seen = [], []
    with TraceStore(tmp_path / "run", meta=meta) as store:
        world = ALFWorldEnv(split="valid_seen", prompting="transcript")
        env = TextAction(RecordTrace(world, store))
        _, info = env.reset(seed=0)
        over = False
        while not over:
            commands.append(world.engine.expert_command())
            _, _, terminated, truncated, info = env.step(commands[-1])
            over = terminated or truncated
            seen.append(info["text"])
        (episode,) = store.episodes()
    export_atif(tmp_path / "run", tmp_path / "out", chat=chat)
    (file,) = written(tmp_path / "out")
    document = json.loads(file.read_text(encoding="utf-8"))
    validate(document)
    sources = [step["source"] for step in document["steps"]]
    assert sources == ["system", "user", *["agent"] * len(commands)]
    assert [step["message"] for step in document["steps"][2:]] == [
        chat.parse(turn.completion.ids_T).content for turn in episode.turns
    ]
    for step, command, text in zip(document["steps"][2:-1], commands, seen, strict=False):
        assert command in step["message"]
        assert step["observation"]["results"][0]["content"] == text
    assert document["final_metrics"]["extra"]["agentgym_tok"] == {"return": 1.0, "success": True}
    import_atif(tmp_path / "out", tmp_path / "back")
    with TraceStore(tmp_path / "back", mode="r") as back:
        assert back.meta == meta
    found = verify(tmp_path / "back", chat)
    assert found.ok, found.breaches
    assert found.replayed == len(commands)


SEARCH = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


def talk(chat: ChatFormat, name: str = "one", **fields: Any) -> Iterator[Turn]:
    """Think, call a tool twice, hear its answers, and say something."""
    calls = (
        '<think>I look it up.</think>Wait.<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>'
        '<tool_call>{"name": "search", "arguments": {"q": NaN}}</tool_call>'
    )
    said = (Message("system", "Be brief.", trusted=True), Message("user", "Who?"))
    context, edge = chat.open(said, [SEARCH]), Edge("fresh_prompt", None, 0)
    for index, text in enumerate((calls, "Ann.")):
        completion = Completion(chat.encode_turn(text), origin="demonstration", engine="expert")
        digest = sent_digest(context.root, context.ids)
        yield Turn(name, index, context, digest, completion, edge, said, chat.decode(completion.ids_T), **fields)
        said = (Message("tool", "It was Ann."), Message("tool", "Nobody."), Message("user", "Well?"))
        bridged = chat.bridge(context.extend(Span(completion.ids_T, "demonstration")), said)
        assert isinstance(bridged, Context)
        context, edge = bridged, Edge("continuation", index, index + 1)


def test_calls_and_reasoning_are_told_apart_and_answers_linked(
    make: Any, builtin: ChatFormat, validate: Validate
) -> None:
    child = make.episode(list(talk(builtin, "sub")), head=make.head("sub", parent="one", parent_turn=0))
    episode = make.episode(list(talk(builtin)), children=(child,))
    document = to_atif(episode, chat=builtin)
    validate(document)
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent"]
    step = document["steps"][2]
    assert (step["reasoning_content"], step["message"]) == ("I look it up.", "Wait.")
    first, second = step["tool_calls"]
    assert (first["function_name"], first["arguments"]) == ("search", {"q": "x"})
    assert second["arguments"] == {}
    assert "NaN" in second["extra"]["agentgym_tok"]["raw"]
    assert [result.get("source_call_id") for result in step["observation"]["results"]] == [
        first["tool_call_id"],
        second["tool_call_id"],
        None,
        None,
    ]
    assert step["observation"]["results"][2]["content"] == "Well?"
    assert step["observation"]["results"][3] == {"subagent_trajectory_ref": [{"trajectory_id": "sub"}]}
    assert document["subagent_trajectories"][0]["trajectory_id"] == "sub"
    assert same(make, episode, from_atif(through_json(document)))
    with pytest.raises(FingerprintMismatch):
        to_atif(make.episode(make.rich_turns("one")), chat=builtin)


def test_what_a_new_prompt_repeats_is_marked_as_copied(make: Any) -> None:
    system, question = Message("system", "Be brief."), Message("user", "Who?")
    past = Message("assistant", "I look.", reasoning="r")
    turns = [
        make.turn("one", 0, make.prompt(1), [2], messages=(system, question), text="I look."),
        make.turn(
            "one",
            1,
            make.prompt(1, 3),
            [2],
            messages=(system, question, past, Message("user", "Go on.")),
            edge=Edge("compaction", 0, 1),
        ),
    ]
    steps = to_atif(make.episode(turns))["steps"]
    assert [(step["source"], step.get("is_copied_context", False)) for step in steps] == [
        ("system", False),
        ("user", False),
        ("agent", False),
        ("system", True),
        ("user", True),
        ("agent", True),
        ("user", False),
        ("agent", False),
    ]
    assert steps[5]["reasoning_content"] == "r"


def test_a_turn_that_goes_on_from_an_older_one_is_nothing_that_the_last_one_observed(make: Any) -> None:
    turns = [make.turn("one", 0, make.prompt(1), [2], text="Go.")]
    for index in (1, 2, 3):
        said = (Message("user", "Nothing happens."),)
        edge = Edge("continuation", 0, index)
        turns.append(make.turn("one", index, make.after(turns[0], index), [2], messages=said, text="Go.", edge=edge))
    steps = to_atif(make.episode(turns))["steps"]
    assert [step["source"] for step in steps] == ["agent", "agent", "user", "agent", "user", "agent"]
    assert ["observation" in step for step in steps] == [True, False, False, False, False, False]
    assert not any("is_copied_context" in step for step in steps)  # a world may say the same twice


def test_a_resampled_turn_is_read_with_what_its_first_attempt_was_asked(make: Any) -> None:
    first = make.turn("one", 0, make.prompt(1), [2], messages=(Message("user", "Who?"),), used=False)
    again = make.turn("one", 0, first.context, [3], edge=Edge("retry", 0, 0), attempt=1)
    steps = to_atif(make.episode([first, again]))["steps"]
    assert [(step["source"], step["message"]) for step in steps] == [("user", "Who?"), ("agent", "")]


@pytest.mark.parametrize("turns", [0, 1])
def test_an_episode_without_a_used_turn_is_valid_too(make: Any, validate: Validate, turns: int) -> None:
    attempts = [make.turn("one", 0, make.prompt(1), [], used=False, failure=Failure("policy", "Down"))][:turns]
    episode = Episode(make.head("one"), tuple(attempts))
    document = to_atif(episode)
    validate(document)
    assert len(document["steps"]) == 1
    assert same(make, episode, from_atif(through_json(document)))


# ---- the validator


@pytest.mark.parametrize(
    "spoil",
    [
        lambda steps: steps[1].update(step_id=7),
        lambda steps: steps[0].update(metrics={"prompt_tokens": 1}),
        lambda steps: steps[0].update(timestamp="yesterday"),
        lambda steps: steps[0].update(surprise=1),
        lambda steps: steps[2]["metrics"].update(completion_token_ids=["7"]),
        lambda steps: steps[2]["observation"]["results"][0].update(source_call_id="nobody"),
    ],
    ids=["numbering", "agent only", "time", "unknown field", "ids", "link"],
)
def test_the_validator_refuses_what_is_no_atif(
    make: Any, builtin: ChatFormat, validate: Validate, spoil: Callable[[Any], None]
) -> None:
    document = to_atif(make.episode(list(talk(builtin))), chat=builtin)
    validate(document)
    spoil(document["steps"])
    with pytest.raises(ValueError, match=r"validation error for Trajectory"):
        validate(document)


# ---- folders


def rich_run(make: Any, folder: Path) -> Path:
    with TraceStore(folder, meta=make.meta) as store:
        store.add_image(b"\x89PNG what stands for an image", "image/png")  # what rich turns show
        for name, parent in (("one", None), ("two", "one"), ("three", None)):
            store.begin(make.head(name, source="synth", group_id="g", seed=5, parent=parent, parent_turn=parent and 0))
            for turn in make.rich_turns(name):
                store.append(turn)
        store.finish("one", "done", success=True)
        store.finish("two", "failed", success=False, failure=Failure("policy", "Down", "no answer"))
    return folder


def test_a_run_comes_back_equal(make: Any, validate: Validate, tmp_path: Path) -> None:
    run = rich_run(make, tmp_path / "run")
    assert export_atif(run, tmp_path / "out") == 2
    files = written(tmp_path / "out")
    assert [file.name for file in files] == ["000001-one.json", "000002-three.json"]
    for file in files:
        validate(json.loads(file.read_text(encoding="utf-8")))
    assert import_atif(tmp_path / "out", tmp_path / "back") == 2
    with TraceStore(run, mode="r") as there, TraceStore(tmp_path / "back", mode="r") as back:
        assert back.meta == there.meta
        for one, other in zip(there.episodes(), back.episodes(), strict=True):
            assert same(make, one, other)
        for name in {name for turn in make.rich_turns("x") for message in turn.messages for name in message.images}:
            assert back.image(name) == there.image(name)
    with pytest.raises(TraceError, match="stands there already"):
        export_atif(run, tmp_path / "out")


def test_a_redacted_turn_is_exported_and_not_sealed_again(make: Any, validate: Validate, tmp_path: Path) -> None:
    export_atif(make.run(tmp_path / "run"), tmp_path / "out")
    for file in written(tmp_path / "out"):
        validate(json.loads(file.read_text(encoding="utf-8")))
    with pytest.raises(TraceError, match="cannot be sealed again"):
        import_atif(tmp_path / "out", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_images_are_shown_and_an_exchanged_one_is_refused(make: Any, tmp_path: Path) -> None:
    export_atif(rich_run(make, tmp_path / "run"), tmp_path / "out")
    document = json.loads(written(tmp_path / "out")[0].read_text(encoding="utf-8"))
    (part,) = [
        part
        for step in document["steps"]
        if isinstance(step["message"], list)
        for part in step["message"]
        if part["type"] == "image"
    ]
    image = tmp_path / "out" / part["source"]["path"]
    assert image.is_file()
    image.write_bytes(b"another")
    with pytest.raises(TraceCorrupt, match="another one"):
        import_atif(tmp_path / "out", tmp_path / "back")
    image.unlink()
    with pytest.raises(TraceError, match="image cannot be read"):
        import_atif(tmp_path / "out", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_names_of_episodes_never_lead_elsewhere(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path / "run", meta=make.meta) as store:
        for name in ("../../x", "a/b", "a:b", "ü" * 300):
            store.begin(make.head(name))
    assert export_atif(tmp_path / "run", tmp_path / "out") == len(written(tmp_path / "out")) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    import_atif(tmp_path / "out", tmp_path / "back")
    with TraceStore(tmp_path / "back", mode="r") as store:
        assert [head.id for head, _ in store.heads()] == ["../../x", "a/b", "a:b", "ü" * 300]


# ---- documents that are damaged


def damaged(make: Any, path: str, value: Any) -> Document:
    document = to_atif(make.episode(plain_turns(make)))
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = document
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "place", "what"),
    [
        ("steps/0/metrics/completion_token_ids/0", 6000, "step 1", "outside the vocabulary"),
        ("steps/0/metrics/completion_token_ids/0", 7.5, "step 1", "whole numbers"),
        ("steps/0/metrics/completion_token_ids", ..., "step 1", "completion_token_ids"),
        ("steps/0/metrics/logprobs", [0.5], "step 1", "one log-probability"),
        ("steps/0/metrics/prompt_token_ids/5", 1, "step 1", "prompt_token_ids are not"),
        ("steps/0/metrics", ..., "step 1", ""),
        ("steps/0/step_id", 9, "step 1", "numbered 9"),
        ("steps/0/extra/agentgym_tok/context", -1, "step 1", "names none"),
        ("steps/0/extra/agentgym_tok/reward", "1", "step 1: turns.reward", "fits no cell"),
        ("steps/0/extra/agentgym_tok/used", None, "step 1: turns.used", "fits no cell"),
        ("steps/0/extra/agentgym_tok/finish_reason", "bored", "step 1", "bored"),
        ("steps/0/extra/agentgym_tok/edge", "guess", "step 1", "unknown edge"),
        ("steps/0/extra/agentgym_tok/sent", "xyz", "step 1", ""),
        ("steps/0/extra/agentgym_tok/evidence/experts", [1], "step 1", ""),
        ("steps/0/extra/agentgym_tok/seq", 0, "attempts[0]", "has its place"),
        ("steps/0/extra", ..., "step 1", "should be a turn"),
        ("steps/1/extra", ..., "ATIF document", "attempts are missing"),
        ("extra/agentgym_tok/nodes/1/parent", 7, "step 1", "names none"),
        ("extra/agentgym_tok/nodes/1", None, "nodes[1]", ""),
        ("extra/agentgym_tok/attempts/0/ids", ..., "attempts[0]", "expected: ids"),
        ("extra/agentgym_tok/episode/name", None, "episodes.name", "fits no cell"),
        ("extra/agentgym_tok/episode/status", "asleep", "ATIF document", "asleep"),
        ("extra/agentgym_tok/version", 2, "ATIF document", "unknown version"),
        ("extra/agentgym_tok", [], "ATIF document", "is no JSON object"),
        ("extra/agentgym_tok", "{", "ATIF document", "cannot be read"),
        ("steps", ..., "ATIF document", "expected: steps"),
        ("steps", None, "ATIF document", "cannot be read"),
    ],
)
def test_a_damaged_document_is_refused_and_the_place_named(
    make: Any, path: str, value: Any, place: str, what: str
) -> None:
    with pytest.raises(TraceError) as caught:
        from_atif(damaged(make, path, value))
    assert place in str(caught.value.where)
    assert what in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"steps": [NaN]}', "[" * 100_000, b"\xff"])
def test_a_file_that_is_no_document_is_refused(make: Any, tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceCorrupt, match=r"x\.json"):
        import_atif(file, tmp_path / "run", meta=make.meta)


def test_without_a_file_nothing_is_imported(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no ATIF file"):
        import_atif(tmp_path, tmp_path / "run")
    with pytest.raises(TraceError, match="cannot be read"):
        import_atif(tmp_path / "x.json", tmp_path / "run")


# ---- documents of other tools


def foreign() -> Document:
    """Return what an agent of another tool writes: two steps that go on, one after a summary, and a subagent."""

    def step(number: int, prompt: list[int], answer: list[int], seen: str, **more: Any) -> Document:
        return {
            "step_id": number,
            "timestamp": f"2026-01-02T03:04:0{number}Z",
            "source": "agent",
            "message": f"said {number}",
            "observation": {"results": [{"content": seen}]},
            "metrics": {
                "prompt_token_ids": prompt,
                "completion_token_ids": answer,
                "logprobs": [-0.5] * len(answer),
            },
            **more,
        }

    child = {
        "schema_version": "ATIF-v1.7",
        "trajectory_id": "helper",
        "agent": {"name": "stub", "version": "1"},
        "steps": [step(1, [5], [6], "x")],
    }
    delegation = {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "helper"}]}]}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "s1",
        "agent": {"name": "terminal", "version": "2.0", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Fix it."}]},
            step(2, [1, 2], [3, 4], "$ ls"),
            step(3, [1, 2, 3, 4, 8], [9], "$ pwd", model_name="n"),
            {"step_id": 4, "source": "agent", "message": "ls", "llm_call_count": 0, "observation": delegation},
            {"step_id": 5, "source": "agent", "message": "said 2", "is_copied_context": True},
            step(6, [1, 7], [9, 9], "$", llm_call_count=3),
        ],
        "subagent_trajectories": [child],
    }


def test_a_foreign_document_with_all_ids_becomes_turns(make: Any, validate: Validate, tmp_path: Path) -> None:
    validate(foreign())
    episode = from_atif(foreign(), meta=make.meta)
    assert (episode.id, episode.head.source, episode.status) == ("s1", "terminal", "done")
    assert [turn.edge.kind for turn in episode.turns] == ["fresh_prompt", "continuation", "unknown"]
    assert not any(turn.edge.declared for turn in episode.turns)
    assert [turn.context.ids.tolist() for turn in episode.turns] == [[1, 2], [1, 2, 3, 4, 8], [1, 7]]
    assert [span.origin for span in episode.turns[1].context.spans] == ["prompt", "sampled", "observation"]
    assert [turn.completion.engine for turn in episode.turns] == ["m", "n", "m"]
    assert [turn.completion.ids_exact for turn in episode.turns] == [True, True, False]
    assert [turn.completion.note for turn in episode.turns] == ["", "", "summed up of 3 calls"]
    assert [turn.facts["anchor"] for turn in episode.turns] == ["Fix it.", "$ ls", "$ pwd"]
    assert episode.turns[0].started == 1767323042.0
    (child,) = episode.children
    assert (child.id, child.head.parent, child.head.parent_turn) == ("s1/helper", "s1", 1)
    assert not rows(episode)  # nobody says how the tokens were drawn
    assert sum(len(row.ids_T[row.mask_T]) for row in rows(episode, objective="sft")) == 4
    file = tmp_path / "foreign.json"
    file.write_text(json.dumps(foreign()))
    assert import_atif(file, tmp_path / "run", meta=make.meta) == 1
    found = verify(tmp_path / "run")
    assert found.ok, found.breaches
    export_atif(tmp_path / "run", tmp_path / "out")
    (document,) = written(tmp_path / "out")
    validate(json.loads(document.read_text()))
    with pytest.raises(TraceError, match="which tokenizer"):
        import_atif(file, tmp_path / "other")


def test_a_foreign_document_without_an_id_is_named_by_its_file(make: Any) -> None:
    document = foreign()
    del document["session_id"]
    assert from_atif(document, meta=make.meta, name="job-1").id == "job-1"


@pytest.mark.parametrize("field", ["prompt_token_ids", "completion_token_ids", "metrics"])
@pytest.mark.parametrize("value", [None, [], ...])
def test_text_alone_is_no_token_trace(make: Any, field: str, value: Any) -> None:
    document = foreign()
    step = document["steps"][2]
    place = step if field == "metrics" else step["metrics"]
    if value is ...:
        del place[field]
    else:
        place[field] = value if field != "metrics" else {}
    with pytest.raises(TraceError, match=r"text alone is no token trace.*step 3"):
        from_atif(document, meta=make.meta)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda it: it["steps"][2]["metrics"].update(logprobs=[]), "step 3"),
        (lambda it: it["steps"][2]["metrics"].update(logprobs=[1.0]), "step 3"),
        (lambda it: it["steps"][2]["metrics"].update(completion_token_ids=[5000]), "step 3"),
        (lambda it: it["steps"][2]["metrics"].update(completion_token_ids=["9"]), "step 3: metrics.completion_token"),
        (lambda it: it["steps"][2].update(timestamp="now"), "step 3"),
        (lambda it: it["steps"][2].update(source="tool"), "step 3: source"),
        (lambda it: it["steps"][2].update(step_id=4), "step 3"),
        (lambda it: it["steps"].clear(), "steps"),
        (lambda it: it.update(steps=it["steps"][:1]), "no model took a step"),
        (lambda it: it.update(schema_version="ATIF-v2.0"), "schema_version"),
        (lambda it: it.update(agent=None), "agent"),
        (lambda it: it["subagent_trajectories"][0]["steps"].clear(), "subagent 0: steps"),
    ],
)
def test_a_foreign_document_that_contradicts_itself_is_refused(
    make: Any, spoil: Callable[[Document], Any], words: str
) -> None:
    document = copy.deepcopy(foreign())
    spoil(document)
    with pytest.raises(TraceError, match=words):
        from_atif(document, meta=make.meta)
