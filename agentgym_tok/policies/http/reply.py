"""Reading what a server answers: the parts that are known, in their exact types, or an error that names the place."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from agentgym_tok.policies.http.failures import Garbled

__all__ = ["ReplyPart", "read_reply"]

_Model = TypeVar("_Model", bound="ReplyPart")


class ReplyPart(BaseModel):
    """Hold what is read of an answer; servers may say more."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


def read_reply(model: type[_Model], document: Any, where: str) -> _Model:
    """Read an answer.

    Raises:
        Garbled: It is none of this endpoint.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        got = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}" for one in error.errors()[:2])
        raise Garbled("the answer is none of this endpoint", where=where, got=got) from None
