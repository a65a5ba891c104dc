"""A run reads back as it was written."""

import json
import multiprocessing
import os
import pickle
import sqlite3
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import (
    ConfigError,
    FingerprintMismatch,
    InvalidIds,
    TraceError,
    UnknownName,
)
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import Edge, Episode, Failure, RunMeta, TraceStore, Turn, verify
from agentgym_tok.types import Completion, Message, Sampling


def count(run: Path, query: str, shard: str = "main") -> int:
    connection = sqlite3.connect(run / "shards" / f"{shard}.sqlite")
    try:
        return int(connection.execute(query).fetchone()[0])
    finally:
        connection.close()


def flat(episodes: list[Episode]) -> dict[str, Episode]:
    found = {}
    for episode in episodes:
        found[episode.id] = episode
        found.update(flat(list(episode.children)))
    return found


# ---- reading back


def test_what_is_written_together_is_stored_whole_or_not_at_all(make: Any, tmp_path: Path) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3])
    second = make.turn("e", 1, make.after(first, 4), [5])
    with TraceStore(tmp_path, meta=make.meta, token_text=str) as store:
        with store.together():
            store.begin(make.head("e"))
            store.append(first)
        assert count(tmp_path, "SELECT count(*) FROM turns") == 1

        def broken_off() -> None:
            with store.together():
                store.append(second)
                store.begin(make.head("f"))
                store.finish("e")
                raise RuntimeError("power")

        with pytest.raises(RuntimeError, match="power"):
            broken_off()
        assert count(tmp_path, "SELECT count(*) FROM turns") == 1
        with pytest.raises(UnknownName):
            store.episode("f")
        # What the writer remembered of it is forgotten too.
        store.append(second)
        store.begin(make.head("f"))
        store.append(make.turn("f", 0, make.prompt(1, 2), [3]))
        store.finish("e")
    found = verify(tmp_path)
    assert not found.breaches
    with TraceStore(tmp_path, mode="r") as store:
        assert [len(episode.turns) for episode in store.episodes()] == [2, 1]
        assert sorted(store.tokens()) == [1, 2, 3, 4, 5]


def test_stop_strings_and_a_note_come_back_and_without_them_nothing_is_written(make: Any, tmp_path: Path) -> None:
    said = {"sampling": Sampling(stop=("</a>", "ü\n")), "note": "guessed \ud800"}
    turns = [
        make.turn("e", 0, make.prompt(1, 2), [3], completion=said),
        make.turn("e", 1, make.prompt(1, 2, 3), [4], completion={"sampling": Sampling()}),
    ]
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        for turn in turns:
            store.append(turn)
        store.append(turns[-1])
    with TraceStore(tmp_path, mode="r") as store:
        (episode,) = store.episodes()
    read = [turn.completion for turn in episode.turns]
    assert [(one.sampling, one.note) for one in read] == [(said["sampling"], said["note"]), (Sampling(), "")]
    shard = sqlite3.connect(tmp_path / "shards" / "main.sqlite")
    bodies = [body for (body,) in shard.execute("SELECT body FROM texts UNION ALL SELECT body FROM settings")]
    shard.close()
    assert sum('"note"' in body for body in bodies) == sum('"stop"' in body for body in bodies) == 1


