"""The teacher's log-probabilities of the ids that the student sampled."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.alignment import align_scores
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal
from agentgym_tok.trace import Row
from agentgym_tok.types import Sampling, Scorer, ScoreRequest

__all__ = ["score_teachers"]


def score_teachers(
    scorer: Scorer, rows: Sequence[Row], contexts: Sequence[TeacherContext | TeacherRefusal]
) -> list[NDArray[np.float32] | None]:
    """Score what each row trains in its teacher's context, at the temperature at which it was drawn.

    Call it once, before the update, with the weights that the student has then. A learner scores by its own model;
    this is for a teacher of its own, or for looking at gaps.

    Args:
        scorer: The teacher, such as the policy `hf:PATH`.
        rows: The student's rows.
        contexts: Of `teacher_contexts`, in the same order.

    Returns:
        For each row float32 [T], nats, 0 where nothing is trained; None where there is no teacher.

    Raises:
        ConfigError: There is not one context for each row.
        InvalidIds: A context has other sampled ids than its row.
        InvalidLogprobs: A score is not finite.
    """
    if len(contexts) != len(rows):
        raise ConfigError(
            "each row has one context", where="score_teachers", got=f"{len(contexts)} for {len(rows)} rows"
        )
    requests = [
        _request(row, context)
        for row, context in zip(rows, contexts, strict=True)
        if isinstance(context, TeacherContext)
    ]
    scores = iter(scorer.score(requests) if requests else ())
    found: list[NDArray[np.float32] | None] = []
    for row, context in zip(rows, contexts, strict=True):
        if isinstance(context, TeacherRefusal):
            found.append(None)
            continue
        logprobs_S = np.zeros(len(context.ids_S), np.float32)
        logprobs_S[context.mask_S] = next(scores).processed_S
        found.append(align_scores(row, context.ids_S, context.mask_S, logprobs_S))
    return found


def _request(row: Row, context: TeacherContext) -> ScoreRequest:
    """Ask for the trained tokens, in runs of one temperature."""
    align_scores(row, context.ids_S, context.mask_S, np.zeros(len(context.ids_S)))  # refuses other ids before the work
    trained_K, temperature_K = np.flatnonzero(context.mask_S), row.temperature_T[row.mask_T]
    starts = np.flatnonzero((np.diff(trained_K, prepend=-2) > 1) | (np.diff(temperature_K, prepend=-1) != 0))
    ends = np.append(starts[1:], len(trained_K))
    parts = [
        (int(trained_K[start]), int(trained_K[end - 1]) + 1, Sampling(temperature=float(temperature_K[start])))
        for start, end in zip(starts.tolist(), ends[: len(starts)].tolist(), strict=True)
    ]
    return ScoreRequest(context.ids_S, tuple(parts))
