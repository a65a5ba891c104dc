"""Chat templates: Jinja programs that turn messages into one text.

The environment is the one that Hugging Face defines for `chat_template` (sandboxed, blocks trimmed, loop controls,
`tojson` without HTML escapes, `raise_exception`, `strftime_now`, `generation` blocks), so that the same template gives
the same text here, with or without transformers.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentgym_tok.errors import ChatError

__all__ = ["ChatTemplate"]


class ChatTemplate:
    """Render conversations with one Jinja template.

    Args:
        source: The template's text.
        variables: What the template may read beside the messages: special tokens and template kwargs.

    Raises:
        ChatError: The template does not compile.
    """

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        self.source = source
        self.variables = dict(variables)
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ChatError("the chat template does not compile", where="chat_template", got=str(error)) from error

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, *, generation: bool
    ) -> str:
        """Return the conversation as text.

        Args:
            messages: Messages in the shape of the OpenAI chat API.
            tools: JSON schemas; None or empty for none.
            generation: End in the prompt for the next assistant turn.

        Raises:
            ChatError: The template refuses these messages.
        """
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=generation, **self.variables
            )
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ChatError(
                "the chat template refuses this conversation",
                where=f"messages with roles {roles}",
                got=str(error),
                fix="check the order of roles that the template allows",
            ) from error


class _Generation(Extension):
    """Accept `{% generation %}`, which marks assistant text for masks; our masks come from the sampled ids."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own protocol

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


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
