"""Ids, spans and contexts: immutable, shared, and cheap to extend."""

import copy
import hashlib
import pickle
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import tokens
from agentgym_tok.errors import ChatError, InvalidIds, InvalidLogprobs
from agentgym_tok.tokens import ORIGINS, Context, Root, Span, as_ids, as_logprobs

V = 2**31
ROOT = Root("ab" * 32, V)
id_lists = st.lists(st.integers(0, V - 1), max_size=12)


def grow(spans: int, size: int = 4) -> Context:
    context = Context(ROOT, Span(range(size), "prompt"))
    for place in range(1, spans):
        context = context.extend(Span(np.arange(place, place + size), "observation" if place % 2 else "sampled"))
    return context


# ---- as_ids


@pytest.mark.parametrize(
    "given_ids",
    [
        [3, 1, 2],
        (3, 1, 2),
        range(1, 4),
        np.array([3, 1, 2], np.int64),
        np.array([3, 1, 2], np.uint64),
        np.array([3, 1, 2], np.int8),
        np.array([3, 1, 2], ">i4"),
        np.array([3, 0, 1, 0, 2], np.int32)[::2],
        [np.int64(3), np.uint8(1)],
        [],
        np.array([]),
    ],
)
def test_ids_are_int32_and_read_only_whatever_they_were_made_of(given_ids: Any) -> None:
    ids_T = as_ids(given_ids)
    assert ids_T.dtype == np.dtype(np.int32)
    assert ids_T.dtype.isnative
    assert ids_T.shape == (len(given_ids),)
    assert ids_T.tolist() == list(given_ids)
    assert ids_T.flags.c_contiguous
    assert not ids_T.flags.writeable


def test_ids_of_a_tensor_are_its_numbers() -> None:
    torch = pytest.importorskip("torch")
    assert as_ids(torch.tensor([5, 6])).tolist() == [5, 6]
    assert as_ids([torch.tensor(5), torch.tensor(6)]).tolist() == [5, 6]


@pytest.mark.parametrize(
    "bad",
    [
        [1.0],
        np.array([1.5]),
        [float("nan")],
        [True, False],
        np.array([True]),
        ["1"],
        "12",
        b"12",
        [None],
        [1, None],
        np.array([1, 2], object),
        [[1, 2]],
        [[1], [2, 3]],
        [[]],
        np.empty((0, 3), np.int32),
        7,
        np.int32(7),
        None,
        {1, 2},
        iter([1, 2]),
        [1j],
        [np.datetime64("2020-01-01")],
        [-1],
        np.array([0, -5], np.int8),
        [2**31],
        [2**63],
        [2**64],
        [-1, 2**63],
        np.array([2**31], np.uint32),
        np.array([2**64 - 1], np.uint64),
    ],
)
def test_what_is_no_row_of_ids_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidIds):
        as_ids(bad)


def test_a_tensor_that_is_no_row_of_ids_is_refused() -> None:
    torch = pytest.importorskip("torch")
    for bad in (torch.tensor([1.0]), torch.tensor([1.0], requires_grad=True), torch.tensor([[1]]), torch.tensor(1)):
        with pytest.raises(InvalidIds):
            as_ids(bad)


@given(id_lists, st.integers(0, V))
@settings(deadline=None)
def test_ids_stay_below_the_vocabulary(ids: list[int], vocab_size: int) -> None:
    if all(index < vocab_size for index in ids):
        assert as_ids(ids, vocab_size=vocab_size).tolist() == ids
        return
    with pytest.raises(InvalidIds) as caught:
        as_ids(ids, where="prompt", vocab_size=vocab_size)
    first = next(place for place, index in enumerate(ids) if index >= vocab_size)
    assert caught.value.where == f"prompt[{first}]"
    assert caught.value.got == ids[first]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "hand",
    [lambda array: array, lambda array: array[:], lambda array: frozen(array[:]), lambda array: frozen(array[1:])[:1]],
)
def test_writing_to_the_callers_array_never_changes_ids(dtype: Any, hand: Callable[[Any], Any]) -> None:
    source = np.array([1, 2, 3], dtype)
    ids_T = as_ids(hand(source))
    before = ids_T.tolist()
    source[:] = 99
    assert ids_T.tolist() == before


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def test_ids_in_foreign_memory_are_copied() -> None:
    memory = bytearray(np.array([1, 2], np.int32).tobytes())
    ids_T = as_ids(np.frombuffer(memoryview(memory).toreadonly(), np.int32))
    memory[:] = bytes(8)
    assert ids_T.tolist() == [1, 2]


