"""WebShop's own ways to read `transcript` and `step`, and our words for all of its prompts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange, Step, Transcript, Words
from agentgym_tok.types import AssistantMessage, Message, Trusted

__all__ = ["WEBSHOP_WORDS", "WebShopStep", "WebShopTranscript"]

_RULES = """You shop online: find and buy the product that the instruction asks for. Every turn you give one command.
Commands:
search[WORDS] shows ten products at a time
click[NAME] follows whatever the page names: a product by its id, a choice such as a color or a size, or a button \
(Back to Search, < Prev, Next >, Description, Features, Reviews, Buy Now)
Choose every option that the instruction names before you buy; click[Buy Now] ends the task.
A command that is impossible has no effect."""

WEBSHOP_WORDS = Words(
    system=f"{_RULES}\nEnd each turn with <action>COMMAND</action>.",
    role="You shop online, by one command a turn, for the product that your task describes.",
    answer="""Reason about the next command between <think> and </think>.
Then choose exactly one of the commands that you can give now, and write it between <action> and </action>.""",
    react=_RULES,
)

_SEPARATOR = " [SEP] "
_QUERY = "search[<your query>]"
# An empty bracket stays empty, and one that holds a blank alone is a search.
_BRACKET = re.compile(r"\A([^\[]*\[)(?!\])")
_BLANK = re.compile(r"\A([^\[]*\[) (?!\])")


@dataclass(frozen=True, slots=True)
class WebShopTranscript(Transcript):
    """Keep one conversation; see `Transcript`. One blank behind a command's bracket is not read.

    Experts write it: behind a blank, words and ids of products have the ids that they have on the pages, so
    that who imitates an expert copies.
    """

    def read(self, turn: AssistantMessage) -> Command:
        """Read the command."""
        found = Transcript.read(self, turn)
        return replace(found, text=_BLANK.sub(r"\1", found.text))

    def answer(self, command: str, thought: str = "") -> str:
        """Return the command between its tags, with a blank in its brackets."""
        return Transcript.answer(self, _BRACKET.sub(r"\1 ", command), thought)


@dataclass(frozen=True, slots=True)
class WebShopStep(Step):
    """Open a fresh prompt for every step, as verl-agent does for WebShop; the words are our own.

    What stands in an observation up to the instruction is left out, because the prompt names the task, and the other
    segments are put in quotes. A turn without `<action>` is read by its last 20 characters.

    Args:
        words: The world's wording.
        history: How many exchanges the prompt repeats, as text.
        fallback: How many last characters of a turn without `<action>` are read as its command.
        longest: Most characters of a prompt; a longer one is written without a history.
    """

    fallback: int = 20
    longest: int = 13_000

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the prompt without a history."""
        goal = str(task["goal"])
        return [
            Message.compose(
                "user",
                Trusted(f"{self.words.role} Your task: "),
                goal,
                Trusted("\nYou see now: "),
                _without_task(observation.text, goal),
                *self._choices(_with_search(observation)),
                Trusted(self.words.answer),
            )
        ]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return a whole prompt with the last exchanges, or without them where it would be too long."""
        goal = str(task["goal"])
        shown = replace(_with_search(observation), text=_without_task(observation.text, goal))
        # Exchanges that the prompt does not repeat are only counted.
        first = max(0, len(history) - self.history)
        past = [
            replace(exchange, observation=_without_task(exchange.observation, goal)) for exchange in history[first:]
        ]
        messages = Step.follow(self, shown, task, [*history[:first], *past])
        return messages if len(messages[0].content) <= self.longest else self.open(observation, task)


def _without_task(text: str, goal: str) -> str:
    parts = text.split(_SEPARATOR)
    # The page after the purchase, and `text_rich`, hold no such segment, and stay as they are.
    if goal.strip() not in parts:
        return text
    return _SEPARATOR.join(f"'{part}'" for part in parts[parts.index(goal.strip()) + 1 :])


def _with_search(observation: TextObservation) -> TextObservation:
    """Return what can be done in verl-agent's words and order: a search where there is a bar, and every link."""
    actions = observation.facts["available_actions"]
    search = [_QUERY] if actions["has_search_bar"] else []
    return replace(observation, admissible_commands=(*search, *(f"click[{name}]" for name in actions["clickables"])))
