"""A WebShop site that runs somewhere, driven page by page: slower than the native engine, and nothing else differs."""

import ast
import copy
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Self

from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.webshop.pages import BACK, BUY, SEARCH, Mode, done_page
from agentgym_tok.envs.webshop.site.html import SiteLink, SitePage
from agentgym_tok.envs.webshop.site.web import NoSuchPage, Web, broken, joined
from agentgym_tok.errors import DataMissing, ResetNeeded, unknown_name

__all__ = ["SiteEngine"]

_COMMAND = re.compile(r"(.+)\[(.+)\]")
_MODES = ("text", "text_rich")


class SiteEngine:
    """Shop on a running site of the original's page structure, by the same commands as in the native engine.

    A task is a number of a goal of the site: its sessions are called `fixed_..._NUMBER`. All that an episode does
    stands in the addresses of its pages, so that an engine can be cloned. The page after the purchase is shown as the
    text environment shows it, without the goal that the site prints there.

    Args:
        url: The address of the site; redirects to elsewhere, and proxies and passwords of the process' environment,
            are not followed.
        tasks: Numbers of the goals to offer.
        observation: `"text"`, or `"text_rich"`.
        source: The name every score carries.
        timeout_s: How long a page may take, in seconds.

    Raises:
        ConfigError: The address is none of HTTP.
        UnknownName: There is no such observation.
        DataMissing: There is no goal to offer.
    """

    def __init__(
        self,
        url: str,
        tasks: Sequence[int],
        *,
        observation: Mode = "text",
        source: str = "WebShop-site",
        timeout_s: float = 30.0,
    ) -> None:
        if observation not in _MODES:
            raise unknown_name("observation", observation, _MODES, where=type(self).__name__)
        if not tasks:
            raise DataMissing("no goal to offer", where=url, fix="choose another split")
        self.source = source
        self._web = Web(url, timeout_s)
        self._tasks = tuple(map(str, tasks))
        self._mode: Mode = observation
        self._running = False
        self._task: str | None = None
        self._goal = self._at = self._start = ""
        self._page: SitePage
        self._asin = ""
        self._options: Mapping[str, str] = {}
        self._visited: frozenset[str] = frozenset()

    def tasks(self) -> Sequence[str]:
        """Return the numbers of all goals offered."""
        return self._tasks

    def reset(self, task: str | None = None) -> TextObservation:
        """Open a new session for a goal; None opens one for the current goal, or the first one.

        Raises:
            UnknownName: No goal has this number.
            WorldError: The site does not answer, or with something else than a shop.
        """
        task = task or self._task or self._tasks[0]
        if task not in self._tasks:
            raise unknown_name("goal", task, self._tasks[:1000], where=self.source)
        self._running = False
        start = f"{self._web.url}fixed_{uuid.uuid4().hex}_{task}"
        page, at = self._web.ask("GET", start)
        if page.search is None or page.instruction is None:
            raise broken(at, "a page without a search bar or an instruction")
        self._task, self._goal, self._start = task, page.instruction, at
        self._running = True
        self._enter(page, at, asin="", options={}, visited=frozenset())
        return self._see(None)

    def step(self, command: str) -> TextObservation:
        """Give the shop one command; one that it does not accept changes nothing, and the page is shown again.

        Raises:
            ResetNeeded: No episode is running.
            WorldError: The site does not answer, or with something else than a shop.
        """
        if not self._running:
            raise ResetNeeded("no WebShop episode is running", where=self._task, fix="call reset() first")
        verb, name = _parse(command)
        if verb == "search":
            return self._search(name)
        link = self._page.links.get(name) if verb == "click" and name != SEARCH else None
        if link is None:
            return self._see(valid=False)
        if name == BUY:
            return self._buy(link)
        page, at = self._web.ask("POST" if link.kind == "button" else "GET", joined(self._at, link.address))
        self._check(page, at)
        if link.kind == "product":
            asin = name.upper()
            self._enter(page, at, asin=asin, options={}, visited=self._visited | {asin})
        elif link.kind == "value":
            self._enter(page, at, asin=self._asin, options={**self._options, link.option: name}, visited=self._visited)
        elif name == BACK:
            self._enter(page, at, asin="", options={}, visited=frozenset())
        else:
            self._enter(page, at, asin=self._asin, options=self._options, visited=self._visited)
        return self._see(valid=True)

    def clone(self) -> Self:
        """Copy the engine in mid-episode; the copy and the original go on independently, in the same session."""
        return copy.copy(self)

    def task_info(self) -> Mapping[str, Any]:
        """Return `task` and `goal` in words.

        Raises:
            ResetNeeded: No task was started yet.
        """
        if self._task is None:
            raise ResetNeeded("no WebShop episode is running", where=self._web.url, fix="call reset() first")
        return {"task": self._task, "goal": self._goal}

    def expert_command(self) -> str | None:
        """Return None: the site does not tell which product a goal was made from."""
        return None

    def _search(self, words: str) -> TextObservation:
        # Sent as the start page sends it; from other pages too, because the text environment allows it.
        try:
            words = words.encode("utf-8", "replace").decode()  # a lone surrogate cannot be sent
            page, at = self._web.ask("POST", self._start, {"search_query": words})
        except NoSuchPage:
            # The original cannot search for words with a slash: its addresses hold them, and break at it.
            return self._see(valid=False)
        self._check(page, at)
        self._enter(page, at, asin="", options={}, visited=self._visited)
        return self._see(valid=True)

    def _buy(self, link: SiteLink) -> TextObservation:
        page, at = self._web.ask("POST", joined(self._at, link.address))
        try:
            score = float(page.score or "")
        except ValueError as error:
            raise broken(at, f"a page after the purchase with the score {page.score!r}") from error
        if not 0 <= score <= 1:
            raise broken(at, f"the score {score}, which is not between 0 and 1")
        self._running = False
        facts = {
            "available_actions": {"has_search_bar": False, "clickables": []},
            "reward_parts": _parts(page.parts),
            "purchase": {"asin": self._asin, "options": dict(self._options)},
        }
        text = done_page(self._mode, self._asin, self._options, score)
        return TextObservation(text, score, True, score == 1, True, facts=facts)

    def _check(self, page: SitePage, at: str) -> None:
        if page.instruction != self._goal:
            raise broken(at, f"the instruction {page.instruction!r} instead of the task's own")

    def _enter(
        self, page: SitePage, at: str, *, asin: str, options: Mapping[str, str], visited: frozenset[str]
    ) -> None:
        self._page, self._at, self._asin, self._options, self._visited = page, at, asin, options, visited

    def _see(self, valid: bool | None) -> TextObservation:
        page, links = self._page, self._page.links
        address = json.dumps(self._options)
        text = page.text(self._mode, lambda value: f'"{value}"' in address, lambda asin: asin in self._visited)
        clicks = {name: f"click[{name}]" for name in links if name != SEARCH}
        sayable = tuple(sorted(click for name, click in clicks.items() if _parse(click) == ("click", name)))
        facts = {"available_actions": {"has_search_bar": page.search is not None, "clickables": list(links)}}
        return TextObservation(text, valid=valid, admissible_commands=sayable, facts=facts)


def _parse(command: str) -> tuple[str, str]:
    """Return the verb of a command and what stands in its brackets, in lower case."""
    match = _COMMAND.match(command)
    return (match[1], match[2].lower()) if match else ("", "")


def _parts(printed: str) -> dict[str, Any]:
    """Return the parts of a score as the site printed them; nothing where they cannot be read."""
    try:
        parts = ast.literal_eval(printed)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return dict(parts) if isinstance(parts, dict) else {}
