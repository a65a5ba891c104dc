"""Teacher contexts in a file beside the run: what was put where, and the digests of both sequences.

The student's ids stand in the trace. The file has the ids of skills, each text once, and for each row where they stand;
what is made of both again must have the digests that were written down.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, DataCorrupt, FingerprintMismatch
from agentgym_tok.learner.teacher import TeacherContext, TeacherReason, TeacherRefusal
from agentgym_tok.skills.files import not_valid, read_text, write_text
from agentgym_tok.tokens import Ids, Root, as_ids
from agentgym_tok.trace import Row, sent_digest

__all__ = ["load_teachers", "save_teachers"]

_WHAT = "file of teacher contexts"


class _Pair(Config):
    rollout_id: str
    student: str = Field(description="`sent_digest` of the row's ids, without tools")
    teacher: str = Field(default="", description="that of the teacher's; empty where there is none")
    skills: str = Field(default="", description="names the ids in `skills`")
    place: int = Field(default=0, ge=0)
    cut_tokens: int = Field(default=0, ge=0)
    reason: TeacherReason | None = None
    detail: str = ""


class _File(Config):
    format: Literal["agentgym_tok.teacher"]
    version: Literal[1]
    fingerprint: str
    skills: dict[str, tuple[Annotated[int, Field(ge=0, lt=2**31)], ...]]
    pairs: tuple[_Pair, ...]


def save_teachers(
    path: str | Path, rows: Sequence[Row], contexts: Sequence[TeacherContext | TeacherRefusal], chat: ChatFormat
) -> None:
    """Write teacher contexts; `load_teachers` gives equal ones back.

    Args:
        path: The file, such as `teacher.json` in the run's folder.
        rows: The students' rows.
        contexts: Of `teacher_contexts`, in the same order.
        chat: The format of the trace.

    Raises:
        ConfigError: There is not one context for each row, or the file cannot be written.
    """
    if len(contexts) != len(rows):
        raise ConfigError("each row has one context", where=path, got=f"{len(contexts)} for {len(rows)} rows")
    root = Root(chat.fingerprint, chat.vocab_size)
    skills: dict[str, tuple[int, ...]] = {}
    pairs: list[_Pair] = []
    for row, context in zip(rows, contexts, strict=True):
        student = sent_digest(root, row.ids_T)
        if isinstance(context, TeacherRefusal):
            pairs.append(
                _Pair(rollout_id=row.rollout_id, student=student, reason=context.reason, detail=context.detail)
            )
            continue
        spliced = context.ids_S[context.place : context.place + context.skill_tokens]
        name = hashlib.blake2b(spliced.astype("<i4").tobytes(), digest_size=16).hexdigest()
        skills[name] = tuple(spliced.tolist())
        pairs.append(
            _Pair(
                rollout_id=row.rollout_id,
                student=student,
                teacher=sent_digest(root, context.ids_S),
                skills=name,
                place=context.place,
                cut_tokens=context.cut_tokens,
            )
        )
    file = _File(
        format="agentgym_tok.teacher", version=1, fingerprint=chat.fingerprint, skills=skills, pairs=tuple(pairs)
    )
    write_text(Path(path), json.dumps(file.model_dump(mode="json", exclude_defaults=True)) + "\n")


def load_teachers(path: str | Path, rows: Sequence[Row], chat: ChatFormat) -> list[TeacherContext | TeacherRefusal]:
    """Read the teacher contexts of rows that were made of the trace again.

    Args:
        path: The file.
        rows: Any of those that it was written for, in any order.
        chat: The format of the trace.

    Raises:
        DataMissing: There is no such file.
        DataCorrupt: It is no such file, it has nothing for a row's ids, or what it makes of them has another digest.
        FingerprintMismatch: It belongs to another format.
    """
    path = Path(path)
    try:
        file = _File.model_validate_json(read_text(path, _WHAT))
    except ValidationError as error:
        raise not_valid(error, _WHAT, path) from error
    if file.fingerprint != chat.fingerprint:
        got, expected = file.fingerprint[:16], chat.fingerprint[:16]
        raise FingerprintMismatch("the teachers read ids of another format", where=path, got=got, expected=expected)
    root = Root(chat.fingerprint, chat.vocab_size)
    skills = {
        name: as_ids(ids, vocab_size=chat.vocab_size, where=f"skills {name}") for name, ids in file.skills.items()
    }
    pairs = {(pair.rollout_id, pair.student): pair for pair in file.pairs}
    made: list[TeacherContext | TeacherRefusal] = []
    for row in rows:
        student = sent_digest(root, row.ids_T)
        pair = pairs.get((row.rollout_id, student))
        if pair is None:
            fix = "make the contexts of these rows: teacher_contexts(...)"
            raise DataCorrupt(
                "no teacher was written for these ids", where=f"{path}: rollout {row.rollout_id}", got=student, fix=fix
            )
        made.append(_made(row, pair, skills, root, path))
    return made


def _made(row: Row, pair: _Pair, skills: dict[str, Ids], root: Root, path: Path) -> TeacherContext | TeacherRefusal:
    if pair.reason is not None:
        return TeacherRefusal(row.rollout_id, pair.reason, pair.detail)
    where = f"{path}: rollout {row.rollout_id}"
    if pair.skills not in skills:
        raise DataCorrupt("the skills are missing", where=where, got=repr(pair.skills))
    context = TeacherContext.of(row, pair.place, skills[pair.skills], pair.cut_tokens)
    found = sent_digest(root, context.ids_S)
    if found != pair.teacher:
        raise DataCorrupt(
            "the teacher reads other ids than were written", where=where, got=found, expected=pair.teacher
        )
    return context
