"""What is tried again, and how often."""

from pydantic import Field

from agentgym_tok.config import Config

__all__ = ["Retries"]


class Retries(Config):
    """Try again what failed; every attempt is logged beside the one that was used.

    All of them share the budget's `retries`, of the episode and of the run. Without `feedback` another attempt samples
    the identical context with another seed.
    """

    invalid_action: int = Field(
        default=0, ge=0, description="turns that the world would refuse, or whose form is broken: times to sample again"
    )
    feedback: bool = Field(
        default=False,
        description="say to the policy what was wrong, as a message after the invalid turn, and ask it to go on; for "
        "policies that follow instructions",
    )
    policy: int = Field(default=0, ge=0, description="failures of the engine that another attempt may not meet")
    tool: int = Field(default=0, ge=0, description="tools that raised or took too long; not wrong arguments")
    world: int = Field(
        default=0, ge=0, description="failures of the world: it is put back to before the turn, by a copy or a replay"
    )
