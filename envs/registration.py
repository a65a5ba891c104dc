"""The ids that `gym.make` knows."""

import gymnasium as gym

__all__ = ["register_all"]

WORLDS = {
    "agentgym_tok/ALFWorld-v0": "agentgym_tok.envs.alfworld.env:ALFWorldEnv",
    "agentgym_tok/SearchQA-v0": "agentgym_tok.envs.searchqa.env:SearchQAEnv",
    "agentgym_tok/WebShop-v0": "agentgym_tok.envs.webshop.env:WebShopEnv",
}


def register_all() -> None:
    """Register every world; a second call changes nothing.

    Gymnasium's own order and type checks stay out of the way: these environments make them themselves, once, with
    messages that say what to do.
    """
    for name, entry_point in WORLDS.items():
        if name not in gym.registry:
            gym.register(name, entry_point, order_enforce=False, disable_env_checker=True)
