"""`gym.make("agentgym_tok/ALFWorld-v0")`."""

from pathlib import Path
from typing import Literal

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.explorer import ALFWorldExplorer
from agentgym_tok.envs.alfworld.game import GameSet
from agentgym_tok.envs.alfworld.official import OfficialGames
from agentgym_tok.envs.alfworld.prompts import ALFWORLD_WORDS
from agentgym_tok.envs.alfworld.synth import SynthGames
from agentgym_tok.envs.engine import TextEngine
from agentgym_tok.envs.prompting import Prompting, Words
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError, unknown_name

__all__ = ["ALFWorldEnv", "make_alfworld_engine"]


class ALFWorldEnv(TokenEnv):
    """Household tasks in a text world (ALFWorld, Shridhar et al. 2021), in token ids.

    The observation is the whole context; the action is a turn as sampled; the reward is 1 at the win, else 0. An
    episode ends at the win and is truncated after `max_steps` or where the next context would pass `max_context`.

    Args:
        chat: Tokenizer and template; None takes the builtin format.
        source: `"synth"` (generated games, `ALFWorld-synth`) or `"official"` (the published files, `ALFWorld`).
        split: `train`, `valid_seen` or `valid_unseen`; the official games add `valid_train`.
        data: Folder of the official games; None reads the variable `ALFWORLD_DATA`.
        backend: `"native"`, or `"textworld"` for the stock engine (extra `alfworld`).
        goal: `"template"`, `"human"` for goals that people wrote (official games only), or `"both"` to train on either.
        put_alias: Accept `put X in/on Y` for `move X to Y`, as games before December 2024 did.
        prompting: `"transcript"`, `"step"`, or your own.
        words: Another wording of the prompts.
        max_steps: Steps after which the episode is truncated.
        max_context: Most ids of an observation.
        max_action: Most ids of an action.
        max_observation_tokens: Shorten longer world texts.
        render_mode: `"ansi"` or None.
    """

    explorer = ALFWorldExplorer

    def __init__(
        self,
        chat: ChatFormat | None = None,
        *,
        source: Literal["synth", "official"] = "synth",
        split: str = "train",
        data: str | Path | None = None,
        backend: Literal["native", "textworld"] = "native",
        goal: Literal["template", "human", "both"] = "template",
        put_alias: bool = False,
        prompting: str | Prompting = "transcript",
        words: Words = ALFWORLD_WORDS,
        max_steps: int = 50,
        max_context: int = 32_768,
        max_action: int = 8_192,
        max_observation_tokens: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        engine = make_alfworld_engine(source, split, data, backend=backend, goal=goal, put_alias=put_alias)
        super().__init__(
            engine,
            chat or ChatFormat.builtin(),
            prompting,
            words=words,
            max_steps=max_steps,
            max_context=max_context,
            max_action=max_action,
            max_observation_tokens=max_observation_tokens,
            render_mode=render_mode,
        )


def make_alfworld_engine(
    source: str = "synth",
    split: str = "train",
    data: str | Path | None = None,
    *,
    backend: str = "native",
    goal: Literal["template", "human", "both"] = "template",
    put_alias: bool = False,
) -> TextEngine:
    """Make the text engine of a source and split.

    Raises:
        UnknownName: No source, split or backend has this name.
        DataMissing: The official games are not there.
        ConfigError: The stock engine was asked for what only the native one can do.
    """
    if source not in {"synth", "official"}:
        raise unknown_name("source", source, ["synth", "official"], where="ALFWorld")
    if backend not in {"native", "textworld"}:
        raise unknown_name("backend", backend, ["native", "textworld"], where="ALFWorld")
    games: GameSet = SynthGames(split) if source == "synth" else OfficialGames(split, data)
    if backend == "native":
        return ALFWorldEngine(games, put_alias=put_alias, goal=goal)
    if put_alias or goal != "template":
        raise ConfigError(
            "the stock engine has no such option",
            where="ALFWorld, backend='textworld'",
            got=f"{put_alias=}, {goal=}",
            fix="use backend='native'",
        )
    from agentgym_tok.envs.alfworld.textworld import StockEngine  # noqa: PLC0415  # extra `alfworld`

    return StockEngine(games)
