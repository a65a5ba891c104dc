"""Every call has one answer that helps, in order, whatever it says and whatever the tool does."""

import asyncio
import json
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, Self, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.errors import ConfigError
from agentgym_tok.harness.tools import Notebook, Tool, Toolbox, ToolResult, calculator
from agentgym_tok.types import CallStatus, ToolCall


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def run(box: Toolbox, call: ToolCall, **options: Any) -> ToolResult:
    return asyncio.run(box.run(call, **options))


def echo(text: str) -> str:
    """Say it again."""
    return text


async def echo_later(text: str) -> str:
    """Say it again, later."""
    await asyncio.sleep(0)
    return text


def tool_of(function: Callable[..., Any]) -> Tool:
    return Tool(function, name="it", description="Do it.")


def test_an_answer_is_an_untrusted_tool_message_of_its_call() -> None:
    for box in (Toolbox(echo), Toolbox(Tool(echo_later, name="echo"))):
        asked = ToolCall("echo", {"text": "<|im_end|>"}, id="call00007")
        result = run(box, asked)
        assert result.call is asked
        assert result.failure is None
        assert (result.left_out, result.mistaken) == (0, False)
        message = result.message
        assert (message.role, message.content) == ("tool", "<|im_end|>")
        assert (message.tool_call_id, message.name, message.trusted) == ("call00007", "echo", False)


@pytest.mark.parametrize("status", get_args(CallStatus))
def test_a_call_of_each_status_is_answered(status: CallStatus) -> None:
    box = Toolbox(echo, calculator)
    result = run(box, ToolCall("ech", None, raw='{"name": "ech", "arguments": {', status=status))
    failure = result.failure
    assert failure is not None
    assert (failure.boundary, failure.kind) == ("tool", "unknown_tool" if status == "ok" else status)
    assert result.mistaken
    assert result.message.content.startswith("Error: ")
    assert result.message.content == f"Error: {failure.message}"


def test_an_unknown_tool_is_answered_with_the_nearest() -> None:
    text = run(Toolbox(echo, calculator), call("calculater")).message.content
    assert text == "Error: there is no tool 'calculater'. Did you mean calculator? The tools are: echo, calculator."
    assert run(Toolbox(), call("x")).message.content == "Error: there is no tool 'x'. The tools are: none."
    assert len(run(Toolbox(echo), call("x" * 10**6)).message.content) < 500


def test_a_call_that_is_no_json_is_shown_where() -> None:
    raw = '{"name": "echo", "arguments": {"text": "x}}'
    text = run(Toolbox(echo), ToolCall("", None, raw=raw, status="invalid_json")).message.content
    assert "Unterminated string starting at: line 1 column 40" in text
    nameless = run(Toolbox(echo), ToolCall("", None, status="missing_name")).message
    assert "The tools are: echo." in nameless.content
    assert (nameless.name, nameless.tool_call_id) == (None, None)


def test_a_tool_that_another_list_of_tools_did_not_know_is_run_all_the_same() -> None:
    asked = ToolCall("echo", {"text": "x"}, status="unknown_tool")
    assert run(Toolbox(echo), asked).message.content == "x"


def test_arguments_that_do_not_fit_reach_no_tool() -> None:
    ran: list[int] = []

    def note(x: int) -> None:
        ran.append(x)

    result = run(Toolbox(tool_of(note)), call("it", y=1))
    assert result.failure is not None
    assert (result.failure.kind, result.mistaken, ran) == ("invalid_arguments", True, [])
    assert result.message.content == (
        "Error: the arguments do not fit it.\n- x: Field required\n- y: Extra inputs are not permitted\nIt takes: x."
    )


class Evil(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError


def _raise(error: BaseException) -> NoReturn:
    raise error


def _recurse() -> int:
    return 1 + _recurse()


def _leave() -> NoReturn:
    sys.exit("bye")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (lambda: _raise(ValueError("take less")), "ValueError", "Error: take less"),
        (lambda: _raise(KeyError("x")), "KeyError", "Error: KeyError: 'x'"),
        (lambda: _raise(Evil()), "Evil", "Error: Evil"),
        (lambda: _raise(asyncio.CancelledError()), "CancelledError", "Error: CancelledError"),
        (lambda: _raise(StopIteration()), None, "Error: "),
        (lambda: _raise(GeneratorExit()), "GeneratorExit", "Error: GeneratorExit"),
        (_leave, "SystemExit", "Error: SystemExit: bye"),
        (_recurse, "RecursionError", "Error: RecursionError: maximum"),
        (lambda: iter("x"), "TypeError", "Error: TypeError: a tool returned a str"),
        (lambda: {(1, 2): 3}, "TypeError", "Error: TypeError: keys must be"),
    ],
)
def test_whatever_a_tool_raises_or_returns_is_a_record(
    body: Callable[[], Any], kind: str | None, says: str, *, later: bool
) -> None:
    async def awaited() -> Any:
        return body()

    result = run(Toolbox(tool_of(awaited if later else body)), call("it"))
    assert result.failure is not None
    assert result.failure.boundary == "tool"
    assert kind in {None, result.failure.kind}
    assert result.mistaken == (kind == "ValueError")
    assert result.message.content.startswith(says)


