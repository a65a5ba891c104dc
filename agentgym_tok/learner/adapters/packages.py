"""Other trainers' packages, imported when their objects are made."""

import importlib
from typing import Any

from agentgym_tok.errors import MissingExtra

__all__ = ["imported"]


def imported(module: str, fix: str) -> Any:
    """Return a module of another package.

    Args:
        module: Its dotted name.
        fix: How to install it.

    Raises:
        MissingExtra: It cannot be imported; the error says what is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(f"its objects need {package}", where=module, got=str(error), fix=fix) from error