def test_every_field_comes_back(make: Any, tmp_path: Path) -> None:
    make.run(tmp_path / "run")
    with TraceStore(tmp_path / "run", mode="r") as store:
        assert store.meta == make.meta
        assert len(store) == 3
        one, three, four = store.episodes()
        (two,) = one.children
        assert (one.id, two.id, three.id) == ("one", "two", "three")
        assert two.head == make.head("two", source="synth", group_id="g", seed=5, parent="one", parent_turn=0)
        assert (one.status, one.success, one.failure) == ("done", True, None)
        assert (two.status, two.success, two.failure) == ("failed", False, Failure("policy", "Down", "no answer"))
        assert (three.status, three.success) == ("running", None)
        for episode in (one, two, three):
            assert all(map(make.same_turn, episode.turns, make.rich_turns(episode.id)))
            assert len(episode.turns) == 3
        assert [(head.id, status) for head, status in store.heads()] == [
            ("one", "done"),
            ("two", "failed"),
            ("three", "running"),
            ("four", "running"),
        ]
        assert (four.turns[0].redacted, four.turns[0].facts) == ({"ids", "texts"}, {"anchor": "\u2588" * 8})
        assert four.turns[0].completion.ids_T.tolist() == [7, ChatFormat.builtin().encode("_")[0]]
        assert store.image(one.turns[0].messages[2].images[0]) == (make.image[1], make.image[0])
        with pytest.raises(UnknownName, match="image"):
            store.image("0" * 64)
        assert make.same_turn(store.episode("two").turns[2], make.rich_turns("two")[2])
        assert store.tokens()[4999] == "<4999>"
        with pytest.raises(UnknownName, match="did you mean two"):
            store.episode("twoo")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_trees_come_back_and_keep_the_laws(make: Any, data: st.DataObject) -> None:
    tree = make.tree(data)
    forest = tree.forest()
    with tempfile.TemporaryDirectory() as folder:
        store = TraceStore(folder, meta=make.meta)
        try:
            for head, turns in forest:
                store.begin(head)
                for turn in turns:
                    if tree.chance(10):  # a harness that was stopped and goes on
                        store.close()
                        store = TraceStore(folder)
                    store.append(turn)
                    if tree.chance(10):  # a harness that does not know whether it arrived
                        store.append(turn)
                if tree.chance(70):
                    store.finish(head.id, "done", success=tree.pick(True, False, None))
            living = flat(list(store.episodes()))
        finally:
            store.close()
        with TraceStore(folder, mode="r") as store:
            resting = flat(list(store.episodes()))
        assert set(living) == set(resting) == {head.id for head, _ in forest}
        for episodes in (living, resting):
            for head, turns in forest:
                assert episodes[head.id].head == head
                assert len(episodes[head.id].turns) == len(turns)
                assert all(map(make.same_turn, episodes[head.id].turns, turns))
        proof = verify(folder)
        assert proof.ok, proof.breaches
        assert proof.turns == sum(len(turns) for _, turns in forest)


def test_turns_of_a_walk_share_their_past_in_memory_when_read(make: Any, tmp_path: Path) -> None:
    make.run(tmp_path)
    with TraceStore(tmp_path, mode="r") as store:
        turns = store.episode("one").turns
    assert turns[0].context is turns[1].context
    assert turns[0].context in list(turns[2].context.lineage())


# ---- each span once


@pytest.mark.parametrize("travel", ["stay", "pickle", "reopen"])
def test_a_span_is_stored_once_however_its_context_travels(make: Any, tmp_path: Path, travel: str) -> None:
    context = make.prompt(*range(50))
    store = TraceStore(tmp_path, meta=make.meta)
    for replica in range(3):
        store.begin(make.head(f"e{replica}"))
        walk = context
        for index in range(4):
            turn = make.turn(f"e{replica}", index, walk, [index, 1])
            store.append(turn)
            walk = make.after(turn, 9)
            if travel == "pickle":
                walk = pickle.loads(pickle.dumps(walk))
            if travel == "reopen":
                store.close()
                store = TraceStore(tmp_path)
    store.close()
    # One prompt, and for each of the four turns an answer, with an observation behind all but the last.
    assert count(tmp_path, "SELECT count(*) FROM nodes") == 1 + 4 + 3
    assert verify(tmp_path).ok


def test_spans_that_differ_in_anything_but_ids_are_kept_apart(make: Any, tmp_path: Path) -> None:
    ids_T = np.array([1, 2], np.int32)
    contexts = [Context(make.root, Span(ids_T, "prompt")), Context(make.root, Span(ids_T, "observation"))]
    contexts += [Context(make.root, Span(ids_T, "prompt", replaced=1))]
    contexts += [Context(Root(make.root.fingerprint, make.root.vocab_size, ({"name": "t"},)), Span(ids_T, "prompt"))]
    with TraceStore(tmp_path, meta=make.meta) as store:
        for place, context in enumerate(contexts):
            store.begin(make.head(f"e{place}"))
            store.append(make.turn(f"e{place}", 0, context, []))
        back = [episode.turns[0].context for episode in store.episodes()]
    assert [context.span.origin for context in back] == ["prompt", "observation", "prompt", "prompt"]
    assert [context.span.replaced for context in back] == [0, 0, 1, 0]
    assert [context.root.tools for context in back] == [(), (), (), ({"name": "t"},)]


