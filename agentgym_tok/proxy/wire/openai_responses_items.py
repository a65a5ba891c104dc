"""The items of a response while they are opened, filled and closed, with the events that say so."""

from typing import Any, Literal

from agentgym_tok.chat.deltas import CallArguments, CallBegun, CallEnded, ReasoningDelta, TextDelta, TurnDelta
from agentgym_tok.proxy.wire import sse
from agentgym_tok.proxy.wire.openai_chat_reply import logprob_of
from agentgym_tok.proxy.wire.reply import TokenLogprob, wire_id
from agentgym_tok.types import FinishReason

__all__ = ["Items"]


class Items:
    """Write a turn as items.

    Args:
        response: Id of the response; those of the items follow from it.

    Attributes:
        items: What is there so far.
        logprobs: Those of tokens that no event has told yet.
    """

    def __init__(self, response: str) -> None:
        self.items: list[dict[str, Any]] = []
        self.logprobs: list[TokenLogprob] = []
        self._response = response
        self._events = 0
        self._written: list[bytes] = []
        self._talk: Literal["message", "reasoning"] | None = None  # the last item, while it is open
        self._known: list[TokenLogprob] = []  # of the message that is open
        self._calls: dict[int, int] = {}
        self._pieces: dict[int, list[str]] = {}

    def event(self, kind: str, **fields: Any) -> None:
        """Write an event under the next number."""
        self._written.append(sse.event({"type": kind, "sequence_number": self._events, **fields}))
        self._events += 1

    def written(self) -> bytes:
        """Return the events since the last time."""
        written, self._written = b"".join(self._written), []
        return written

    def add(self, delta: TurnDelta) -> None:
        """Take the next piece of what the client is told."""
        match delta:
            case TextDelta(text):
                place = self._talk_as("message", text)
                new, self.logprobs = self.logprobs, []
                self._known += new
                known = _logprobs(new)
                self._say("response.output_text.delta", place, content_index=0, delta=text, logprobs=known)
            case ReasoningDelta(text):
                place = self._talk_as("reasoning", text)
                self._say("response.reasoning_text.delta", place, content_index=0, delta=text)
            case CallBegun(index, name, id_):
                self._be_silent("completed")
                self._calls[index] = self._open(
                    "fc_", {"type": "function_call", "call_id": id_, "name": name, "arguments": ""}
                )
            case CallArguments(index, text):
                self._pieces[self._calls[index]].append(text)
                self._say("response.function_call_arguments.delta", self._calls[index], delta=text)
            case CallEnded(index, status):
                place = self._calls.pop(index)
                arguments = "".join(self._pieces[place])
                self._say(
                    "response.function_call_arguments.done", place, name=self.items[place]["name"], arguments=arguments
                )
                self._done(place, "incomplete" if status == "unclosed" else "completed", arguments=arguments)

    def close(self, finish: FinishReason) -> None:
        """Close what is open; a turn that says nothing is a message that says nothing."""
        if not self.items:
            self._talk_as("message", "")
        self._known += self.logprobs
        self._be_silent("completed" if finish == "stop" else "incomplete")

    def _talk_as(self, kind: Literal["message", "reasoning"], text: str) -> int:
        if self._talk != kind:
            self._be_silent("completed")
            if kind == "message":
                place = self._open("msg_", {"type": "message", "role": "assistant", "content": []})
            else:
                place = self._open("rs_", {"type": "reasoning", "summary": [], "content": []})
            self._talk, self._known = kind, []
            self._say("response.content_part.added", place, content_index=0, part=_part(kind, "", []))
        place = len(self.items) - 1
        self._pieces[place].append(text)
        return place

    def _be_silent(self, status: str) -> None:
        if self._talk is None:
            return
        place, kind = len(self.items) - 1, self._talk
        text, known = "".join(self._pieces[place]), _logprobs(self._known)
        if kind == "message":
            self._say("response.output_text.done", place, content_index=0, text=text, logprobs=known)
        else:
            self._say("response.reasoning_text.done", place, content_index=0, text=text)
        part = _part(kind, text, known)
        self._say("response.content_part.done", place, content_index=0, part=part)
        self._done(place, status, content=[part])
        self._talk = None

    def _open(self, prefix: str, item: dict[str, Any]) -> int:
        place = len(self.items)
        item = {"id": wire_id(prefix, self._response, place), **item, "status": "in_progress"}
        self.items.append(item)
        self._pieces[place] = []
        self.event("response.output_item.added", output_index=place, item=item)
        return place

    def _say(self, kind: str, place: int, **fields: Any) -> None:
        self.event(kind, item_id=self.items[place]["id"], output_index=place, **fields)

    def _done(self, place: int, status: str, **fields: Any) -> None:
        self.items[place] = {**self.items[place], **fields, "status": status}
        del self._pieces[place]
        self.event("response.output_item.done", output_index=place, item=self.items[place])


def _part(kind: Literal["message", "reasoning"], text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _logprobs(tokens: list[TokenLogprob]) -> list[dict[str, Any]]:
    return [{**logprob_of(one), "top_logprobs": [logprob_of(top) for top in one.top]} for one in tokens]