@pytest.mark.parametrize("later", [False, True])
def test_a_tool_that_hangs_is_a_record_and_the_box_lives_on(*, later: bool) -> None:
    gate = threading.Event()

    def hang() -> None:
        gate.wait()

    async def hang_later() -> None:
        await asyncio.Event().wait()

    box = Toolbox(tool_of(hang_later if later else hang), echo, timeout_s=0.05)
    results = asyncio.run(box.run_all([call("it"), call("echo", text="a")]))
    gate.set()
    assert [result.failure and result.failure.kind for result in results] == ["timeout", None]
    assert results[0].message.content == "Error: it gave no answer within 0.05 seconds."
    assert not results[0].mistaken


def test_the_shorter_of_two_limits_holds() -> None:
    gate = threading.Event()
    box = Toolbox(tool_of(lambda: gate.wait() and None), timeout_s=0.05)
    texts = [run(box, call("it"), timeout_s=limit).message.content for limit in (0.01, 9.0)]
    gate.set()
    assert [text.split()[-2] for text in texts] == ["0.01", "0.05"]


def test_no_tool_begins_without_time() -> None:
    ran: list[int] = []
    box = Toolbox(tool_of(lambda: ran.append(1)))
    for limit in (0.0, -1.0):
        result = run(box, call("it"), timeout_s=limit)
        assert result.failure is not None
        assert (result.failure.kind, ran) == ("timeout", [])


class Slow:
    def __init__(self) -> None:
        self.gate, self.ended, self.said = threading.Event(), threading.Event(), list[str]()

    def fresh(self) -> Self:
        return type(self)()

    def __call__(self, text: str) -> str:
        """Say it."""
        if text == "wait":
            self.gate.wait()
            self.ended.set()
        self.said.append(text)
        return text


def test_an_object_that_is_still_busy_is_left_alone() -> None:
    slow = Slow()
    box = Toolbox(slow, timeout_s=0.05)

    async def work() -> list[ToolResult]:
        first = await box.run_all([call("slow", text="wait"), call("slow", text="a")])
        slow.gate.set()
        await asyncio.to_thread(slow.ended.wait)
        while box._unfinished[id(slow)]():  # noqa: ASYNC110  # a thread's last steps have no event
            await asyncio.sleep(0)
        return [*first, await box.run(call("slow", text="b"), timeout_s=60)]

    results = asyncio.run(work())
    assert [result.failure and result.failure.kind for result in results] == ["timeout", "busy", None]
    assert slow.said == ["wait", "b"]


def test_calls_run_together_and_answers_keep_their_order() -> None:
    meeting = threading.Barrier(8)

    def meet(x: int) -> int:
        meeting.wait(60)
        return x

    box = Toolbox(tool_of(meet))
    results = asyncio.run(box.run_all([call("it", x=x) for x in range(8)]))
    assert [result.message.content for result in results] == [str(x) for x in range(8)]


def test_calls_of_one_object_run_one_after_the_other() -> None:
    box = Toolbox(Notebook)
    calls = [call("notebook", action="write", title=f"n{x}", text="x" * x) for x in range(20)]
    results = asyncio.run(box.run_all([*calls, call("notebook", action="list")]))
    assert results[-1].message.content == f"The notes are: {', '.join(repr(f'n{x}') for x in range(20))}."


def test_a_turn_of_many_calls_starts_few_at_a_time() -> None:
    gate, full, lock, begun = threading.Event(), threading.Event(), threading.Lock(), 0

    def wait() -> None:
        nonlocal begun
        with lock:
            begun += 1
            if begun == 16:
                full.set()
        gate.wait()

    async def work() -> list[ToolResult]:
        answers = asyncio.create_task(Toolbox(tool_of(wait)).run_all([call("it")] * 100))
        await asyncio.to_thread(full.wait)
        for _ in range(100):
            await asyncio.sleep(0)  # whoever may begin has begun
        assert begun == 16
        gate.set()
        return await answers

    assert [result.failure for result in asyncio.run(work())] == [None] * 100


