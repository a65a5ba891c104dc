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
from agentgym_tok.envs.alfworld.prompts import SYSTEM
from agentgym_tok.envs.prompting import INSTRUCTIONS

VOCAB_SIZE = 4096
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
DELIMITERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
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
        yield SYSTEM
        yield from INSTRUCTIONS
        yield json.dumps({"name": "search", "arguments": {"query": "who wrote the book", "k": 3}})
    for word in PROSE.split():
        yield from [" " + word] * 40
    for number in range(1000):
        yield f" {number}"
    yield from string.printable


PROSE = """
the of and to in is that it for was on are as with his they at be this have from or had by not but what all
were we when your can said there use an each which she do how their if will up other about out many then them
these so some her would make like him into time has look two more write go see number no way could people my
than first water been call who its now find long down day did get come made may part over new sound take only
little work know place year live me back give most very after thing our just name good sentence man think say
great where help through much before line right too mean old any same tell boy follow came want show also
around form three small set put end does another well large must big even such because turn here why ask went
men read need land different home us move try kind hand picture again change off play spell air away animal
house point page letter mother answer found study still learn should world search click buy product price
color size option item rating description features instruction result question passage title author city
country born capital film song album player team season river mountain island university company founded
released directed written located population language
"""


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
