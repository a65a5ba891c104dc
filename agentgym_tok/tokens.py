"""Token ids, spans and contexts: the ground under everything else.

Axis suffixes used in the whole library: `T` tokens, `N` turns or rollouts, `G` members of a group, `V` vocabulary.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentgym_tok.errors import ChatError, InvalidIds, InvalidLogprobs

__all__ = ["Context", "Ids", "Logprobs", "Origin", "Root", "Span", "as_ids", "as_logprobs"]

Ids: TypeAlias = NDArray[np.int32]
"""Token ids: int32, 1-D, not writeable."""

Logprobs: TypeAlias = NDArray[np.float32]
"""Log-probabilities in nats: float32, 1-D, not writeable, one for each sampled id."""

Origin: TypeAlias = Literal["prompt", "observation", "tool", "sampled", "demonstration", "forced"]
"""Who wrote a span. `sampled`: the policy drew it. `demonstration`: an expert or encoded text. `forced`: prefilled."""

ORIGINS: tuple[Origin, ...] = get_args(Origin)
TURN_ORIGINS: frozenset[Origin] = frozenset({"sampled", "demonstration", "forced"})
"""Origins of ids that stand in an assistant turn."""

# Engines compute the log-softmax in float32; a certain token may come out this much above zero.
_LOGPROB_ROUNDING = 1e-4


def as_ids(ids: ArrayLike, *, where: str = "ids", vocab_size: int | None = None) -> Ids:
    """Make token ids of anything that holds whole numbers.

    Args:
        ids: 1-D integers: array, list, tuple or tensor; never floats or booleans. Copied unless it is an `Ids` already.
        where: The place that the error names.
        vocab_size: Number of ids of the tokenizer; None leaves the upper bound open.

    Returns:
        int32 array [T], not writeable.

    Raises:
        InvalidIds: Wrong type, more than one dimension, or an id outside [0, vocab_size).
    """
    try:
        array = np.asarray(ids)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InvalidIds("ids are no array", where=where, got=str(error), expected="1-D integers") from None
    if array.size and array.dtype.kind not in "iu":
        raise InvalidIds(
            "ids must be whole numbers",
            where=where,
            got=f"dtype {array.dtype}",
            expected="an integer dtype",
            fix="text is encoded by ChatFormat or the TextAction wrapper, floats are no ids",
        )
    if array.ndim != 1:
        got = f"shape {array.shape}"
        raise InvalidIds("ids must have one dimension", where=where, got=got, expected="shape (T,)", fix="pass one row")
    if array.size == 0:
        return _EMPTY
    top = 2**31 if vocab_size is None else vocab_size
    if _out_of_range(array, top):
        index = int(np.argmax((array < 0) | (array >= top)))
        raise InvalidIds(
            "an id is outside the vocabulary",
            where=f"{where}[{index}]",
            got=int(array[index]),
            expected=f"0 <= id < {top}",
            fix="check that the ids were made by this environment's tokenizer",
        )
    if array.dtype != np.int32 or not array.flags.c_contiguous or not _is_frozen(array):
        array = np.array(array, dtype=np.int32)
        array.flags.writeable = False
    return array


def _out_of_range(array: NDArray[Any], top: int) -> bool:
    if array.dtype == np.int32:
        return bool(array.view(np.uint32).max() >= top)  # one look for both ends: negative ids are above 2**31
    return int(array.min()) < 0 or int(array.max()) >= top


def _is_frozen(array: NDArray[Any]) -> bool:
    """Tell whether nobody can write to the memory; a read-only view of a writeable array still changes with it."""
    while isinstance(array.base, np.ndarray) and not array.flags.writeable:
        array = array.base
    return not array.flags.writeable and (array.base is None or isinstance(array.base, bytes))


_EMPTY = np.empty(0, dtype=np.int32)
_EMPTY.flags.writeable = False


def as_logprobs(logprobs: ArrayLike, length: int, *, where: str = "logprobs") -> Logprobs:
    """Make log-probabilities of anything that holds floats.

    Args:
        logprobs: 1-D floats in nats, one for each id.
        length: Number of ids.
        where: The place that the error names.

    Returns:
        float32 array [length], not writeable.

    Raises:
        InvalidLogprobs: Wrong length, not finite, or above zero by more than float32 rounding.
    """
    try:
        given = np.asarray(logprobs)
        if given.dtype.kind not in "fiuO":
            raise TypeError(f"dtype {given.dtype}")  # noqa: TRY301  # numpy would read text and drop imaginary parts
        with np.errstate(over="ignore"):  # beyond float32 is minus infinity, and refused below
            array = np.array(given, dtype=np.float32)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # the last: a tensor that requires grad
        raise InvalidLogprobs(
            "log-probabilities are no array", where=where, got=str(error), expected="floats"
        ) from None
    if array.shape != (length,):
        raise InvalidLogprobs(
            "one log-probability belongs to each id", where=where, got=f"shape {array.shape}", expected=f"({length},)"
        )
    if length and not (np.isfinite(array).all() and float(array.max()) <= _LOGPROB_ROUNDING):
        index = int(np.argmax(~np.isfinite(array) | (array > _LOGPROB_ROUNDING)))
        raise InvalidLogprobs(
            "a log-probability is impossible",
            where=f"{where}[{index}]",
            got=float(array[index]),
            expected="finite and at most 0",
            fix="record the turn without log-probabilities; it is then kept and not trained",
        )
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Hold ids of one origin; equal where all its parts are.

    Args:
        ids_T: int32 [T].
        origin: Who wrote them.
        logprobs_T: float32 [T], nats; only where a policy or prefill has them.
        replaced: Lone surrogates of the text that became U+FFFD.
    """

    ids_T: Ids
    origin: Origin
    logprobs_T: Logprobs | None = None
    replaced: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids_T", as_ids(self.ids_T, where="Span.ids_T"))
        if self.origin not in ORIGINS:
            raise InvalidIds("unknown origin", where="Span.origin", got=repr(self.origin), expected=", ".join(ORIGINS))
        if self.logprobs_T is not None:
            if self.origin not in TURN_ORIGINS:
                raise InvalidLogprobs("only a policy's turn has log-probabilities", where="Span", got=self.origin)
            object.__setattr__(self, "logprobs_T", as_logprobs(self.logprobs_T, len(self.ids_T)))

    def __len__(self) -> int:
        return len(self.ids_T)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Span):
            return NotImplemented
        mine, theirs = self.logprobs_T, other.logprobs_T
        same_logprobs = mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)
        same_parts = (self.origin, self.replaced) == (other.origin, other.replaced)
        return same_parts and same_logprobs and np.array_equal(self.ids_T, other.ids_T)

    def __hash__(self) -> int:
        return hash((self.origin, self.ids_T.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, since an unpickled array is writeable.
        return Span, (self.ids_T, self.origin, self.logprobs_T, self.replaced)


@dataclass(frozen=True, slots=True)
class Root:
    """Name the tokenizer, template and tools that a conversation belongs to.

    Args:
        fingerprint: `ChatFormat.fingerprint`.
        vocab_size: Every id is below it.
        tools: JSON schemas of the tools that the first prompt declares; copied.

    Raises:
        ChatError: A tool is no JSON.
    """

    fingerprint: str
    vocab_size: int
    tools: tuple[Mapping[str, Any], ...] = ()
    tools_digest: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            # Through text, since whoever made the schemas may still write to them.
            tools = [dict(tool) for tool in json.loads(json.dumps(self.tools, default=dict))]
            text = json.dumps(tools, sort_keys=True, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            got, fix = str(error), "pass a list of schemas, no functions"
            raise ChatError("a tool is no JSON", where="tools", got=got, expected="JSON schemas", fix=fix) from error
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] if tools else ""
        object.__setattr__(self, "tools", tuple(tools))
        object.__setattr__(self, "tools_digest", digest)

    def hasher(self) -> "hashlib.blake2b":
        """Return what takes the ids (int32, little-endian) of a conversation and names it; see `Context.digest`."""
        return hashlib.blake2b(f"{self.fingerprint}\n{self.tools_digest}\n".encode(), digest_size=16)


class _Buffer:
    """Ids that a chain of contexts shares; the newest context may append in place, a fork copies."""

    __slots__ = ("fill", "ids", "lock")

    def __init__(self, capacity: int) -> None:
        self.ids = np.empty(capacity, dtype=np.int32)
        self.fill = 0
        self.lock = threading.Lock()

    def append(self, ids_T: Ids) -> None:
        end = self.fill + len(ids_T)
        if end > len(self.ids):
            grown = np.empty(max(end, 2 * len(self.ids)), dtype=np.int32)
            grown[: self.fill] = self.ids[: self.fill]
            self.ids = grown  # views of the old array keep it alive and stay right
        self.ids[self.fill : end] = ids_T
        self.fill = end


class Context:
    """Hold everything a policy has seen and said, as an immutable chain of spans.

    Extending costs the new ids only: chains share their past, and a fork copies it once, when its ids are first read.
    Contexts compare by identity; equal `digest` means equal tokenizer, tools and ids.

    Raises:
        InvalidIds: An id is outside the vocabulary of this conversation.
    """

    __slots__ = ("__weakref__", "_buffer", "_hash", "_length", "parent", "root", "span")

    def __init__(self, root: Root, span: Span, parent: "Context | None" = None) -> None:
        if len(span) and int(span.ids_T.max()) >= root.vocab_size:
            as_ids(span.ids_T, where=f"{span.origin} span", vocab_size=root.vocab_size)
        self.root = root
        self.span = span
        self.parent = parent
        """The context before the last span; None at the first one."""
        self._length: int = len(span) + (parent._length if parent is not None else 0)
        self._buffer: _Buffer | None = None
        self._hash: hashlib.blake2b | None = None

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        kinds = " ".join(f"{span.origin}:{len(span)}" for span in self.spans[-4:])
        return f"<Context {len(self)} ids, ... {kinds}>"

    def extend(self, span: Span) -> "Context":
        """Return the context that goes on with a span; this one stays as it is.

        Raises:
            InvalidIds: An id is outside the vocabulary of this conversation.
        """
        return Context(self.root, span, self)

    def sampled(self, ids_T: ArrayLike, logprobs_T: ArrayLike | None = None) -> "Context":
        """Return the context after the policy's turn.

        Args:
            ids_T: The ids exactly as the engine returned them, with or without a stop token.
            logprobs_T: float [T], nats; None where the engine has none.

        Raises:
            InvalidIds: The ids have a wrong type, shape or range.
            InvalidLogprobs: The log-probabilities do not fit the ids.
        """
        return self.extend(Span(ids_T, "sampled", logprobs_T))  # type: ignore[arg-type]

    @property
    def ids(self) -> Ids:
        """All ids, int32 [T]: a read-only view of a buffer that the chain shares."""
        buffer = self._buffer or self._materialise()
        view = buffer.ids[: self._length]
        view.flags.writeable = False
        return view

    def _materialise(self) -> _Buffer:
        chain: list[Context] = []
        node: Context | None = self
        while node is not None and node._buffer is None:
            chain.append(node)
            node = node.parent
        base = node
        buffer = base._buffer if base is not None else None
        if base is not None and buffer is not None:
            with buffer.lock:
                if buffer.fill == base._length:
                    self._append(buffer, chain)
                    return buffer
        fork = _Buffer(max(256, 2 * self._length))
        if base is not None and buffer is not None:
            fork.append(buffer.ids[: base._length])
        self._append(fork, chain)
        return fork

    @staticmethod
    def _append(buffer: _Buffer, chain: "list[Context]") -> None:
        for context in reversed(chain):
            buffer.append(context.span.ids_T)
            context._buffer = buffer

    @property
    def spans(self) -> tuple[Span, ...]:
        """All spans, oldest first."""
        return tuple(reversed([context.span for context in self.lineage()]))

    def lineage(self) -> "Iterator[Context]":
        """Yield this context and all its parents, newest first."""
        node: Context | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def digest(self) -> str:
        """blake2b-128 of fingerprint, tools and ids (int32, little-endian), as 32 hex digits.

        It does not depend on where spans begin and end: it names what the policy sees.
        """
        return self._hasher().hexdigest()

    def _hasher(self) -> "hashlib.blake2b":
        pending: list[Context] = []
        node: Context | None = self
        while node is not None and node._hash is None:
            pending.append(node)
            node = node.parent
        known = None if node is None else node._hash
        running = self.root.hasher() if known is None else known
        for context in reversed(pending):
            running = running.copy()
            running.update(context.span.ids_T.astype("<i4", copy=False).tobytes())
            context._hash = running
        return running

    def __deepcopy__(self, memo: dict[int, Any]) -> "Context":
        return self  # immutable; clones of an environment share their past

    def __reduce__(self) -> tuple[Any, ...]:
        # Flat, since a chain of thousands of spans would break the pickler's recursion.
        return _unpickle, (self.root, self.spans)

    @classmethod
    def of(cls, root: Root, spans: Sequence[Span]) -> "Context":
        """Build a context from its spans, oldest first; at least one."""
        if not spans:
            raise InvalidIds("a context needs a span", where="Context.of", got="none", expected="at least one")
        context = cls(root, spans[0])
        for span in spans[1:]:
            context = cls(root, span, context)
        return context


def _unpickle(root: Root, spans: tuple[Span, ...]) -> Context:
    return Context.of(root, spans)
