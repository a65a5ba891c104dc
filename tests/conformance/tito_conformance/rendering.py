"""What a text pipeline renders: the Jinja environment in which Hugging Face runs chat templates.

Written apart from the library on purpose: the judge must not share a mistake with what it judges.
"""

import contextlib
import datetime as dt
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["as_engines_read", "render"]


def render(
    source: str,
    variables: Mapping[str, str],
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
) -> str:
    """Return the conversation as text that ends in the generation prompt.

    Raises:
        ValueError: The template refuses it.
    """
    given = {"messages": messages, "tools": list(tools) or None, "add_generation_prompt": True}
    try:
        return _compiled(source).render(**variables, **given)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"the template refuses the conversation: {error}") from error


@functools.cache
def _compiled(source: str) -> Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: dt.datetime.now().astimezone().strftime(pattern)
    return environment.from_string(source)


def as_engines_read(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of the OpenAI API as engines hand them to templates: text in one piece, arguments as objects."""
    read = []
    for given in messages:
        message = dict(given)
        content = message.get("content") or ""
        message["content"] = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        if message.get("tool_calls"):
            message["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
        read.append(message)
    return read


def _with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        with contextlib.suppress(ValueError):  # where the model broke its JSON, the template gets the text
            function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**call, "function": function}


def _raise(message: str) -> None:
    raise TemplateError(message)
