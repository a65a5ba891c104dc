"""Messages to text: template literals and trusted parts keep their control tokens, everything else loses them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer, free_cut, replace_surrogates
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Message, ToolCall

__all__ = ["Rendering", "render"]

Change: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Rendering:
    """Hold a rendered conversation.

    Args:
        text: What the template wrote.
        cut: The character that marks cuts inside the text; empty without any.
        replaced: Lone surrogates that became U+FFFD.
    """

    text: str
    cut: str = ""
    replaced: int = 0

    def encode(self, tokenizer: Tokenizer) -> Ids:
        """Return the ids of the whole text; the cuts leave none."""
        return tokenizer.encode(self.text, self.cut)


def render(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    *,
    generation: bool,
) -> Rendering:
    """Render a conversation so that untrusted text stays text.

    Args:
        template: The chat template.
        tokenizer: Knows which texts are control tokens.
        messages: The whole conversation.
        tools: JSON schemas of the tools.
        generation: End in the prompt for the next assistant turn.

    Raises:
        ChatError: The template refuses the conversation.
    """
    replaced = 0
    cleaned: list[Message] = []
    for message in messages:
        clean, count = _clean(message)
        cleaned.append(clean)
        replaced += count
    texts = [text for message in cleaned for text in _untrusted(message)]
    texts += _strings(tools)
    cut = ""
    if any(tokenizer.is_spelled_in(text) for text in texts):
        cut = free_cut([template.source, *texts, *(message.content for message in cleaned)])
        cleaned = [_protect(message, lambda text: tokenizer.protect(text, cut), cut) for message in cleaned]
        tools = [_map_value(tool, lambda text: tokenizer.protect(text, cut)) for tool in tools]
    text = template.render([message.to_dict() for message in cleaned], tools, generation=generation)
    return Rendering(text, cut, replaced)


def _clean(message: Message) -> tuple[Message, int]:
    replaced = 0

    def clean(text: str) -> str:
        nonlocal replaced
        text, count = replace_surrogates(text)
        replaced += count
        return text

    if not message.tool_calls and message.reasoning is None and message.content.isascii():
        return message, 0
    return _map(message, clean), replaced  # one character for one: the untrusted ranges stay right


def _protect(message: Message, protect: Change, cut: str) -> Message:
    """Cut the control tokens that untrusted text spells, alone or together with the trusted text before it."""
    if not message.trusted:
        return _map(message, protect)
    pieces: list[str] = []
    place = 0
    for start, end in message.untrusted:
        # The cut before the world's text keeps a trusted "<" from completing a token with it.
        pieces += [message.content[place:start], cut, protect(message.content[start:end])]
        place = end
    return replace(message, content="".join([*pieces, message.content[place:]]), untrusted=())


def _untrusted(message: Message) -> list[str]:
    if message.trusted:
        return [message.content[start:end] for start, end in message.untrusted]
    texts = [message.content]
    texts += [text for text in (message.reasoning, message.name, message.tool_call_id) if text]
    for call in message.tool_calls:
        texts += [call.name, call.id, *_strings(call.arguments)]
    return texts


def _map(message: Message, change: Change) -> Message:
    def maybe(text: str | None) -> str | None:
        return None if text is None else change(text)

    calls = tuple(
        replace(call, name=change(call.name), id=change(call.id), arguments=_map_value(call.arguments, change))
        for call in message.tool_calls
    )
    return replace(
        message,
        content=change(message.content),
        reasoning=maybe(message.reasoning),
        name=maybe(message.name),
        tool_call_id=maybe(message.tool_call_id),
        tool_calls=calls,
    )


def _map_value(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(key) if isinstance(key, str) else key: _map_value(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_value(item, change) for item in value]
    return value


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for part in (key, item) for text in _strings(part)]
    if isinstance(value, Iterable):
        return [text for item in value for text in _strings(item)]
    return []


def stub_call(message: Message, place: int) -> ToolCall:
    """Return the call that a tool message answers, as far as the message names it."""
    return ToolCall(name=message.name or "tool", arguments={}, id=message.tool_call_id or f"call{place}")
