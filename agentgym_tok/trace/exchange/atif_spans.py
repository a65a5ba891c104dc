"""The spans of a rollout in an ATIF document, each once, and how anything of ours stands in its `extra`.

A document that holds lone surrogates, which strict JSON readers refuse, stands there as its JSON text in ASCII.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agentgym_tok.errors import AgentGymTokError, TraceCorrupt
from agentgym_tok.tokens import Context, Root, Span
from agentgym_tok.trace.codec import ids_bytes, logprobs_bytes
from agentgym_tok.trace.encoding import root_from, tools_json

__all__ = ["KEY", "Nodes", "Spans", "carried", "carry", "ours", "reading", "span_document", "span_from"]

KEY: Final = "agentgym_tok"
"""The one key of `extra` that everything of ours stands under."""


def carry(document: dict[str, Any]) -> dict[str, Any] | str:
    """Return a document as it is, or its JSON text where it holds lone surrogates."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(document)
    return document


def carried(found: object) -> dict[str, Any]:
    """Return the document that `carry` made something of."""
    document = json.loads(found) if isinstance(found, str) else found
    if not isinstance(document, dict):
        raise TypeError(f"{document!r:.60} is no JSON object")
    return document


def ours(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a document or a step carries of ours in its `extra`; None where that is nothing."""
    extra = document.get("extra")
    found = extra.get(KEY) if isinstance(extra, dict) else None
    return None if found is None else carried(found)


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Say where in a document something is wrong, whatever it was.

    Raises:
        TraceCorrupt: Something is missing, or is not what it should be.
    """
    try:
        yield
    except AgentGymTokError as error:
        place = where if error.where is None else f"{where}: {error.where}"
        raise TraceCorrupt(error.what, where=place, got=error.got, expected=error.expected, fix=error.fix) from error
    except KeyError as error:
        raise TraceCorrupt("something is missing", where=where, expected=error.args[0]) from error
    except (AttributeError, IndexError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise TraceCorrupt("it cannot be read", where=where, got=error) from error


class Nodes:
    """Collect the spans of contexts, each once; answers that a step holds are named by that step.

    Attributes:
        roots: Documents of tokenizers, templates and tools.
        nodes: Documents of spans; a parent stands before its children.
    """

    def __init__(self) -> None:
        self.roots: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self._contexts: dict[Context, int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._steps: dict[tuple[object, ...], int] = {}

    def add(self, context: Context) -> int:
        """Return the place of a context's last span."""
        missing: list[Context] = []
        place: int | None = None
        for node in context.lineage():
            place = self._contexts.get(node)
            if place is not None:
                break
            missing.append(node)
        for node in reversed(missing):
            place = self._contexts[node] = self._add(node, place)
        return self._contexts[context]

    def _add(self, context: Context, parent: int | None) -> int:
        above = {"parent": parent} if parent is not None else {"root": self._root(context.root)}
        key = _identity(tuple(above.items()), context.span)
        if key not in self._known:
            step = self._steps.get(key)
            self.nodes.append({**above, **(span_document(context.span) if step is None else {"step": step})})
            self._known[key] = len(self.nodes) - 1
        return self._known[key]

    def answer(self, context: int, answer: Span, step: int) -> None:
        """Remember that a step holds what was answered to a context."""
        self._steps.setdefault(_identity((("parent", context),), answer), step)

    def _root(self, root: Root) -> int:
        tools = json.loads(tools_json(root))
        document = {"fingerprint": root.fingerprint, "vocab_size": root.vocab_size, "tools": tools}
        if document not in self.roots:
            self.roots.append(document)
        return self.roots.index(document)


def _identity(above: tuple[object, ...], span: Span) -> tuple[object, ...]:
    logprobs = None if span.logprobs_T is None else logprobs_bytes(span.logprobs_T)
    return above, span.origin, span.replaced, ids_bytes(span.ids_T), logprobs


def span_document(span: Span) -> dict[str, Any]:
    """Return a span."""
    document: dict[str, Any] = {"origin": span.origin, "ids": span.ids_T.tolist()}
    if span.logprobs_T is not None:
        document["logprobs"] = span.logprobs_T.tolist()  # as float64, which names each float32
    if span.replaced:
        document["replaced"] = span.replaced
    return document


class Spans:
    """Read the contexts of a record.

    Args:
        record: Of the episode.
        answers: What each step holds.
        name: What messages call the document.

    Raises:
        TraceCorrupt: It contradicts itself.
    """

    def __init__(self, record: Mapping[str, Any], answers: Mapping[int, Span], name: str) -> None:
        self._contexts: list[Context] = []
        with reading(name):
            roots = [root_from({**root, "tools": json.dumps(root["tools"])}) for root in record["roots"]]
            nodes = list(record["nodes"])
        for place, node in enumerate(nodes):
            step = node.get("step") if isinstance(node, dict) else None
            with reading(f"{name}: {KEY}.nodes[{place}]" if step is None else f"{name}: step {step}"):
                if step is not None and step not in answers:
                    raise ValueError("it should be a turn, since spans follow it")
                span = span_from(node) if step is None else answers[step]
                parent = self.context(node["parent"]) if "parent" in node else None
                root = _at(roots, node["root"]) if parent is None else parent.root
                self._contexts.append(Context(root, span, parent))

    def context(self, place: object) -> Context:
        """Return the context that ends in a span."""
        found: Context = _at(self._contexts, place)
        return found


def _at(found: Sequence[Any], place: object) -> Any:
    if not isinstance(place, int) or not 0 <= place < len(found):
        raise IndexError(f"{place!r} names none of the {len(found)} before")
    return found[place]


def span_from(document: Mapping[str, Any]) -> Span:
    """Read a span."""
    return Span(document["ids"], document["origin"], document.get("logprobs"), document.get("replaced", 0))
