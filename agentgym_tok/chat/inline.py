"""Text that goes on inside an assistant's turn: between the sampled ids and it stands nothing of the template.

Search-R1 writes what was found into the very turn that searched, and the policy goes on behind it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentgym_tok.errors import ChatError
from agentgym_tok.types import Message

__all__ = ["INLINE", "fold"]

INLINE: Final = "inline"
"""The role of such text."""


def fold(messages: Sequence[Message]) -> list[Message]:
    """Write inline messages into the turns that they belong to, so that any template takes the conversation.

    Raises:
        ChatError: Inline text stands behind no turn, or the conversation ends in it: no template opens a turn again.
    """
    folded: list[Message] = []
    inside = False
    for message in messages:
        last = folded[-1] if folded else None
        if message.role == INLINE:
            if last is None or last.role != "assistant":
                got = "nothing" if last is None else f"role {last.role}"
                raise ChatError("inline text goes on an assistant's turn", where="messages", got=f"it follows {got}")
            folded[-1] = replace(last, content=last.content + message.content)
        elif inside and message.role == "assistant" and last is not None:
            calls = (*last.tool_calls, *message.tool_calls)
            folded[-1] = replace(last, content=last.content + message.content, tool_calls=calls)
        else:
            folded.append(message)
        inside = message.role == INLINE or (inside and message.role == "assistant")
    if messages and messages[-1].role == INLINE:
        fix = "bridge from the sampled ids instead"
        raise ChatError("no template renders half a turn", where="messages", got="inline text at the end", fix=fix)
    return folded
