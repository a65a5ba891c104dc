"""Verification finds whatever is not as it was written, and whatever breaks a law."""

import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentgym_tok.errors import ChatError, FingerprintMismatch, TraceCorrupt, TraceError
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import Edge, Failure, TraceStore, Turn, verify
from agentgym_tok.trace.exchange.prune import Selection, prune
from agentgym_tok.trace.schema import TABLES
from agentgym_tok.types import Message


@pytest.fixture(scope="module")
def run(make: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make.run(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "copy")
    return tmp_path / "copy"


@contextmanager
def surgery(run: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(run / "shards" / "main.sqlite", isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def wounded(cell: Any, rng: random.Random) -> Any:
    """Change a cell as little as its type allows."""
    match cell:
        case None:
            return 0
        case int():
            return cell ^ 1
        case float():
            return float(np.nextafter(cell, 2 * cell + 1))
        case str():
            place = rng.randrange(len(cell)) if cell else 0
            return cell[:place] + chr(ord(cell[place]) ^ 1) + cell[place + 1 :] if cell else "x"
        case bytes():
            place = rng.randrange(len(cell))
            return cell[:place] + bytes([cell[place] ^ (1 << rng.randrange(8))]) + cell[place + 1 :]
    raise AssertionError(cell)


def write(run: Path, make: Any, turns: Sequence[Turn], **end: Any) -> Path:
    with TraceStore(run, meta=make.meta) as store:
        store.begin(make.head(turns[0].episode))
        for turn in turns:
            store.append(turn)
        store.finish(turns[0].episode, **end)
    return run


def laws(run: Path, chat: Any = None) -> set[tuple[int, str, int | None]]:
    return {(breach.law, breach.episode, breach.turn) for breach in verify(run, chat).breaches}


# ---- the record


def test_a_whole_run_keeps_every_law(run: Path) -> None:
    proof = verify(run)
    assert proof.ok, proof.breaches
    assert (proof.shards, proof.episodes, proof.turns, proof.ids) == (1, 4, 10, 80 + 3 + 30 + 2 + 4)
    assert proof.redacted == 1
    rl, sft = proof.accounting
    assert (rl.objective, rl.sampled, rl.trained) == ("rl", 26, 15)
    assert rl.masked == {"unused_attempt": 9, "redacted": 2}
    assert (sft.objective, sft.trained) == ("sft", 15)
    assert json.loads(json.dumps(proof.to_dict()))["ok"] is True


@pytest.mark.parametrize(
    ("table", "column"), [(table.name, column.name) for table in TABLES for column in table.columns]
)
def test_a_change_in_any_cell_is_found(copy: Path, table: str, column: str) -> None:
    rng = random.Random(f"{table}.{column}")
    with surgery(copy) as connection:
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        row, cell = rng.choice(rows)
        new = wounded(cell, rng)
        if column in ("id", "seq") or (table, column) == ("texts", "turn"):
            new = 10_000  # the nearest number is taken
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))
    assert not verify(copy).ok, f"{table}.{column} of row {row}: {cell!r} -> {new!r}"


@pytest.mark.parametrize("table", [table.name for table in TABLES if table.name != "tokens"])
def test_a_lost_record_is_found(copy: Path, table: str) -> None:
    with surgery(copy) as connection:
        row = random.Random(table).choice(connection.execute(f"SELECT rowid FROM {table}").fetchall())
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", row)
    assert not verify(copy).ok


@pytest.mark.parametrize("seq", [0, 1, 2])
@pytest.mark.parametrize("episode", [1, 3])
def test_a_lost_turn_is_found_even_when_the_others_close_up(copy: Path, episode: int, seq: int) -> None:
    with surgery(copy) as connection:
        connection.execute("DELETE FROM turns WHERE episode = ? AND seq = ?", (episode, seq))
        connection.execute("UPDATE turns SET seq = seq - 1 WHERE episode = ? AND seq > ?", (episode, seq))
        connection.execute("UPDATE episodes SET turns = turns - 1 WHERE id = ?", (episode,))
    assert not verify(copy).ok


def test_swapped_turns_are_found(copy: Path) -> None:
    with surgery(copy) as connection:
        connection.execute("UPDATE turns SET seq = 9 WHERE episode = 1 AND seq = 0")
        connection.execute("UPDATE turns SET seq = 0 WHERE episode = 1 AND seq = 1")
        connection.execute("UPDATE turns SET seq = 1 WHERE episode = 1 AND seq = 9")
    assert not verify(copy).ok


def test_a_turn_moved_to_another_episode_is_found(copy: Path) -> None:
    with surgery(copy) as connection:
        connection.execute("UPDATE turns SET episode = 3, seq = 3 WHERE episode = 1 AND seq = 2")
    assert not verify(copy).ok


PAGE = 4096
PAGES = {2: "interior index", 5: "interior table", 10: "leaf index", 13: "leaf table"}


@dataclass
class Flipped:
    """A run whose file has every kind of page, to flip bits in."""

    make: Any
    run: Path
    truth: dict[str, Any]

    def outcome(self) -> str:
        """Say what became of the run: found, harmless, or neither."""
        try:
            if not verify(self.run).ok:
                return "found"
            return "harmless" if self.make.same_episodes(self.make.read(self.run), self.truth) else "silent"
        except TraceError:
            return "found"


@pytest.fixture
def flipped(make: Any, tmp_path: Path) -> Flipped:
    # Long names fill pages of an index, so that it gets one that is not a leaf.
    steps = [step for letter in "abcdef" for step in make.story(letter * 500)]
    with TraceStore(tmp_path, meta=make.meta, token_text=str) as store:
        for method, *arguments in steps:
            getattr(store, method)(*arguments)
    return Flipped(make, tmp_path, make.told(steps))


@pytest.mark.parametrize("flips", [3, pytest.param(165, marks=pytest.mark.deep)])
def test_flipped_bits_in_every_page_of_a_shard_are_found_or_harmless(flipped: Flipped, flips: int) -> None:
    path = flipped.run / "shards" / "main.sqlite"
    whole = path.read_bytes()
    rng = random.Random(flips)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    with path.open("r+b", buffering=0) as file:
        for page in range(0, len(whole), PAGE):
            first = whole[page] if page else whole[100]
            used = [place for place in range(page, page + PAGE) if whole[place]]
            chosen = [rng.choice(used) if flip % 3 else page + rng.randrange(PAGE) for flip in range(flips)]
            places = {PAGES.get(first, "overflow"): chosen}
            if page == 0:
                places["header"] = list(range(100)) * -(-flips // 50)
            for kind, place in ((kind, place) for kind, those in places.items() for place in those):
                os.pwrite(file.fileno(), bytes([whole[place] ^ (1 << rng.randrange(8))]), place)
                outcome = flipped.outcome()
                outcomes[kind][outcome] += 1
                assert outcome != "silent", f"{kind} at byte {place}"
                os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert path.read_bytes() == whole
    assert outcomes.keys() == {"header", "overflow", *PAGES.values()}
    assert all(counts["found"] for counts in outcomes.values()), outcomes


@pytest.mark.parametrize("flips", [100, pytest.param(2_000, marks=pytest.mark.deep)])
def test_flipped_bits_in_the_log_of_a_killed_writer_lose_its_last_steps_at_most(
    make: Any, tmp_path: Path, flips: int
) -> None:
    names = ["a", "b"]
    with make.child() as child:
        *_, last = child.write(tmp_path / "run", names, end="kill")
    assert last["status"] == signal.SIGKILL
    steps = [step for name in names for step in make.story(name)]
    states = [make.told(steps[:taken]) for taken in range(len(steps) + 1)]
    whole = (tmp_path / "run" / "shards" / "main.sqlite-wal").read_bytes()
    rng = random.Random(flips)
    kept: Counter[int] = Counter()
    for _ in range(flips):
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        place = rng.randrange(len(whole))
        log = bytearray(whole)
        log[place] ^= 1 << rng.randrange(8)
        (tmp_path / "copy" / "shards" / "main.sqlite-wal").write_bytes(log)
        found = make.read(tmp_path / "copy")
        # An image is no part of an episode, so that two states may be alike.
        kept[max(taken for taken, state in enumerate(states) if make.same_episodes(found, state))] += 1
        assert not found or verify(tmp_path / "copy").ok, place
    assert len(kept) > 5, kept


def test_a_child_without_its_parent_and_an_id_used_twice_are_found(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path, meta=make.meta) as one, TraceStore(tmp_path, shard="two") as two:
        one.begin(make.head("e", parent="lost"))
        one.begin(make.head("f"))
        two.begin(make.head("f"))
    assert laws(tmp_path) == {(0, "e", None), (0, "f", None)}


def test_shards_of_different_chat_formats_are_found(make: Any, run: Path, tmp_path: Path) -> None:
    other = make.meta.model_copy(update={"fingerprint": "0" * 64})
    with TraceStore(tmp_path / "other", shard="zoo", meta=other):
        pass
    shutil.copytree(run, tmp_path / "copy")
    shutil.copy(tmp_path / "other" / "shards" / "zoo.sqlite", tmp_path / "copy" / "shards")
    assert (5, "", None) in laws(tmp_path / "copy")


# ---- laws 1, 2 and 6


def test_law_1_a_continuation_that_leaves_its_past(make: Any, tmp_path: Path) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    drifted = make.turn("e", 1, make.prompt(1, 2, 3, 5, 6), [7])
    (breach,) = verify(write(tmp_path, make, [first, drifted])).breaches
    assert (breach.law, breach.turn) == (1, 1)
    assert "token 3" in breach.message


def test_law_1_holds_where_the_past_is_the_same_ids_in_other_spans(make: Any, tmp_path: Path) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    second = make.turn("e", 1, make.prompt(1, 2, 3, 4, 5), [7])
    assert verify(write(tmp_path, make, [first, second])).ok


def test_law_1_a_resample_from_another_context(make: Any, tmp_path: Path) -> None:
    turns = [
        make.turn("e", 0, make.prompt(1), [3], used=False),
        make.turn("e", 0, make.prompt(2), [4], attempt=1, edge=Edge("retry", 0, 0)),
    ]
    assert laws(write(tmp_path, make, turns)) == {(1, "e", 0)}


def test_law_2_an_engine_that_was_handed_other_ids(make: Any, tmp_path: Path) -> None:
    turn = make.turn("e", 0, make.prompt(1), [3])
    assert laws(write(tmp_path, make, [replace(turn, sent_digest="0" * 32)])) == {(2, "e", 0)}


# ---- law 3


def said(*ids: int, origin: Any = "sampled") -> Span:
    return Span(np.array(ids, np.int32), origin)


@pytest.mark.parametrize("origin", ["sampled", "demonstration"])
def test_law_3_ids_of_a_policy_that_no_turn_answered_with(make: Any, tmp_path: Path, origin: Any) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    refused = make.after(first, 5).extend(said(3, 4, origin=origin)).extend(said(6, origin="observation"))
    (breach,) = verify(write(tmp_path / "later", make, [first, make.turn("e", 1, refused, [7])])).breaches
    assert (breach.law, breach.episode, breach.turn) == (3, "e", 1)
    assert "2 ids from token 5" in breach.message
    opening = make.prompt(1, 2).extend(said(9, origin=origin))
    assert laws(write(tmp_path / "first", make, [make.turn("e", 0, opening, [7])])) == {(3, "e", 0)}


@pytest.mark.parametrize("kind", ["fresh_prompt", "rerender"])
def test_law_3_a_new_prompt_holds_no_answers(make: Any, tmp_path: Path, kind: Any) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    quoting = make.turn("e", 1, make.prompt(8).extend(said(3, 4)), [7], edge=Edge(kind, 0, 1))
    assert laws(write(tmp_path, make, [first, quoting])) == {(3, "e", 1)}


def test_law_3_holds_for_answers_that_lost_their_log_probabilities_or_were_cut_into_spans(
    make: Any, tmp_path: Path
) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    bare = first.context.extend(said(3)).extend(said(4)).extend(said(5, origin="observation"))
    second = make.turn("e", 1, bare.extend(said(6, origin="forced")), [7, 8])
    third = make.turn("e", 2, second.context.extend(said(7, 8)), [9])  # nothing stands between two answers
    fourth = make.turn("e", 3, third.context.extend(said(9)).extend(said(1, origin="tool")), [1])
    found = verify(write(tmp_path, make, [first, second, third, fourth]))
    assert found.ok, found.breaches


def test_law_3_one_id_more_than_was_answered(make: Any, tmp_path: Path) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4])
    longer = first.context.extend(said(3, 4, 5)).extend(said(6, origin="observation"))
    (breach,) = verify(write(tmp_path, make, [first, make.turn("e", 1, longer, [7])])).breaches
    assert (breach.law, breach.turn) == (3, 1)
    assert "1 ids from token 4" in breach.message


