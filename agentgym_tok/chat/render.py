"""Messages to text: template literals and trusted parts keep their control tokens, everything else loses them."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer, free_cut, replace_surrogates
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Message

__all__ = ["Rendering", "render", "render_text"]


@dataclass(frozen=True, slots=True)
class Rendering:
    """Hold a rendered conversation.

    Args:
        text: What the template wrote.
        cut: The character that marks cuts inside the text.
        replaced: Lone surrogates that became U+FFFD.
    """

    text: str
    cut: str
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
    texts = [text for message in messages for text in _texts(message)]
    cut = free_cut([template.source, *texts, *_strings(tools)])
    guard = _Guard(tokenizer, cut, after_open=_leaves_open(template, tokenizer))
    text = template.render(
        [guard.message(message).to_dict() for message in messages],
        [guard.value(tool) for tool in tools],
        generation=generation,
    )
    return Rendering(text, cut, guard.replaced)


def render_text(tokenizer: Tokenizer, messages: Sequence[Message]) -> Rendering:
    """Return the contents of messages, one behind the other and nothing between, so that untrusted text stays text."""
    cut = free_cut([message.content for message in messages])
    guard = _Guard(tokenizer, cut, after_open=False)
    text = "".join(guard.content(message) for message in messages)
    return Rendering(text, cut, guard.replaced)


class _Guard:
    """Keep untrusted text from becoming a control token, alone or together with what stands around it.

    Args:
        tokenizer: Knows which texts are control tokens.
        cut: Marks where the rendering is cut.
        after_open: The template's own literals may begin a control token that untrusted text could complete.
    """

    def __init__(self, tokenizer: Tokenizer, cut: str, *, after_open: bool) -> None:
        self._tokenizer = tokenizer
        self._cut = cut
        self._after_open = after_open
        self.replaced = 0

    def message(self, message: Message) -> Message:
        calls = tuple(
            replace(
                call,
                name=self.text(call.name),
                id=self.text(call.id),
                arguments=self.value(call.arguments),
                raw=self.text(call.raw),
            )
            for call in message.tool_calls
        )
        return replace(
            message,
            # Templates may build a control token around a role, as in "<|" + role + "|>".
            role=self._tokenizer.protect(self._clean(message.role), self._cut),
            content=self.content(message),
            reasoning=self.value(message.reasoning),
            name=self.value(message.name),
            tool_call_id=self.value(message.tool_call_id),
            tool_calls=calls,
            untrusted=(),
        )

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value

    def text(self, text: str) -> str:
        text = self._clean(text)
        begins_apart = self._after_open and self._tokenizer.goes_on(text)
        return self._cut * begins_apart + self._tokenizer.protect(text, self._cut)

    def content(self, message: Message) -> str:
        if not message.trusted:
            return self.text(message.content)
        pieces: list[str] = []
        place = 0
        for start, end in message.untrusted:
            before = self._clean(message.content[place:start])
            # A trusted "<" must not complete a token with the world's text behind it.
            pieces += [
                before,
                self._cut * self._tokenizer.ends_in_prefix(before),
                self.text(message.content[start:end]),
            ]
            place = end
        return "".join([*pieces, self._clean(message.content[place:])])

    def _clean(self, text: str) -> str:
        text, count = replace_surrogates(text)
        self.replaced += count
        return text


@functools.lru_cache(maxsize=64)
def _leaves_open(template: ChatTemplate, tokenizer: Tokenizer) -> bool:
    return any(tokenizer.ends_in_prefix(literal) for literal in template.literals)


def _texts(message: Message) -> list[str]:
    texts = [message.role, message.content]
    texts += [text for text in (message.reasoning, message.name, message.tool_call_id) if text]
    for call in message.tool_calls:
        texts += [call.name, call.id, call.raw, *_strings(call.arguments)]
    return texts


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, item in value.items() for part in (key, item) for text in _strings(part)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _strings(item)]
    return []
