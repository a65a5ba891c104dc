"""A redaction takes away all that it should and nothing else, and says so."""

import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, FingerprintMismatch, TraceError
from agentgym_tok.tokens import Context, Span
from agentgym_tok.trace import Edge, EpisodeHead, Failure, RunMeta, TraceStore, Turn, account, rows, verify
from agentgym_tok.trace.redact import redact
from agentgym_tok.types import Completion, Message, Sampling, Support

SECRET = "sk-4f9Zq17xx8TTwv"
PATTERN = re.compile(r"sk-[A-Za-z0-9]{14}")
FULL = "\N{FULL BLOCK}" * len(SECRET)


def walk(chat: ChatFormat, run: Path, said: list[str], seen: list[str], **meta: Any) -> Path:
    """Write an episode in which the policy says and the world answers, all in the format's own ids."""
    meta = {"fingerprint": chat.fingerprint, "vocab_size": chat.vocab_size, "chat": "builtin", **meta}
    with TraceStore(run, meta=RunMeta(**meta), token_text=chat.token_text) as store:
        store.begin(EpisodeHead("e", "task"))
        messages = (Message("user", seen[0]),)
        context: Context = chat.open(messages)
        for index, text in enumerate(said):
            ids_T = np.concatenate((chat.encode(text), chat.stop_ids[:1])).astype(np.int32)
            support = Support(np.ones(len(ids_T), np.int32), ids_T)
            answer = Completion(
                ids_T, -np.ones(len(ids_T), np.float32), logprobs="raw", sampling=Sampling(), support=support
            )
            store.append(
                Turn(
                    "e",
                    index,
                    context,
                    context.digest,
                    answer,
                    Edge("continuation", index - 1, index) if index else Edge("fresh_prompt", None, 0, reason=seen[0]),
                    messages,
                    text=text,
                    facts={"anchor": seen[index], seen[index]: 1},
                    failure=Failure("tool", "Refused", seen[index]) if index == 1 else None,
                )
            )
            if index + 1 < len(said):
                messages = (Message("user", seen[index + 1]),)
                after = chat.bridge(context.sampled(ids_T, answer.logprobs_T), messages)
                assert isinstance(after, Context)
                context = after
        store.finish("e", success=True)
    return run


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat.builtin()


def raw(run: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((run / "shards").iterdir()))


def test_a_secret_is_gone_from_ids_texts_and_the_file(chat: ChatFormat, tmp_path: Path) -> None:
    said = ["I look.", f"It is {SECRET}.", "Done."]
    seen = [f"Key: {SECRET}", "A desk.", f"{SECRET}{SECRET} twice"]
    run = walk(chat, tmp_path / "run", said, seen, config={"note": f"x {SECRET}"})
    before = raw(run)
    found = redact(run, tmp_path / "out", [PATTERN], chat=chat, rule="keys of the search API")
    assert raw(run) == before
    assert (found.spans, found.texts, found.images) == (3, 3, 0)
    assert SECRET.encode() in before
    assert SECRET.encode() not in raw(tmp_path / "out")
    with TraceStore(tmp_path / "out", mode="r") as store:
        (episode,) = store.episodes()
        assert store.meta.config == {"note": f"x {FULL}"}
    text = chat.decode(np.concatenate((episode.turns[-1].context.ids, episode.turns[-1].completion.ids_T)))
    assert SECRET not in text
    assert "user\nKey:____" in text
    assert not chat.control_ids.intersection(chat.encode("_"))
    assert episode.turns[0].messages[0].content == f"Key: {FULL}"
    assert episode.turns[0].edge.reason == f"Key: {FULL}"
    assert episode.turns[1].text == f"It is {FULL}."
    assert episode.turns[1].completion.support is not None
    assert len(episode.turns[1].completion.support.ids_S) == 0
    assert episode.turns[2].facts == {"anchor": f"{FULL}{FULL} twice", f"{FULL}{FULL} twice": 1}


