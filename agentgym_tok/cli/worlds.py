"""The worlds that commands know by a short name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import AgentGymTokError, ConfigError, unknown_name
from agentgym_tok.tokens import Ids
from agentgym_tok.trace import TraceStore

__all__ = ["WORLDS", "WorldOptions", "chat_format", "env_maker", "own_format"]

WORLDS: Mapping[str, str] = {
    "alfworld": "agentgym_tok/ALFWorld-v0",
    "searchqa": "agentgym_tok/SearchQA-v0",
    "webshop": "agentgym_tok/WebShop-v0",
}
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
        ConfigError: When the function is called: the environment does not know a keyword.
    """
    if world not in WORLDS:
        raise unknown_name("world", world, WORLDS)
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


def tokens_of(env: "gym.Env[Any, Any]") -> TokenEnv:
    """Return the token environment inside the wrappers."""
    inner = env.unwrapped
    assert isinstance(inner, TokenEnv)
    return inner
