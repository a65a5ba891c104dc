"""transformers through a cache of keys and values: what it logs is what whole contexts give."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra torch is not installed")

from played import WORLDS, play, prove

from agentgym_tok import ChatFormat
from agentgym_tok.policies.hf import HFPolicy

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("world", WORLDS)
def test_an_episode_is_exact_trained_and_as_likely_without_the_cache(
    folder: Path,
    chat: ChatFormat,
    scorer: HFPolicy,
    world: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    policy = HFPolicy(folder, chat, device="cpu", version="default")
    episodes = play(policy, chat, world, tmp_path)
    record_property("largest difference", prove(episodes, tmp_path, chat, scorer))
