"""How much a proxy takes on."""

from pydantic import Field

from agentgym_tok.config import Config

__all__ = ["Limits"]


class Limits(Config):
    """Bound what clients can make a proxy do; what is beyond a bound is refused with a status that says so."""

    in_flight: int = Field(default=512, ge=1, description="requests that are answered at a time; more get 429")
    sessions: int = Field(default=4096, ge=1, description="sessions that are open at a time; more get 429")
    body_bytes: int = Field(default=32 << 20, ge=1024, description="longest body, in bytes; a longer one gets 413")
    body_s: float = Field(default=60.0, gt=0, description="how long a body may take to come; a slower one gets 408")
    write_s: float = Field(
        default=60.0, gt=0, description="a client that takes nothing of its stream for so long is left"
    )
    choices: int = Field(default=16, ge=1, description="turns that one request may ask for; more get 400")
    idle_s: float = Field(default=3600.0, gt=0, description="a session that asks nothing for so long is abandoned")
    drain_s: float = Field(default=30.0, gt=0, description="how long answers may go on once the proxy is told to stop")
