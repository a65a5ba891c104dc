"""`gym.make("agentgym_tok/WebShop-v0")`."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.engine import TextEngine
from agentgym_tok.envs.presets import PRESETS as PROMPTINGS
from agentgym_tok.envs.presets import Presets
from agentgym_tok.envs.prompting import Command, Prompting, Words
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.envs.webshop.data import OFFICIAL, open_shop
from agentgym_tok.envs.webshop.drawn import GoalKind
from agentgym_tok.envs.webshop.engine import WebShopEngine
from agentgym_tok.envs.webshop.explorer import WebShopExplorer
from agentgym_tok.envs.webshop.generated.shop import SOURCE, synth_shop
from agentgym_tok.envs.webshop.pages import Mode
from agentgym_tok.envs.webshop.prompts import WEBSHOP_WORDS, WebShopStep, WebShopTranscript
from agentgym_tok.envs.webshop.splits import PRESETS, split_goals
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.tokens import Span
from agentgym_tok.types import Message

__all__ = ["WebShopEnv", "make_webshop_engine"]

_LEAK = (
    "split preset 'verl-agent' leaks: each worker shuffles the goals by a seed of its own before it cuts them, so "
    "goals that one worker is tested on are training goals of another; 'canonical' has the same sizes and does not"
)


class WebShopEnv(TokenEnv):
    """Shopping by instruction (WebShop, Yao et al. 2022), in token ids.

    The observation is the whole context; the action is a turn as sampled; the reward is the score of the purchase, from
    0 to 1, and an episode is a success at score 1. It ends with the purchase and is truncated after `max_steps` or
    where the next context would pass `max_context`. `info` adds `available_actions`, `score`, and after a purchase
    `reward_parts` and `purchase`.

    Args:
        chat: Tokenizer and template; None takes the builtin format.
        source: `"synth"` (a generated shop, `WebShop-synth`) or `"official"` (the published files, `WebShop`).
        split: A split of the preset: `train`, `eval`, `all`; preset `original` adds `test`.
        data: A folder that `agentgym-tok data prepare webshop` made; None reads the variable `WEBSHOP_DATA` for the
            official shop, and generates the other one.
        preset: How goals are split: `"canonical"` (0-499 and the rest, one order for everyone), `"original"`, or
            `"verl-agent"`, which leaks.
        goals: `"synthetic"` (template instructions) or `"human"` (people's).
        observation: `"text"`, or `"text_rich"` with a line for each thing.
        products: How many products are generated.
        world: Which generated shop; 0 is the one that scores are about. Others, `WebShop-synth-1` and so on, have none
            of its products and names: train on them, and nothing that is tested was seen.
        worker_seed: For preset `verl-agent`: the seed by which the worker shuffled.
        backend: `"native"`, or `"http"` for a running WebShop site.
        url: The address of the site.
        site_goals: How many goals the site has; needed for splits without an end.
        prompting: `"transcript"`, `"step"` (verl-agent, SDAR), `"react"`, or your own.
        words: Another wording of the prompts.
        max_steps: Steps after which the episode is truncated.
        max_context: Most ids of an observation.
        max_action: Most ids of an action.
        max_observation_tokens: Shorten longer world texts.
        render_mode: `"ansi"` or None.

    Raises:
        UnknownName: An option has no such value.
        DataMissing: Nothing was prepared there, or the split has no goals.
        DataCorrupt: What was prepared is broken.
        ConfigError: Options that do not go together.
    """

    presets: ClassVar[Presets] = MappingProxyType({**PROMPTINGS, "transcript": WebShopTranscript, "step": WebShopStep})
    metrics: ClassVar[Mapping[str, str]] = MappingProxyType({"score": "score"})
    explorer = WebShopExplorer

    def __init__(
        self,
        chat: ChatFormat | None = None,
        *,
        source: Literal["synth", "official"] = "synth",
        split: str = "train",
        data: str | Path | None = None,
        preset: Literal["canonical", "original", "verl-agent"] = "canonical",
        goals: GoalKind = "synthetic",
        observation: Mode = "text",
        products: int = 1000,
        world: int = 0,
        worker_seed: int = 0,
        backend: Literal["native", "http"] = "native",
        url: str | None = None,
        site_goals: int | None = None,
        prompting: str | Prompting = "transcript",
        words: Words = WEBSHOP_WORDS,
        max_steps: int = 15,
        max_context: int = 32_768,
        max_action: int = 8_192,
        max_observation_tokens: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        engine = make_webshop_engine(
            source,
            split,
            data,
            preset=preset,
            goals=goals,
            observation=observation,
            products=products,
            world=world,
            worker_seed=worker_seed,
            backend=backend,
            url=url,
            site_goals=site_goals,
        )
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

    def hints(self) -> dict[str, Any]:
        """Return what experts may know; where there is a search bar, the task's own words are admissible to search."""
        hints = super().hints()
        if self._observation.facts["available_actions"]["has_search_bar"]:
            # No command can say brackets.
            words = str(self._task["goal"]).replace("[", " ").replace("]", " ").strip()
            hints["admissible"] = (self.prompting.answer(f"search[{words}]"), *hints["admissible"])
        return hints

    def _info(self, delta: Span, messages: list[Message], command: Command | None, cut: int) -> dict[str, Any]:
        return {**super()._info(delta, messages, command, cut), "score": self._observation.reward}


def make_webshop_engine(
    source: str = "synth",
    split: str = "train",
    data: str | Path | None = None,
    *,
    preset: str = "canonical",
    goals: GoalKind = "synthetic",
    observation: Mode = "text",
    products: int = 1000,
    world: int = 0,
    worker_seed: int = 0,
    backend: str = "native",
    url: str | None = None,
    site_goals: int | None = None,
) -> TextEngine:
    """Make the text engine of a source and split; the options are those of `WebShopEnv`.

    Raises:
        UnknownName: An option has no such value.
        DataMissing: Nothing was prepared there, or the split has no goals.
        DataCorrupt: What was prepared is broken.
        ConfigError: Options that do not go together.
    """
    for kind, name, known in (
        ("source", source, ("synth", "official")),
        ("backend", backend, ("native", "http")),
        ("kind of goals", goals, ("synthetic", "human")),
        ("split preset", preset, PRESETS),
    ):
        if name not in known:
            raise unknown_name(kind, name, known, where="WebShop")
    generated = source == "synth" and data is None and backend == "native"
    if world and not generated:
        expected = "0 for a shop that is not generated"
        raise ConfigError("there is no such world", where="world of WebShop", got=world, expected=expected)
    if preset == "verl-agent":
        warnings.warn(_LEAK, stacklevel=3)

    def tasks(number: int) -> Sequence[int]:
        return split_goals(preset, split, number, worker_seed=worker_seed)

    if backend == "http":
        from agentgym_tok.envs.webshop.site.engine import SiteEngine  # noqa: PLC0415  # extra `webshop-site`

        return SiteEngine(_address(url), tasks(_site_goals(preset, split, site_goals)), observation=observation)
    if generated:
        shop = synth_shop(goals, products=products, world=world)
    else:
        shop = open_shop(data, goals, OFFICIAL if source == "official" else SOURCE)
    return WebShopEngine(shop, tasks(len(shop.goals)), observation=observation)


def _address(url: str | None) -> str:
    if url is None:
        raise ConfigError("nobody says where the site is", where="WebShop, backend='http'", fix="pass url=")
    return url


def _site_goals(preset: str, split: str, known: int | None) -> int:
    """Return how many goals a site has, as far as the split needs it."""
    end = PRESETS[preset].get(split, (0, 0))[1]
    if known is not None:
        return known
    # A worker's shuffle depends on the number of all goals, a cut of the shared order only on its own end.
    if end is None or preset == "verl-agent":
        what, fix = "this split needs to know how many goals the site has", "pass site_goals="
        raise ConfigError(what, where=f"WebShop, preset {preset}, split {split}", fix=fix)
    return end
