"""Ends: a stop token that is lost, passed over, suppressed or hidden is found; so is an error for a full context."""

from dataclasses import replace

import pytest
from toy import CHAT, Floats, Toy, patient

from agentgym_tok import Completion, Request, Sampling
from agentgym_tok.doctor.stopping import check_room, check_stop, check_stop_strings
from agentgym_tok.errors import PolicyError
from agentgym_tok.tokens import Ids, as_ids


class GoesOn(Toy):
    stop_ids = ()


class Loses(Toy):
    def answer(self, request: Request) -> Completion:
        turn = super().answer(request)
        if turn.finish_reason != "stop":
            return turn
        return replace(turn, ids_T=turn.ids_T[:-1], logprobs_T=None, logprobs="missing", weight_versions=())


class HiddenStop(Toy):
    """A `generation_config` with stop tokens of its own."""

    stop_ids = (*CHAT.stop_ids, *range(0, CHAT.vocab_size, 3))


class MinTokens(Toy):
    """Never stop at first."""

    def bent(self, logits: Floats) -> Floats:
        logits = logits.copy()
        logits[list(CHAT.stop_ids)] = -1e9
        return logits


def test_turns_that_end_in_their_stop_token_pass() -> None:
    found = check_stop(patient(Toy()))
    assert (found.status, "of 14 turns ended" in found.found) == ("ok", True)


@pytest.mark.parametrize(
    ("policy", "words", "advice"),
    [
        (GoesOn(), "goes on behind its stop token", "end there"),
        (Loses(), "stopped at nothing, which is no stop token", "last id"),
        (HiddenStop(), "which is no stop token of the chat format", "hidden stop token"),
        (MinTokens(), "the likeliest token is the stop token", "min_tokens"),
    ],
)
def test_each_fault_of_an_end_is_found(policy: Toy, words: str, advice: str) -> None:
    found = check_stop(patient(policy))
    assert (found.status, words in found.found, advice in found.advice) == ("failed", True, True)


def test_turns_that_never_end_say_nothing() -> None:
    found = check_stop(patient(MinTokens(), reference=False))
    assert (found.status, found.found) == ("skipped", "none of 14 turns ended within 48 tokens")


def test_stop_strings_end_a_turn_and_stay() -> None:
    assert check_stop_strings(patient(Toy())).status == "ok"

    class Deaf(Toy):
        def ends(self, ids: list[int], sampling: Sampling) -> bool:
            return ids[-1] in CHAT.stop_ids

    class Trims(Toy):
        def answer(self, request: Request) -> Completion:
            turn = super().answer(request)
            if not request.sampling.stop:
                return turn
            kept = len(turn.ids_T) - 1
            assert turn.logprobs_T is not None
            return replace(
                turn, ids_T=turn.ids_T[:-1], logprobs_T=turn.logprobs_T[:-1], weight_versions=(("1", 0, kept),)
            )

    for policy in (Deaf(), Trims()):
        found = check_stop_strings(patient(policy))
        assert (found.status, "Sampling.stop" in found.advice) == ("failed", True)


def test_stop_strings_of_an_engine_without_seeds_cannot_be_judged() -> None:
    class Unseeded(Toy):
        draws = 0

        def seed(self, request: Request) -> int:
            self.draws += 1
            return self.draws

    assert check_stop_strings(patient(Unseeded())).status == "skipped"


def test_a_full_context_is_a_truncated_turn() -> None:
    class Refuses(Toy):
        def answer(self, request: Request) -> Completion:
            if len(request.ids_T) >= self.context_limit:
                raise PolicyError("the engine refuses the request", got="status 400")
            return super().answer(request)

    class Cuts(Toy):
        def read(self, ids_T: Ids) -> Ids:
            return as_ids(ids_T[-100:])

    class Unknown(Toy):
        context_limit = None  # type: ignore[assignment]

    class Unlimited(Toy):
        context_limit = 2**31

    assert check_room(patient(Toy())).status == "ok"
    found = check_room(patient(Refuses()))
    assert (found.status, "status 400" in found.found, "truncated" in found.advice) == ("failed", True, True)
    found = check_room(patient(Cuts()))
    assert (found.status, "12 ids" in found.found, "cuts the context" in found.advice) == ("failed", True, True)
    assert check_room(patient(Unknown())).status == check_room(patient(Unlimited())).status == "skipped"
