"""Another parser in place of ours: PrimeIntellect's `renderers`, for models that it knows by name (extra `renderers`).

The package is asked to read turns and for nothing else; prompts and bridges are made as ever. Since it goes by a
model's name, its generation prompt must be the template's, or the name is refused.
"""

import difflib
import importlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from agentgym_tok.chat.deltas import Said
from agentgym_tok.chat.dialects.dialect import Dialect
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import TurnText, any_of
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ChatError, MissingExtra
from agentgym_tok.types import AssistantMessage, CallStatus, ToolCall

__all__ = ["RenderersDialect"]

_ASKED = {"role": "user", "content": "Go on."}
_STATUSES: dict[str, CallStatus] = {
    "ok": "ok",
    "invalid_json": "invalid_json",
    "unclosed_block": "unclosed",
    "missing_name": "missing_name",
    "malformed_structure": "malformed",
    "unknown_tool": "unknown_tool",
}
_CHANNEL = "<|channel>thought\n"  # Gemma names the channel of its reasoning behind the opener
# It expects what models write; random ids bring errors of many kinds out of it.
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class RenderersDialect:
    """Read turns with the package `renderers` 0.1.12.

    What the package leaves out (such as text behind the first call, or behind a stop token inside a turn) is appended
    to the content. A turn that it fails on (such as one with a number too long for Python) is read by our own dialect.

    Args:
        model: A name of the package's own table.
        tokenizer: The model's.
        template: The model's.
        written: How the template writes a turn.

    Raises:
        MissingExtra: The package is not installed.
        ChatError: It does not know the model, or knows another one of this name.
    """

    signs = ()

    def __init__(self, model: str, tokenizer: Tokenizer, template: ChatTemplate, written: Dialect) -> None:
        self.name = f"renderers:{model}"
        self.delimiters = written.delimiters
        self.reasoning = written.reasoning
        self._written = written
        self._tokenizer = tokenizer
        self._renderer = _renderer(model, tokenizer, template)
        self._prompt: list[int] = tokenizer.encode(template.render([_ASKED], None, generation=True)).tolist()
        self._marks = any_of(*written.delimiters, *tokenizer.control_texts.values(), _CHANNEL)
        self._between = re.compile(rf"(?:\s|{self._marks.pattern.decode()})*+")

    def read(self, turn: TurnText, tools: Tools) -> AssistantMessage:
        """Read a turn."""
        schemas = None if tools.schemas is None else [dict(schema) for schema in tools.schemas]
        try:
            parsed = self._renderer.parse_response(list(turn.ids), tools=schemas, prompt_ids=list(self._prompt))
        except _FAILURES:
            return self._written.read(turn, tools)
        calls = tuple(_call(found, tools) for found in parsed.tool_calls)
        reasoning, content = parsed.reasoning_content, parsed.content.strip()
        left_out = self._left_out(turn, calls, (reasoning or "", content))
        return AssistantMessage(
            content="\n".join(filter(None, [content, *left_out])),
            reasoning=None if reasoning is None else reasoning.strip(),
            tool_calls=calls,
            reasoning_closed=parsed.reasoning_complete is not False,
            closed=turn.closed,
        )

    def early(self, tokenizer: Tokenizer, tools: Tools, said: Said, opened: bool | None) -> None:
        """Read nothing early: the package reads whole turns."""

    def _left_out(self, turn: TurnText, calls: Sequence[ToolCall], kept: tuple[str, str]) -> Iterator[str]:
        """Yield the texts of a turn that stand in no call, and neither in its reasoning nor in its content."""
        places = [0, 0]
        for text in self._texts(turn, calls):
            for which, whole in enumerate(kept):
                between = self._between.match(whole, places[which])
                assert between is not None
                place = between.end()
                if whole.startswith(text, place):
                    places[which] = place + len(text)
                    break
            else:
                yield text

    def _texts(self, turn: TurnText, calls: Sequence[ToolCall]) -> Iterator[str]:
        """Yield what a turn says outside its calls, from one delimiter or control token to the next."""
        in_calls = {place for call in calls for place in range(*call.tokens)}
        table = self._tokenizer.token_bytes
        for apart, run in groupby(range(len(turn.ids)), key=in_calls.__contains__):
            if not apart:
                for piece in self._marks.split(b"".join([table[turn.ids[place]] for place in run])):
                    if text := piece.decode("utf-8", "replace").strip():
                        yield text


