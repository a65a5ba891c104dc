"""The Search-QA engine: a question, searches, one answer."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, get_args

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.searchqa.commands import command, read_command
from agentgym_tok.envs.searchqa.layout import LAYOUTS, NOTHING_FOUND
from agentgym_tok.envs.searchqa.questions import Question
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever
from agentgym_tok.envs.searchqa.scoring import exact_match, substring_match, token_f1
from agentgym_tok.errors import ConfigError, DataMissing, ResetNeeded, WorldError, unknown_name

__all__ = ["Match", "SearchQAEngine"]

Match: TypeAlias = Literal["em", "subem", "f1"]

_UNKNOWN = "No such command. There are search[QUERY] and answer[TEXT]."
_SPENT = "No search is left."
_TAKEN = "The answer was taken."


class SearchQAEngine:
    """Answer questions by searching: `search[QUERY]` shows passages, `answer[TEXT]` ends the episode.

    A search that fails raises, and leaves the episode as it was.

    Args:
        questions: The questions; their ids are the tasks.
        retriever: Finds passages; clones of the engine share it.
        source: The name that every score carries.
        topk: Passages of one search.
        reward: What an answer is worth: exact match, substring match or token F1. Success is always an exact match.
        layout: How passages are written: `"title"` (Search-R1) or `"contents"` (verl-agent, SkyRL).
        search_turns: Only so many commands may search, whatever came before; None sets no limit.
        errors: `"raise"`, or `"text"` to show a failed search to the policy, as some published protocols do.

    Raises:
        UnknownName: A reward, layout or way with errors has another name.
        ConfigError: `topk` is below 1, or `search_turns` below 0.
        DataMissing: There are no questions.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        retriever: Retriever,
        *,
        source: str,
        topk: int = 3,
        reward: Match = "em",
        layout: str = "title",
        search_turns: int | None = None,
        errors: Literal["raise", "text"] = "raise",
    ) -> None:
        known = (
            ("reward", reward, get_args(Match)),
            ("layout", layout, LAYOUTS),
            ("errors", errors, ("raise", "text")),
        )
        for option, value, names in known:
            if value not in names:
                raise unknown_name(option, value, names, where=type(self).__name__)
        if topk < 1 or (search_turns is not None and search_turns < 0):
            raise ConfigError(
                "limits must be positive",
                where=type(self).__name__,
                got=f"{topk=}, {search_turns=}",
                expected="topk >= 1",
            )
        if not questions:
            raise DataMissing("there are no questions", where=source, fix="check data=, split= and dataset=")
        self.source = source
        self.retriever = retriever
        self._questions = {question.id: question for question in questions}
        self._tasks = tuple(self._questions)
        self._topk, self._reward, self._layout = topk, reward, layout
        self._search_turns, self._errors = search_turns, errors
        self._question: Question | None = None
        self._running = False
        self._turns = 0
        self._searched: tuple[str, ...] = ()
        self._found: frozenset[str] = frozenset()

    def tasks(self) -> Sequence[str]:
        """Return the ids of all questions."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Ask a question; None asks the current one again, or the first one.

        Raises:
            UnknownName: No question has this id.
        """
        if task is None:
            task = self._tasks[0] if self._question is None else self._question.id
        if task not in self._questions:
            raise unknown_name("task", task, self._questions, where=self.source)
        self._question, self._running, self._turns = self._questions[task], True, 0
        self._searched, self._found = (), frozenset()
        return TextObservation(self._question.text, facts=self._facts(None, ()))

    def step(self, command: str) -> TextObservation:
        """Search, or answer; anything else is told what there is.

        Raises:
            ResetNeeded: No episode is running.
            WorldError: The retriever failed; the same command may be given again.
        """
        if not self._running:
            raise self._not_running()
        asked = read_command(command)
        if asked is not None and asked.verb == "answer":
            return self._judge(asked.text)
        seen = self._seen(_UNKNOWN, valid=False) if asked is None else self._search(asked.text)
        self._turns += 1
        return seen

    def clone(self) -> Self:
        """Copy the engine in mid-episode; the copy and the original share the retriever and go on independently."""
        # All that an episode changes is replaced, never written to.
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Return `task`, `task_type` (the dataset, or the kind of a generated question), `dataset` and `goal`.

        Raises:
            ResetNeeded: No question was asked yet.
        """
        if self._question is None:
            raise self._not_running()
        parts = self._question.id.split("/")
        kind = parts[2] if len(parts) == 4 else self._question.dataset  # SOURCE/SPLIT/KIND/NUMBER
        return {
            "task": self._question.id,
            "task_type": kind,
            "dataset": self._question.dataset,
            "goal": self._question.text,
        }

    def expert_command(self) -> str | None:
        """Return the search for the first gold passage that was not found yet, then the answer.

        None where nobody knows what to search for, or where that search did not find its passage.
        """
        question = self._question
        if question is None or not self._running or not question.queries:
            return None
        for query, title in zip(question.queries, question.titles, strict=True):
            if title not in self._found:
                return None if query in self._searched else command("search", query)
        return command("answer", question.answers[0])

    @property
    def answers(self) -> tuple[str, ...]:
        """The gold answers of the question.

        Raises:
            ResetNeeded: No question was asked yet.
        """
        if self._question is None:
            raise self._not_running()
        return self._question.answers

    def _search(self, query: str) -> TextObservation:
        if self._search_turns is not None and self._turns >= self._search_turns:
            return self._seen(_SPENT, valid=False)
        try:
            passages = tuple(self.retriever.search([query], self._topk)[0])
        except WorldError as error:
            if self._errors == "raise":
                raise
            return self._seen(f"Search error: {error.what}", valid=False)
        self._searched += (query,)
        self._found |= {passage.title for passage in passages}
        text = LAYOUTS[self._layout](passages) if passages else NOTHING_FOUND
        return self._seen(text, passages, valid=bool(query))

    def _seen(self, text: str, passages: Sequence[Passage] = (), *, valid: bool) -> TextObservation:
        return TextObservation(text, valid=valid, facts=self._facts(None, passages))

    def _judge(self, answer: str) -> TextObservation:
        self._running = False
        facts = self._facts(answer, ())
        right = facts["em"] == 1.0
        return TextObservation(
            _TAKEN, facts[self._reward], terminated=True, success=right, valid=bool(answer), facts=facts
        )

    def _facts(self, answer: str | None, passages: Sequence[Passage]) -> dict[str, Any]:
        """Return the scores as if the episode ended here, and what the last search found."""
        golds = self.answers
        return {
            "answer": answer,
            "em": 0.0 if answer is None else exact_match(answer, golds),
            "subem": 0.0 if answer is None else substring_match(answer, golds),
            "f1": 0.0 if answer is None else token_f1(answer, golds),
            "passages": tuple((passage.id, passage.score) for passage in passages),
        }

    def _not_running(self) -> ResetNeeded:
        where = None if self._question is None else self._question.id
        return ResetNeeded("no Search-QA episode is running", where=where, fix="call reset() first")
