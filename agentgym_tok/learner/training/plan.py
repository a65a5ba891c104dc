"""What a run will do, in words and numbers, without loading a model."""

from collections.abc import Iterator

from agentgym_tok.learner.losses import LossConfig
from agentgym_tok.learner.training.config import TrainConfig

__all__ = ["describe", "terms"]


def describe(config: TrainConfig, *, max_steps: int, max_context: int) -> dict[str, str]:
    """Return the plan of a run, by headings.

    Args:
        config: The configuration.
        max_steps: Turns of an episode, at most.
        max_context: Tokens of a context, at most.
    """
    rollouts = config.tasks * config.group_size
    sampled = rollouts * max_steps * config.sampling.max_tokens
    plan = {
        "steps": f"{config.steps:,}, a checkpoint every {config.save_every}",
        "a step": f"{config.tasks} tasks x {config.group_size} rollouts = {rollouts:,} rollouts",
        "tokens a step": "" if config.imitates else f"at most {sampled:,}, in contexts of at most {max_context:,}",
        "rollouts": _rollouts(config),
        "objective": f"{config.objective}: " + "; ".join(terms(config.loss)),
        "advantages": _advantages(config),
        "updates": _updates(config),
        "skills": _skills(config),
        "tests": _tests(config),
    }
    return {name: text for name, text in plan.items() if text}


def terms(loss: LossConfig) -> Iterator[str]:
    """Yield the terms of an objective, each with its coefficient."""
    if loss.policy_coefficient:
        clips = {
            "nll": "",
            "cispo": f", ratio at most {1 + loss.clip_high:g}",
        }.get(loss.policy, f", clips {loss.clip_low:g} and {loss.clip_high:g}")
        dual = f", dual clip {loss.dual_clip:g}" if loss.policy == "clip" and loss.dual_clip else ""
        yield f"{loss.policy_coefficient:g} x {loss.policy}{clips}{dual}"
    if loss.kl_coefficient:
        yield f"{loss.kl_coefficient:g} x KL to the first model ({loss.kl}, in the {loss.kl_as})"
    if loss.entropy_coefficient:
        yield f"-{loss.entropy_coefficient:g} x entropy"
    if loss.distillation != "none":
        gate = f", gate {loss.gate}, beta {loss.beta:g}" if loss.distillation == "sdar" else ""
        full = f", {loss.divergence}" if loss.distillation == "opsd_full" else ""
        yield f"{loss.distillation_coefficient:g} x {loss.distillation}{gate}{full}"
    yield f"aggregated by {loss.aggregation}"


def _rollouts(config: TrainConfig) -> str:
    if config.imitates:
        return f"demonstrations of {config.demonstrations}"
    drawn = f"temperature {config.sampling.temperature:g}, top-p {config.sampling.top_p:g}"
    lag = f"at most {config.staleness} updates old" if config.staleness else "by the newest weights"
    again = f", groups of equal returns drawn again up to {config.redraw} times" if config.redraw else ""
    return f"{drawn}, {lag}{again}"


def _advantages(config: TrainConfig) -> str:
    if config.imitates:
        return ""
    chosen = config.advantages
    penalty = f", {chosen.invalid_penalty:g} off for a turn of broken form" if chosen.invalid_penalty else ""
    return f"{chosen.estimator}, scaled by {chosen.scale}, each {chosen.statistics.replace('_', ' ')} counted{penalty}"


def _updates(config: TrainConfig) -> str:
    learner = config.learner
    trained = "all weights" if learner.lora is None else f"adapters of rank {learner.lora.rank}"
    cut = f"{learner.epochs} x {learner.minibatches} optimizer steps"
    optimizer = {"adamw": "AdamW", "muon": "Muon"}[learner.optimizer]
    return f"{cut} of {optimizer}, learning rate {learner.learning_rate:g}, {trained}, {learner.precision} precision"


def _skills(config: TrainConfig) -> str:
    use = config.skills
    if use is None:
        return f"none; {config.teacher} is the teacher" if config.teacher else ""
    grown = f", grown every {use.grow_every} steps" if use.grow_every else ""
    return f"bank {use.bank}, retrieval {use.retrieval}, read by {' and '.join(use.readers)}{grown}"


def _tests(config: TrainConfig) -> str:
    test = config.evaluation
    if not test.every:
        return "none"
    count = "all" if test.episodes is None else str(test.episodes)
    return f"every {test.every} steps, {count} held-out tasks, temperature {test.sampling.temperature:g}"
