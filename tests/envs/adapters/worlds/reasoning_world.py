"""The environment that verifiers 0.3.1 itself ships for reasoning-gym."""

from verifiers.envs.integrations.reasoninggym_env import ReasoningGymEnv


def load_environment(gym: str = "chain_sum", seed: int = 0) -> ReasoningGymEnv:
    return ReasoningGymEnv(gym, num_train_examples=4, num_eval_examples=4, seed=seed)
