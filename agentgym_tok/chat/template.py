"""Chat templates: Jinja programs that turn messages into one text.

The environment is the one that Hugging Face defines for `chat_template` (sandboxed, blocks trimmed, loop controls,
`tojson` without HTML escapes, `raise_exception`, `strftime_now`, `generation` blocks), so that the same template gives
the same text here, with or without transformers.
"""

import contextlib
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Const, Node, Scope, TemplateData
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentgym_tok.errors import ChatError

__all__ = ["ChatTemplate"]

# Whatever goes wrong inside a template is its refusal.
_REFUSALS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class ChatTemplate:
    """Render conversations with one Jinja template.

    Args:
        source: The template's text.
        variables: What the template may read beside the messages: special tokens and template kwargs.

    Attributes:
        literals: Texts that the template can write of its own.

    Raises:
        ChatError: The template does not compile, or a variable has the name of a part of the conversation.
    """

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        reserved = {"messages", "tools", "add_generation_prompt"} & variables.keys()
        if reserved:
            raise ChatError("the template gets these from the conversation", where="template_kwargs", got=reserved)
        self.source = source
        self.variables = dict(variables)
        environment = _environment()
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ChatError("the chat template does not compile", where="chat_template", got=str(error)) from error
        written = [*(node.data for node in tree.find_all(TemplateData)), *(node.value for node in tree.find_all(Const))]
        self.literals = tuple(text for text in [*written, *self.variables.values()] if isinstance(text, str))
        self._forms: dict[bool, _Form | None] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        generation: bool,
        **variables: Any,
    ) -> str:
        """Return the conversation as text.

        Args:
            messages: Messages in the shape of the OpenAI chat API.
            tools: JSON schemas; None or empty for none.
            generation: End in the prompt for the next assistant turn.
            variables: What the template may read this time, over its own variables.

        Raises:
            ChatError: The template refuses these messages.
        """
        shaped = [self._shaped(message) for message in messages]
        return self._render(shaped, tools or None, generation=generation, **variables)

    def writes_calls(self, *, with_text: bool) -> bool:
        """Tell whether the template writes an assistant's tool calls, without or with a text before them."""
        return self._form(with_text=with_text) is not None

    @cached_property
    def _in_parts(self) -> bool:
        """The template reads contents as lists of parts, as those of vision models do, and not as texts."""
        message = {"role": "user", "content": "word4"}
        written = ["", ""]
        for place, content in enumerate(("word4", _parts("word4"))):
            with contextlib.suppress(ChatError):
                written[place] = self._render([{**message, "content": content}], None, generation=False)
        # Python's own form of a list is no rendering of its text.
        return "word4" not in written[0] and "word4" in written[1] and "'type'" not in written[1]

    def _shaped(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._in_parts and isinstance(message["content"], str):
            message = {**message, "content": _parts(message["content"])}
        if not message.get("tool_calls"):
            return message
        form = self._form(with_text=bool(message["content"]))
        return message if form is None else form.apply(message)

    def _form(self, *, with_text: bool) -> "_Form | None":
        if with_text not in self._forms:
            self._forms[with_text] = next((form for form in _FORMS if self._survives(form, "word3" * with_text)), None)
        return self._forms[with_text]

    def _survives(self, form: "_Form", text: str) -> bool:
        function = {"name": "word0", "arguments": {"word1": "word2"}}
        call = {"type": "function", "id": "call00000", "function": function}
        probe = form.apply({"role": "assistant", "content": text, "tool_calls": [call]})
        try:
            written = self._render([{"role": "user", "content": "Go on."}, probe], None, generation=False)
        except ChatError:
            return False
        named = "word0" in written or "call00000" in written  # some write only the id, which holds the name (Kimi)
        return named and all(word in written for word in ("word1", "word2", text))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        generation: bool,
        **variables: Any,
    ) -> str:
        given = {"messages": messages, "tools": tools, "add_generation_prompt": generation}
        try:
            return self._template.render({"documents": None, **self.variables, **variables, **given})
        except _REFUSALS as error:
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ChatError(
                "the chat template refuses this conversation",
                where=f"messages with roles {roles}",
                got=str(error),
                fix="check the order of roles that the template allows",
            ) from error


@dataclass(frozen=True, slots=True)
class _Form:
    """Hold what an assistant message with tool calls must look like for a template; there is no standard.

    Args:
        no_text: An empty content is None.
        as_text: Arguments are JSON text.
    """

    no_text: bool
    as_text: bool

    def apply(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message in this form."""
        shaped = dict(message)
        if self.no_text and not shaped["content"]:
            shaped["content"] = None
        if self.as_text:
            shaped["tool_calls"] = [_with_text(call) for call in shaped["tool_calls"]]
        return shaped


_FORMS = [_Form(no_text, as_text) for no_text in (False, True) for as_text in (False, True)]


def _parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else _tojson(arguments)
    return {**call, "function": {**function, "arguments": text}}


class _Generation(Extension):
    """Accept `{% generation %}`, which marks assistant text for masks; our masks come from the sampled ids."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own protocol

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        # A scope of its own, as there: what the block sets is not seen behind it.
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(pattern: str) -> str:
    return dt.datetime.now().astimezone().strftime(pattern)
