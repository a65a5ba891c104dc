"""Whether a chat format's ids mean to a model what they mean to its own tokenizer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import tokenizers

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ConfigError, FingerprintMismatch

__all__ = ["check_model_ids"]

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
)
"""A folder with none of these has no tokenizer; transformers would make an empty one up."""


def _by_transformers(path: str | Path) -> tokenizers.Tokenizer:
    import transformers  # noqa: PLC0415  # slow to import, and not every model here needs it

    backend: tokenizers.Tokenizer = transformers.AutoTokenizer.from_pretrained(path).backend_tokenizer
    return backend


def check_model_ids(
    path: str | Path,
    chat: ChatFormat,
    *,
    rows: int,
    read: Callable[[str | Path], tokenizers.Tokenizer] = _by_transformers,
) -> None:
    """Refuse a chat format whose ids mean something else to a model.

    Args:
        path: Folder or name of the model.
        chat: The format.
        rows: Of the model's embedding.
        read: Returns the tokenizer that lies at the path (extra `hf` where nothing else is said).

    Raises:
        ConfigError: The format has ids that the model does not know, or, where no tokenizer lies beside the model, not
            as many.
        FingerprintMismatch: An id stands for something else in the model's tokenizer, or that cannot be read.
    """
    folder, fix = Path(path), "use ChatFormat.from_pretrained on the model's own folder"
    alone = folder.is_dir() and not any((folder / name).is_file() for name in _TOKENIZER_FILES)
    given = f"{chat.vocab_size} ids in {chat.reference!r}"
    if rows < chat.vocab_size:
        what = "the chat format has ids that the model does not know"
        raise ConfigError(what, where=str(path), got=given, expected=f"at most {rows}", fix=fix)
    if alone and rows > chat.vocab_size:
        what = "the model has more ids than the chat format, and no tokenizer that says which they are"
        raise ConfigError(what, where=str(path), got=given, expected=rows, fix="put the tokenizer beside the model")
    if alone:
        return
    try:
        own = Tokenizer(read(path))
    except Exception as error:  # broken files, and tokenizers that are not fast, come as errors of many kinds
        got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise FingerprintMismatch(
            "the model's tokenizer cannot be read", where=str(path), got=got, expected=repr(chat), fix=fix
        ) from error
    # What every id stands for, and not the rules that cut a text: transformers rewrites those for some architectures.
    same = own.vocab_size == chat.vocab_size and own.control_ids == chat.control_ids
    if not same or own.token_bytes != chat.token_bytes(np.arange(chat.vocab_size, dtype=np.int32)):
        what, expected = "the chat format has another vocabulary than the model", f"the model's {own.vocab_size} ids"
        raise FingerprintMismatch(what, where=str(path), got=given, expected=expected, fix=fix)