def test_ids_are_copied_once_only() -> None:
    ids_T = as_ids([1, 2, 3])
    assert as_ids(ids_T) is ids_T
    assert np.shares_memory(as_ids(ids_T[1:]), ids_T)


# ---- as_logprobs


@given(st.lists(st.floats(-(2.0**100), 0, width=32), max_size=8))
@settings(deadline=None)
def test_logprobs_keep_every_float32_bit(values: list[float]) -> None:
    logprobs_T = as_logprobs(values, len(values))
    assert logprobs_T.dtype == np.float32
    assert not logprobs_T.flags.writeable
    assert logprobs_T.tolist() == values


@pytest.mark.parametrize(
    "bad",
    [
        [float("nan")],
        [float("-inf")],
        [float("inf")],
        [-1e39],
        [10**400],
        [0.1],
        [2],
        [None],
        ["-0.5"],
        "x",
        [1j],
        np.array([1j]),
        [[-1.0]],
        -1.0,
        [-1.0, -1.0],
        [],
        None,
    ],
)
def test_impossible_logprobs_are_refused_without_a_warning(bad: Any) -> None:
    with pytest.raises(InvalidLogprobs):
        as_logprobs(bad, 1)


def test_logprobs_a_rounding_error_above_zero_are_kept_as_they_are() -> None:
    assert as_logprobs([1e-6], 1).tolist() == [np.float32(1e-6)]


def test_the_first_impossible_logprob_is_named() -> None:
    with pytest.raises(InvalidLogprobs, match=r"logprobs\[1\].*got: nan"):
        as_logprobs([-1.0, None, 3.0], 3)


def test_writing_to_the_callers_logprobs_never_changes_them() -> None:
    source = np.array([-1.0], np.float32)
    logprobs_T = as_logprobs(source, 1)
    source[0] = -9.0
    assert logprobs_T.tolist() == [-1.0]


def test_logprobs_of_a_tensor_need_no_gradient() -> None:
    torch = pytest.importorskip("torch")
    assert as_logprobs(torch.tensor([-1.0]), 1).tolist() == [-1.0]
    with pytest.raises(InvalidLogprobs, match="detach"):
        as_logprobs(torch.tensor([-1.0], requires_grad=True), 1)


# ---- Span and Root


def test_a_span_holds_its_own_read_only_arrays_also_after_a_copy_or_a_pickle() -> None:
    span = Span([1, 2], "sampled", [-0.5, -0.25], replaced=3)
    for twin in (span, pickle.loads(pickle.dumps(span)), copy.copy(span), copy.deepcopy(span)):
        assert twin == span
        assert hash(twin) == hash(span)
        assert (len(twin), twin.replaced) == (2, 3)
        assert not twin.ids_T.flags.writeable
        assert twin.logprobs_T is not None
        assert not twin.logprobs_T.flags.writeable


def test_spans_differ_in_any_part() -> None:
    span = Span([1, 2], "sampled", [-0.5, -0.25])
    others = [
        Span([1, 3], "sampled", [-0.5, -0.25]),
        Span([1, 2, 3], "sampled", [-0.5, -0.25, -1]),
        Span([1, 2], "forced", [-0.5, -0.25]),
        Span([1, 2], "sampled", [-0.5, -0.5]),
        Span([1, 2], "sampled"),
        Span([1, 2], "sampled", [-0.5, -0.25], replaced=1),
    ]
    assert all(span != other for other in others)
    assert span != "span"


