"""Configuration models from the command line: a TOML file, then dotted options over it."""

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, CliApp, PydanticBaseSettingsSource, SettingsConfigDict

from agentgym_tok.cli.config_file import read_toml
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError

__all__ = ["parse"]

C = TypeVar("C", bound=Config)


def parse(model: type[C], arguments: list[str], *, program: str) -> C:
    """Read a command's configuration.

    Args:
        model: The command's model; its fields are the options, its docstring is the help.
        arguments: What stands behind the command's name. `--config FILE` reads a TOML file first.
        program: The command's name, for the help.

    Raises:
        ConfigError: An option's value is not allowed, or the file is no TOML.
        DataMissing: The configuration file is not there.
        SystemExit: With status 0 after `--help`, 2 for unknown options.
    """
    arguments, file = _take_config(arguments)
    values = {} if file is None else read_toml(file)

    class Options(model, BaseSettings):  # type: ignore[valid-type, misc]  # a model made for one call
        __doc__ = (model.__doc__ or "") + "\n\n--config FILE reads options from a TOML file first."
        model_config = SettingsConfigDict(
            cli_prog_name=program,
            cli_kebab_case=True,
            cli_implicit_flags=True,
            cli_hide_none_type=True,
            cli_avoid_json=True,
            frozen=True,
            extra="forbid",
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            # Not from the environment: a variable that happens to be called SPLIT must not change a run.
            del settings_cls, env_settings, dotenv_settings, file_secret_settings
            return (init_settings,)

    try:
        options = CliApp.run(Options, cli_args=arguments, **values)
        return model(**{name: getattr(options, name) for name in model.model_fields})
    except ValidationError as error:
        raise _refused(error, program, file) from None


def _refused(error: ValidationError, program: str, file: Path | None) -> ConfigError:
    first = error.errors()[0]
    option = ".".join(str(part) for part in first["loc"])
    return ConfigError(
        f"option {option.replace('_', '-')}: {first['msg'].lower()}",
        where=program if file is None else f"{program}, {file}",
        got=repr(first.get("input")),
        fix=f"{program} --help shows the options",
    )


def _take_config(arguments: list[str]) -> tuple[list[str], Path | None]:
    for place, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return arguments[:place] + arguments[place + 1 :], Path(argument.partition("=")[2])
        if argument == "--config" and place + 1 < len(arguments):
            return arguments[:place] + arguments[place + 2 :], Path(arguments[place + 1])
    return arguments, None


def complain(error: Exception) -> None:
    """Print an error for a person, without a traceback."""
    sys.stderr.write(f"error: {error}\n")
