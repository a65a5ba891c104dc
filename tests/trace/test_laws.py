"""Each law's check fails where the law is broken, also where no file could break it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace import Edge, Row, laws
from agentgym_tok.trace.laws import check_accounting, check_continuations, check_failure, check_fingerprint


def test_law_1_a_continuation_of_a_turn_that_is_not_there(make: Any) -> None:
    turn = make.turn("e", 2, make.prompt(1), [1], edge=Edge("continuation", 1, 2))
    (breach,) = check_continuations(make.episode([turn]))
    assert "goes on from turn 1, which is not there" in breach.message


def _drop_all(made: list[Row]) -> list[Row]:
    return made[:0]


def _twice(made: list[Row]) -> list[Row]:
    return [*made, *made]


def _other_context(made: list[Row]) -> list[Row]:
    return [replace(row, ids_T=np.concatenate((row.ids_T[:1] + 1, row.ids_T[1:]))) for row in made]


def _shifted_mask(made: list[Row]) -> list[Row]:
    return [replace(row, mask_T=np.roll(row.mask_T, -1), turn_T=np.roll(row.turn_T, -1)) for row in made]


def _half_masked(made: list[Row]) -> list[Row]:
    return [replace(row, mask_T=row.mask_T & (np.arange(len(row.mask_T)) % 2 == 0)) for row in made]


def _other_logprobs(made: list[Row]) -> list[Row]:
    return [replace(row, logprobs_T=np.roll(row.logprobs_T, 1)) for row in made]


@pytest.mark.parametrize("spoil", [_drop_all, _twice, _other_context, _shifted_mask, _half_masked, _other_logprobs])
def test_law_3_rows_that_lose_double_or_move_a_token(make: Any, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    first = make.turn("e", 0, make.prompt(1, 2, 3), [4, 5])
    episode = make.episode([first, make.turn("e", 1, make.after(first, 6), [7, 8])])
    assert not check_accounting(episode, "rl")[1]
    honest = laws.rows
    monkeypatch.setattr(laws, "rows", lambda *args, **options: spoil(honest(*args, **options)))
    breaches = check_accounting(episode, "rl")[1]
    assert breaches
    assert {breach.law for breach in breaches} == {3}


def test_law_5_ids_of_another_chat_format(make: Any) -> None:
    foreign = Context(Root("0" * 64, 5000), Span(np.array([1], np.int32), "prompt"))
    (breach,) = check_fingerprint(make.episode([make.turn("e", 0, foreign, [1])]), make.meta)
    assert breach.law == 5
    smaller = make.meta.model_copy(update={"vocab_size": 2})
    messages = [
        breach.message for breach in check_fingerprint(make.episode([make.turn("e", 0, foreign, [3])]), smaller)
    ]
    assert "id 3 is outside a vocabulary of 2" in messages


def test_law_6_a_failure_without_its_boundary(make: Any) -> None:
    (breach,) = check_failure(make.episode(make.rich_turns("e"), status="failed"))
    assert breach.law == 6
