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
        ChatError: There is no fast tokenizer or no template, or a file is broken.
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
    except Exception as error:  # broken files come out of transformers as errors of many kinds
        raise ChatError(
            "no tokenizer could be loaded",
            where=path_or_id,
            got=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
            expected="a folder with tokenizer.json and tokenizer_config.json, or a name on the hub",
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ChatError("only fast tokenizers can be used", where=path_or_id, got=type(tokenizer).__name__)
    try:
        source = tokenizer.get_chat_template(chat_template)
    except ValueError as error:
        got, fix = str(error).splitlines()[0], "pass chat_template"
        raise ChatError("the tokenizer has no chat template", where=path_or_id, got=got, fix=fix) from error
    special = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    stop_ids = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    stop_ids += _generation_stops(path_or_id)
    return Tokenizer(backend), ChatTemplate(source, {**special, **kwargs}), stop_ids


def _generation_stops(path_or_id: str) -> list[int]:
    """Return the stop ids that a model's `generation_config.json` adds, alike for a folder and a name on the hub."""
    file = Path(path_or_id) / "generation_config.json"
    if not Path(path_or_id).is_dir():
        from transformers.utils import cached_file  # noqa: PLC0415

        found = cached_file(path_or_id, file.name, _raise_exceptions_for_missing_entries=False)
        file = file if found is None else Path(found)
    if not file.is_file():
        return []
    try:
        stops = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id") or []
        return [int(stop) for stop in (stops if isinstance(stops, list) else [stops])]
    except (ValueError, TypeError, AttributeError) as error:
        raise ChatError("no stop tokens can be read", where=file, got=str(error)) from error
