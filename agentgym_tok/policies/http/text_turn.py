"""Turns of engines that return text only; their ids are a guess, and marked as one."""

from collections.abc import Sequence

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import text_end
from agentgym_tok.chat.tokenizer import replace_surrogates
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Message

__all__ = ["encoded_turn"]


def encoded_turn(chat: ChatFormat, text: str, *, stopped: bool, stop: Sequence[str] = ()) -> Ids:
    """Encode a turn that came as text; its completion must say `ids_exact=False`.

    Args:
        chat: Encodes it.
        text: The whole turn; where its stop token is spelled out at the end, that is taken for the token.
        stopped: It reached no limit, so that a stop token ended it where no stop string did.
        stop: Stop strings; the turn is taken up to the end of the first one.

    Returns:
        int32 [T].
    """
    if (end := text_end(text, stop)) is not None:
        text, stopped = text[:end], False
    spelled = [token for token in map(chat.token_text, chat.stop_ids) if stopped and text.endswith(token)]
    text = text.removesuffix(spelled[0]) if spelled else text
    inner_T = chat.encode_turn(Message("inline", replace_surrogates(text)[0]))
    return as_ids([*inner_T.tolist(), *chat.stop_ids[: int(stopped)]])
