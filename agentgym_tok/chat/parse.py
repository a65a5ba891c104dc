"""Read an assistant turn from its ids: reasoning, content and tool calls, each with its place among the tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym_tok.chat.dialects import Dialect, find_dialect, named_dialect
from agentgym_tok.chat.dialects.renderers import RenderersDialect
from agentgym_tok.chat.dialects.tags import Tag, read_tags
from agentgym_tok.chat.dialects.tools import Tools
from agentgym_tok.chat.dialects.turn import TurnText
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ChatError
from agentgym_tok.tokens import Ids
from agentgym_tok.types import AssistantMessage

__all__ = ["TurnReader"]


class TurnReader:
    """Read the turns of one chat format.

    Args:
        tokenizer: Knows the bytes of each id.
        template: Tells the dialect, and whether its generation prompt opens reasoning.
        stop_ids: Ids that end a turn.
        dialect: Name of the dialect, or `"renderers:MODEL"` for the package of that name; None finds it.

    Attributes:
        dialect: How reasoning and calls are written.
        opened: Prompts end inside reasoning; None where that is not known of all of them.

    Raises:
        UnknownName: No dialect has this name.
        MissingExtra: The package is asked for and not installed.
        ChatError: The package does not know the model.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate, stop_ids: Sequence[int], dialect: str | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = frozenset(stop_ids)
        self.dialect = _dialect(dialect, tokenizer, template)
        # That the template's usual prompt does not open reasoning says little: others may.
        self.opened = True if _opens_reasoning(template, self.dialect) else None

    def read(
        self, ids_T: Ids, tools: Sequence[Mapping[str, Any]] | None = None, *, opened: bool | None = None
    ) -> AssistantMessage:
        """Read a turn; any ids of the vocabulary give an answer.

        Args:
            ids_T: int32 [T], with or without a stop token.
            tools: JSON schemas; they type values that the dialect writes as bare text, and calls of other names are
                `unknown_tool`. None knows no names.
            opened: Whether the prompt ended inside reasoning; None where only the template can tell.
        """
        opened = self.opened if opened is None else opened
        turn = TurnText(self._tokenizer, ids_T, self._stop_ids, opened=opened)
        return self.dialect.read(turn, Tools(tools))

    def tags(self, ids_T: Ids, names: Sequence[str]) -> tuple[Tag, ...]:
        """Return the blocks of a turn that stand between `<name>` and `</name>`.

        Args:
            ids_T: int32 [T], with or without a stop token.
            names: The tags to look for.
        """
        return read_tags(TurnText(self._tokenizer, ids_T, self._stop_ids), names)


def _dialect(name: str | None, tokenizer: Tokenizer, template: ChatTemplate) -> Dialect:
    backend, _, model = (name or "").partition(":")
    if name is not None and backend != "renderers":
        return named_dialect(name)
    found = find_dialect(template.literals, tokenizer.control_texts.values())
    return RenderersDialect(model, tokenizer, template, found) if backend else found


def _opens_reasoning(template: ChatTemplate, dialect: Dialect) -> bool:
    try:
        prompt = template.render([{"role": "user", "content": "Go on."}], None, generation=True).rstrip()
    except ChatError:
        return False
    return any(prompt.endswith(opener) for opener, _ in dialect.reasoning)
