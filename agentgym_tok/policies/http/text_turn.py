"""Turns of engines that return text only; their ids are a guess, and marked as one."""

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.tokenizer import replace_surrogates
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Message

__all__ = ["encoded_turn"]


def encoded_turn(chat: ChatFormat, text: str, *, stopped: bool) -> Ids:
    """Encode a turn that came as text; its completion must say `ids_exact=False`.

    Args:
        chat: Encodes it.
        text: The whole turn; where its stop token is spelled out at the end, that is taken for the token.
        stopped: A stop token ended it.

    Returns:
        int32 [T].
    """
    ends = [end for end in map(chat.token_text, chat.stop_ids) if stopped and text.endswith(end)]
    text = text.removesuffix(ends[0]) if ends else text
    inner_T = chat.encode_turn(Message("inline", replace_surrogates(text)[0]))
    return as_ids([*inner_T.tolist(), *chat.stop_ids[: int(stopped)]])
