"""The worlds that commands know by a short name, the library's and those of plug-ins."""

import inspect
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
from pydantic import Field

from agentgym_tok import __version__
from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ConfigError
from agentgym_tok.plugins import GROUPS, Plugin, find_plugin
from agentgym_tok.policies.options import checked_options
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import TraceStore

__all__ = ["ADAPTERS", "WORLDS", "WorldOptions", "chat_format", "env_maker", "own_format"]

WORLDS: Mapping[str, str] = {
    "alfworld": "agentgym_tok/ALFWorld-v0",
    "searchqa": "agentgym_tok/SearchQA-v0",
    "webshop": "agentgym_tok/WebShop-v0",
}
ADAPTERS: Mapping[str, str] = {
    "openenv": "agentgym_tok.envs.adapters.openenv:OpenEnvWorld",
    "verifiers": "agentgym_tok.envs.adapters.verifiers:VerifiersWorld",
}
"""Worlds that play environments of other libraries; `--env` says which."""
_SPLITS = {"alfworld": "valid_seen", "searchqa": "test", "webshop": "eval"}


class WorldOptions(Config):
    """Say which world, and how it is set up."""

    source: str = Field(default="synth", description="synth (generated) or official (published files)")
    split: str | None = Field(default=None, description="valid_seen, test, ...; what papers report without it")
    data: str | None = Field(default=None, description="folder of official files; else the world's own variable")
    prompting: str = Field(default="transcript", description="transcript, step, react, or one of the world's own")
    chat: str = Field(default="builtin", description="builtin, or a model's folder or id (extra hf)")
    max_steps: int | None = Field(default=None, ge=1, description="steps of an episode; the world's own without it")
    max_context: int = Field(default=32_768, ge=64, description="most tokens of a context")
    env: dict[str, Any] = Field(default_factory=dict, description="more keywords of gym.make, as JSON")

    def of(self, world: str) -> Self:
        """Return the options with what this world takes where nothing was said."""
        return self if self.split is not None else self.model_copy(update={"split": _SPLITS.get(world)})


def chat_format(name: str) -> ChatFormat:
    """Return the chat format of a name."""
    return ChatFormat.builtin() if name == "builtin" else ChatFormat.from_pretrained(name)


def own_format(run: str) -> ChatFormat | None:
    """Return the format that the run names, or None where this machine cannot make the same one."""
    with TraceStore(run, mode="r") as store:
        meta = store.meta
    try:
        chat = ChatFormat.from_recipe(meta.recipe) if meta.recipe else chat_format(meta.chat)
    except (AgentGymTokError, TypeError):  # a model that is gone, or a recipe of a newer library
        return None
    return chat if chat.fingerprint == meta.fingerprint else None


def env_maker(world: str, options: WorldOptions, chat: ChatFormat) -> "Callable[[], gym.Env[Ids, Ids]]":
    """Return a function that makes a world's token environment.

    Raises:
        UnknownName: No world has this name.
        ConfigError: A plug-in is broken; or, when the function is called, the environment does not know a keyword.
    """
    if world not in WORLDS:
        plugin = _adapter(world) if world in ADAPTERS else find_plugin("world", world, (*WORLDS, *ADAPTERS))
        return _plugin_maker(plugin, options, chat)
    keywords: dict[str, Any] = {
        "chat": chat,
        "source": options.source,
        "split": options.of(world).split,
        "data": None if options.data is None else Path(options.data).expanduser(),
        "prompting": options.prompting,
        "max_context": options.max_context,
        **({} if options.max_steps is None else {"max_steps": options.max_steps}),
        **options.env,
    }

    def make() -> "gym.Env[Ids, Ids]":
        try:
            return gym.make(WORLDS[world], **keywords)
        except TypeError as error:
            raise ConfigError("the world does not know an option", where=f"--env of {world}", got=str(error)) from error

    return make


def _adapter(world: str) -> Plugin:
    """Return an adapter as if a package had declared it."""
    entry = EntryPoint(name=world, value=ADAPTERS[world], group=GROUPS["world"])
    return Plugin("world", world, entry.value, "agentgym-tok", __version__, entry=entry)


def _plugin_maker(plugin: Plugin, options: WorldOptions, chat: ChatFormat) -> "Callable[[], gym.Env[Ids, Ids]]":
    """Return what makes a plug-in's world, which gets the options that it takes or that somebody chose."""
    world = plugin.load()
    takes = inspect.signature(world).parameters
    offered = options.model_dump(include={"source", "split", "data", "prompting", "max_steps", "max_context"})
    defaults = {name: type(options).model_fields[name].default for name in offered}
    chosen = {
        name: value
        for name, value in offered.items()
        if value is not None and (name in takes or value != defaults[name])
    }
    typed = {one.name for one in takes.values() if one.kind is one.KEYWORD_ONLY and one.annotation is not one.empty}
    # A command line has texts only: `--env limit=50`.
    texts = {name: value for name, value in options.env.items() if isinstance(value, str) and name in typed}
    read = checked_options(world, texts, f"--env of {plugin}")
    keywords: dict[str, Any] = {"chat": chat, **chosen, **options.env, **read}
    try:
        inspect.signature(world).bind(**keywords)
    except TypeError as error:
        expected = ", ".join(takes)
        raise ConfigError(
            "the options do not fit the world", where=plugin, got=str(error), expected=expected
        ) from error

    def make() -> "gym.Env[Ids, Ids]":
        try:
            env: Any = world(**keywords)
        except AgentGymTokError:
            raise
        except Exception as error:
            raise plugin.broken(f"{type(error).__name__}: {error}") from error
        if not isinstance(env, gym.Env) or not isinstance(env.unwrapped, TokenEnv):
            raise plugin.broken(type(env).__name__, expected="a TokenEnv, wrapped or not")
        made: gym.Env[Ids, Ids] = env
        return made

    return make


def tokens_of(env: "gym.Env[Any, Any]") -> TokenEnv:
    """Return the token environment inside the wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, TokenEnv)
    return inner
