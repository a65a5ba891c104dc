"""Ids: an engine that reads text in between gives itself away, with and without a reference."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import CHAT, Floats, Toy, patient

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.doctor.contexts import conversations, split_differently
from agentgym_tok.doctor.ids import check_ids
from agentgym_tok.errors import PolicyError
from agentgym_tok.tokens import Ids, as_ids


class ReadsText(Toy):
    def read(self, ids_T: Ids) -> Ids:
        return CHAT.tokenize(CHAT.decode(ids_T))


@pytest.mark.parametrize("reference", [True, False])
def test_ids_that_are_read_as_sent_pass_and_text_in_between_is_found(reference: bool) -> None:
    assert check_ids(patient(Toy(), reference=reference)).status == "ok"
    found = check_ids(patient(ReadsText(), reference=reference))
    assert found.status == "failed"
    assert "cuts the text of its own" in found.found
    assert "--enable-scale-out" in found.advice


def test_without_log_probabilities_another_answer_is_the_proof() -> None:
    class Silent(Toy):
        def answer(self, request: Request) -> Completion:
            return replace(super().answer(request), logprobs_T=None, logprobs="missing")

    class SilentReader(Silent, ReadsText):
        pass

    assert check_ids(patient(Silent(), reference=False)).status == "ok"
    assert check_ids(patient(SilentReader(), reference=False)).status == "skipped"


def test_log_probabilities_that_move_a_little_are_proof_enough() -> None:
    class Faint(Toy):
        def logits(self, ids_T: Ids) -> Floats:
            return np.arange(CHAT.vocab_size) / 10 + 1e-3 * super().logits(ids_T)

    class FaintReader(Faint, ReadsText):
        pass

    assert check_ids(patient(Faint(), reference=False)).status == "ok"
    assert check_ids(patient(FaintReader(), reference=False)).status == "failed"


def test_an_engine_that_answers_every_context_alike_proves_nothing() -> None:
    class Blind(Toy):
        def read(self, ids_T: Ids) -> Ids:
            return as_ids([5])

    found = check_ids(patient(Blind(), reference=False))
    assert (found.status, "do not depend on the context" in found.found) == ("skipped", True)


def test_a_refusal_of_other_ids_is_found() -> None:
    class Refuses(Toy):
        def answer(self, request: Request) -> Completion:
            if CHAT.tokenize(CHAT.decode(request.ids_T)).tolist() != request.ids_T.tolist():
                raise PolicyError("the engine read other ids than were sent")
            return super().answer(request)

    found = check_ids(patient(Refuses()))
    assert (found.status, "read other ids than were sent" in found.found) == ("failed", True)


def test_ids_that_are_guessed_now_and_then_or_foreign_are_found() -> None:
    class Sometimes(Toy):
        def answer(self, request: Request) -> Completion:
            turn = super().answer(request)
            return replace(turn, ids_exact=bool(request.seed % 2), note="" if request.seed % 2 else "no ids")

    class Foreign(Toy):
        def answer(self, request: Request) -> Completion:
            turn = super().answer(request)
            return replace(turn, ids_T=as_ids([*turn.ids_T[:-1].tolist(), CHAT.vocab_size]))

    found = check_ids(patient(Sometimes()))
    assert (found.status, "2 of 4 turns have no exact ids: no ids" in found.found) == ("failed", True)
    found = check_ids(patient(Foreign()))
    assert (found.status, str(CHAT.vocab_size) in found.found, "--chat" in found.advice) == ("failed", True, True)


@given(st.text(alphabet="abcdefgh klmno\n.,日本 é", min_size=1))
@settings(max_examples=60)
def test_a_split_keeps_the_text_and_is_never_what_the_tokenizer_chooses(text: str) -> None:
    ids_T = CHAT.encode(text)
    split_T = split_differently(CHAT, ids_T)
    if split_T is not None:
        assert CHAT.decode(split_T) == CHAT.decode(ids_T)
        assert CHAT.encode(CHAT.decode(split_T)).tolist() != split_T.tolist()


def test_a_split_is_found_for_real_tokenizers(qwen3: ChatFormat) -> None:
    for chat in (CHAT, qwen3):
        contexts = conversations(chat)
        assert len({ids_T.tobytes() for ids_T in contexts}) == len(contexts)
        split_T = split_differently(chat, contexts[0])
        assert split_T is not None
        assert len(split_T) > len(contexts[0])
        assert np.isin(split_T, list(chat.control_ids)).sum() == np.isin(contexts[0], list(chat.control_ids)).sum()
