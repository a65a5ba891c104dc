"""The recording proxy: any unmodified agent becomes token-exact training data (extra `serve`)."""

from typing import TYPE_CHECKING, Any

from agentgym_tok.proxy.limits import Limits

if TYPE_CHECKING:
    from agentgym_tok.proxy.proxy import Proxy, ProxySession

__all__ = ["Limits", "Proxy", "ProxySession"]


def __getattr__(name: str) -> Any:
    # Late: the server's packages are an extra, and the wire formats work without them.
    if name in {"Proxy", "ProxySession"}:
        from agentgym_tok.proxy import proxy  # noqa: PLC0415

        return getattr(proxy, name)
    raise AttributeError(name)
