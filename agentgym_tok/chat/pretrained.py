"""Tokenizers and templates of models, read by transformers (extra `hf`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer
from agentgym_tok.errors import ChatError, MissingExtra

__all__ = ["load_pretrained"]


def load_pretrained(
    path_or_id: str, chat_template: str | None, kwargs: Mapping[str, Any]
) -> tuple[Tokenizer, ChatTemplate, list[int]]:
    """Load a model's tokenizer, template and stop ids.

    Args:
        path_or_id: Folder or name on the hub.
        chat_template: Another template than the model's own.
        kwargs: Template kwargs.

    Raises:
        MissingExtra: transformers is not installed.
        ChatError: There is no fast tokenizer or no template.
    """
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(
            "tokenizers of models need transformers",
            where="ChatFormat.from_pretrained",
            fix='pip install "agentgym-tok[hf]"',
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(path_or_id)
    except (OSError, ValueError) as error:
        raise ChatError(
            "no tokenizer could be loaded",
            where=path_or_id,
            got=str(error).splitlines()[0],
            expected="a folder with tokenizer.json and tokenizer_config.json, or a name on the hub",
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ChatError("only fast tokenizers can be used", where=path_or_id, got=type(tokenizer).__name__)
    source = chat_template if chat_template is not None else tokenizer.get_chat_template()
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    stop_ids = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    stop_ids += _generation_stops(Path(path_or_id))
    return Tokenizer(backend), ChatTemplate(source, {**special, **kwargs}), stop_ids


def _generation_stops(folder: Path) -> list[int]:
    """Return the stop ids that a model's `generation_config.json` adds."""
    file = folder / "generation_config.json"
    if not file.is_file():
        return []
    stops = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") or []
    return [int(stop) for stop in (stops if isinstance(stops, list) else [stops])]
