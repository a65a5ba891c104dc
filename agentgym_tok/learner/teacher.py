"""The teacher's side of self-distillation: the recorded ids, with skills spliced into the first prompt.

SDAR's released code decodes the prompt, puts the skills before it, encodes it again and cuts it on the left, so that
the teacher may read other ids than the student, and loses the skills first. Here no id of the student's sequence is
touched: the skills stand at a proved seam, in a budget of their own, and what is cut is cut from them and counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.tokenizer import replace_surrogates
from agentgym_tok.config import Config
from agentgym_tok.errors import unknown_name
from agentgym_tok.learner.teacher_seam import Place, Seam, SeamReason, find_seam, renders
from agentgym_tok.learner.teacher_text import shortened
from agentgym_tok.skills import has_keyword
from agentgym_tok.tokens import Context, Ids, as_ids
from agentgym_tok.trace import Episode, Row, Turn
from agentgym_tok.trace.rows import family

__all__ = ["TeacherConfig", "TeacherContext", "TeacherReason", "TeacherRefusal", "teacher_contexts", "teacher_figures"]

TeacherReason: TypeAlias = Literal["no_messages", "not_rendered", "tells_answer", "no_room"] | SeamReason


class TeacherConfig(Config):
    """Set where skills stand, and how long they may be."""

    places: tuple[Place, ...] = Field(
        default=("user_start", "user_end"), min_length=1, description="the first that is proved is taken"
    )
    skill_tokens: int = Field(default=4096, ge=1, description="most ids of skills; whole lines are left out until then")
    max_tokens: int | None = Field(
        default=None, ge=1, description="longest sequence that the teacher can read; None has no limit"
    )


@dataclass(frozen=True, slots=True, eq=False)
class TeacherContext:
    """Hold what the teacher reads of a row: its T ids, and the skills' ids among them.

    Args:
        rollout_id: The row's.
        ids_S: int32 [S], the teacher's sequence.
        mask_S: bool [S]; the row's trained tokens.
        place: The skills begin here; before it both sequences are equal.
        skill_tokens: How many ids they have; 0 where there are none, and both sequences are one.
        cut_tokens: How many were left out, for want of room.
    """

    rollout_id: str
    ids_S: Ids
    mask_S: NDArray[np.bool_]
    place: int
    skill_tokens: int
    cut_tokens: int = 0

    @classmethod
    def of(cls, row: Row, place: int, skills: Ids, cut_tokens: int = 0) -> Self:
        """Splice ids into a row.

        Args:
            row: The student's.
            place: The ids stand before this one.
            skills: int32, the ids.
            cut_tokens: How many were left out.
        """
        ids_S = np.concatenate((row.ids_T[:place], skills, row.ids_T[place:]))
        mask_S = np.concatenate((row.mask_T[:place], np.zeros(len(skills), bool), row.mask_T[place:]))
        mask_S.flags.writeable = False
        return cls(row.rollout_id, as_ids(ids_S), mask_S, place, len(skills), cut_tokens)

    @property
    def places(self) -> NDArray[np.int64]:
        """Where each of the student's tokens stands in the teacher's sequence, int64 [T]."""
        places_T = np.arange(len(self.ids_S) - self.skill_tokens)
        return places_T + self.skill_tokens * (places_T >= self.place)

    @property
    def predictors(self) -> NDArray[np.int64]:
        """Where the logits stand that predict the K trained tokens, in their order: int64 [K], one before each."""
        return np.flatnonzero(self.mask_S) - 1


@dataclass(frozen=True, slots=True)
class TeacherRefusal:
    """Say why a row has no teacher.

    Args:
        rollout_id: The row's.
        reason: `no_messages`: no turn of the episode says what the row's prompt was made of. `not_rendered`: what it
            says makes other ids today. `no_place`: there is no message of that role. `merged`: the skills would change
            ids of the prompt. `template_refuses`: it raised. `tells_answer`: the skills hold the answer. `no_room`: not
            a line of skills fits in.
        detail: For people.
    """

    rollout_id: str
    reason: TeacherReason
    detail: str = ""


def teacher_contexts(
    episode: Episode,
    rows: Sequence[Row],
    skills: str | Mapping[str, str],
    chat: ChatFormat,
    config: TeacherConfig | None = None,
    *,
    answers: Sequence[str] = (),
) -> list[TeacherContext | TeacherRefusal]:
    """Give every row of a rollout its teacher's sequence.

    Args:
        episode: The rollout; its subagents' rows have prompts of their own.
        rows: Of `rows(episode)`.
        skills: The text for all rows, such as `Retrieved.text`; or by rollout id, where a subagent without one takes
            its root's. An empty text makes a teacher that reads what the student reads.
        chat: The format of the trace.
        config: Where skills stand, and how long they may be.
        answers: Texts that skills must not hold, such as the gold answers of a question.

    Returns:
        For each row its context, or why it has none.

    Raises:
        FingerprintMismatch: The trace belongs to another format.
        UnknownName: A row is of another rollout, or there is no text for it.
    """
    config = config or TeacherConfig()
    prompts = {member.id: _Prompts(member, chat, config) for member in family(episode)}
    made: list[TeacherContext | TeacherRefusal] = []
    for row in rows:
        if row.rollout_id not in prompts:
            raise unknown_name("rollout", row.rollout_id, prompts, where=f"rows of {episode.id}")
        text = _text(skills, row)
        if not text:
            made.append(TeacherContext.of(row, 0, row.ids_T[:0]))
        elif any(has_keyword(text, answer) for answer in answers):
            made.append(TeacherRefusal(row.rollout_id, "tells_answer"))
        else:
            made.append(prompts[row.rollout_id].splice(row, text))
    return made


def teacher_figures(made: Sequence[TeacherContext | TeacherRefusal]) -> dict[str, float]:
    """Return what to log: how many rows have a teacher, and how much of the skills it reads.

    Returns:
        `teacher/rows`, `teacher/refused`, `teacher/truncated` and `teacher/unprivileged` (of those with a teacher, the
        ones whose skills were cut, and the ones without skills), `teacher/skill_tokens` and `teacher/cut_tokens`.
    """
    contexts = [one for one in made if isinstance(one, TeacherContext)]
    return {
        "teacher/rows": float(len(contexts)),
        "teacher/refused": float(len(made) - len(contexts)),
        "teacher/truncated": float(sum(one.cut_tokens > 0 for one in contexts)),
        "teacher/unprivileged": float(sum(one.skill_tokens == 0 for one in contexts)),
        "teacher/skill_tokens": float(sum(one.skill_tokens for one in contexts)),
        "teacher/cut_tokens": float(sum(one.cut_tokens for one in contexts)),
    }


class _Prompts:
    """Find seams in the prompts of one episode; each prompt and text is proved once."""

    def __init__(self, episode: Episode, chat: ChatFormat, config: TeacherConfig) -> None:
        self._chat, self._config = chat, config
        self._turns: dict[bytes, Turn] = {}
        self._seams: dict[tuple[bytes, str], Seam | TeacherReason] = {}
        self._lengths: dict[str, int] = {}
        for turn in episode.turns:
            chat.check(turn.context)
            prompt = _prompt(turn.context)
            if prompt is not None and turn.messages and not turn.redacted:
                self._turns.setdefault(prompt.ids.tobytes(), turn)

    def splice(self, row: Row, text: str) -> TeacherContext | TeacherRefusal:
        """Splice as much of the text into a row as there is room for."""
        room = self._config.skill_tokens
        if self._config.max_tokens is not None:
            room = min(room, self._config.max_tokens - len(row.ids_T))
        for shorter in shortened(text):
            if self._length(shorter) > room:
                continue
            seam = self._seam(row, shorter)
            if not isinstance(seam, Seam):
                return TeacherRefusal(row.rollout_id, seam)
            if len(seam.skills_S) <= room:
                cut = self._length(text) - self._length(shorter)
                return TeacherContext.of(row, seam.place, seam.skills_S, cut)
        return TeacherRefusal(row.rollout_id, "no_room", f"{self._length(text)} ids, room for {max(room, 0)}")

    def _length(self, text: str) -> int:
        if text not in self._lengths:
            self._lengths[text] = len(self._chat.encode(text))
        return self._lengths[text]

    def _seam(self, row: Row, text: str) -> Seam | TeacherReason:
        """Return the seam of the row's own prompt, else that of another prompt which begins as the row does."""
        ids = row.ids_T.tobytes()
        own = [key for key in self._turns if ids.startswith(key)]
        refused: list[TeacherReason] = []
        for key in [*own, *(key for key in self._turns if key not in own)]:
            seam = self._proved(key, text)
            if not isinstance(seam, Seam):
                if key in own:
                    refused.append(seam)
            elif seam.fits(row.ids_T) and not row.mask_T[: len(seam.head_T)].any():
                return seam
        return refused[0] if refused else "no_messages"

    def _proved(self, key: bytes, text: str) -> Seam | TeacherReason:
        if (key, text) not in self._seams:
            self._seams[key, text] = self._prove(self._turns[key], text)
        return self._seams[key, text]

    def _prove(self, turn: Turn, text: str) -> Seam | TeacherReason:
        prompt = _prompt(turn.context)
        if prompt is None or not renders(self._chat, prompt, turn.messages):
            return "not_rendered"
        reason: SeamReason = "no_place"
        for place in self._config.places:
            found = find_seam(self._chat, prompt, turn.messages, text, place)
            if isinstance(found, Seam):
                return found
            reason = found
        return reason


def _prompt(context: Context) -> Context | None:
    """Return the prompt that opens a conversation, without ids prefilled behind it; None in the middle of one."""
    while context.span.origin == "forced" and context.parent is not None:
        context = context.parent
    return context if context.parent is None else None


def _text(skills: str | Mapping[str, str], row: Row) -> str:
    if not isinstance(skills, str):
        name = row.rollout_id if row.rollout_id in skills else row.parent_rollout
        if name is None or name not in skills:
            raise unknown_name("rollout", row.rollout_id, skills, where="skills")
        skills = skills[name]
    return replace_surrogates(skills)[0].strip()