def test_the_chain_holds_and_what_is_gone_is_counted_and_not_trained(chat: ChatFormat, tmp_path: Path) -> None:
    run = walk(chat, tmp_path / "run", ["I look.", "I wait.", "Done."], ["A desk.", f"Key: {SECRET}", "A lamp."])
    whole = verify(run, chat)
    redact(run, tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    proof = verify(tmp_path / "out", chat)
    assert proof.ok, proof.breaches
    assert (proof.redacted, proof.replayed, whole.replayed) == (2, 1, 3)
    with TraceStore(tmp_path / "out", mode="r") as store, TraceStore(run, mode="r") as original:
        (episode,), (first,) = store.episodes(), original.episodes()
    assert [sorted(turn.redacted) for turn in episode.turns] == [[], ["ids", "texts"], ["ids"]]
    accounting, all_of_it = account(episode), account(first)
    assert accounting.complete
    assert accounting.sampled == all_of_it.sampled
    assert accounting.masked["redacted"] == len(first.turns[2].completion.ids_T)
    (row,) = rows(episode)
    assert np.array_equal(row.ids_T, rows(first)[0].ids_T[: len(row.ids_T)])
    tips = [
        sqlite3.connect(p / "shards" / "main.sqlite").execute("SELECT tip FROM episodes").fetchone()
        for p in (run, tmp_path / "out")
    ]
    assert tips[0] == tips[1]


@settings(max_examples=25, deadline=None)
@given(before=st.text(max_size=12), after=st.text(max_size=12))
def test_whatever_stands_around_it_no_decoded_context_holds_it(
    chat: ChatFormat, tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    folder = tmp_path_factory.mktemp("around")
    run = walk(chat, folder / "run", [f"{before}{SECRET}", "x"], [f"{SECRET}{after}", f"{before}{SECRET}{after}"])
    redact(run, folder / "out", [re.compile(re.escape(SECRET))], chat=chat, rule="the key")
    with TraceStore(folder / "out", mode="r") as store, TraceStore(run, mode="r") as original:
        for turn, first in zip(store.episode("e").turns, original.episode("e").turns, strict=True):
            assert SECRET not in chat.decode(turn.context.ids)
            assert SECRET not in chat.decode(turn.completion.ids_T)
            changed = turn.context.ids != first.context.ids
            assert changed.sum() <= len(chat.encode(SECRET)) * 6
    assert verify(folder / "out", chat).ok
    shutil.rmtree(folder)


def test_a_match_across_spans_is_found(chat: ChatFormat, tmp_path: Path) -> None:
    context = chat.open([Message("user", "hi")]).extend(Span(chat.encode("sk-4f9Z"), "forced"))
    ids_T = chat.encode("q17xx8TTwv rest")
    answer = Completion(ids_T, -np.ones(len(ids_T), np.float32), logprobs="raw", sampling=Sampling())
    meta = RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size)
    with TraceStore(tmp_path / "run", meta=meta) as store:
        store.begin(EpisodeHead("e", "task"))
        store.append(Turn("e", 0, context, context.digest, answer, Edge("fresh_prompt", None, 0)))
    found = redact(tmp_path / "run", tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    assert found.spans == 2
    with TraceStore(tmp_path / "out", mode="r") as store:
        (turn,) = store.episode("e").turns
    assert set(chat.decode(turn.context.span.ids_T)) == {"_"}
    assert chat.decode(turn.completion.ids_T).endswith(" rest")


def test_a_second_redaction_takes_the_place_of_the_first(chat: ChatFormat, tmp_path: Path) -> None:
    run = walk(chat, tmp_path / "run", ["I look.", "go"], [f"Key: {SECRET}", "lamp"])
    redact(run, tmp_path / "one", [PATTERN], chat=chat, rule="keys")
    redact(tmp_path / "one", tmp_path / "two", [re.compile("Key"), re.compile("lamp")], chat=chat, rule="words")
    proof = verify(tmp_path / "two", chat)
    assert proof.ok, proof.breaches
    with TraceStore(tmp_path / "two", mode="r") as store:
        assert store.episode("e").turns[0].messages[0].content == f"\N{FULL BLOCK}\N{FULL BLOCK}\N{FULL BLOCK}: {FULL}"


def test_what_a_redaction_left_is_guarded_too(chat: ChatFormat, tmp_path: Path) -> None:
    run = walk(chat, tmp_path / "run", ["I look.", "go"], [f"Key: {SECRET}", "lamp"])
    redact(run, tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    statements = (
        "UPDATE texts SET body = replace(body, 'Key', 'Kay') WHERE turn = 1",
        "UPDATE nodes SET origin = 'observation' WHERE id = 1",
        "UPDATE redactions SET rule = 'nothing' WHERE id = 1",
        "DELETE FROM redactions WHERE id = 1",
        "UPDATE redactions SET record = 2 WHERE id = 1",
    )
    for number, statement in enumerate(statements):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(tmp_path / "out", copy)
        connection = sqlite3.connect(copy / "shards" / "main.sqlite", isolation_level=None)
        connection.execute(statement)
        connection.close()
        assert not verify(copy, chat).ok, statement


@pytest.mark.parametrize("place", ["task", "tools", "engine"])
def test_a_match_where_others_depend_on_it_is_an_error_that_names_the_place(
    chat: ChatFormat, tmp_path: Path, place: str
) -> None:
    tools = [{"type": "function", "function": {"name": "search", "description": SECRET if place == "tools" else "x"}}]
    context = chat.open([Message("user", "hi")], tools=tools)
    ids_T = chat.encode("yes")
    answer = Completion(ids_T, engine=SECRET if place == "engine" else "stub")
    meta = RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size)
    with TraceStore(tmp_path / "run", meta=meta) as store:
        store.begin(EpisodeHead("e", SECRET if place == "task" else "task"))
        store.append(Turn("e", 0, context, context.digest, answer, Edge("fresh_prompt", None, 0)))
    names = {"task": "episodes", "tools": "roots", "engine": "settings"}
    with pytest.raises(TraceError, match=names[place]) as caught:
        redact(tmp_path / "run", tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    assert SECRET not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_wrong_use_is_refused(make: Any, chat: ChatFormat, tmp_path: Path) -> None:
    run = walk(chat, tmp_path / "run", ["I look."], ["A desk."])
    with pytest.raises(ConfigError, match="nothing to look for"):
        redact(run, tmp_path / "out", [], chat=chat, rule="keys")
    with pytest.raises(ConfigError, match="nothing to look for"):
        redact(run, tmp_path / "out", [re.compile("a*")], chat=chat, rule="keys")
    with pytest.raises(ConfigError, match="not their own description"):
        redact(run, tmp_path / "out", [re.compile("keys")], chat=chat, rule="keys")
    with pytest.raises(TraceError, match="there is no trace"):
        redact(tmp_path / "none", tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    with pytest.raises(TraceError, match="stands there already"):
        redact(run, run, [PATTERN], chat=chat, rule="keys")
    other = make.run(tmp_path / "other")
    with pytest.raises(FingerprintMismatch):
        redact(other, tmp_path / "out", [PATTERN], chat=chat, rule="keys")
    assert not (tmp_path / "out").exists()
