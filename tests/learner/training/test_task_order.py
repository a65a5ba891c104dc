"""Every task comes once before any comes again, and a step's tasks are known without the steps before."""

from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.learner.training.task_order import held_out, tasks_of

counts = st.integers(1, 12)


@given(st.integers(1, 20), counts, st.integers(0, 5))
def test_an_epoch_plays_every_task_once(size: int, count: int, seed: int) -> None:
    tasks = [str(number) for number in range(size)]
    played = [task for step in range(size) for task in tasks_of(tasks, step, count, seed)]
    epochs = [played[start : start + size] for start in range(0, len(played), size)]
    assert all(sorted(epoch) == sorted(tasks) for epoch in epochs)
    assert tasks_of(tasks, size - 1, count, seed) == played[-count:]


def test_orders_differ_by_epoch_and_seed() -> None:
    tasks = [str(number) for number in range(50)]
    first = tasks_of(tasks, 0, 50, 0)
    assert first != tasks_of(tasks, 1, 50, 0) != tasks_of(tasks, 0, 50, 1) != first


@given(st.integers(1, 20), st.one_of(st.none(), counts), st.integers(0, 5))
def test_held_out_tasks_are_always_the_same_in_the_worlds_order(size: int, count: int | None, seed: int) -> None:
    tasks = [f"{number:02}" for number in range(size)]
    chosen = held_out(tasks, count, seed)
    assert chosen == held_out(tasks, count, seed) == sorted(set(chosen))
    assert len(chosen) == min(size, count or size)