def test_an_append_costs_the_new_spans_only(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        walk = make.prompt(*range(4000))
        for index in range(30):
            turn = make.turn("e", index, walk, [1, 2, 3])
            store.append(turn)
            walk = make.after(turn, 5)
    assert count(tmp_path, "SELECT sum(length) FROM nodes") == 4000 + 30 * 3 + 29


def test_a_long_conversation_is_a_small_part_of_its_json(make: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def text_like(length: int) -> list[int]:
        return np.minimum(rng.zipf(1.2, size=length), 4999).tolist()

    written = ids = sampled = 0
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        walk = make.prompt(*text_like(1000))
        for index in range(128):
            answer, logprobs = text_like(80), (-rng.exponential(0.4, 80)).tolist()
            turn = make.turn("e", index, walk, answer, logprobs=logprobs)
            store.append(turn)
            written += len(json.dumps([walk.ids.tolist(), answer, turn.completion.logprobs_T.tolist()]))
            ids, sampled = len(walk) + 80, sampled + 80
            walk = make.after(turn, *text_like(455))
    assert ids > 69_000
    packed_ids = count(tmp_path, "SELECT sum(length(ids)) FROM nodes")
    packed_logprobs = count(tmp_path, "SELECT sum(length(logprobs)) FROM nodes")
    assert packed_ids <= 2 * ids
    assert packed_logprobs <= 4 * sampled
    assert (tmp_path / "shards" / "main.sqlite").stat().st_size <= written / 20


# ---- order, retries, ends


def test_the_same_turn_again_changes_nothing_and_another_one_is_refused(make: Any, tmp_path: Path) -> None:
    turns = make.rich_turns("e")
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.add_image(*make.image)
        store.begin(make.head("e"))
        for turn in turns:
            store.append(turn)
            store.append(turn)
        for turn in turns:
            store.append(pickle.loads(pickle.dumps(turn)))
            with pytest.raises(TraceError, match="stored with other content"):
                store.append(replace(turn, reward=turn.reward + 1))
            with pytest.raises(TraceError, match="stored with other content"):
                store.append(replace(turn, action_text="other"))
        store.finish("e", success=True)
        store.append(turns[2])
    assert count(tmp_path, "SELECT count(*) FROM turns") == 3


def test_no_turn_can_be_left_out(make: Any, tmp_path: Path) -> None:
    context = make.prompt(1)
    with TraceStore(tmp_path, meta=make.meta) as store:
        with pytest.raises(TraceError, match=r"never begun.*begin\(EpisodeHead"):
            store.append(make.turn("e", 0, context, [1]))
        store.begin(make.head("e"))
        with pytest.raises(TraceError, match="expected: turn 0, attempt 0"):
            store.append(make.turn("e", 1, context, [1]))
        with pytest.raises(TraceError, match="expected: turn 0, attempt 0"):
            store.append(make.turn("e", 0, context, [1], attempt=1))
        store.append(make.turn("e", 0, context, [1], used=False))
        with pytest.raises(TraceError, match="expected: turn 0, attempt 1 or turn 1, attempt 0"):
            store.append(make.turn("e", 2, context, [1]))
        store.append(make.turn("e", 0, context, [2], attempt=1, edge=Edge("retry", 0, 0)))
        with pytest.raises(TraceError, match="another attempt of this turn is marked used"):
            store.append(make.turn("e", 0, context, [3], attempt=2, edge=Edge("retry", 0, 0)))
    with TraceStore(tmp_path) as store, pytest.raises(TraceError, match="another attempt of this turn is marked used"):
        store.append(make.turn("e", 0, context, [3], attempt=2, edge=Edge("retry", 0, 0)))
    assert verify(tmp_path).ok


def test_heads_and_ends_may_be_repeated_but_not_changed(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        store.begin(make.head("e"))
        with pytest.raises(TraceError, match="another head"):
            store.begin(make.head("e", seed=1))
        with pytest.raises(TraceError, match="failed with its failure"):
            store.finish("e", "failed")
        with pytest.raises(TraceError, match="done or abandoned"):
            store.finish("e", "running")
        store.finish("e", "done", success=True)
        store.finish("e", "done", success=True)
        with pytest.raises(TraceError, match="has ended otherwise"):
            store.finish("e", "abandoned")
        with pytest.raises(TraceError, match="a done episode"):
            store.begin(make.head("e"))
        with pytest.raises(TraceError, match="the episode has ended"):
            store.append(make.turn("e", 0, make.prompt(1), [1]))
        with pytest.raises(TraceError, match="never begun"):
            store.finish("f")


# ---- what fits no cell


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"facts": {"x": object()}}, "not JSON"),
        ({"facts": {"x": float("nan")}}, "not JSON"),
        ({"seed": 2**63}, "a value fits no cell"),
        ({"truncation": "\ud800"}, "a value fits no cell"),
        ({"truncation": ["steps"]}, "a value fits no cell"),
    ],
)
def test_what_cannot_be_written_is_refused_and_loses_nothing(
    make: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    turns = make.rich_turns("e")
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.add_image(*make.image)
        store.begin(make.head("e"))
        store.append(turns[0])
        with pytest.raises(TraceError, match=message):
            store.append(replace(turns[1], **change))
        store.append(turns[1])
    assert verify(tmp_path).ok


def test_an_answer_outside_the_vocabulary_is_refused(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        with pytest.raises(InvalidIds, match="sampled span"):
            store.append(make.turn("e", 0, make.prompt(1), [5000]))
    assert count(tmp_path, "SELECT count(*) FROM nodes") == 0


# ---- tokenizers


def test_another_chat_format_is_refused_by_stores_turns_and_shards(make: Any, tmp_path: Path) -> None:
    other = RunMeta(fingerprint="0" * 64, vocab_size=5000)
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        foreign = Context(Root("0" * 64, 5000), Span(np.array([1], np.int32), "prompt"))
        with pytest.raises(FingerprintMismatch, match="turn 0"):
            store.append(make.turn("e", 0, foreign, [1]))
    for arguments in ({}, {"shard": "w1"}, {"mode": "r"}):
        with pytest.raises(FingerprintMismatch, match="another chat format"):
            TraceStore(tmp_path, meta=other, **arguments)
    with pytest.raises(FingerprintMismatch):
        TraceStore(tmp_path, meta=make.meta.model_copy(update={"vocab_size": 4999}))


def test_reading_needs_no_tokenizer(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        store.append(make.turn("e", 0, make.prompt(1, 2), [3]))
        store.note_tokens({1: "one", 2: "two", 3: "three"})
        store.note_tokens({1: "uno"})
        with pytest.raises(InvalidIds, match="note_tokens"):
            store.note_tokens({5000: "outside"})
    with TraceStore(tmp_path, mode="r") as store:
        texts = store.tokens()
        (turn,) = store.episode("e").turns
    assert [texts[index] for index in [*turn.context.ids.tolist(), *turn.completion.ids_T.tolist()]] == [
        "one",
        "two",
        "three",
    ]


def test_a_token_text_is_asked_for_once(make: Any, tmp_path: Path) -> None:
    asked: list[int] = []

    def text(index: int) -> str:
        asked.append(index)
        return f"<{index}>"

    for _ in range(2):
        with TraceStore(tmp_path, meta=make.meta, token_text=text) as store:
            store.add_image(*make.image)
            if not len(store):
                store.begin(make.head("e"))
            for turn in make.rich_turns("e"):
                store.append(turn)
    assert sorted(asked) == sorted(set(asked))
    with TraceStore(tmp_path, mode="r") as store:
        assert set(store.tokens()) == set(asked)


# ---- shards, threads, processes


def test_workers_write_shards_of_their_own_and_readers_see_all(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as main, TraceStore(tmp_path, shard="w1") as worker:
        assert worker.meta == make.meta
        main.begin(make.head("root"))
        worker.begin(make.head("child", parent="root"))
        worker.begin(make.head("other"))
        worker.append(make.turn("other", 0, make.prompt(1), [2]))
        assert [episode.id for episode in main.episodes()] == ["root", "other"]
        assert [child.id for child in main.episode("root").children] == ["child"]
    with TraceStore(tmp_path, mode="r", shard="w1") as store:
        assert [episode.id for episode in store.episodes()] == ["other"]
    assert verify(tmp_path).shards == 2


def test_threads_share_a_store(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as store:

        def play(name: str) -> None:
            store.begin(make.head(name))
            walk = make.prompt(1, 2, 3)
            for index in range(10):
                turn = make.turn(name, index, walk, [index])
                store.append(turn)
                walk = make.after(turn, 4)
            store.finish(name)

        threads = [threading.Thread(target=play, args=(f"e{place}",)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    proof = verify(tmp_path)
    assert proof.ok
    assert (proof.episodes, proof.turns) == (8, 80)


def _use_in_child(store: TraceStore, turn: Any, answer: Any) -> None:
    for use in (lambda: store.append(turn), lambda: len(store)):
        try:
            use()
        except TraceError as error:
            answer.put(str(error))
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_store_does_not_survive_a_fork(make: Any, tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    answer = fork.SimpleQueue()
    with TraceStore(tmp_path, meta=make.meta) as store:
        store.begin(make.head("e"))
        child = fork.Process(target=_use_in_child, args=(store, make.turn("e", 0, make.prompt(1), [1]), answer))
        child.start()
        child.join()
        for _ in range(2):
            assert f"process {os.getpid()}, which opened it" in answer.get()
        store.append(make.turn("e", 0, make.prompt(1), [1]))
    assert verify(tmp_path).ok


# ---- opening


def test_a_new_run_must_say_what_it_is_made_with(make: Any, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="pass chat="):
        TraceStore(tmp_path / "new")
    with TraceStore(tmp_path / "new", meta=make.meta):
        pass


def test_wrong_arguments_are_refused(make: Any, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace"):
        TraceStore(tmp_path / "nothing", mode="r")
    with pytest.raises(ConfigError, match="name of a shard"):
        TraceStore(tmp_path, shard="../x", meta=make.meta)
    with pytest.raises(ConfigError, match="mode"):
        TraceStore(tmp_path, mode="w")  # type: ignore[arg-type]


def test_a_closed_or_reading_store_refuses_to_write(make: Any, tmp_path: Path) -> None:
    store = TraceStore(tmp_path, meta=make.meta)
    store.close()
    store.close()
    with pytest.raises(TraceError, match="does not write"):
        store.begin(make.head("e"))
    with TraceStore(tmp_path, mode="r") as store, pytest.raises(TraceError, match="does not write"):
        store.note_tokens({1: "x"})


def test_a_finished_shard_is_one_plain_file(make: Any, tmp_path: Path) -> None:
    make.run(tmp_path)
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {"main.sqlite", "main.lock"}


def test_an_empty_shard_of_a_dead_writer_is_passed_over(make: Any, tmp_path: Path) -> None:
    make.run(tmp_path)
    (tmp_path / "shards" / "dead.sqlite").touch()
    with TraceStore(tmp_path, mode="r") as store:
        assert [len(store) for _ in range(3)] == [3, 3, 3]
        assert list(store._readers) == ["main"]
    assert verify(tmp_path).ok


def test_a_chat_format_says_what_a_run_is_made_with(make: Any, tmp_path: Path) -> None:
    chat = ChatFormat.builtin()
    context = chat.open([Message("user", "hi")])
    turn = Turn("e", 0, context, context.digest, Completion(chat.encode("yes")), Edge("fresh_prompt", None, 0))
    with TraceStore(tmp_path / "run", chat=chat) as store:
        store.begin(make.head("e"))
        store.append(turn)
    with TraceStore(tmp_path / "run", mode="r", chat=chat) as store:
        assert (store.meta.fingerprint, store.meta.chat) == (chat.fingerprint, "builtin")
        assert ChatFormat.from_recipe(store.meta.recipe).fingerprint == chat.fingerprint
        assert store.tokens()[int(turn.completion.ids_T[0])] == chat.token_text(int(turn.completion.ids_T[0]))
    with pytest.raises(FingerprintMismatch):
        TraceStore(tmp_path / "other", chat=chat, meta=make.meta)
    assert not (tmp_path / "other").exists()
    with pytest.raises(TraceError, match="pass chat="):
        TraceStore(tmp_path / "none")
