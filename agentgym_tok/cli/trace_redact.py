"""`agentgym-tok trace redact RUN --out NEW`: copy a trace without its secrets."""

import os
import re

from pydantic import Field
from pydantic_settings import CliPositionalArg

from agentgym_tok.cli.worlds import chat_format, own_format
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.trace.redact import redact

__all__ = ["Options", "run"]


class Options(Config):
    """Copy a trace without what patterns match, in ids and in texts.

    The copy says what was looked for and which records were changed; the chain stays whole, and what is gone is counted
    and never trained. The trace itself stays as it is.
    """

    run: CliPositionalArg[str] = Field(description="folder of the run")
    out: str = Field(description="folder of the copy; it must not exist")
    rule: str = Field(description="what is looked for, in words that stay in the copy")
    pattern: tuple[str, ...] = Field(default=(), description="regular expression; may be given several times")
    variable: tuple[str, ...] = Field(
        default=(), description="environment variable that holds a secret, which so stays out of the shell's history"
    )
    chat: str | None = Field(default=None, description="chat format of the run; the one the run names without it")


def run(options: Options) -> int:
    """Redact and print what was found; return 0.

    Raises:
        ConfigError: A pattern is no regular expression, a variable is not set, or there is no chat format.
        TraceError: There is no trace, or a match stands where it cannot be taken out.
    """
    chat = chat_format(options.chat) if options.chat is not None else own_format(options.run)
    if chat is None:
        fix = "pass --chat with the model's folder or id"
        raise ConfigError("the ids cannot be read", where=options.run, got="a chat format that is not here", fix=fix)
    patterns = [_pattern(pattern) for pattern in options.pattern]
    patterns += [re.compile(re.escape(_secret(name))) for name in options.variable]
    found = redact(options.run, options.out, patterns, chat=chat, rule=options.rule)
    print(f"{found.ids} ids in {found.spans} spans and the texts of {found.texts} turns were taken out: {options.out}")
    if found.images:
        print(f"{found.images} images were not looked into")
    return 0


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError("no regular expression", where="--pattern", got=f"{pattern!r}: {error}") from None


def _secret(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError("the variable is empty", where=f"--variable {name}", got="nothing", fix=f"export {name}=...")
    return value
