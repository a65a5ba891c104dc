"""What waits together is searched together, and every caller gets its own."""

import asyncio
import threading
from collections.abc import Sequence
from typing import ClassVar

import pytest

from agentgym_tok.envs.searchqa.retrieval.coalesce import Coalescer, QueueFull
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import BaseRetriever
from agentgym_tok.errors import WorldError


class Gated(BaseRetriever):
    """Answer each query with itself, but not before the gate is open."""

    name: ClassVar[str] = "gated"

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.batches: list[tuple[list[str], int]] = []

    def _search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        self.gate.wait(20)
        self.batches.append((list(queries), k))
        if "fail" in queries:
            raise WorldError("the index broke")
        return [[Passage(query, "", query)] * k for query in queries]


async def together(coalescer: Coalescer, retriever: Gated, *requests: tuple[list[str], int]) -> list[object]:
    """Send the first request, let it reach the retriever, send the rest, then open the gate."""
    async with coalescer.running():
        tasks = [asyncio.create_task(coalescer.search(*requests[0]))]
        while coalescer.counters.waiting or not tasks:
            await asyncio.sleep(0)
            if coalescer.counters.waiting == 0:
                break
        await asyncio.sleep(0.01)
        tasks += [asyncio.create_task(coalescer.search(*request)) for request in requests[1:]]
        await asyncio.sleep(0.01)
        retriever.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)


def play(*requests: tuple[list[str], int], **limits: int) -> tuple[list[object], Gated, Coalescer]:
    retriever = Gated()
    coalescer = Coalescer(retriever, **{"most_waiting": 100, "most_at_once": 100, **limits})
    return asyncio.run(together(coalescer, retriever, *requests)), retriever, coalescer


def ids(answer: object) -> list[list[str]]:
    assert isinstance(answer, list)
    return [[passage.id for passage in passages] for passages in answer]


def test_what_waits_is_one_batch_and_answers_are_not_mixed_up() -> None:
    answers, retriever, coalescer = play((["a"], 1), (["b", "c"], 1), (["d"], 1))
    assert [ids(answer) for answer in answers] == [[["a"]], [["b"], ["c"]], [["d"]]]
    assert retriever.batches == [(["a"], 1), (["b", "c", "d"], 1)]
    assert (coalescer.counters.queries, coalescer.counters.batches, coalescer.counters.waiting) == (4, 2, 0)


def test_requests_for_other_numbers_of_passages_are_other_batches_in_the_order_of_arrival() -> None:
    answers, retriever, _ = play((["a"], 1), (["b"], 1), (["c"], 2), (["d"], 1))
    assert [ids(answer) for answer in answers] == [[["a"]], [["b"]], [["c", "c"]], [["d"]]]
    assert [batch for batch, _ in retriever.batches] == [["a"], ["b"], ["c"], ["d"]]


def test_a_batch_has_a_bound() -> None:
    _, retriever, _ = play((["a"], 1), (["b"], 1), (["c"], 1), (["d"], 1), most_at_once=2)
    assert [batch for batch, _ in retriever.batches] == [["a"], ["b", "c"], ["d"]]


def test_the_queue_has_a_bound() -> None:
    answers, retriever, _ = play((["a"], 1), (["b", "c"], 1), (["d"], 1), most_waiting=2)
    assert isinstance(answers[2], QueueFull)
    assert ids(answers[1]) == [["b"], ["c"]]
    assert len(retriever.batches) == 2


def test_a_failure_reaches_those_of_its_batch_and_the_next_batch_is_answered() -> None:
    answers, _, coalescer = play((["fail"], 1), (["b"], 1))
    assert isinstance(answers[0], WorldError)
    assert ids(answers[1]) == [["b"]]
    assert coalescer.counters.failures == 1


def test_no_queries_need_no_search() -> None:
    answers, retriever, _ = play((["a"], 1), ([], 1))
    assert answers[1] == []
    assert len(retriever.batches) == 1


def test_counters_are_prometheus_lines() -> None:
    _, _, coalescer = play((["a"], 1))
    coalescer.counters.requests[200] = 3
    lines = list(coalescer.counters.lines())
    assert 'retriever_requests_total{status="200"} 3' in lines
    assert "retriever_queries_total 1" in lines
    assert any(line.startswith("retriever_queue_wait_seconds_sum 0.") for line in lines)
    assert all(float(line.rpartition(" ")[2]) >= 0 for line in lines)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_caller_that_goes_away_harms_nobody(gone: int) -> None:
    async def run() -> list[object]:
        retriever = Gated()
        coalescer = Coalescer(retriever, most_waiting=9, most_at_once=9)
        async with coalescer.running():
            tasks = [asyncio.create_task(coalescer.search([name], 1)) for name in "ab"]
            await asyncio.sleep(0.01)
            tasks[gone].cancel()
            retriever.gate.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    assert isinstance(answers[gone], asyncio.CancelledError)
    assert ids(answers[1 - gone]) == [["ab"[1 - gone]]]
