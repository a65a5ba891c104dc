"""The dialects in which models write reasoning and tool calls, one file each."""

from collections.abc import Iterable, Sequence

from agentgym_tok.chat.dialects.deepseek import DEEPSEEK
from agentgym_tok.chat.dialects.dialect import Dialect
from agentgym_tok.chat.dialects.gemma import GEMMA
from agentgym_tok.chat.dialects.glm import GLM
from agentgym_tok.chat.dialects.harmony import HARMONY
from agentgym_tok.chat.dialects.hermes import HERMES
from agentgym_tok.chat.dialects.kimi import KIMI
from agentgym_tok.chat.dialects.llama import LLAMA
from agentgym_tok.chat.dialects.mistral import MISTRAL
from agentgym_tok.chat.dialects.qwen_xml import QWEN_XML
from agentgym_tok.errors import unknown_name

__all__ = ["DIALECTS", "Dialect", "find_dialect", "named_dialect"]

# In the order in which they are looked for: Hermes last, since its sign is part of others.
DIALECTS: tuple[Dialect, ...] = (HARMONY, DEEPSEEK, KIMI, MISTRAL, GEMMA, GLM, QWEN_XML, LLAMA, HERMES)


def find_dialect(literals: Sequence[str], control_texts: Iterable[str]) -> Dialect:
    """Return the dialect of a chat format, told by what its template writes, never by a model's name.

    Args:
        literals: Texts that the template can write.
        control_texts: The vocabulary's added tokens, which decide where the template writes no calls.

    Returns:
        The dialect; Hermes, the commonest, where nothing tells.
    """
    for texts in ("\n".join(literals), "\n".join(control_texts)):
        for dialect in DIALECTS:
            if any(all(sign in texts for sign in group) for group in dialect.signs):
                return dialect
    return HERMES


def named_dialect(name: str) -> Dialect:
    """Return a dialect by its name.

    Raises:
        UnknownName: There is none; the error suggests the nearest.
    """
    for dialect in DIALECTS:
        if dialect.name == name:
            return dialect
    raise unknown_name("dialect", name, [dialect.name for dialect in DIALECTS], where="ChatFormat.from_pretrained")