def test_a_span_refuses_an_unknown_origin() -> None:
    with pytest.raises(InvalidIds, match="origin"):
        Span([1], "guess")


@pytest.mark.parametrize("origin", ORIGINS)
def test_only_turns_have_logprobs(origin: Any) -> None:
    if origin in {"sampled", "forced", "demonstration"}:
        assert Span([1], origin, [-1.0]).logprobs_T is not None
    else:
        with pytest.raises(InvalidLogprobs):
            Span([1], origin, [-1.0])


def test_a_root_keeps_the_tools_that_its_digest_names() -> None:
    tool = {"name": "look", "parameters": {"type": "object"}}
    root = Root("f", 10, (tool,))
    digest = root.tools_digest
    tool["parameters"]["type"] = "changed"
    assert root.tools == ({"name": "look", "parameters": {"type": "object"}},)
    assert Root("f", 10, root.tools).tools_digest == digest
    assert Root("f", 10, (tool,)).tools_digest != digest


def test_no_tools_have_no_digest_and_key_order_does_not_count() -> None:
    assert Root("f", 10).tools_digest == ""
    assert Root("f", 10, ({"a": 1, "b": 2},)).tools_digest == Root("f", 10, ({"b": 2, "a": 1},)).tools_digest
    assert list(Root("f", 10, ({"b": 2, "a": 1},)).tools[0]) == ["b", "a"]


@pytest.mark.parametrize("tools", [(print,), ({"x": {1}},), {"name": "look"}, ("look",)])
def test_tools_that_are_no_schemas_are_refused(tools: Any) -> None:
    with pytest.raises(ChatError, match="tool"):
        Root("f", 10, tools)


# ---- Context

steps = st.lists(st.tuples(st.integers(0, 10**6), id_lists, st.sampled_from(["extend", "ids", "digest"])), max_size=40)


@given(id_lists, steps)
@settings(max_examples=150, deadline=None)
def test_ids_are_the_concatenated_spans_however_contexts_fork(
    first: list[int], moves: list[tuple[int, list[int], str]]
) -> None:
    made: list[tuple[Context, list[int]]] = [(Context(ROOT, Span(first, "prompt")), first)]
    seen: list[tuple[Any, list[int]]] = []
    for pick, ids, move in moves:
        context, expected = made[pick % len(made)]
        if move == "extend":
            made.append((context.extend(Span(ids, "observation")), expected + ids))
        elif move == "ids":
            seen.append((context.ids, expected))
        else:
            assert context.digest == digest_of(ROOT, expected)
    for context, expected in reversed(made):
        assert len(context) == len(expected)
        assert context.ids.tolist() == expected
        assert context.digest == digest_of(ROOT, expected)
    for ids_T, expected in seen:
        assert ids_T.tolist() == expected
        assert ids_T.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            ids_T[...] = 0


def digest_of(root: Root, ids: list[int]) -> str:
    text = f"{root.fingerprint}\n{root.tools_digest}\n".encode() + np.array(ids, "<i4").tobytes()
    return hashlib.blake2b(text, digest_size=16).hexdigest()


@given(id_lists, st.integers(0, 12))
@settings(deadline=None)
def test_the_digest_does_not_depend_on_where_spans_end(ids: list[int], cut: int) -> None:
    whole = Context(ROOT, Span(ids, "prompt"))
    parts = Context(ROOT, Span(ids[:cut], "prompt")).extend(Span([], "tool")).extend(Span(ids[cut:], "observation"))
    assert whole.digest == parts.digest


def test_the_digest_depends_on_ids_fingerprint_and_tools() -> None:
    span = Span([1, 2], "prompt")
    contexts = [
        Context(ROOT, span),
        Context(ROOT, Span([1, 3], "prompt")),
        Context(ROOT, Span([1, 2, 0], "prompt")),
        Context(Root("cd" * 32, V), span),
        Context(Root(ROOT.fingerprint, V, ({"name": "a"},)), span),
        Context(Root(ROOT.fingerprint, V, ({"name": "b"},)), span),
    ]
    assert len({context.digest for context in contexts}) == len(contexts)


