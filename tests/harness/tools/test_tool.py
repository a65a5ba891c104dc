"""What becomes a tool, under which name, and whose state it keeps."""

import copy
import functools
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

import pytest

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools import Notebook, Tool, calculator


class Counter:
    """Count."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def fresh(self) -> Self:
        return type(self)()

    def __call__(self, by: int = 1) -> int:
        """Count on."""
        self.count += by
        return self.count

    def show(self) -> int:
        """Show the count."""
        return self.count

    @staticmethod
    def half(x: float) -> float:
        """Halve."""
        return x / 2

    @classmethod
    def kind(cls) -> str:
        """Name the class."""
        return cls.__name__


class WordCount:
    """Count words."""

    def __call__(self, text: str) -> int:
        return len(text.split())


async def later(x: int) -> int:
    """Answer later."""
    return x


def documented(x: int) -> int:
    """Do it."""
    return x


@pytest.mark.parametrize(
    ("tool", "name", "description"),
    [
        (Tool(documented), "documented", "Do it."),
        (Tool(documented, name="do-it", description="Does it."), "do-it", "Does it."),
        (Tool(Counter), "counter", "Count on."),
        (Tool(Counter()), "counter", "Count on."),
        (Tool(Counter().show), "show", "Show the count."),
        (Tool(Counter.half), "half", "Halve."),
        (Tool(Counter.kind), "kind", "Name the class."),
        (Tool(WordCount), "word_count", "Count words."),
        (Tool(functools.partial(documented, x=1)), "documented", "Do it."),
        (Tool(functools.lru_cache(documented)), "documented", "Do it."),
        (Tool(lambda: 1, name="one", description="One."), "one", "One."),
    ],
)
def test_names_and_descriptions_come_from_the_function(tool: Tool, name: str, description: str) -> None:
    function = tool.schema["function"]
    assert (tool.name, function["name"], function["description"]) == (name, name, description)
    assert tool.schema["type"] == "function"


class AsyncTool:
    def fresh(self) -> Self:
        return self

    async def __call__(self, x: int) -> int:
        """Answer later."""
        return x


def test_what_is_awaited_is_known() -> None:
    @functools.wraps(later)
    def now(x: int) -> str:
        return f"now {x}"

    tools = [Tool(later), Tool(AsyncTool()), Tool(functools.partial(later, x=1)), Tool(documented), Tool(now)]
    assert [tool.is_async for tool in tools] == [True, True, True, False, False]


def _counting() -> Iterator[int]:
    """Count."""
    yield 1


async def _counting_later() -> AsyncIterator[int]:
    """Count."""
    yield 1


class Loose:
    """Keep who knows what."""

    def __call__(self) -> None: ...

    def method(self) -> None:
        """Do it."""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (3, "this is no tool"),
        (lambda: 1, "needs a name"),
        (WordCount(), "without a method fresh"),
        (Loose().method, "would leak into the next; where: tool method; got: a Loose without"),
        (functools.partial(Counter().show), "only a plain function"),
        (type("Picky", (Loose,), {"__init__": lambda self, x: None}), "takes no arguments; where: Picky"),
        (_counting, "one answer"),
        (_counting_later, "one answer"),
        (Tool, "takes no arguments"),
        (type("Silent", (), {"__call__": lambda self: None}), "must be told"),
    ],
)
def test_what_is_no_tool_is_refused_with_what_to_do(function: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Tool(function)


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a.b", "a\n"])
def test_names_that_no_engine_takes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        Tool(documented, name=name)


@pytest.mark.parametrize("make", [lambda: Counter, lambda: Counter(5), lambda: Counter(5).__call__])
def test_a_fresh_tool_begins_anew_and_leaves_the_old_alone(make: Callable[[], Any]) -> None:
    tool = Tool(make(), name="c")
    tool.function(by=3)
    fresh = tool.fresh({})
    assert fresh.function(by=1) == 1
    assert tool.function(by=0) in {3, 8}
    assert fresh.fresh({}).function(by=0) == 0
    assert fresh.schema is tool.schema


def test_a_clone_goes_on_from_the_same_state_alone() -> None:
    tool = Tool(Counter(5))
    tool.function()
    clone = tool.clone({})
    assert (clone.function(), clone.function(), tool.function()) == (7, 8, 7)


def test_methods_of_one_object_stay_methods_of_one_object() -> None:
    counter = Counter()
    tools = [Tool(counter), Tool(counter.show)]
    twins: dict[int, Any] = {}
    count, show = (tool.fresh(twins) for tool in tools)
    count.function(by=4)
    assert show.function() == 4
    memo: dict[int, Any] = {}
    count, show = (tool.clone(memo) for tool in (count, show))
    count.function(by=1)
    assert (show.function(), counter.count) == (5, 0)


def test_plain_functions_are_shared() -> None:
    for tool in (Tool(calculator), Tool(functools.partial(documented, x=1)), Tool(Counter.half), Tool(Counter.kind)):
        assert tool.owner is None
        assert tool.fresh({}) is tool
        assert tool.clone({}) is tool


def test_tools_pickle_and_copy_with_their_state() -> None:
    tool = Tool(Notebook, name="notes", description="Notes.")
    tool.function("write", "a", "1")
    for twin in (pickle.loads(pickle.dumps(tool)), copy.deepcopy(tool)):
        assert twin.schema == tool.schema
        assert twin.function("read", "a") == "1"
        assert twin.fresh({}).function("list") == "There are no notes."
        assert twin.read({"action": "list"}) == {"action": "list"}
        twin.function("delete", "a")
    assert tool.function("read", "a") == "1"
