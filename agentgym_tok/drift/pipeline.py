"""What text pipelines do to a conversation: they keep text, render it with the chat template and encode it again."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.drift.align import common_prefix
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["TextPipeline", "text_pipeline"]

_USER, _SAID, _THOUGHT = "What came first.", "What was said.", "What was thought."


class TextPipeline:
    """Render and encode as everybody does who keeps messages instead of ids.

    Unlike `ChatFormat`, nothing is protected: text that spells a control token becomes one.

    Args:
        chat: Tokenizer and template.

    Attributes:
        chat: The same.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat

    # ---- text

    def render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, generation: bool = False
    ) -> str:
        """Return a conversation as the template writes it.

        Raises:
            ChatError: The template refuses it.
        """
        return self.chat.apply_chat_template(messages, tools, add_generation_prompt=generation)

    def encode(self, text: str, *, special_tokens: bool = False) -> Ids:
        """Encode text as it stands.

        Args:
            text: Without lone surrogates.
            special_tokens: Add what the tokenizer puts around a text, as its plain call does: a second BOS where the
                template has written one.
        """
        return self.chat.tokenize(text, add_special_tokens=special_tokens)

    def pieces(self, ids_T: Ids) -> list[bytes]:
        """Return the bytes of each id, control tokens spelled out."""
        return self.chat.token_bytes(ids_T)

    def again(self, ids_T: Ids) -> Ids:
        """Return what becomes of ids that were kept as text."""
        return self.encode(self.chat.decode(ids_T))

    def control_starts(self, text: str) -> list[int]:
        """Return where control tokens begin in a text, as the tokenizer finds them: leftmost, then longest."""
        return [found.start() for found in self._controls.finditer(text)]

    @cached_property
    def _controls(self) -> re.Pattern[str]:
        spelled = sorted(map(self.chat.token_text, self.chat.control_ids), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, spelled)) or "(?!)")

    # ---- messages

    def message(
        self, ids_T: Ids, tools: Sequence[Mapping[str, Any]] | None = None, call_ids: Sequence[str | None] = ()
    ) -> Message:
        """Return a turn as a text pipeline keeps it in its history.

        Reasoning and calls go to fields of their own where the template writes those; else the text stays as it was
        said. So the pipeline is as faithful as its template allows, and what still differs is not its doing.

        Args:
            ids_T: int32 [T], the turn.
            tools: JSON schemas.
            call_ids: Ids that the harness gave the calls, in order; the turn's own where it gave none.
        """
        said = self.chat.parse(ids_T, tools)
        body_T = ids_T[:-1] if said.closed else ids_T
        # Templates leave an empty block out; as text of the answer it has a chance.
        reasoning = said.reasoning if self.writes_reasoning and (said.reasoning or said.tool_calls) else None
        begin = 0 if reasoning is None else self.reasoning_end(ids_T, said)
        calls = said.tool_calls if self._keeps_calls(said) else ()
        if calls:
            content = said.content if begin or said.reasoning is None else self.chat.decode(ids_T[: calls[0].tokens[0]])
            content = content.rstrip()
        else:
            content = self.chat.decode(body_T[begin:])
        given = [*call_ids, *[None] * len(calls)]
        kept = tuple(
            replace(call, id=id_ or call.id, arguments=call.arguments or {})
            for call, id_ in zip(calls, given, strict=False)
        )
        return Message("assistant", content, tool_calls=kept, reasoning=reasoning)

    def reasoning_end(self, ids_T: Ids, said: AssistantMessage) -> int:
        """Return the number of ids at the start of a turn that hold reasoning, its closer and the blanks behind it.

        Args:
            ids_T: int32 [T], the turn.
            said: The same, as `ChatFormat.parse` reads it.
        """
        if said.reasoning is None:
            return 0
        if not said.reasoning_closed:
            return len(ids_T)
        pieces = self.pieces(ids_T)
        raw = b"".join(pieces)
        text = said.reasoning.encode()
        if text not in raw:
            text = text.rpartition(b"\n")[2]  # reasoning in several pieces (Harmony) ends where its last line does
        end = raw.find(text) + len(text)
        closers = [closer for _, closer in self.chat.reasoning_pairs] or self.chat.delimiters
        ends = [raw.find(mark, end) + len(mark) for mark in map(str.encode, closers) if mark in raw[end:]]
        end = min(ends, default=end)
        end += len(raw[end:]) - len(raw[end:].lstrip())
        return int(np.searchsorted(np.cumsum([len(piece) for piece in pieces]), end, side="right"))

    def _keeps_calls(self, said: AssistantMessage) -> bool:
        """Tell whether the parser of a serving engine, which is lenient, would take the calls out of the text."""
        calls = said.tool_calls
        readable = all(call.name and (call.arguments is not None or call.status == "malformed") for call in calls)
        return bool(calls) and readable and self.chat.writes_calls(with_text=bool(said.content))

    @cached_property
    def writes_reasoning(self) -> bool:
        """The template writes an assistant's reasoning from a field of its own."""
        try:
            return _THOUGHT in self.render([Message("user", _USER), Message("assistant", _SAID, reasoning=_THOUGHT)])
        except ChatError:
            return False

    @cached_property
    def tells_time(self) -> bool:
        """The template writes a time of its own, so that a later rendering differs."""
        asked = [Message("user", _USER)]
        try:
            text = self.render(asked, generation=True)
            other = self.chat.apply_chat_template(
                asked,
                add_generation_prompt=True,
                strftime_now=lambda pattern: pattern,  # a time that has not come yet
            )
        except ChatError:
            return False
        return text != other

    # ---- turns in a sequence of ids

    @cached_property
    def closers(self) -> frozenset[int]:
        """Ids that end a turn: those that models stop on, and the first control token that the template writes."""
        asked, said = Message("user", _USER), Message("assistant", _SAID)
        found = set(self.chat.stop_ids)
        for messages in ([asked, said], [asked, said, asked]):
            try:
                first = self.encode(self.render(messages).partition(_SAID)[2]).tolist()[:1]
            except ChatError:
                continue
            found.update(self.chat.control_ids.intersection(first))
        return frozenset(found)

    @cached_property
    def bos_ids(self) -> frozenset[int]:
        """Ids that begin a sequence: what the template calls `bos_token`, and what the tokenizer puts before a text."""
        named = self.chat.bos_id
        plain, special = (self.encode("x", special_tokens=on).tolist() for on in (False, True))
        before = special[: special.index(plain[0])] if plain[0] in special else []
        return frozenset({*before, *([] if named is None else [named])})

    @cached_property
    def header(self) -> Ids:
        """What the template puts before an assistant's text, in the past as in the generation prompt."""
        asked, said = Message("user", _USER), Message("assistant", _SAID)
        try:
            texts = [self.render([asked]), self.render([asked], generation=True), self.render([asked, said, asked])]
        except ChatError:
            return as_ids([])
        plain_T, prompt_T, past_T = (self.encode(text.partition(_USER)[2].partition(_SAID)[0]) for text in texts)
        return prompt_T[common_prefix(plain_T, prompt_T) : common_prefix(prompt_T, past_T)]

    def find_turns(self, ids_T: Ids) -> list[tuple[int, int]]:
        """Return the half-open ranges of the assistant's turns in a sequence, told by header and stop token."""
        header_T = self.header
        if not len(header_T):
            return []
        size, stops = len(header_T), np.flatnonzero(np.isin(ids_T, list(self.closers)))
        places = np.flatnonzero(ids_T == header_T[0]).tolist()
        heads = [place for place in places if np.array_equal(ids_T[place : place + size], header_T)]
        turns = []
        for place, head in enumerate(heads):
            start, following = head + size, heads[place + 1] if place + 1 < len(heads) else len(ids_T)
            stop = int(np.searchsorted(stops, start))
            turns.append((start, min(following, int(stops[stop]) + 1) if stop < len(stops) else following))
        return turns


@functools.lru_cache(maxsize=16)
def text_pipeline(chat: ChatFormat) -> TextPipeline:
    """Return the text pipeline of a chat format."""
    return TextPipeline(chat)