def test_spans_and_lineage_lead_back_to_the_prompt() -> None:
    context = grow(5)
    assert [span.origin for span in context.spans] == ["prompt", "observation", "sampled", "observation", "sampled"]
    assert [len(ancestor) for ancestor in context.lineage()] == [20, 16, 12, 8, 4]
    assert context.parent is not None
    assert context.parent.spans == context.spans[:-1]
    assert "20 ids" in repr(context)


def test_a_turn_keeps_its_logprobs() -> None:
    context = grow(1).sampled([7, 8], [-1.0, -2.0])
    assert context.span == Span([7, 8], "sampled", [-1.0, -2.0])
    with pytest.raises(InvalidLogprobs):
        context.sampled([7], [-1.0, -2.0])


def test_no_context_holds_an_id_outside_its_vocabulary() -> None:
    root = Root("f", 10)
    context = Context(root, Span([9], "prompt"))
    makers: list[Callable[[], Context]] = [
        lambda: Context(root, Span([10], "prompt")),
        lambda: Context.of(root, [Span([1], "prompt"), Span([10], "tool")]),
        lambda: context.extend(Span([1, 10], "tool")),
        lambda: context.sampled([10]),
        lambda: context.sampled([-1]),
    ]
    for make in makers:
        with pytest.raises(InvalidIds):
            make()
    assert context.ids.tolist() == [9]


def test_a_context_needs_a_span() -> None:
    with pytest.raises(InvalidIds):
        Context.of(ROOT, [])


def test_ids_cannot_be_written_and_views_survive_growth() -> None:
    context = grow(1, size=3)
    early = context.ids
    capacities = set()
    for step in range(2000):
        context = context.extend(Span([step], "observation"))
        capacities.add(len(context.ids.base))
    assert early.tolist() == [0, 1, 2]
    assert context.ids.tolist() == [0, 1, 2, *range(2000)]
    assert len(capacities) < 6  # each growth copies everything, so it doubles
    with pytest.raises(ValueError, match="read-only"):
        early[0] = 1


class CountedBuffer(tokens._Buffer):
    """Counts ids that are copied into buffers, and buffers."""

    appended: ClassVar[list[int]] = []
    made: ClassVar[list[int]] = []

    def __init__(self, capacity: int) -> None:
        self.made.append(capacity)
        super().__init__(capacity)

    def append(self, ids_T: Any) -> None:
        self.appended.append(len(ids_T))
        super().append(ids_T)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[CountedBuffer]:
    monkeypatch.setattr(tokens, "_Buffer", CountedBuffer)
    monkeypatch.setattr(CountedBuffer, "appended", [])
    monkeypatch.setattr(CountedBuffer, "made", [])
    return CountedBuffer


def test_extending_copies_the_new_ids_only(counted: type[CountedBuffer]) -> None:
    context = Context(ROOT, Span(np.arange(100_000), "prompt"))
    assert counted.appended == []
    assert len(context.ids) == 100_000
    for _ in range(500):
        context = context.extend(Span([1, 2, 3], "sampled"))
        assert len(context.ids) == len(context)
    assert counted.appended == [100_000] + [3] * 500
    assert len(counted.made) == 1


def test_a_chain_that_is_read_once_is_copied_once(counted: type[CountedBuffer]) -> None:
    context = grow(1000)
    assert len(context.ids) == 4000
    parent = context.parent
    assert parent is not None
    assert len(parent.ids) == 3996
    assert sum(counted.appended) == 4000
    assert len(counted.made) == 1


def test_a_fork_copies_the_past_once(counted: type[CountedBuffer]) -> None:
    trunk = Context(ROOT, Span(np.arange(1000), "prompt"))
    first, fork = trunk.extend(Span([1], "sampled")), trunk.extend(Span([2], "sampled"))
    assert (first.ids[-1], fork.ids[-1]) == (1, 2)
    assert counted.appended == [1000, 1, 1000, 1]
    counted.appended.clear()
    for _ in range(50):
        first, fork = first.extend(Span([1], "tool")), fork.extend(Span([2], "tool"))
        assert (first.ids[-1], fork.ids[-1]) == (1, 2)
    assert counted.appended == [1] * 100
    assert len(counted.made) == 2


