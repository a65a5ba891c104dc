"""Tools, the choice among them, and calls, as requests hold them."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from agentgym_tok.proxy.wire.ask import ToolChoice
from agentgym_tok.proxy.wire.reading import AskPart, BadAsk, JsonObject, Notes, json_object
from agentgym_tok.types import ToolCall

__all__ = ["Schema", "read_call", "read_tool_choice", "read_tools"]


class Schema(AskPart):
    """Hold a function that may be called."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: JsonObject | None = None


def read_tools(given: list[tuple[str, Schema | None]], notes: Notes, place: str) -> tuple[Mapping[str, Any], ...]:
    """Write tools as templates expect them; those that are no functions cannot be offered to the policy and are noted.

    Raises:
        BadAsk: Two have one name, or a function has no schema.
    """
    tools: dict[str, Mapping[str, Any]] = {}
    for index, (kind, schema) in enumerate(given):
        if kind != "function":
            notes.add(f"tools[] {kind}")
            continue
        where = f"tools[{index}]"
        if schema is None:
            raise BadAsk("a tool of the type function needs one", where=f"{where}.{place}")
        if schema.name in tools:
            raise BadAsk("two tools have one name", where=where, got=schema.name)
        notes.extras(schema, "tools[].")
        said = {} if schema.description is None else {"description": schema.description}
        parameters = schema.parameters or {"type": "object", "properties": {}}
        tools[schema.name] = {"type": "function", "function": {"name": schema.name, **said, "parameters": parameters}}
    return tuple(tools.values())


def read_tool_choice(
    given: str | Mapping[str, Any] | None, tools: tuple[Mapping[str, Any], ...]
) -> tuple[ToolChoice, str | None]:
    """Read a tool choice in either of OpenAI's shapes.

    Raises:
        BadAsk: It is none, or names no tool that is offered.
    """
    match given:
        case None | "auto":
            return "auto", None
        case "none":
            return "none", None
        case "required" if tools:
            return "required", None
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            if any(tool["function"]["name"] == name for tool in tools):
                return "tool", name
        case _:
            pass
    expected = "auto, none, required or one of the functions in tools"
    raise BadAsk("this tool choice is not supported", where="tool_choice", expected=expected)


def read_call(id_: str, name: str, arguments: str | None) -> ToolCall:
    """Read a call of an assistant's message; arguments that are no object stay text, none at all are an empty one."""
    if not arguments:
        return ToolCall(name, {}, id_)
    found = json_object(arguments)
    if found is None:
        return ToolCall(name, None, id_, raw=arguments, status="invalid_json")
    return ToolCall(name, found, id_)
