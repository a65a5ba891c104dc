# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar
"""The models of the suite: the library's small vocabulary with added tokens, and a template for each family.

A model is no network, only a tokenizer and a chat template. Each template imitates how one family behaves, in words of
its own. Real tokenizers are read from folders in the same way.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import tokenizers

from agentgym_tok import ChatFormat
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from tito_conformance.rendering import render
from tito_conformance.script import Piece

__all__ = ["BUILT", "Model", "built", "read_model"]


@dataclass(frozen=True, eq=False)
class Model:
    """Hold a tokenizer and a chat template.

    Args:
        name: What the `model` field of a request says.
        backend: The tokenizer.
        template: The chat template.
        variables: Special tokens, which the template may read.
        stops: Texts of the tokens that end a turn; the first one is the tokenizer's EOS.
    """

    name: str
    backend: tokenizers.Tokenizer
    template: str
    variables: Mapping[str, str]
    stops: tuple[str, ...]
    control: dict[int, str] = field(init=False)
    """Texts of the added tokens, by id."""

    def __post_init__(self) -> None:
        added = self.backend.get_added_tokens_decoder()
        object.__setattr__(self, "control", {index: token.content for index, token in added.items()})

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt as text, as an engine renders it.

        Raises:
            ValueError: The template refuses the conversation.
        """
        return render(self.template, self.variables, messages, tools)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text; control tokens spelled in it become control ids.

        Args:
            text: The text.
            special: Also add what the tokenizer adds of its own, such as BOS.
        """
        ids: list[int] = self.backend.encode(text, add_special_tokens=special).ids
        return ids

    def sample(self, pieces: Sequence[Piece]) -> list[int]:
        """Return the ids of pieces that are encoded one by one, as a policy may cut them; bytes become byte tokens."""
        ids: list[int] = []
        for piece in pieces:
            ids += self.encode(piece) if isinstance(piece, str) else [self._byte_ids[byte] for byte in piece]
        return ids

    def spell(self, ids: Sequence[int], *, skip_special: bool = False) -> bytes:
        """Return the bytes of ids, control tokens spelled out."""
        skipped = self._special_ids if skip_special else frozenset()
        return b"".join([self._bytes[index] for index in ids if index not in skipped])

    @functools.cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end a turn."""
        return tuple(self.encode(stop)[0] for stop in self.stops)

    @functools.cached_property
    def chat(self) -> ChatFormat:
        """The library's format of this model."""
        template = ChatTemplate(self.template, self.variables)
        return ChatFormat(Tokenizer(self.backend), template, reference=(self.name,), stop_ids=self.stop_ids)

    @functools.cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(i for i, token in self.backend.get_added_tokens_decoder().items() if token.special)

    @functools.cached_property
    def _bytes(self) -> dict[int, bytes]:
        of_char = _alphabet()
        vocabulary = self.backend.get_vocab(with_added_tokens=True)
        return {
            index: text.encode() if index in self.control else bytes(of_char[char] for char in text)
            for text, index in vocabulary.items()
        }

    @functools.cached_property
    def _byte_ids(self) -> dict[int, int]:
        return {piece[0]: index for index, piece in self._bytes.items() if len(piece) == 1}

    def save(self, folder: Path) -> Path:
        """Write the files that `transformers.AutoTokenizer.from_pretrained` and engines read.

        Returns:
            The model's own folder inside `folder`.
        """
        target = folder / self.name
        target.mkdir(parents=True, exist_ok=True)
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": self.template,
            "clean_up_tokenization_spaces": False,
            **self.variables,
        }
        self.backend.save(str(target / "tokenizer.json"))
        (target / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1), "utf-8")
        (target / "generation_config.json").write_text(json.dumps({"eos_token_id": list(self.stop_ids)}), "utf-8")
        return target


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Say how a model is made.

    Args:
        template: Name of the template's file.
        stops: Tokens that end a turn.
        special: Added tokens that are flagged special, beside those of the builtin vocabulary.
        plain: Added tokens that are not.
        settings: Set at the head of the template, so that its files need no kwargs.
        bos: BOS, which both the template and the tokenizer write.
    """

    template: str
    stops: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>")
    special: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    settings: str = ""
    bos: str = ""


_RESPONSE = ("<tool_response>", "</tool_response>")
_LLAMA = _Recipe(
    "llama3",
    ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
    special=("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
    settings="{%- set date_format = '%d %b %Y' %}\n",
    bos="<|begin_of_text|>",
)
_RECIPES = {
    "tiny-chatml": _Recipe("chatml", special=("<image>", "<|quote|>")),
    "tiny-qwen3": _Recipe("qwen3", plain=_RESPONSE),
    "tiny-qwen3-nothink": _Recipe("qwen3", plain=_RESPONSE, settings="{%- set enable_thinking = false %}\n"),
    "tiny-qwen35": _Recipe("qwen35", plain=_RESPONSE),
    "tiny-glm": _Recipe(
        "glm",
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
        special=("[gMASK]", "<sop>", "<|system|>", "<|assistant|>"),
        plain=(*_RESPONSE, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    ),
    "tiny-harmony": _Recipe(
        "harmony",
        ("<|return|>", "<|call|>"),
        special=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
    ),
    "tiny-phi3": _Recipe("phi3", ("<|endoftext|>", "<|end|>"), special=("<|system|>", "<|user|>", "<|assistant|>")),
    "tiny-llama3": _LLAMA,
    "tiny-llama3-clock": replace(_LLAMA, settings="{%- set date_format = '%H:%M:%S.%f' %}\n"),
    "tiny-kimi": _Recipe(
        "kimi",
        ("<|im_end|>",),
        special=("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>"),
        plain=(
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
    ),
    "tiny-deepseek": _Recipe(
        "deepseek",
        ("<｜end▁of▁sentence｜>",),
        special=("<｜User｜>", "<｜Assistant｜>"),
        plain=(
            *(f"<｜tool▁call{part}｜>" for part in ("s▁begin", "s▁end", "▁begin", "▁end")),
            *(f"<｜tool▁output{part}｜>" for part in ("s▁begin", "s▁end", "▁begin", "▁end")),
            "<｜tool▁sep｜>",
        ),
        bos="<｜begin▁of▁sentence｜>",
    ),
}
BUILT = tuple(_RECIPES)
"""Names of the models that are built here."""


@functools.cache
def built(name: str) -> Model:
    """Return a model of the suite."""
    recipe = _RECIPES[name]
    backend = tokenizers.Tokenizer.from_str(json.dumps(_rules()))
    special = (*recipe.special, *recipe.stops, *([recipe.bos] if recipe.bos else []))
    backend.add_special_tokens([tokenizers.AddedToken(text, normalized=False) for text in special])
    backend.add_tokens([tokenizers.AddedToken(text, normalized=False, special=False) for text in recipe.plain])
    variables = {"eos_token": recipe.stops[0]}
    if recipe.bos:
        variables["bos_token"] = recipe.bos
        begin = (recipe.bos, backend.token_to_id(recipe.bos))
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{recipe.bos} $A", pair=f"{recipe.bos} $A $B", special_tokens=[begin]
        )
    file = resources.files("tito_conformance") / "templates" / f"{recipe.template}.jinja"
    return Model(name, backend, recipe.settings + file.read_text(encoding="utf-8"), variables, recipe.stops)


def read_model(folder: Path, name: str) -> Model:
    """Return a model whose tokenizer stands in a folder as Hugging Face writes it."""
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    special = {
        key: value if isinstance(value, str) else value["content"]
        for key in ("bos_token", "eos_token")
        if (value := config.get(key))
    }
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return Model(name, backend, config["chat_template"], special, (special["eos_token"],))


# How Qwen's tokenizers cut text before they merge: punctuation takes the newlines behind it along.
_CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Merges behind those of the vocabulary, in this order, so that the words of the cases have the pieces they need.
_MERGES = (
    *("Ċ Ċ", ". ĊĊ", ": ĊĊ", "} Ċ", '" }Ċ', "[ ]"),
    *("H A", "HA V", "I NG", "A V", "AV ING"),
    *("out s", "roll out", "j son", "an tom", "ĠP ant", "go ing"),
    *("Ã ©", "af Ã©", "æ Ĺ", "æĹ ¥", "æ ľ", "æľ ¬", "æĹ¥ æľ¬", "è ª", "èª ŀ"),
)


@functools.cache
def _rules() -> dict[str, Any]:
    file = resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json"
    rules: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": _CUTS}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    rules["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    vocabulary, merges = rules["model"]["vocab"], rules["model"]["merges"]
    for merge in _MERGES:
        pair = merge.split(" ")
        vocabulary.setdefault("".join(pair), len(vocabulary))
        merges.append(pair if isinstance(merges[0], list) else merge)
    return rules


@functools.cache
def _alphabet() -> dict[str, int]:
    """Return the byte behind each character of byte-level vocabularies (GPT-2's table)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}