@pytest.mark.parametrize("kind", ["compaction", "strip_reasoning", "unknown"])
def test_law_3_a_rewrite_may_keep_parts_of_earlier_answers_and_nothing_else(
    make: Any, tmp_path: Path, kind: Any
) -> None:
    first = make.turn("e", 0, make.prompt(1, 2), [3, 4, 5])
    for name, kept, breaches in (("part", (4, 5), set()), ("other", (3, 5), {(3, "e", 1)})):
        context = make.prompt(9).extend(said(*kept)).extend(said(6, origin="observation"))
        turns = [first, make.turn("e", 1, context, [7], edge=Edge(kind, 0, 1))]
        assert laws(write(tmp_path / name, make, turns)) == breaches


def test_law_3_a_copy_in_mid_episode_begins_with_the_past_of_another_rollout(make: Any, tmp_path: Path) -> None:
    trunk = make.turn("trunk", 0, make.prompt(1, 2), [3, 4])
    context = trunk.context.extend(said(3)).extend(said(4)).extend(said(5, origin="observation"))
    write(tmp_path, make, [make.turn("branch", 0, context, [6])])
    assert laws(tmp_path) == {(3, "branch", 0)}
    with TraceStore(tmp_path, shard="two") as store:
        store.begin(make.head("trunk"))
        store.append(trunk)
    assert verify(tmp_path).ok
    prune(tmp_path, tmp_path / "pruned", Selection(episode=("branch",)))
    assert verify(tmp_path / "pruned").ok  # the pruning says what it left out