def test_the_digest_hashes_the_new_ids_only(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    blake2b = hashlib.blake2b

    class Counted:
        def __init__(self, data: bytes = b"", *, digest_size: int) -> None:
            self.inner = blake2b(data, digest_size=digest_size)

        def copy(self) -> "Counted":
            twin = Counted(digest_size=16)
            twin.inner = self.inner.copy()
            return twin

        def update(self, data: bytes) -> None:
            hashed.append(len(data))
            self.inner.update(data)

        def hexdigest(self) -> str:
            return self.inner.hexdigest()

    monkeypatch.setattr(tokens.hashlib, "blake2b", Counted)
    context = Context(ROOT, Span(np.arange(10_000), "prompt"))
    digests = {context.digest}
    for _ in range(20):
        context = context.extend(Span([1, 2], "sampled"))
        digests.add(context.digest)
        assert context.digest in digests
    assert hashed == [40_000] + [8] * 20
    assert len(digests) == 21


def test_threads_that_extend_one_parent_see_their_own_ids() -> None:
    trunk = grow(3)
    errors: list[str] = []
    start = threading.Barrier(4)

    def walk(mark: int) -> None:
        start.wait()
        for _ in range(60):
            context, expected = trunk, trunk.ids.tolist()
            for step in range(8):
                context = context.extend(Span([mark, step], "observation"))
                expected += [mark, step]
                if step % 2 and context.ids.tolist() != expected:
                    errors.append(f"{mark}: {context.ids.tolist()} is not {expected}")
            if context.digest != digest_of(ROOT, expected):
                errors.append(f"{mark}: digest")

    threads = [threading.Thread(target=walk, args=(mark,)) for mark in range(100, 104)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []


def test_two_threads_cannot_append_to_one_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowBuffer(tokens._Buffer):
        def append(self, ids_T: Any) -> None:
            time.sleep(0.01)  # whoever may append at the same time does so now
            super().append(ids_T)

    monkeypatch.setattr(tokens, "_Buffer", SlowBuffer)
    trunk = grow(1)
    assert len(trunk.ids) == 4
    twigs = [trunk.extend(Span([mark] * mark, "sampled")) for mark in (5, 6, 7)]
    threads = [threading.Thread(target=lambda twig=twig: twig.ids) for twig in twigs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [twig.ids[4:].tolist() for twig in twigs] == [[5] * 5, [6] * 6, [7] * 7]


def test_a_long_chain_pickles_flat_and_comes_back_equal() -> None:
    context = grow(20_000).sampled([1, 2], [-0.5, -0.25])
    twin = pickle.loads(pickle.dumps(context))
    assert (twin.root, twin.spans, twin.digest) == (context.root, context.spans, context.digest)
    assert np.array_equal(twin.ids, context.ids)
    assert not any(span.ids_T.flags.writeable for span in twin.spans)


def test_contexts_are_immutable_so_a_deep_copy_is_the_context_itself() -> None:
    context = grow(3)
    assert copy.deepcopy({"kept": context})["kept"] is context


def test_a_deep_chain_is_freed_without_a_crash() -> None:
    context = grow(50_000, size=1)
    assert len(context) == 50_000
    del context


def test_memory_stays_flat_while_every_step_reads_ids_and_digest() -> None:
    context = grow(1)
    assert len(context.ids) == 4
    tracemalloc.start()
    try:
        for _ in range(3000):
            context = context.extend(Span([1, 2, 3, 4], "observation"))
            assert len(context.ids) == len(context)
            assert context.digest
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A copy of the past in each step would hold 3000 * 24 kB = 72 MB.
    assert held < 6e6
    assert peak < 8e6
