"""Train the tokenizer of `ChatFormat.builtin()` on text of the library's own worlds.

    python scripts/train_builtin_tokenizer.py [--check]

The text is generated, so that the same library version gives the same tokenizer. A new tokenizer changes every id:
raise the library's version and note it in the changelog. `--check` compares without writing.
"""

import json
import random
import string
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from agentgym_tok.envs.alfworld import ALFWorldEngine, SynthGames
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS

VOCAB_SIZE = 4096
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
DELIMITERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
WORDS = Path(__file__).with_name("common_words.txt")
TARGET = Path(__file__).resolve().parents[1] / "agentgym_tok" / "chat" / "builtin" / "tokenizer.json"


def corpus() -> Iterator[str]:
    """Yield episodes as a policy sees them, prompts, and the plain prose and JSON around them."""
    draw = random.Random(0)  # noqa: S311  # reproducible text, no secret
    engine = ALFWorldEngine(SynthGames("train"))
    for task in engine.tasks()[:1200]:
        observation = engine.reset(task)
        yield observation.text
        while not observation.terminated:
            command = engine.expert_command() or draw.choice(observation.admissible_commands)
            if draw.random() < 0.3:
                command = draw.choice(observation.admissible_commands)
            observation = engine.step(command)
            yield f"<action>{command}</action>"
            yield observation.text
            if draw.random() < 0.1:
                yield "\n".join(observation.admissible_commands)
            if draw.random() < 0.02:
                break
    for _ in range(200):
        yield from ("system", "user", "assistant", "tool")  # the template writes one before every message
        yield from (ALFWORLD_WORDS.system, ALFWORLD_WORDS.role, ALFWORLD_WORDS.answer)
        yield json.dumps({"name": "search", "arguments": {"query": "who wrote the book", "k": 3}})
    for word in WORDS.read_text(encoding="utf-8").split():
        # Enough to become one entry behind a blank, and at the beginning of a sentence or a title.
        yield from [f" {word}"] * 20
        yield from [f" {word.capitalize()}"] * 4
    for number in range(1000):
        yield f" {number}"
    yield from string.printable


def train() -> str:
    """Return the tokenizer as JSON."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=1,
        special_tokens=CONTROL + DELIMITERS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    rules = json.loads(tokenizer.to_str())
    for token in rules["added_tokens"]:
        # As in models' own tokenizers: found in raw text like control tokens, but kept when text is shown.
        token["special"] = token["content"] in CONTROL
    return json.dumps(rules, ensure_ascii=False, separators=(",", ":")) + "\n"


def main() -> int:
    """Write or check the file; return 1 where a check finds a difference."""
    text = train()
    if "--check" in sys.argv[1:]:
        same = TARGET.read_text(encoding="utf-8") == text
        print(f"{TARGET.name}: {'as trained' if same else 'differs'}")
        return int(not same)
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET.name}: {len(json.loads(text)['model']['vocab'])} entries, {len(text)} characters")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
