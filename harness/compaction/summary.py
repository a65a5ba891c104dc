"""Letting the policy write down what it has to remember."""

from dataclasses import replace

from pydantic import Field

from agentgym_tok.chat import Refusal
from agentgym_tok.errors import ChatError
from agentgym_tok.harness.compaction.compaction import Draw, Rewrite, Trigger, texts
from agentgym_tok.harness.compaction.window import windowed
from agentgym_tok.harness.conversation import Conversation, Exchange
from agentgym_tok.tokens import Span
from agentgym_tok.types import Completion, Message

__all__ = ["SummaryCompaction"]


class SummaryCompaction(Trigger):
    """Ask the policy for a summary, and go on from it.

    The summary is a turn of the episode, sampled behind the whole conversation, so it is trained and credited like any
    other. The new context is the first prompt, the summary as the answer to it (id for id), and the last exchanges, id
    for id as well. Where a template has no place for a summary as a turn, a message quotes it.

    A summary that says nothing, or is no shorter than what it replaces, is thrown away and sampled again; after the
    last attempt the window of `WindowCompaction` is used, and the edge says why.
    """

    keep: int = Field(default=1, ge=0, description="last exchanges that stay as they are")
    max_tokens: int = Field(default=512, ge=1, description="longest summary, in tokens")
    attempts: int = Field(default=2, ge=1, description="most summaries that are sampled for one compaction")
    request: str = Field(
        default="The conversation is getting long. Write down in a few sentences what you have to remember: the goal, "
        "what you found out, what you did, what is left to do. Answer with these notes only.",
        description="asks for the summary",
    )
    resume: str = Field(
        default="Go on from your notes. You see now:\n", description="stands behind the summary, before the last words"
    )

    async def compact(self, conversation: Conversation, draw: Draw) -> Rewrite | None:
        """Return the conversation with a summary in the place of its past; None where nothing can go."""
        exchanges = conversation.exchanges
        replaced = exchanges[: max(0, len(exchanges) - self.keep)]
        if not replaced:
            return None
        chat, last = conversation.chat, exchanges[-1]
        messages = _joined(last.messages, self.request)
        asked = chat.bridge(last.answered, messages)
        if isinstance(asked, Refusal):
            return self._without(conversation, f"no summary can be asked for ({asked.reason})")
        # What was said to the last replaced turn stands behind the summary again.
        room = len(replaced[-1].answered) - len(conversation.first)

        def judge(summary: Completion) -> str | None:
            said = chat.parse(summary.ids_T, asked.root.tools)
            if said.tool_calls or not said.content.strip():
                return "it is a call" if said.tool_calls else "it is empty"
            return None if len(summary.ids_T) < room else f"{len(summary.ids_T)} tokens for {room}"

        summary = await draw(asked, messages, judge, attempts=self.attempts, max_tokens=self.max_tokens)
        if summary is None:
            return self._without(conversation, "no summary was of use")
        return self._resumed(conversation, summary, replaced)

    def _resumed(
        self, conversation: Conversation, summary: Completion, replaced: tuple[Exchange, ...]
    ) -> Rewrite | None:
        chat, kept = conversation.chat, conversation.exchanges[len(replaced) :]
        said = chat.parse(summary.ids_T, conversation.first.root.tools).message()
        seen = texts(replaced[-1].messages)
        turn = conversation.first.extend(Span(summary.ids_T, summary.origin, summary.logprobs_T))
        opened = Exchange(turn, said, (Message("user", self.resume + seen),), turn)
        made = conversation.rebuilt([opened, *kept])
        if not isinstance(made, Refusal):
            return Rewrite(made, "compaction", "summary")
        messages = _joined(conversation.opening, f"{said.content}\n{self.resume}{seen}")
        try:
            first = chat.open(messages, conversation.first.root.tools)
        except ChatError as error:
            return self._without(conversation, f"there is no place for a summary ({error})")
        remade = Conversation(chat, first, tuple(messages)).rebuilt(kept)
        if isinstance(remade, Refusal):
            return self._without(conversation, f"there is no place for a summary ({remade.reason})")
        return Rewrite(remade, "compaction", f"summary, quoted ({made.reason})")

    def _without(self, conversation: Conversation, why: str) -> Rewrite | None:
        return windowed(conversation, self.keep, "", f"window: {why}")


def _joined(messages: tuple[Message, ...], text: str) -> list[Message]:
    """Put a text behind messages: into the last one where it is a user's, since many templates take no two in a row."""
    last = messages[-1]
    if last.role != "user":
        return [*messages, Message("user", text)]
    joined = f"{last.content}\n\n{text}"
    return [*messages[:-1], replace(last, content=joined, untrusted=_and_rest(last, len(text) + 2))]


def _and_rest(message: Message, added: int) -> tuple[tuple[int, int], ...]:
    end = len(message.content)
    return (*message.untrusted, (end, end + added)) if message.trusted else ()
