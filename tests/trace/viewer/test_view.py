"""The viewer's page as a file: all of the run is in it, and nothing of the run is HTML."""

import base64
import hashlib
import json
import re
import sqlite3
import zlib
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.errors import TraceCorrupt, TraceError
from agentgym_tok.tokens import Span
from agentgym_tok.trace import Edge, EpisodeHead, Failure, TraceStore, mask_reason
from agentgym_tok.trace.viewer.chunks import advantages
from agentgym_tok.trace.viewer.view import DriftMark, page_policy, write_view
from agentgym_tok.types import Message

TRICKS = (
    "<script>pwned()</script>",
    "</script><script>pwned()</script>",
    "<!--<script>",
    '"><img src=x onerror=pwned()>',
    "javascript:pwned()",
    "</style></template><svg onload=pwned()>",
    "lone \ud800 surrogate \udfff",
    '<img src="' + "x" * 1_000_000 + '">',
)


class Page(HTMLParser):
    """Read a page as a browser would: its elements in order, its data blocks, its script and style."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.text = file.read_text(encoding="utf-8")
        self.elements: list[tuple[str, tuple[Any, ...]]] = []
        self.data: dict[str, str] = {}
        self.code: dict[str, str] = {}
        self._inside = ""
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if named.get("type") == "application/octet-stream":
            self._inside = str(named["id"])
        else:
            self._inside = tag
            self.elements.append((tag, tuple(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.code[self._inside] = self.code.get(self._inside, "") + data
        elif re.fullmatch(r"index|tokens|episode-\d+", self._inside):
            self.data[self._inside] = self.data.get(self._inside, "") + data

    def json(self, name: str) -> tuple[Any, bytes]:
        """Unpack a data block as docs/design/trace.md and chunks.py say, with nothing of ours."""
        raw = zlib.decompress(base64.b64decode(self.data[name], validate=True))
        length = int.from_bytes(raw[:4], "little")
        return json.loads(raw[4 : 4 + length]), raw[4 + length :]


class Shown:
    """What the page knows, put together again."""

    def __init__(self, page: Page) -> None:
        self.index, _ = page.json("index")
        self.turns: dict[str, list[dict[str, Any]]] = {}
        self.marks: dict[str, list[dict[str, Any]]] = {}
        self.spans: list[tuple[int, Span]] = []
        for number, record in enumerate(self.index["episodes"]):
            chunk, raw = page.json(f"episode-{number}")
            assert chunk["first"] == record["first"] == len(self.spans)
            self.turns[record["id"]], self.marks[record["id"]] = chunk["turns"], chunk["marks"]
            ids = np.frombuffer(raw, "<i4", sum(span[2] for span in chunk["spans"]))
            logprobs = np.frombuffer(raw[ids.nbytes :], "<f4")
            for parent, origin, length, scored, replaced in chunk["spans"]:
                mine, ids = ids[:length], ids[length:]
                scores, logprobs = (logprobs[:length], logprobs[length:]) if scored else (None, logprobs)
                self.spans.append((parent, Span(mine, origin, scores, replaced)))
            assert not len(ids)
            assert not len(logprobs)

    def context(self, number: int) -> list[Span]:
        spans = []
        while number >= 0:
            number, span = self.spans[number]
            spans.append(span)
        return spans[::-1]


def equal(one: Span, other: Span) -> bool:
    scores = [None if span.logprobs_T is None else span.logprobs_T.tobytes() for span in (one, other)]
    return (one.ids_T.tobytes(), one.origin, scores[0]) == (other.ids_T.tobytes(), other.origin, scores[1])


def check(run: Path, **options: Any) -> Shown:
    """Compare everything that the page holds with what the store reads."""
    shown = Shown(Page(write_view(run, **options)))
    with TraceStore(run, mode="r") as store:
        heads = store.heads()
        assert [record["id"] for record in shown.index["episodes"]] == [head.id for head, _ in heads]
        for record in shown.index["episodes"]:
            episode = store.episode(record["id"])
            assert (record["task"], record["status"], record["success"], record["return"]) == (
                episode.head.task,
                episode.status,
                episode.success,
                episode.return_,
            )
            turns = shown.turns[episode.id]
            assert len(turns) == len(episode.turns)
            for turn, made in zip(episode.turns, turns, strict=True):
                spans = shown.context(made["context"])
                assert all(map(equal, spans, turn.context.spans))
                assert len(spans) == len(turn.context.spans)
                completion = turn.completion
                assert equal(
                    shown.spans[made["completion"]][1],
                    Span(completion.ids_T, completion.origin, completion.logprobs_T),
                )
                assert shown.spans[made["completion"]][0] == made["context"]
                assert (made["index"], made["attempt"], made["used"]) == (turn.index, turn.attempt, turn.used)
                assert (made["text"], made["action"], made["reward"]) == (turn.text, turn.action_text, turn.reward)
                assert [message["content"] for message in made["messages"]] == [m.content for m in turn.messages]
                assert (made["edge"]["kind"], made["edge"]["reason"]) == (turn.edge.kind, turn.edge.reason)
                assert (made["rl"], made["sft"]) == (mask_reason(turn, "rl"), mask_reason(turn, "sft"))
                assert int(made["seed"]) == turn.seed
                assert made["note"] == completion.note
                assert json.loads(made["facts"] or "{}") == dict(turn.facts)
    return shown


def test_everything_comes_back_equal(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path / "run")
    shown = check(run)
    with TraceStore(run, mode="r") as store:
        texts = store.tokens()
    document, _ = Page(run / "view.html").json("tokens")
    assert dict(zip(document["ids"], document["texts"], strict=True)) == texts
    one = shown.turns["one"][0]
    assert one["failure"] == {"boundary": "world", "kind": "Timeout", "message": "no answer"}
    assert one["messages"][2]["calls"][0]["arguments"] == '{"q":"x"}'
    assert one["versions"] == [["v1", 0, 1], ["v2", 1, 3]]
    assert {record["id"]: record["parent"] for record in shown.index["episodes"]}["two"] == "one"


@settings(max_examples=15)
@given(data=st.data())
def test_random_trees_come_back_equal_and_each_span_stands_once(
    make: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = tmp_path_factory.mktemp("run")
    with TraceStore(run, meta=make.meta) as store:
        for head, turns in make.tree(data).forest():
            store.begin(head)
            for turn in turns:
                store.append(turn)
    shown = check(run)
    with sqlite3.connect(run / "shards" / "main.sqlite") as shard:
        (nodes,) = shard.execute("SELECT count(*) FROM nodes").fetchone()
    shard.close()
    assert len(shown.spans) == nodes


def test_episodes_of_several_shards_share_their_prompts(make: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for shard in ("a", "b"):
        with TraceStore(run, shard=shard, meta=make.meta) as store:
            store.begin(make.head(shard, parent=None if shard == "a" else "a", parent_turn=0))
            store.append(make.turn(shard, 0, make.prompt(1, 2, 3), [4]))
    shown = check(run)
    assert len(shown.spans) == 2
    assert shown.turns["a"][0]["context"] == shown.turns["b"][0]["context"]


def test_runs_without_turns_or_episodes_or_an_end_are_pages_too(make: Any, tmp_path: Path) -> None:
    with TraceStore(tmp_path / "empty", meta=make.meta):
        pass
    assert check(tmp_path / "empty").index["episodes"] == []
    with TraceStore(tmp_path / "run", meta=make.meta) as store:
        store.begin(make.head("fresh"))
        store.begin(make.head("orphan", parent="elsewhere", parent_turn=3))
        store.begin(make.head("broken"))
        nothing = {"logprobs": "missing", "finish_reason": "abort", "logprobs_T": None}
        turn = make.turn("broken", 0, make.prompt(1), [], completion=nothing, failure=Failure("policy", "Down"))
        store.append(turn)
        shown = check(tmp_path / "run")  # while it is written
    assert [record["turns"] for record in shown.index["episodes"]] == [0, 0, 1]
    assert shown.index["advantages"] == {}


# ---- nothing of a world is HTML


def hostile(make: Any, run: Path) -> Path:
    with TraceStore(run, meta=make.meta, token_text=lambda index: TRICKS[index % 6]) as store:
        for place, trick in enumerate(TRICKS):
            safe = trick.encode("utf-8", "replace").decode()
            head = EpisodeHead(f"{place} {safe[:99]}", task=safe, source=safe, role=safe)
            store.begin(head)
            turn = make.turn(
                head.id,
                0,
                make.prompt(*range(6)),
                [place],
                edge=Edge("unknown", None, 0, trick),
                messages=(Message("user", trick), Message(trick, "x", name=trick, reasoning=trick)),
                text=trick,
                action_text=trick,
                failure=Failure("world", trick, trick),
                facts={"anchor": trick, trick: 1},
            )
            store.append(turn)
            store.finish(head.id, "failed", failure=Failure("world", trick, trick))
    return run


def test_texts_of_a_world_never_become_html(make: Any, tmp_path: Path) -> None:
    marks = {f"0 {TRICKS[0]}": [DriftMark(TRICKS[0], 0, 0, 1, detail=TRICKS[1])]}
    run = hostile(make, tmp_path / "run")
    check(run, marks=marks)
    page = Page(run / "view.html")
    assert "pwned" not in page.text
    assert "onerror" not in page.text
    assert "x" * 1000 not in page.text
    with TraceStore(tmp_path / "empty", meta=make.meta):
        pass
    empty = Page(write_view(tmp_path / "empty"))
    # Apart from its data blocks, a page says the same of every run.
    block = re.compile(r'<script type="application/octet-stream" id="[a-z]+(?:-\d+)?">[A-Za-z0-9+/=]*</script>\n')
    assert block.sub("", page.text) == block.sub("", empty.text)
    assert page.elements == empty.elements
    assert page.data.keys() == {"index", "tokens", *(f"episode-{number}" for number in range(len(TRICKS)))}


def test_the_policy_names_the_only_script_and_style(make: Any, tmp_path: Path) -> None:
    page = Page(write_view(make.run(tmp_path / "run")))
    hashes = {
        tag: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for tag, text in page.code.items()
    }
    policy = dict(part.split(maxsplit=1) for part in page_policy().split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert (policy["script-src"], policy["style-src"]) == (hashes["script"], hashes["style"])
    metas = [dict(attrs) for tag, attrs in page.elements if tag == "meta"]
    assert {"http-equiv": "Content-Security-Policy", "content": page_policy()} in metas
    tags = [tag for tag, _ in page.elements]
    assert (tags.count("script"), tags.count("style")) == (1, 1)
    assert not {"link", "img", "iframe", "object", "a"} & set(tags)
    assert not [name for _, attrs in page.elements for name, _ in attrs if name.startswith("on") or name == "style"]


def test_the_script_knows_no_way_from_text_to_html_or_to_a_network() -> None:
    folder = resources.files("agentgym_tok.trace") / "viewer"
    banned = (
        r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
        r"|\beval\b|\bFunction\b|setTimeout|setInterval|import\s*\(|\bfetch\b|XMLHttpRequest|WebSocket|EventSource"
        r"|sendBeacon|localStorage|sessionStorage|cookie|\.href|\.src\b|window\.open|\.on\w+\s*="
    )
    scripts = [file for file in folder.iterdir() if file.name.endswith(".js")]
    assert len(scripts) > 3
    for file in scripts:
        text = file.read_text(encoding="utf-8")
        assert not re.search(banned, text), file.name
        assert "</script" not in text.lower()
        assert "<!--" not in text
    assert "url(" not in (folder / "page.css").read_text(encoding="utf-8")


# ---- marks, advantages, the file


def test_drift_marks_stand_with_their_episode(make: Any, tmp_path: Path) -> None:
    mark = DriftMark("retokenised", 1, 111, 50, exact=range(50), text=[1, 2], detail="other pieces")
    shown = check(make.run(tmp_path / "run"), marks={"one": [mark], "two": []})
    drifts = {record["id"]: record["drifts"] for record in shown.index["episodes"]}
    assert (drifts["one"], drifts["two"], drifts["three"]) == (1, 0, None)
    (found,) = shown.marks["one"]
    assert (found["kind"], found["turn"], found["position"], found["count"]) == ("retokenised", 1, 111, 50)
    assert (found["exact"], found["extent"], found["text"]) == (list(range(32)), 50, [1, 2])


def record(name: str, reward: float, **fields: Any) -> dict[str, Any]:
    return {"id": name, "group": "g", "parent": None, "status": "done", "return": reward, **fields}


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        # Computed by hand with the unbiased standard deviation and 1e-6.
        ([1, 0, 0, 1], [0.8660239037870368, -0.8660239037870368, -0.8660239037870368, 0.8660239037870368]),
        ([10, 0, 0, 0], [1.49999970000006, -0.49999990000002, -0.49999990000002, -0.49999990000002]),
        ([1, 1], [0, 0]),
    ],
)
def test_advantages_are_those_of_grpo(returns: list[float], expected: list[float]) -> None:
    found = advantages([record(str(place), reward) for place, reward in enumerate(returns)])
    assert [found[str(place)] for place in range(len(returns))] == pytest.approx(expected, abs=1e-12)


def test_subagents_inherit_and_who_has_no_group_has_no_advantage() -> None:
    records = [
        record("a", 1.0),
        record("b", 0.0),
        record("still", 0.5, status="running"),
        record("child", 9.0, parent="a", group="other"),
        record("grandchild", 9.0, parent="child", group="third"),
        record("alone", 1.0, group="alone"),
        record("orphan", 1.0, parent="gone"),
        record("ring", 1.0, parent="round"),
        record("round", 1.0, parent="ring"),
    ]
    found = advantages(records)
    assert found.keys() == {"a", "b", "child", "grandchild"}
    assert found["a"] == found["child"] == found["grandchild"] == pytest.approx(0.7071, abs=1e-4)


def test_a_page_is_replaced_whole_or_not_at_all(make: Any, tmp_path: Path) -> None:
    run = make.run(tmp_path / "run")
    out = tmp_path / "page.html"
    out.write_text("old")
    assert write_view(run, out) == out
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    with sqlite3.connect(run / "shards" / "main.sqlite") as shard:
        shard.execute("DELETE FROM texts WHERE turn = 2")
    shard.close()
    before = out.read_bytes()
    with pytest.raises(TraceCorrupt):
        write_view(run, out)
    assert out.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["page.html", "run"]
    with pytest.raises(TraceError, match="cannot be written"):
        write_view(make.run(tmp_path / "whole"), tmp_path / "nowhere" / "page.html")
    with pytest.raises(TraceError, match="there is no trace"):
        write_view(tmp_path / "nowhere")
