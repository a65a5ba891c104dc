"""From a sampled turn to the next prompt without rendering the past again.

The template is asked what it writes after an assistant turn by rendering a short stub conversation that ends in a known
body. What stands behind the body, with and without the new messages, gives the text to add; the sampled ids before it
stay untouched. Every step is checked, and where a check fails the answer is a refusal with its reason, never a guess.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentgym_tok.chat.render import Rendering, render, stub_call
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import TURN_ORIGINS, Context, Origin, Span
from agentgym_tok.types import Message

__all__ = ["Bridge", "Refusal"]

Reason: TypeAlias = Literal[
    "no_turn", "no_messages", "assistant_message", "template_refuses", "body_rewritten", "past_rewritten", "open_seam"
]

_BODY = "The body of a stub turn."
_MOST_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class Refusal:
    """Say why a context cannot be bridged; the caller declares a rewrite instead.

    Args:
        reason: `no_turn`: the context does not end in a policy's turn. `no_messages`: nothing to add.
            `assistant_message`: an assistant's text would be encoded again. `template_refuses`: it raised.
            `body_rewritten`: it does not keep an assistant's text as it is. `past_rewritten`: new messages change what
            stands before them. `open_seam`: no control token separates the turn from what follows.
        detail: For people.
    """

    reason: Reason
    detail: str = ""


class Bridge:
    """Append messages to contexts of one template and tokenizer."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._known: dict[tuple[tuple[str, str], ...], Rendering] = {}

    def closer(self) -> str:
        """Return what the template writes behind an assistant's content.

        Raises:
            ChatError: The template refuses a user and an assistant message, or changes the assistant's text.
        """
        after = self._behind_body(_stub(()), (), generation=False)
        if isinstance(after, Refusal):
            raise ChatError("the template does not keep an assistant's text", where="chat_template", got=after.detail)
        return after.text

    def __call__(self, context: Context, messages: Sequence[Message]) -> Context | Refusal:
        """Return the context that awaits the next turn, or the reason why it cannot be built."""
        if context.span.origin not in TURN_ORIGINS:
            return Refusal("no_turn", f"the last span is {context.span.origin}")
        if not messages:
            return Refusal("no_messages")
        if any(message.role == "assistant" for message in messages):
            return Refusal("assistant_message")
        try:
            rendering = self._tail(messages, context.root.tools)
        except ChatError as error:
            return Refusal("template_refuses", str(error))
        if isinstance(rendering, Refusal):
            return rendering
        tail_T = rendering.encode(self._tokenizer)
        if not len(tail_T) or int(tail_T[0]) not in self._tokenizer.control_ids:
            return Refusal("open_seam", f"the template goes on with {rendering.text[:20]!r}")
        if _last_of_turn(context) == int(tail_T[0]):
            tail_T = tail_T[1:]  # the policy drew the stop token itself; after a length stop it is added, untrained
        return context.extend(Span(tail_T, _origin(messages), replaced=rendering.replaced))

    def _tail(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Rendering | Refusal:
        stub = _stub(messages)
        closer = self._after(_stub(()))
        before = self._after(stub)
        whole = self._behind_body(stub, messages, generation=True, tools=tools)
        for part in (closer, before, whole):
            if isinstance(part, Refusal):
                return part
        assert isinstance(closer, Rendering) and isinstance(before, Rendering) and isinstance(whole, Rendering)  # noqa: PT018
        past = before.text.replace(before.cut, whole.cut)
        if not past.endswith(closer.text) or not whole.text.startswith(past):
            return Refusal("past_rewritten", f"{whole.text[:60]!r} does not go on from {past[-60:]!r}")
        return Rendering(closer.text + whole.text[len(past) :], whole.cut, whole.replaced)

    def _after(self, stub: tuple[Message, ...]) -> Rendering | Refusal:
        key = tuple((call.name, call.id) for call in stub[-1].tool_calls)
        known = self._known.get(key)
        if known is None:
            after = self._behind_body(stub, (), generation=False)
            if isinstance(after, Refusal):
                return after
            if _BODY in after.text:
                return Refusal("body_rewritten", "the template writes an assistant's text twice")
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()  # call ids that never repeat must not fill the memory
            known = self._known[key] = after
        return known

    def _behind_body(
        self,
        stub: tuple[Message, ...],
        messages: Sequence[Message],
        *,
        generation: bool,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Rendering | Refusal:
        whole = render(self._template, self._tokenizer, [*stub, *messages], tools, generation=generation)
        _, body, behind = whole.text.partition(_BODY)
        if not body:
            return Refusal("body_rewritten", "an assistant's text is not kept as it is")
        return Rendering(behind, whole.cut, whole.replaced)


def _stub(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a user's and an assistant's message; the latter calls the tools that the messages begin to answer."""
    calls = []
    for place, message in enumerate(messages):
        if message.role != "tool":
            break
        calls.append(stub_call(message, place))
    return Message("user", "Go on."), Message("assistant", _BODY, tool_calls=tuple(calls))


def _last_of_turn(context: Context) -> int | None:
    """Return the last id of the policy's turn, which may stand in several spans; None where the turn has no ids."""
    for ancestor in context.lineage():
        if ancestor.span.origin not in TURN_ORIGINS:
            break
        if len(ancestor.span):
            return int(ancestor.span.ids_T[-1])
    return None


def _origin(messages: Sequence[Message]) -> Origin:
    return "tool" if all(message.role == "tool" for message in messages) else "observation"
