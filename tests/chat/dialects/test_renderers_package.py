"""The package `renderers` itself behind `parse`, beside our dialects, on thousands of turns (`make test-renderers`).

Models' real tokenizers where the shared data is there; else the templates that models ship, on the builtin vocabulary
and the tokens that the package asks for.
"""

import dataclasses
import itertools
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Message, ToolCall
from agentgym_tok.chat.dialects import find_dialect
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.errors import ChatError
from agentgym_tok.types import AssistantMessage

renderers = pytest.importorskip("renderers", reason="the package renderers is not installed: make test-renderers")
pytestmark = pytest.mark.deep

TURNS = 500
VECTORS = Path(__file__).parents[1] / "vectors" / "renderers-0.1.12-turns.json"
TRL = os.environ.get("AGENTGYM_TOK_TRL")
MODELS = {
    "qwen3": "Qwen/Qwen3-8B",
    "qwen3_instruct_2507": "Qwen/Qwen3-4B-Instruct-2507",
    "qwen3_vl": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen3_5_think": "Qwen/Qwen3.5-4B",
    "qwen3_6": "Qwen/Qwen3.6-35B-A3B",
    "qwen3_8": "Qwen/Qwen3.8-27B",
    "glm4moe": "zai-org/GLM-4.5-Air",
    "llama3_2": "meta-llama/Llama-3.2-1B-Instruct",
    "gemma4": "google/gemma-4-E2B-it",
    "nemotron_3_nano": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nemotron_3_ultra": "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
    "nemotron_3_5_lightning": "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16",
}
REAL = {"qwen3": "Qwen/Qwen3-8B", "deepseek_v3": "deepseek-ai/DeepSeek-V3"}
# Blanks at its ends and Python's words are lost from a bare value there, so none is drawn.
TEXTS = ["desk", "a lamp", "café 日本語", "x < y", "{}", "a\nb", '"', "🙂"]
FRAGMENTS = [
    *['{"name": "look", "arguments": {"a": "b"}}', '{"name": "look", "parameters": {}}', '{"name": 5}', '{"name": '],
    *['{"name": "look", "arguments": {"a": NaN}}', '{"name": "look", "arguments": "x"}', "1" * 5000, "[" * 2000],
    *["<function=look>", "</function>", "<parameter=a>", "</parameter>", "call:look{", "thought\n", "null", "}", "\n"],
]
TOOLS = [{"function": {"name": "look", "parameters": {"properties": {"a": {"type": "integer"}}}}}]


@pytest.fixture(scope="module", params=[*MODELS, *(f"{name} (real)" for name in REAL)])
def pair(request: pytest.FixtureRequest, make_format: Callable[..., ChatFormat]) -> tuple[ChatFormat, ChatFormat]:
    """Return a format read by the package, and the same read by us."""
    name = request.param.partition(" ")[0]
    if "real" in request.param:
        folder = request.getfixturevalue("unpack")(name)
        return ChatFormat.from_pretrained(folder, dialect=f"renderers:{REAL[name]}"), ChatFormat.from_pretrained(folder)
    if TRL is None:
        pytest.skip("AGENTGYM_TOK_TRL names no folder of chat templates (*.jinja)")
    source = (Path(TRL) / f"{name}.jinja").read_text(encoding="utf-8")
    added = find_dialect(ChatTemplate(source, {}).literals, []).delimiters
    while True:
        try:
            theirs = make_format(source, added, ("<|im_end|>",), f"renderers:{MODELS[name]}")
        except ChatError as error:
            missing = re.search(r"token '([^']+)'", str(error.got))
            if missing is None or missing[1] in added:
                raise
            added = (*added, missing[1])
        else:
            return theirs, make_format(source, added, ("<|im_end|>",))


def value(draw: random.Random, depth: int = 0) -> Any:
    if depth < 2 and draw.random() < 0.3:
        parts = [value(draw, depth + 1) for _ in range(draw.randrange(3))]
        return parts if draw.random() < 0.5 else dict(zip("xyz", parts, strict=False))
    return draw.choice([draw.choice(TEXTS), draw.choice(TEXTS), draw.randrange(-5, 10**6), draw.random() * 10])


