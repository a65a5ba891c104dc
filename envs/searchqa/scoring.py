"""Scores of an answer: exact match, substring match, token F1, and Search-R1's reward for form."""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from pydantic import Field

from agentgym_tok.config import Config

__all__ = [
    "FormatScores",
    "answer_in",
    "exact_match",
    "format_reward",
    "keeps_form",
    "normalize_answer",
    "substring_match",
    "token_f1",
]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")


def normalize_answer(text: str) -> str:
    """Lower a text, and take out punctuation, articles and needless blanks, as SQuAD does."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, golds: Iterable[str]) -> float:
    """Return 1 where the answer equals a gold one, both normalised, else 0."""
    said = normalize_answer(answer)
    return float(any(said == normalize_answer(gold) for gold in golds))


def substring_match(answer: str, golds: Iterable[str]) -> float:
    """Return 1 where a gold answer stands somewhere in the answer, both normalised, else 0."""
    said = normalize_answer(answer)
    return float(any(normalize_answer(gold) in said for gold in golds))


def token_f1(answer: str, golds: Iterable[str]) -> float:
    """Return the best F1 of words against a gold answer, both normalised (SQuAD, Rajpurkar et al. 2016).

    As HotpotQA's own scorer does, an answer of yes, no or noanswer shares nothing with any other one.
    """
    return max((_f1(normalize_answer(answer), normalize_answer(gold)) for gold in golds), default=0.0)


def _f1(said: str, gold: str) -> float:
    if said != gold and {said, gold} & {"yes", "no", "noanswer"}:
        return 0.0
    words, wanted = said.split(), gold.split()
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


def answer_in(text: str) -> str | None:
    """Return the last answer that stands between its tags, or None.

    Args:
        text: What the assistant said, and no passage: one that spells the tags would answer in its place.
    """
    answers: list[str] = _ANSWER.findall(text)
    return answers[-1].strip() if answers else None


class FormatScores(Config):
    """Set what form is worth beside a right answer (Search-R1's `qa_em_format`)."""

    structure: float = Field(default=0.2, description="a whole sequence of thoughts, searches and an answer")
    retrieval: float = Field(default=0.1, description="that, and a gold answer stands in a passage")
    final: float = Field(default=0.1, description="a wrong answer between its tags, in a broken sequence")


_State = Literal["start", "thought", "searched", "informed", "end"]
_NEXT: Final[dict[tuple[_State, str], _State]] = {
    ("start", "think"): "thought",
    ("informed", "think"): "thought",
    ("thought", "search"): "searched",
    ("searched", "information"): "informed",
    ("thought", "answer"): "end",
}


def keeps_form(text: str) -> bool:
    """Tell whether a text is thought, search and information in turn, then a thought and the answer, and nothing else.

    Args:
        text: What the assistant said, passages included.
    """
    state: _State = "start"
    inside: str | None = None
    for piece in _TAG.split(text):
        if not _TAG.fullmatch(piece):
            if inside is None and piece.strip():
                return False
            continue
        name = piece.strip("</>")
        if piece.startswith("</"):
            if inside != name:
                return False
            inside = None
        elif inside is not None or (state, name) not in _NEXT:
            return False
        else:
            state, inside = _NEXT[state, name], name
    return state == "end" and inside is None


def format_reward(
    text: str, golds: Sequence[str], scores: FormatScores, match: Callable[[str, Sequence[str]], float] = exact_match
) -> float:
    """Return Search-R1's reward for answer and form together.

    A right answer is worth 1, less `structure` in a broken sequence. Else a whole sequence is worth `structure`, and
    `retrieval` more where a gold answer was found; a broken one `final` where it answers at all.

    Args:
        text: What the assistant said, passages included.
        golds: Gold answers.
        scores: What form is worth.
        match: `exact_match` or `substring_match`.
    """
    form = keeps_form(text)
    # A passage may spell the tags; the answer is looked for in the assistant's own words.
    answer = answer_in(_INFORMATION.sub("", text))
    if answer is not None and match(answer, golds):
        return 1.0 if form else 1.0 - scores.structure
    if form:
        found = any(substring_match(passage, golds) for passage in _INFORMATION.findall(text))
        return scores.structure + scores.retrieval * found
    return 0.0 if answer is None else scores.final
