"""From a sampled turn to the next prompt without rendering the past again.

The template is asked what it writes behind an assistant's turn: a stub conversation whose turn ends in a known mark is
rendered together with the new messages, and what stands behind the mark is what to add. The sampled ids before it stay
untouched. Every step is checked, and where a check fails the answer is a refusal with its reason, never a guess.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from agentgym_tok.chat.inline import INLINE
from agentgym_tok.chat.render import Rendering, render, render_text
from agentgym_tok.chat.stub import MARK, NAMELESS, OTHER_MARK, Stub, probes_of, spoken_stub, stubs_for
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import TURN_ORIGINS, Context, Ids, Origin, Span
from agentgym_tok.types import Message

__all__ = ["Bridge", "Refusal", "TurnEnds"]

Reason: TypeAlias = Literal[
    "no_turn",
    "no_messages",
    "assistant_message",
    "closed_turn",
    "template_refuses",
    "body_rewritten",
    "past_rewritten",
    "content_lost",
    "nameless_result",
    "open_seam",
    "other_opener",
]

_MOST_KNOWN = 1024
_THINK = ("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Say why a context cannot be bridged; the caller declares a rewrite instead.

    Args:
        reason: `no_turn`: the context does not end in a policy's turn. `no_messages`: nothing to add.
            `assistant_message`: an assistant's text would be encoded again. `closed_turn`: inline text, and the turn
            has ended or other messages stand beside. `template_refuses`: it raised.
            `body_rewritten`: it does not keep a turn's text as it is. `past_rewritten`: what it writes behind a turn
            cannot be told from the turn. `content_lost`: it leaves a message out. `nameless_result`: it writes the name
            or id of a call that nobody told. `open_seam`: no control token separates the turn from what follows.
            `other_opener`: the turn stopped on the opener of another role than the one that follows.
        detail: For people.
    """

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """Hold how turns end in a template.

    Args:
        closer: What it writes behind an assistant's text where nothing follows.
        closers: Control tokens that close a turn: the first of the closer, and what stands there when a message follows
            (gpt-oss: `<|return|>` and `<|end|>`).
        openers: Where nothing closes a turn, the control tokens that open the next message; policies stop on them, as
            those of GLM do.
    """

    closer: str
    closers: tuple[int, ...]
    openers: tuple[int, ...]