def tool(call: ToolCall) -> dict[str, Any]:
    kinds = {int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    properties = {key: {"type": kinds[type(given)]} for key, given in (call.arguments or {}).items()}
    return {"type": "function", "function": {"name": call.name, "parameters": {"properties": properties}}}


def plain(message: AssistantMessage) -> Any:
    """Return what must be the same: of an unfinished call its place only, and no reasoning is as empty reasoning."""
    calls = [
        (call.tokens, *([] if call.status in {"unclosed", "malformed"} else [call.name, json.dumps(call.arguments)]))
        for call in message.tool_calls
    ]
    return message.content, message.reasoning or "", message.reasoning_closed, message.closed, calls


def test_turns_of_the_template_are_read_alike(pair: tuple[ChatFormat, ChatFormat]) -> None:
    theirs, ours = pair
    draw, asked = random.Random(0), Message("user", "Go on.")
    read = called = 0
    for _ in range(TURNS):
        drawn = [{key: value(draw) for key in "abc"[: draw.randrange(4)]} for _ in range(draw.randrange(3))]
        calls = tuple(ToolCall(f"look{place}", given) for place, given in enumerate(drawn))
        said = draw.choice(["", "I go to the lamp.\n\nThen"]) if ours.dialect != "deepseek" or not calls else ""
        turn = Message("assistant", said, tool_calls=calls, reasoning=draw.choice([None, "Hm.\n\nSo."]))
        try:
            whole = ours.apply_chat_template([asked, turn])
        except ChatError:
            continue  # some write one call only
        prompt = ours.apply_chat_template([asked], add_generation_prompt=True)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(whole, prompt, strict=False))
        ids = ours.tokenize(whole[sum(1 for _ in same) :]).tolist()
        stops = [place for place, index in enumerate(ids) if index in ours.stop_ids]
        ids = ids[: stops[-1] + 1] if stops else ids
        if ours.dialect != "llama" and draw.random() < 0.2:  # there an unfinished call is content
            ids = ids[: draw.randrange(1, len(ids) + 1)]
        if not ours.decode(ids).strip():
            continue  # GLM's reasoning is open there before it begins
        tools = [tool(call) for call in calls]
        found = theirs.parse(ids, tools)
        assert plain(found) == plain(ours.parse(ids, tools))
        read, called = read + 1, called + len(found.message().tool_calls)
    assert read > TURNS / 2
    assert called > TURNS / 10


def test_any_turn_gives_an_answer_that_holds_every_word(pair: tuple[ChatFormat, ChatFormat]) -> None:
    theirs, ours = pair
    draw = random.Random(1)
    controls = [*ours.delimiters, *map(ours.token_text, ours.stop_ids)]
    for _ in range(TURNS):
        ids: list[int] = []
        words = [f"w{place}q" for place in range(draw.randrange(10))]
        for word in words:
            pieces = [draw.choice([*controls, *FRAGMENTS]) for _ in range(draw.randrange(3))]
            encode = draw.choice([ours.encode, ours.tokenize])
            ids += [*ours.encode(f" {word} ").tolist(), *itertools.chain(*(encode(piece).tolist() for piece in pieces))]
        read = theirs.parse(ids, draw.choice([None, [], TOOLS]))
        texts = [read.content, read.reasoning or "", *(call.raw for call in read.tool_calls)]
        assert sorted(re.findall(r"w\dq", " ".join(texts))) == words
        place = 0
        for call in read.tool_calls:
            start, end = call.tokens
            assert place <= start < end <= len(ids)
            assert call.raw in ours.decode(ids[start:end])
            assert (call.name and call.arguments is not None) or call.status not in {"ok", "unknown_tool"}
            json.dumps(call.arguments, allow_nan=False)
            place = end
        assert read.closed is bool(ids and ids[-1] in theirs.stop_ids)


def test_recorded_answers_are_what_the_package_says(families: Any, make_format: Callable[..., ChatFormat]) -> None:
    recorded = json.loads(VECTORS.read_text(encoding="utf-8"))
    for family, name in zip(recorded["families"], ("hermes", "qwen_xml"), strict=True):
        template, model = families[name].template, family["model"]
        chat = make_format(template, tuple(family["added"]), ("<|im_end|>",), f"renderers:{model}")
        for turn in family["turns"]:
            tools = family["tools"] if turn["tools"] else None
            renderer = chat._reader.dialect._renderer  # type: ignore[attr-defined]
            parsed = renderer.parse_response(list(turn["ids"]), tools=tools, prompt_ids=family["prompt"])
            assert json.loads(json.dumps(dataclasses.asdict(parsed))) == turn["parsed"] or "NaN" in str(turn["parsed"])


def test_a_tokenizer_of_another_model_is_refused(unpack: Callable[[str], Path]) -> None:
    with pytest.raises(ChatError, match="refuses this tokenizer"):
        ChatFormat.from_pretrained(unpack("qwen3"), dialect="renderers:deepseek-ai/DeepSeek-V3")


def test_a_template_with_another_prompt_is_refused(unpack: Callable[[str], Path]) -> None:
    with pytest.raises(ChatError, match="another generation prompt"):
        ChatFormat.from_pretrained(unpack("qwen3"), dialect="renderers:Qwen/Qwen3.5-4B")
    off = ChatFormat.from_pretrained(
        unpack("qwen3"), template_kwargs={"enable_thinking": False}, dialect="renderers:Qwen/Qwen3-8B"
    )
    assert off.dialect == "renderers:Qwen/Qwen3-8B"
