"""What the proxy counts, for Prometheus (extra `serve`)."""

from agentgym_tok.errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:
    raise MissingExtra(
        "the proxy needs starlette, uvicorn and prometheus_client",
        where="proxy",
        fix='pip install "agentgym-tok[serve]"',
    ) from error

__all__ = ["Metrics"]

_FIRST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Hold the counters of one proxy."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._counters = {
            "requests": self._counter("requests", "Requests by path and status", "path", "status"),
            "tokens": self._counter("tokens", "Tokens of contexts and of turns", "kind"),
            "edges": self._counter("edges", "How contexts came about", "kind"),
            "retries": self._counter("retries", "Requests that were sent before, by what showed it", "evidence"),
            "disconnects": self._counter("disconnects", "Clients that went away"),
            "refused": self._counter("refused", "Requests beyond a limit", "limit"),
        }
        self._labelled: dict[tuple[str, ...], Counter] = {}
        self.in_flight = self._gauge("in_flight", "Requests that are being answered")
        self.sessions = self._gauge("sessions", "Sessions that are open")
        self.unwritten = self._gauge("unwritten", "Turns on their way to the store")
        self.store_errors = self._gauge("store_errors", "Turns that the store refused")
        self.first_token = Histogram(
            "agentgym_tok_proxy_first_token_seconds",
            "From a request's last byte to the first token",
            buckets=_FIRST_S,
            registry=self._registry,
        )

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        """Add to a counter: `requests`, `tokens`, `edges`, `retries`, `disconnects` or `refused`.

        Args:
            name: Its name.
            labels: What is counted, of few kinds.
            by: How many.
        """
        counter = self._labelled.get((name, *labels))
        if counter is None:
            counter = self._counters[name].labels(*labels) if labels else self._counters[name]
            self._labelled[name, *labels] = counter
        counter.inc(by)

    def text(self) -> bytes:
        """Return all of it in Prometheus' format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"agentgym_tok_proxy_{name}", words, labels, registry=self._registry)

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(f"agentgym_tok_proxy_{name}", words, registry=self._registry)
