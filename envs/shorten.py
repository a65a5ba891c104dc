"""Shorten a world's long text in its middle, and say so in the text itself."""

from dataclasses import replace

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.engine import TextObservation

__all__ = ["shorten"]


def shorten(chat: ChatFormat, observation: TextObservation, limit: int) -> tuple[TextObservation, int]:
    """Keep the beginning and the end of a text that is longer than the limit.

    Args:
        chat: Counts the tokens.
        observation: What the world says.
        limit: Most tokens, at least 16; the note about the gap counts among them.

    Returns:
        The observation, and how many tokens were left out.
    """
    text = observation.text
    if len(text.encode("utf-8", "replace")) <= limit:  # a token holds at least one byte
        return observation, 0
    ids_T = chat.encode(text.encode("utf-8", "replace").decode())
    if len(ids_T) <= limit:
        return observation, 0
    note = " [... {} tokens left out ...] "
    room = limit - len(chat.encode(note.format(len(ids_T)))) - 2  # two: cut characters can grow by a token each
    head = max(1, room // 2)
    tail = max(1, room - head)
    left_out = len(ids_T) - head - tail
    kept = f"{chat.decode(ids_T[:head])}{note.format(left_out)}{chat.decode(ids_T[-tail:])}"
    return replace(observation, text=kept), left_out