def test_a_cancelled_turn_raises_and_nothing_else_does() -> None:
    gate, began = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        gate.wait()

    async def work() -> None:
        task = asyncio.create_task(Toolbox(tool_of(hang)).run_all([call("it"), call("none")]))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    gate.set()


def test_a_huge_answer_is_cut_in_its_middle_and_counted() -> None:
    box = Toolbox(tool_of(lambda: "a" + "x" * 100_000_000 + "b"), max_characters=200)
    result = run(box, call("it"))
    text = result.message.content
    assert 190 < len(text) <= 200
    assert text.startswith("ax")
    assert text.endswith("xb")
    assert f"[... {result.left_out} characters left out ...]" in text
    assert result.failure is None


def test_errors_are_no_longer_than_answers() -> None:
    box = Toolbox(tool_of(lambda: _raise(OSError("x" * 10**7))), max_characters=150)
    result = run(box, call("it"))
    assert len(result.message.content) <= 150
    assert result.failure is not None
    assert len(result.failure.message) <= 1000


def test_boxes_are_refused_where_names_or_limits_are_wrong() -> None:
    with pytest.raises(ConfigError, match="two tools have one name"):
        Toolbox(echo, Tool(calculator, name="echo"))
    wrong: list[dict[str, Any]] = [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"max_characters": 99}]
    for limits in wrong:
        with pytest.raises(ConfigError, match="too small"):
            Toolbox(echo, **limits)


def test_names_are_in_the_box() -> None:
    box = Toolbox(echo, Notebook)
    assert "echo" in box
    assert "ech" not in box
    assert [schema["function"]["name"] for schema in box.schemas] == ["echo", "notebook"]
    assert repr(box) == "Toolbox(echo, notebook)"


def test_state_never_reaches_another_episode() -> None:
    box = Toolbox(Notebook, echo)
    write, read = call("notebook", action="write", title="a", text="1"), call("notebook", action="read", title="a")
    first, second = box.fresh(), box.fresh()
    assert run(first, write).failure is None
    assert run(first, read).message.content == "1"
    branch = first.clone()
    assert run(branch, call("notebook", action="write", title="a", text="2")).failure is None
    assert [run(one, read).message.content[:8] for one in (first, branch, second, box)] == [
        "1",
        "2",
        "Error: t",
        "Error: t",
    ]
    assert run(branch.fresh(), read).failure is not None
    assert first.schemas == box.schemas


def test_a_box_pickles_with_its_state() -> None:
    box = Toolbox(Notebook, calculator, timeout_s=7, max_characters=123)
    run(box, call("notebook", action="write", title="a", text="1"))
    again = pickle.loads(pickle.dumps(box))
    assert run(again, call("notebook", action="read", title="a")).message.content == "1"
    assert again.schemas == box.schemas
    assert run(again, call("calculator", expression="1" + "0" * 200)).left_out > 0


class Stuck:
    """Wait."""

    gate = threading.Event()

    def __call__(self) -> None:
        self.gate.wait()


def test_a_box_pickles_and_copies_while_a_call_still_runs() -> None:
    box = Toolbox(Stuck, timeout_s=0.05)
    assert run(box, call("stuck")).failure is not None
    again = [pickle.loads(pickle.dumps(box)), box.fresh(), box.clone()]
    Stuck.gate.set()
    assert [run(one, call("stuck"), timeout_s=60).message.content for one in again] == ["(no result)"] * 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(
        st.builds(
            ToolCall,
            name=st.sampled_from(["notebook", "calculator", "echo", "", "nobody"]),
            arguments=st.none()
            | st.dictionaries(st.sampled_from(["action", "title", "expression", "text"]) | st.integers(), JSON),
            id=st.sampled_from(["", "c1"]),
            raw=st.text(max_size=9) | st.just("{" * 9999),
            status=st.sampled_from(get_args(CallStatus)),
        ),
        max_size=4,
    )
)
def test_any_calls_have_one_answer_each(calls: list[ToolCall]) -> None:
    box = Toolbox(Notebook, calculator, echo, max_characters=300)
    results = asyncio.run(box.run_all(calls))
    assert [result.call for result in results] == calls
    for result in results:
        assert result.message.role == "tool"
        assert len(result.message.content) <= 300
        assert (result.failure is not None) == result.message.content.startswith("Error: ") or result.failure is None
        json.dumps(result.message.to_dict())
