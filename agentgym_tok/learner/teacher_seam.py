"""Where skills can stand in a recorded prompt so that every id of the prompt stays as it is.

Ids of text that stand side by side need not be the ids of the joined text: "." and a blank line are one token in many
vocabularies. So the prompt is rendered twice from its recorded messages, without the skills and with them, and only a
place where the second is the first with some ids put in is a seam.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Context, Ids
from agentgym_tok.types import Message

__all__ = ["Place", "Seam", "SeamReason", "find_seam", "renders"]

Place: TypeAlias = Literal["user_start", "user_end", "system_start", "system_end"]
"""Before or behind the text of the first message of that role."""

SeamReason: TypeAlias = Literal["template_refuses", "no_place", "merged"]

_GAP = "\n\n"


@dataclass(frozen=True, slots=True, eq=False)
class Seam:
    """Hold a proved place in a prompt, and the ids that stand there.

    Args:
        head_T: The prompt as far as the next control token behind the place. Text is encoded between control tokens,
            so that the proof holds for every prompt that begins so.
        place: The skills stand before this id of the head.
        skills_S: Their ids, with the blank line that parts them from the message.
    """

    head_T: Ids
    place: int
    skills_S: Ids

    def fits(self, ids_T: Ids) -> bool:
        """Tell whether ids begin with the head."""
        return np.array_equal(ids_T[: len(self.head_T)], self.head_T)


def renders(chat: ChatFormat, prompt: Context, messages: Sequence[Message]) -> bool:
    """Tell whether messages are what a prompt was rendered from: their ids are the prompt's."""
    try:
        return np.array_equal(chat.open(messages, prompt.root.tools).ids, prompt.ids)
    except ChatError:
        return False


def find_seam(
    chat: ChatFormat, prompt: Context, messages: Sequence[Message], text: str, place: Place
) -> Seam | SeamReason:
    """Put skills into a message, and prove that they only add ids to the prompt.

    Args:
        chat: Tokenizer and template.
        prompt: A recorded prompt that `messages` render to, see `renders`.
        messages: Its messages.
        text: The skills; control tokens spelled in them stay text.
        place: Where.

    Returns:
        The seam; or why there is none: the template refuses the longer message, there is no such message, or ids of the
        prompt would change.
    """
    role, _, side = place.partition("_")
    index = next((index for index, message in enumerate(messages) if message.role == role), None)
    if index is None:
        return "no_place"
    inserted = text + _GAP if side == "start" else _GAP + text
    at = 0 if side == "start" else len(messages[index].content)
    told = [*messages[:index], _insert(messages[index], inserted, at), *messages[index + 1 :]]
    try:
        told_S = chat.open(told, prompt.root.tools).ids
    except ChatError:
        return "template_refuses"
    prompt_T = prompt.ids
    added = len(told_S) - len(prompt_T)
    # Where the skills begin with ids that follow them too, several places give the same sequence: take the one whose
    # ids spell the skills.
    last = _common(prompt_T, told_S)
    first = len(prompt_T) - _common(prompt_T[::-1], told_S[::-1])
    for start in range(first, last + 1) if added > 0 else ():
        skills_S = told_S[start : start + added]
        if chat.decode(skills_S) == inserted:
            return Seam(_head(chat, prompt_T, start), start, skills_S)
    return "merged"


def _insert(message: Message, text: str, at: int) -> Message:
    """Return a message with untrusted text put in at one of its ends."""
    content = message.content[:at] + text + message.content[at:]
    if not message.trusted:
        return replace(message, content=content)
    moved = [(start + len(text), end + len(text)) if at == 0 else (start, end) for start, end in message.untrusted]
    own = (at, at + len(text))
    return replace(message, content=content, untrusted=tuple([own, *moved] if at == 0 else [*moved, own]))


def _common(one_T: Ids, other_T: Ids) -> int:
    """Count the equal ids at the beginning."""
    length = min(len(one_T), len(other_T))
    differs = np.flatnonzero(one_T[:length] != other_T[:length])
    return int(differs[0]) if len(differs) else length


def _head(chat: ChatFormat, prompt_T: Ids, place: int) -> Ids:
    control = np.flatnonzero(np.isin(prompt_T[place:], list(chat.control_ids)))
    return prompt_T[: place + int(control[0]) + 1] if len(control) else prompt_T