def _renderer(model: str, tokenizer: Tokenizer, template: ChatTemplate) -> Any:
    where = "ChatFormat.from_pretrained"
    try:
        package = importlib.import_module("renderers.base")
    except ImportError as error:
        raise MissingExtra(
            "the parse backend needs the package renderers",
            where=where,
            got=str(error),
            fix='pip install "agentgym-tok[renderers]"',
        ) from error
    known = package.MODEL_RENDERER_MAP
    if model not in known:
        near = difflib.get_close_matches(model, known, n=3) or ["Qwen/Qwen3-8B"]
        raise ChatError(
            "the package renderers does not know this model",
            where=where,
            got=repr(model),
            expected=f"one of the {len(known)} names it knows, such as {', '.join(near)}",
            fix=f'name the model, as in dialect="renderers:{near[0]}", or leave dialect out',
        )
    its_tokenizer = _PackageTokenizer(model, tokenizer, template)
    try:
        renderer = package.create_renderer(its_tokenizer)
        names = package.template_field_names(renderer.config)
        kwargs = {name: value for name, value in template.variables.items() if name in names}
        renderer = package.create_renderer(its_tokenizer, chat_template_kwargs=kwargs) if kwargs else renderer
        theirs = tokenizer.decode(renderer.render_ids([_ASKED], add_generation_prompt=True))
    except Exception as error:  # it asserts, and what it asks of others fails in ways of their own
        raise ChatError(
            "the package renderers refuses this tokenizer",
            where=where,
            got=f"{type(error).__name__}: {error}",
            expected=f"the tokenizer of {model}",
            fix="name the model that the tokenizer belongs to, or leave dialect out",
        ) from error
    ours = template.render([_ASKED], None, generation=True)
    ends = [text.rpartition(_ASKED["content"])[2] for text in (theirs, ours)]
    if ends[0] != ends[1]:  # turns begin elsewhere there
        raise ChatError(
            f"the package renderers writes another generation prompt for {model}",
            where=where,
            got=repr(ends[0]),
            expected=f"{ends[1]!r}, as the template does",
            fix="name the model that the template belongs to, or leave dialect out",
        )
    return renderer


class _PackageTokenizer:
    """Offer what the package asks of a tokenizer.

    Args:
        model: The name that it goes by.
        tokenizer: The tokenizer.
        template: Some of its renderers look for variants in the text.
    """

    unk_token_id = None
    eos_token_id = None

    def __init__(self, model: str, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.name_or_path = model
        self.chat_template = template.source
        self._tokenizer = tokenizer

    def encode(self, text: str, **_options: Any) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).tolist()
        return ids

    def decode(self, ids: Sequence[int], **_options: Any) -> str:
        return self._tokenizer.decode(ids)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self._tokenizer.token_id(token)


def _call(found: Any, tools: Tools) -> ToolCall:
    name = found.name if isinstance(found.name, str) else ""
    arguments = found.arguments if name and isinstance(found.arguments, dict) else None
    status = _STATUSES.get(str(found.status), "malformed")
    if status == "ok" and not name:
        status = "missing_name"
    elif status == "ok" and arguments is None:
        status = "malformed"
    elif not _is_json(arguments):
        status, arguments = "invalid_json", None
    elif status == "ok" and not tools.knows(name):
        status = "unknown_tool"
    raw, tokens = found.raw.strip(), found.token_span or (0, 0)
    return ToolCall(name, arguments, id=found.id or "", raw=raw, tokens=tokens, status=status)


def _is_json(value: Any) -> bool:
    """Tell whether a value is JSON (RFC 8259); the package takes NaN and infinities."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
