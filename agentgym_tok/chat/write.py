"""An assistant's message as the turn that a template writes of it, calls and reasoning included."""

from collections.abc import Iterator, Sequence

from agentgym_tok.chat.render import Rendering, render
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Message

__all__ = ["written_turns"]

_USER = Message("user", "Go on.")
_NEXT = {False: Message("user", "And then?"), True: Message("tool", "Done.", name="tool", tool_call_id="call00000")}


def written_turns(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    message: Message,
    stop_ids: Sequence[int],
    reasoning: Sequence[tuple[str, str]],
) -> Iterator[Ids]:
    """Yield the ids that may be the message's turn behind the generation prompt, the likeliest first.

    Args:
        template: The chat template.
        tokenizer: Its tokenizer.
        message: An assistant's message.
        stop_ids: Ids that end a turn.
        reasoning: Openers and closers of reasoning; a prompt may open what the message does not close.

    Raises:
        ChatError: The template refuses the message.
    """
    whole = render(template, tokenizer, [_USER, message], (), generation=False)
    prompt = render(template, tokenizer, [_USER], (), generation=True)
    place = len(_common(tokenizer, prompt, whole))
    if message.reasoning and any(closer in prompt.text[place:] for _, closer in reasoning):
        return  # the prompt has ended reasoning already, as templates do when a model shall not think
    for closer in ("", *(closer for _, closer in reasoning)):
        ids = tokenizer.encode(closer + whole.text[place:], whole.cut).tolist()
        ends = [end for end, index in enumerate(ids, 1) if index in stop_ids]
        yield as_ids(ids[: ends[-1]] if ends else [*ids, *_end(template, tokenizer, message, whole, stop_ids)])


def _common(tokenizer: Tokenizer, prompt: Rendering, whole: Rendering) -> str:
    """Return the beginning that the conversation shares with its generation prompt, in whole tokens of the prompt."""
    common = ""
    beginning = b""
    for piece in [tokenizer.token_bytes[index] for index in prompt.encode(tokenizer).tolist()]:
        beginning += piece
        text = beginning.decode("utf-8", "ignore")
        if not whole.text.startswith(text):
            break
        if len(text.encode()) == len(beginning):
            common = text
    return common


def _end(
    template: ChatTemplate, tokenizer: Tokenizer, message: Message, whole: Rendering, stop_ids: Sequence[int]
) -> list[int]:
    """Return the end that the template writes only where something follows: an opener (GLM), or what was left open."""
    following = _NEXT[bool(message.tool_calls)]
    longer = render(template, tokenizer, [_USER, message, following], (), generation=False)
    behind = longer.text[len(whole.text) :] if longer.text.startswith(whole.text) else ""
    end: list[int] = []
    while spelled := tokenizer.first_control(behind):
        index = tokenizer.token_id(spelled)
        if index is None:
            break
        end.append(index)
        if index in stop_ids:
            return end
        behind = behind[len(spelled) :]
    return []