class Bridge:
    """Append messages to contexts of one template and tokenizer.

    Args:
        template: The chat template.
        tokenizer: Its tokenizer.
        stop_ids: Ids that the model stops on, whatever the template writes.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, stop_ids: Sequence[int] = ()) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self._before: dict[Stub, str | None] = {}
        self._proved: dict[tuple[Any, ...], tuple[Refusal | None, ...]] = {}

    def __call__(self, context: Context, messages: Sequence[Message]) -> Context | Refusal:
        """Return the context that awaits the next turn, or the reason why it cannot be built."""
        if context.span.origin not in TURN_ORIGINS:
            return Refusal("no_turn", f"the last span is {context.span.origin}")
        if not messages:
            return Refusal("no_messages")
        if any(message.role == "assistant" for message in messages):
            return Refusal("assistant_message")
        turn_T, prompt = _turn(context)
        stop = turn_T[-1] if turn_T and turn_T[-1] in self._tokenizer.control_ids else None
        if any(message.role == INLINE for message in messages):
            return self._inline(context, messages, closed=stop in self._stops)
        tail = self._tail(messages, context.root.tools, stop)
        if isinstance(tail, Refusal):
            return tail
        if stop not in self._stops and self._thinks(turn_T, prompt):
            # A cut inside reasoning gets both ends. Where the policy stopped there by itself, its turn stays as it is.
            tail = replace(tail, text=self._reasoning_close + tail.text)
        tail_T = tail.encode(self._tokenizer)
        first = int(tail_T[0]) if len(tail_T) else None
        if first not in self._tokenizer.control_ids:
            return Refusal("open_seam", f"the template goes on with {tail.text[:20]!r}")
        if stop != first and stop in self.ends.openers:
            return Refusal("other_opener", f"the turn stopped on {self._tokenizer.control_texts[stop]!r}")
        if stop == first or (stop in self.ends.closers and first in self.ends.closers):
            tail_T = tail_T[1:]  # the policy drew the close itself; after a length stop it is added, untrained
        return context.extend(Span(tail_T, _origin(messages), replaced=tail.replaced))

    def _inline(self, context: Context, messages: Sequence[Message], *, closed: bool) -> Context | Refusal:
        """Go on inside the turn."""
        if closed or any(message.role != INLINE for message in messages):
            return Refusal("closed_turn", "the turn has ended" if closed else "other messages open a turn of their own")
        tail = render_text(self._tokenizer, messages)
        return context.extend(Span(tail.encode(self._tokenizer), "observation", replaced=tail.replaced))

    # ---- what follows a turn

    def _tail(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], stop: int | None
    ) -> Rendering | Refusal:
        """Return what the template writes behind the turn, by the first stub that proves itself."""
        refusals: list[Refusal] = []
        for stub, proof in zip(stubs_for(messages), self._proofs(messages, stop), strict=True):
            found = proof or self._behind_turn(stub, messages, tools, stop)
            if isinstance(found, Rendering):
                return found
            refusals.append(found)
            if found.reason == "past_rewritten":
                break  # the template writes calls, and changes them: a turn that only speaks is no stand-in
        return min(refusals, key=_says_little)

    def _proofs(self, messages: Sequence[Message], stop: int | None) -> tuple[Refusal | None, ...]:
        """Return for each stub why it cannot stand before such messages, or None; found out once for each kind."""
        key = (tuple((message.role, message.name is None, message.tool_call_id is None) for message in messages), stop)
        if key not in self._proved:
            if len(self._proved) >= _MOST_KNOWN:
                self._proved.clear()
            probes, words = probes_of(messages)
            self._proved[key] = tuple(self._try(stub, probes, words, stop) for stub in stubs_for(probes))
        return self._proved[key]

    def _try(self, stub: Stub, probes: Sequence[Message], words: Sequence[str], stop: int | None) -> Refusal | None:
        """Bridge messages of known words: each word must come through, in order, whatever the turn said."""
        tails = [self._behind_turn(replace(stub, mark=mark), probes, (), stop) for mark in (MARK, OTHER_MARK)]
        for tail in tails:
            if isinstance(tail, Refusal):
                return tail
            if NAMELESS in tail.text:
                return Refusal("nameless_result", "the template writes a tool's name or a call's id that nobody told")
            if MARK in tail.text or OTHER_MARK in tail.text:
                return Refusal("body_rewritten", "the template writes a turn's text again behind it")
            places = [tail.text.find(word) for word in words]
            if min(places) < 0 or places != sorted(places):
                return Refusal(
                    "content_lost", f"the template does not write every message of {', '.join(m.role for m in probes)}"
                )
        first, other = tails
        if isinstance(first, Rendering) and isinstance(other, Rendering) and first.text != other.text:
            return Refusal("body_rewritten", "what follows a turn depends on what the turn said")
        return None

    def _behind_turn(
        self, stub: Stub, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], stop: int | None
    ) -> Rendering | Refusal:
        try:
            whole = self._behind_mark(stub, messages, generation=True, tools=tools)
            if isinstance(whole, Refusal) or not stub.calls:
                return whole
            return self._without_call(stub, whole, stop)
        except ChatError as error:
            return Refusal("template_refuses", str(error))

    def _without_call(self, stub: Stub, whole: Rendering, stop: int | None) -> Rendering | Refusal:
        """Take off what still belongs to the stub's own call: the policy has sampled its like."""
        before = self._behind_call(stub)
        if before is None:
            return Refusal("body_rewritten", "a call's arguments are not kept as they are")
        for cut, close in self._cuts(before, stop):
            # The cut character of a rendering stands in untrusted text only, so never in the stub's end.
            tail = close + whole.text[cut:]
            if whole.text.startswith(before[:cut]) and self._first_control(tail) is not None:
                return replace(whole, text=tail)
        return Refusal("past_rewritten", f"{whole.text[:60]!r} does not go on from {before[-60:]!r}")

    def _cuts(self, before: str, stop: int | None) -> Iterator[tuple[int, str]]:
        """Yield where the rendering of a turn that calls may end, likeliest first, and what then closes the turn."""
        if stop is not None and stop in self._stops:
            place = before.rfind(self._tokenizer.control_texts[stop])
            if place >= 0:
                yield place, ""
        if self.call_end is not None and stop in {None, self.call_end}:
            place = before.rfind(self._tokenizer.control_texts[self.call_end])
            if place >= 0:
                yield place, ""
        if self.ends.closer and before.endswith(self.ends.closer):
            yield len(before) - len(self.ends.closer), ""
        # Nothing closes a turn that calls (GLM, DeepSeek); a cut turn gets what closes others.
        yield len(before), self.ends.closer if stop is None else ""

    def _behind_call(self, stub: Stub) -> str | None:
        if stub not in self._before:
            if len(self._before) >= _MOST_KNOWN:
                self._before.clear()  # call ids that never repeat must not fill the memory
            found = self._behind_mark(stub, (), generation=False)
            self._before[stub] = None if isinstance(found, Refusal) or stub.mark in found.text else found.text
        return self._before[stub]

    def _behind_mark(
        self,
        stub: Stub,
        messages: Sequence[Message],
        *,
        generation: bool,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Rendering | Refusal:
        conversation = [*stub.messages(), *messages]
        whole = render(self._template, self._tokenizer, conversation, tools, generation=generation)
        _, mark, behind = whole.text.partition(stub.mark)
        if not mark:
            return Refusal("body_rewritten", "a turn's text is not kept as it is")
        return Rendering(behind, whole.cut, whole.replaced)

    # ---- how turns end

    @cached_property
    def ends(self) -> TurnEnds:
        """How turns end in this template.

        Raises:
            ChatError: The template refuses a user and an assistant message, or changes the assistant's text.
        """
        last = self._behind_mark(spoken_stub(), (), generation=False)
        if isinstance(last, Refusal):
            raise ChatError("the template does not keep an assistant's text", where="chat_template", got=last.detail)
        firsts: list[int] = []
        for role in ("user", "tool", "system"):
            probe = Message(role, "What follows.", name="tool", tool_call_id="call00000")
            try:
                tail = self._behind_mark(spoken_stub(), [probe], generation=True)
            except ChatError:
                continue
            first = None if isinstance(tail, Refusal) else self._first_control(tail.text)
            firsts += [] if first is None else [first]
        if not last.text.strip():
            return TurnEnds("", (), tuple(dict.fromkeys(firsts)))
        own = self._first_control(last.text)
        return TurnEnds(last.text, tuple(dict.fromkeys([*([] if own is None else [own]), *firsts])), ())

    @cached_property
    def _stops(self) -> frozenset[int | None]:
        return frozenset((*self.ends.closers, *self.ends.openers, self.call_end)) - {None} | self._stop_ids

    @cached_property
    def call_end(self) -> int | None:
        """The control token that ends a turn that calls tools: a closer, or one of its own (gpt-oss: `<|call|>`)."""
        try:
            one, two = (self._whole(Stub(calls=(("tool", "call00000"),) * count)) for count in (1, 2))
        except ChatError:
            return None
        spelled = self._tokenizer.last_control(one)
        if spelled is None or one[spelled[1] + len(spelled[0]) :].strip():
            return None
        # What stands behind each call only delimits it.
        return self._tokenizer.token_id(spelled[0]) if one.count(spelled[0]) == two.count(spelled[0]) else None

    def _whole(self, stub: Stub) -> str:
        return render(self._template, self._tokenizer, stub.messages(), (), generation=False).text

    def _first_control(self, text: str) -> int | None:
        spelled = self._tokenizer.first_control(text)
        return self._tokenizer.token_id(spelled) if spelled is not None else None

    # ---- reasoning

    def _thinks(self, turn_T: Sequence[int], prompt: Ids) -> bool:
        """Tell whether the turn ends inside a reasoning block, opened by itself or by the prompt."""
        marks = [self._tokenizer.token_id(text) for text in _THINK]
        if None in marks or not set(marks) <= self._tokenizer.control_ids:
            return False
        for index in [*reversed(turn_T), *reversed(prompt[-8:].tolist())]:
            if index in marks:
                return bool(index == marks[0])
        return False

    @cached_property
    def _reasoning_close(self) -> str:
        """What the template writes between reasoning and content; the bare end of reasoning where it writes none."""
        turn = Message("assistant", MARK, reasoning=OTHER_MARK)
        try:
            text = self._template.render([Message("user", "x").to_dict(), turn.to_dict()], None, generation=False)
        except ChatError:
            return _THINK[1]
        between = text.partition(_THINK[1])[2].partition(MARK)
        return _THINK[1] + (between[0] if between[1] and not between[0].strip() else "")


def _says_little(refusal: Refusal) -> bool:
    """Tell whether another stub's refusal says more about these messages."""
    return refusal.reason not in {"nameless_result", "content_lost"}


def _turn(context: Context) -> tuple[list[int], Ids]:
    """Return the ids of the policy's turn, which may stand in several spans, and those of the span before it."""
    turn: list[int] = []
    for ancestor in context.lineage():
        if ancestor.span.origin not in TURN_ORIGINS:
            return turn, ancestor.span.ids_T
        turn = ancestor.span.ids_T.tolist() + turn
    return turn, context.span.ids_T[:0]


def _origin(messages: Sequence[Message]) -> Origin:
    return "tool" if all(message.role == "tool" for message in messages) else "observation"
