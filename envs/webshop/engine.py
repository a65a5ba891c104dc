"""The native WebShop engine: the shop of Yao et al. without Java, Flask, spaCy or a browser."""

import copy
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self, overload

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.webshop.expert import next_command
from agentgym_tok.envs.webshop.goals import Goal
from agentgym_tok.envs.webshop.pages import BUY, SEARCH, Mode, Page, done_page
from agentgym_tok.envs.webshop.reward import Reward, score
from agentgym_tok.envs.webshop.session import Session, click, search, show
from agentgym_tok.envs.webshop.shop import Shop
from agentgym_tok.errors import DataMissing, ResetNeeded, UnknownName, unknown_name

__all__ = ["WebShopEngine"]

_COMMAND = re.compile(r"(.+)\[(.+)\]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_MODES = ("text", "text_rich")


class WebShopEngine:
    """Shop by `search[WORDS]` and `click[NAME]`, as the original text environment does, to the last character.

    A task is a goal; its id is the goal's number. The episode ends with a purchase, and the reward is its score.

    Args:
        shop: The products, prices and goals.
        tasks: Numbers of the goals to offer, such as those of `split_goals`; by default all.
        observation: `"text"`, or `"text_rich"` with a line for each thing and marks on what can be clicked.
        show_attributes: Pages of products have a button for the attributes that the reward knows.

    Raises:
        UnknownName: There is no such observation.
        DataMissing: There is no goal to offer.
    """

    def __init__(
        self,
        shop: Shop,
        tasks: Sequence[int] | None = None,
        *,
        observation: Mode = "text",
        show_attributes: bool = False,
    ) -> None:
        if observation not in _MODES:
            raise unknown_name("observation", observation, _MODES, where=type(self).__name__)
        self.source = shop.catalogue.source
        if not (shop.goals if tasks is None else tasks):
            got = f"none of {len(shop.goals)} goals"
            raise DataMissing("no goal to offer", where=self.source, got=got, fix="choose another split or other goals")
        self._shop = shop
        self._tasks = _TaskIds(range(len(shop.goals)) if tasks is None else tasks)
        self._mode: Mode = observation
        self._show_attributes = show_attributes
        self._running = False
        self._goal: Goal | None = None
        self._session: Session
        self._page: Page

    def tasks(self) -> Sequence[str]:
        """Return the ids of all goals offered, in the order that everyone shares."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Start a task; None starts the current one again, or the first one.

        Raises:
            UnknownName: No goal has this id.
        """
        if task is None:
            task = self._session.task if self._goal is not None else self._tasks[0]
        self._goal = self._shop.goals[self._tasks.number(task, self.source)]
        self._running = True
        self._enter(Session(task))
        return self._see(None)

    def step(self, command: str) -> TextObservation:
        """Give the shop one command; one that it does not accept changes nothing, and the page is shown again.

        Raises:
            ResetNeeded: No episode is running.
        """
        if not self._running:
            raise self._not_running()
        catalogue = self._shop.catalogue
        verb, name = _parse(command)
        session: Session | None = None
        if verb == "search":
            session = search(self._session, catalogue, name)
        elif verb == "click" and name in self._page.links and name != SEARCH:
            if name == BUY:
                return self._buy()
            session = click(self._session, catalogue, name, self._page.links[name])
        if session is None:
            return self._see(valid=False)
        self._enter(session)
        return self._see(valid=True)

    def clone(self) -> Self:
        """Copy the engine in mid-episode; the copy and the original go on independently."""
        # All that an engine holds is immutable or shared on purpose, so the copy need not go deeper.
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Return `task`, `task_type` (the department of the goal's product) and `goal` in words.

        Raises:
            ResetNeeded: No task was started yet.
        """
        if self._goal is None:
            raise self._not_running()
        return {"task": self._session.task, "task_type": self._goal.category, "goal": self._goal.instruction_text}

    def expert_command(self) -> str | None:
        """Return the next step to the purchase of the goal's own product, from wherever the customer stands."""
        if self._goal is None or not self._running:
            return None
        return next_command(self._shop, self._goal, self._session, self._page)

    def _enter(self, session: Session) -> None:
        self._session = session
        self._page = show(session, self._shop.catalogue, self._mode, show_attributes=self._show_attributes)

    def _see(self, valid: bool | None) -> TextObservation:
        assert self._goal is not None
        links = self._page.links
        return TextObservation(
            self._page.text(self._goal.instruction_text),
            valid=valid,
            admissible_commands=_clicks(tuple(links)),
            facts={"available_actions": {"has_search_bar": self._session.kind == "start", "clickables": list(links)}},
        )

    def _buy(self) -> TextObservation:
        session, catalogue = self._session, self._shop.catalogue
        assert session.product is not None
        reward = self._score()
        self._running = False
        asin = catalogue.product(session.product).asin
        facts = {
            "available_actions": {"has_search_bar": False, "clickables": []},
            "reward_parts": reward.parts(),
            "purchase": {"asin": asin, "options": dict(session.options)},
        }
        text = done_page(self._mode, asin, session.options, reward.score)
        return TextObservation(text, reward.score, True, reward.score == 1, True, facts=facts)

    def _score(self) -> Reward:
        shop, goal, bought = self._shop, self._goal, self._session.product
        assert goal is not None
        assert bought is not None
        product = shop.catalogue.product(bought)
        return score(
            product,
            goal,
            float(shop.prices_N[bought]),
            self._session.options,
            nouns=shop.title_nouns(product),
            goal_nouns=shop.goal_nouns(goal),
        )

    def _not_running(self) -> ResetNeeded:
        where = None if self._goal is None else self._session.task
        return ResetNeeded("no WebShop episode is running", where=where, fix="call reset() first")


def _parse(command: str) -> tuple[str, str]:
    """Return the verb of a command and what stands in its brackets, in lower case; what follows them is ignored."""
    match = _COMMAND.match(command)
    return (match[1], match[2].lower()) if match else ("", "")


@lru_cache(maxsize=4096)
def _clicks(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commands that click on something, sorted; names that no command can say are left out."""
    commands = ((name, f"click[{name}]") for name in names if name != SEARCH)
    return tuple(sorted(command for name, command in commands if _parse(command) == ("click", name)))


class _TaskIds(Sequence[str]):
    """Offer numbers of goals as ids, without a text for each of millions."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._known = numbers if isinstance(numbers, range) else frozenset(numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return _TaskIds(self._numbers[index])
        return str(self._numbers[index])

    def number(self, task: str, where: str) -> int:
        """Return the number of a goal."""
        if _NUMBER.fullmatch(task) and int(task) in self._known:
            return int(task)
        offered = f"one of {len(self)} goals, such as {self[0]!r} or {self[-1]!r}"
        raise UnknownName("unknown goal", where=where, got=repr(task), expected=offered, fix="choose one of tasks()")
