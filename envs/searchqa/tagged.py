"""The published promptings with `<search>` and `<answer>` tags: Search-R1's, and that of verl-agent and SDAR."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.prompting import Command, Exchange
from agentgym_tok.envs.searchqa.commands import command, read_command
from agentgym_tok.envs.searchqa.layout import NOTHING_FOUND
from agentgym_tok.envs.searchqa.prompts import SearchWords
from agentgym_tok.types import AssistantMessage, Message, Trusted

__all__ = ["SearchR1", "SearchStep", "spoken", "to_judge"]

_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_TAG = re.compile(r"</?(?:think|search|information|answer)>")
_EITHER = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)


def spoken(message: AssistantMessage | Message) -> str:
    """Return all that a turn says as one text, its reasoning included: these protocols know no separate reasoning."""
    if message.reasoning is None:
        return message.content
    closer = "</think>" if isinstance(message, Message) or message.reasoning_closed else ""
    return f"<think>{message.reasoning}{closer}{message.content}"


def to_judge(messages: Iterable[Message]) -> str:
    """Return what was said and found as one text, for the reward of form.

    Only the policy's own tags, and those around what was found, stand in it: a passage or a prompt that spells others
    must not answer in the policy's place.

    Args:
        messages: The conversation behind its first prompt.
    """
    parts: list[str] = []
    for message in messages:
        if message.role == "assistant":
            parts.append(spoken(message))
        else:
            words = _TAG.sub("", message.content)
            found = message.content.lstrip().startswith("<information>")
            parts.append(f"<information>{words}</information>" if found else words)
    return "".join(parts)


def _cut(text: str) -> str:
    """Return the text up to the first `</search>`, else up to the first `</answer>`."""
    for closer in ("</search>", "</answer>"):
        before, found, _ = text.partition(closer)
        if found:
            return before + found
    return text


@dataclass(frozen=True, slots=True)
class SearchR1:
    """Let the policy search inside its one turn (Search-R1, Jin et al. 2025).

    One user's message asks. A turn is read up to its first `</search>`, else its first `</answer>`, and there the first
    of the two tags decides. What was found goes on inside the turn, between `<information>` tags; after a turn that
    ended in a stop token it comes as a user's message. Turns stop where a tag closes; ids that a policy sampled behind
    `</search>` all the same stay.

    Args:
        words: The wording.
        stop: Strings that end a turn.
    """

    words: SearchWords
    name: str = "search_r1"
    fresh: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    stop: tuple[str, ...] = ("</search>", "</answer>")

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the one prompt; a question without its mark gets one."""
        del observation
        question = str(task["goal"])
        mark = "" if question.endswith("?") else "?"
        return [Message.compose("user", Trusted(f"{self.words.search_r1}Question: "), question, Trusted(f"{mark}\n"))]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return what was found, or that the turn was invalid; nothing stands behind an answer."""
        del task
        asked = read_command(history[-1].command.text)
        if asked is None:
            return [Message("inline", self.words.invalid, trusted=True)]
        if asked.verb == "answer":
            return [Message("inline", "")]
        found = "" if observation.text == NOTHING_FOUND else observation.text
        return [Message.compose("inline", Trusted("\n\n<information>"), found, Trusted("</information>\n\n"))]

    def read(self, turn: AssistantMessage) -> Command:
        """Read the first of the two tags."""
        found = _EITHER.search(_cut(spoken(turn)))
        return Command("", format_ok=False) if found is None else Command(command(found[1], found[2]), format_ok=True)

    def answer(self, command: str, thought: str = "") -> str | Message:
        """Return the command between its tags, behind the thought; a search does not end the turn."""
        asked = read_command(command)
        if asked is None:
            return Message("inline", command)
        turn = f"<think>{thought} </think>\n<{asked.verb}> {asked.text} </{asked.verb}>"
        return turn if asked.verb == "answer" else Message("inline", turn)


@dataclass(frozen=True, slots=True)
class SearchStep:
    """Open a fresh prompt for every step, with the last searches and what they found inside, as verl-agent does.

    A turn is read up to its first `</search>`, else its first `</answer>`; there the first search is the command, else
    the first answer. The form is kept by one tag, once.

    Args:
        words: The wording.
        history: How many steps the prompt repeats.
    """

    words: SearchWords
    history: int = 4
    name: str = "step"
    fresh: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        """Return the prompt without a history."""
        del observation
        return [Message.compose("user", *self._question(task), Trusted(self.words.answer))]

    def follow(
        self, observation: TextObservation, task: Mapping[str, Any], history: Sequence[Exchange]
    ) -> list[Message]:
        """Return a whole prompt with the last steps."""
        steps = len(history)
        first = max(0, steps - self.history)
        answers = [*(exchange.observation for exchange in history[first + 1 :]), observation.text]
        recent: list[str] = []
        for number, (exchange, answer) in enumerate(zip(history[first:], answers, strict=True), first + 1):
            recent += [Trusted(f"Step {number}:"), *_step(exchange.command.text, answer), Trusted("\n")]
        taken = f"You have taken {steps} step{'s' * (steps != 1)}. The last {steps - first}:\n"
        return [Message.compose("user", *self._question(task), Trusted(taken), *recent, Trusted(self.words.answer))]

    def _question(self, task: Mapping[str, Any]) -> tuple[str, ...]:
        return Trusted(f"{self.words.role}\nYour question: "), str(task["goal"]), Trusted("\n")

    def read(self, turn: AssistantMessage) -> Command:
        """Read the first search, else the first answer."""
        said = spoken(turn)
        read = _cut(said)
        found = {"search": _SEARCH.search(read), "answer": _ANSWER.search(read)}
        kept = sorted((said.count("<search>"), said.count("<answer>"))) == [0, 1]
        for verb, block in found.items():
            if block is not None:
                return Command(command(verb, block[1]), format_ok=kept)
        return Command("", format_ok=False)

    def answer(self, command: str, thought: str = "") -> str:
        """Return the command between its tags, after the thought, be it empty."""
        asked = read_command(command)
        return command if asked is None else f"<think>{thought}\n</think>\n<{asked.verb}>{asked.text}</{asked.verb}>"


def _step(command: str, answer: str) -> tuple[str, ...]:
    """Return a step as the history shows it: the action in its tags, and what was found as JSON."""
    asked = read_command(command)
    if asked is None:
        return (Trusted(" "),)
    action = (Trusted(f"<{asked.verb}>"), asked.text, Trusted(f"</{asked.verb}> "))
    if asked.verb == "answer":
        return action
    return (*action, Trusted("<information>"), json.dumps({"result": answer}), Trusted("</information>"))