# ---- law 4


@dataclass
class Chat:
    """Render `<role> letters <end>`, a letter being its place in the alphabet."""

    fingerprint: str = "f" * 64
    control_ids: frozenset[int] = frozenset({1000, 1001})
    asked: list[str] = field(default_factory=list)

    def _ids(self, messages: Sequence[Message]) -> Any:
        letters = [[1000, *(ord(letter) for letter in message.content), 1001] for message in messages]
        return np.array([*itertools.chain(*letters), 1000], np.int32)

    def open(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> Context:
        self.asked.append("open")
        return Context(Root(self.fingerprint, 5000, tuple(tools or ())), Span(self._ids(messages), "prompt"))

    def bridge(self, context: Context, messages: Sequence[Message]) -> Any:
        self.asked.append("bridge")
        if any(message.role == "assistant" for message in messages):
            return "refused"
        if any(message.role == "tool" for message in messages):
            raise ChatError("no tools")
        return context.extend(Span(np.concatenate(([1001], self._ids(messages))).astype(np.int32), "observation"))


def played(make: Any, chat: Chat, *worlds: str) -> list[Turn]:
    turns: list[Turn] = []
    for index, world in enumerate(worlds):
        messages = (Message("user", world),)
        if turns:
            answer = turns[-1].completion
            context = chat.bridge(turns[-1].context.sampled(answer.ids_T, answer.logprobs_T), messages)
        else:
            context = chat.open(messages)
        turns.append(make.turn("e", index, context, [50 + index], messages=messages))
    return turns


def test_law_4_contexts_are_made_again_from_their_messages(make: Any, tmp_path: Path) -> None:
    turns = played(make, Chat(), "desk", "drawer", "shelf")
    turns += [make.turn("e", 3, make.prompt(1, 2), [5], edge=Edge("unknown", 2, 3))]
    chat = Chat()
    proof = verify(write(tmp_path, make, turns), chat)
    assert proof.ok
    assert chat.asked == ["open", "bridge", "bridge"]
    assert (proof.replayed, proof.not_replayed) == (3, 1)


def test_law_4_is_never_passed_without_a_chat_format(make: Any, tmp_path: Path) -> None:
    proof = verify(write(tmp_path, make, played(make, Chat(), "desk", "drawer")))
    assert (proof.replayed, proof.not_replayed) == (0, 2)


@pytest.mark.parametrize("index", [0, 1])
def test_law_4_a_control_token_in_the_place_of_world_text(make: Any, tmp_path: Path, index: int) -> None:
    turns = played(make, Chat(), "desk", "drawer")
    told = (Message("user", "d\u03e8sk" if index == 0 else "d\u03e8awer"),)  # the letter with number 1000
    context = (
        Chat().open(told)
        if index == 0
        else Chat().bridge(turns[0].context.sampled(turns[0].completion.ids_T, turns[0].completion.logprobs_T), told)
    )
    turns[index] = make.turn("e", index, context, [9], messages=turns[index].messages)
    run = write(tmp_path, make, turns[: index + 1])
    (breach,) = verify(run, Chat()).breaches
    assert (breach.law, breach.episode, breach.turn) == (4, "e", index)
    assert "a control token" in breach.message


def test_law_4_shorter_longer_and_refused_contexts(make: Any, tmp_path: Path) -> None:
    (turn,) = played(make, Chat(), "desk")
    longer = make.turn(
        "e", 0, turn.context.extend(Span(np.array([7], np.int32), "forced")), [1], messages=turn.messages
    )
    assert verify(write(tmp_path / "prefilled", make, [longer]), Chat()).ok
    (breach,) = verify(
        write(tmp_path / "more", make, [replace(turn, messages=(Message("user", "des"),))]), Chat()
    ).breaches
    assert breach.law == 4
    (breach,) = verify(write(tmp_path / "less", make, [replace(turn, messages=(*turn.messages,) * 2)]), Chat()).breaches
    assert "is missing" in breach.message
    first, second = played(make, Chat(), "desk", "drawer")
    refused = replace(second, messages=(Message("assistant", "x"),))
    (breach,) = verify(write(tmp_path / "refused", make, [first, refused]), Chat()).breaches
    assert "refuses the messages: refused" in breach.message
    raised = replace(second, messages=(Message("tool", "x"),))
    (breach,) = verify(write(tmp_path / "raised", make, [first, raised]), Chat()).breaches
    assert breach.law == 4
    assert "refuses the messages: no tools" in breach.message


def test_law_4_another_attempt_is_prepared_as_the_first_was(make: Any, tmp_path: Path) -> None:
    first, second = played(make, Chat(), "desk", "drawer")
    unused = replace(second, used=False)
    again = make.turn("e", 1, second.context, [77], attempt=1, edge=Edge("retry", 1, 1))
    proof = verify(write(tmp_path, make, [first, unused, again]), Chat())
    assert proof.ok
    assert (proof.replayed, proof.not_replayed) == (3, 0)


def test_another_chat_format_replays_nothing(run: Path) -> None:
    with pytest.raises(FingerprintMismatch, match="cannot replay"):
        verify(run, Chat(fingerprint="0" * 64))


# ---- what cannot be verified


def test_no_trace_and_newer_formats_are_errors_of_their_own(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no trace"):
        verify(tmp_path / "nothing")
    with surgery(copy) as connection:
        connection.execute("PRAGMA user_version = 200")
    for attempt in (lambda: verify(copy), lambda: TraceStore(copy), lambda: TraceStore(copy, mode="r")):
        with pytest.raises(TraceError, match=r"format 2\.0"):
            attempt()


def test_a_newer_minor_format_is_read_but_not_written(make: Any, copy: Path) -> None:
    with surgery(copy) as connection:
        connection.execute("ALTER TABLE turns ADD COLUMN colour TEXT")
        connection.execute("CREATE TABLE routing (turn INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("PRAGMA user_version = 101")
    with TraceStore(copy, mode="r") as store:
        assert all(map(make.same_turn, store.episode("one").turns, make.rich_turns("one")))
    assert verify(copy).ok
    with pytest.raises(TraceError, match=r"format 1\.1"):
        TraceStore(copy)


@pytest.mark.parametrize("table", [table.name for table in TABLES])
def test_a_torn_table_is_damage(copy: Path, table: str) -> None:
    with surgery(copy) as connection:
        connection.execute(f"DROP TABLE {table}")
    for mode in ("a", "r"):
        with pytest.raises(TraceCorrupt, match="a table is torn"):
            TraceStore(copy, mode=mode)  # type: ignore[arg-type]
    assert not verify(copy).ok


def test_a_file_that_is_no_shard_is_damage(copy: Path) -> None:
    path = copy / "shards" / "main.sqlite"
    for content in (b"x" * 4096, path.read_bytes()[: 4096 * 3]):
        path.write_bytes(content)
        with pytest.raises(TraceCorrupt):
            TraceStore(copy, mode="r").episode("one")
        assert not verify(copy).ok


def test_a_failed_episode_is_a_record(make: Any, tmp_path: Path) -> None:
    turn = make.turn("e", 0, make.prompt(1), [], failure=Failure("policy", "Timeout"), used=False)
    write(tmp_path, make, [turn], status="failed", failure=Failure("policy", "Timeout", "no answer in 60 s"))
    assert verify(tmp_path).ok
