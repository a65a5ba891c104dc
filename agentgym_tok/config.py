"""The base of every configuration model."""

from pydantic import BaseModel, ConfigDict

__all__ = ["Config"]


class Config(BaseModel):
    """Refuse unknown names, never change, and hash and pickle as a value."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)
