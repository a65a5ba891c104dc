"""Record how PrimeIntellect's `renderers` reads turns, for the tests that run without it.

Run it in the environment of `make renderers`:

    PYTHONPATH=. .../bin/python scripts/record_renderers.py

The turns are drawn by a fixed seed, on the builtin vocabulary and the tokens of each family. Half of them are whole
turns, the others pieces of turns in any order; words in those occur once, so that none can be lost unseen.
"""

import dataclasses
import json
import random
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import renderers
import tokenizers
from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[1]
TURNS = 160
ASKED = [{"role": "user", "content": "Go on."}]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": {key: {"type": kind}}}}}
    for name, key, kind in (("look", "a", "integer"), ("take", "b", "array"))
]
JSON_CALLS = [
    '\n{"name": "look", "arguments": {"a": 1}}\n',
    '\n{"name": "take", "arguments": {"b": ["x", null]}}\n',
    '\n{"name": "wait", "arguments": {}}\n',
    "{}",
]
XML_CALLS = [
    "\n<function=look>\n<parameter=a>\n1\n</parameter>\n</function>\n",
    '\n<function=take>\n<parameter=b>\n["x", null]\n</parameter>\n</function>\n',
    "\n<function=wait>\n</function>\n",
]
BROKEN = [
    *['{"name": ', '{"name": 5}', '{"name": "look", "arguments": "x"}', '{"name": "look", "arguments": {"a": NaN}}'],
    *["<function=", "</parameter>", "null", "[1]", "🤖 }"],
]
THOUGHTS = ["", "<think>\nThe lamp is on.\n</think>\n\n"]
ANSWERS = ["", "I look.", "Go {on} é🤖\n\nnow"]
FAMILIES = {"Qwen/Qwen3-8B": JSON_CALLS, "PrimeIntellect/Qwen3-0.6B": XML_CALLS}
ADDED = ["<tool_response>", "</tool_response>"]


def main() -> None:
    """Write the file."""
    families = [_family(model, calls) for model, calls in FAMILIES.items()]
    head = {"package": f"renderers {metadata.version('renderers')}", "made_by": f"scripts/{Path(__file__).name}"}
    lines = [json.dumps(head)[:-1] + ', "families": [']
    for place, (family, turns) in enumerate(families):
        written = ",\n".join(json.dumps(turn, ensure_ascii=False) for turn in turns)
        comma = "," if place + 1 < len(families) else ""
        lines.append(f'{json.dumps(family, ensure_ascii=False)[:-1]}, "turns": [\n{written}]}}{comma}')
    file = ROOT / "tests" / "chat" / "vectors" / "renderers-0.1.12-turns.json"
    file.write_text("\n".join([*lines, "]}"]) + "\n", encoding="utf-8")
    print(f"{file.relative_to(ROOT)}: {sum(len(turns) for _, turns in families)} turns")


def _family(model: str, calls: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    rules = resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_str(rules.read_text(encoding="utf-8"))
    backend.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in ADDED])
    renderer = renderers.create_renderer(PreTrainedTokenizerFast(tokenizer_object=backend, name_or_path=model))
    prompt = renderer.render_ids(ASKED, add_generation_prompt=True)
    draw = random.Random(0)  # noqa: S311  # test data
    turns = []
    for place in range(TURNS):
        whole = place < TURNS // 2
        ids = _whole(draw, backend, calls) if whole else _pieces(draw, backend, calls)
        tools = draw.choice([None, TOOLS])
        parsed = dataclasses.asdict(renderer.parse_response(list(ids), tools=tools, prompt_ids=list(prompt)))
        turns.append({"whole": whole, "ids": ids, "tools": tools is not None, "parsed": parsed})
    return {"model": model, "added": ADDED, "prompt": prompt, "tools": TOOLS}, turns


def _whole(draw: random.Random, backend: tokenizers.Tokenizer, calls: list[str]) -> list[int]:
    text = draw.choice(THOUGHTS) + draw.choice(ANSWERS)
    text += "".join(f"\n<tool_call>{draw.choice(calls)}</tool_call>" for _ in range(draw.randrange(3)))
    return _encode(backend, text + draw.choice(["", "<|im_end|>"]))


def _pieces(draw: random.Random, backend: tokenizers.Tokenizer, calls: list[str]) -> list[int]:
    controls = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>", "<|endoftext|>"]
    ids = []
    for place in range(draw.randrange(1, 9)):
        pieces = [f" w{place}q ", draw.choice(controls), draw.choice([*calls, *BROKEN])]
        ids += _encode(backend, draw.choice(pieces))
    return ids


def _encode(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    return list(backend.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    main()
