"""Record what TRL and verl compute on random batches, for the tests that run without them.

    python scripts/record_loss_vectors.py [--out FILE] [--seeds 1 2]     # where one of them, or both, can be imported

Each record holds the loss and its gradient by the log-probabilities of a padded batch, or advantages, in double
precision, and `config`: the same in our own options. What was recorded of a package that cannot be imported here stays
as it was. The packages are imported late, and nothing of ours is.
"""

# ruff: noqa: PLC0415

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

FILE = Path(__file__).resolve().parents[1] / "tests" / "learner" / "losses" / "vectors" / "packages.json"

ROWS, WIDTH = 6, 7
Case = tuple[str, Mapping[str, Any], Callable[["Batch"], Any]]
"""A name, our configuration, and what makes the package's loss of a batch."""


class Batch:
    """Hold a padded batch in which ratios lie on both sides of all clips, and every row trains something."""

    def __init__(self, seed: int) -> None:
        draw = np.random.default_rng(seed)
        self.mask = draw.random((ROWS, WIDTH)) < 0.7
        self.mask[:, 0] = True
        self.logprobs = -0.1 - np.abs(draw.normal(size=(ROWS, WIDTH)))
        self.old = self.logprobs + 0.3 * draw.normal(size=(ROWS, WIDTH))
        self.reference = self.logprobs + 0.3 * draw.normal(size=(ROWS, WIDTH))
        self.rollout = self.old + 0.5 * draw.normal(size=(ROWS, WIDTH))
        self.advantages = draw.normal(size=ROWS) * 1.5

    def tensors(self) -> SimpleNamespace:
        """Return everything as tensors, the log-probabilities with a gradient."""
        made = SimpleNamespace(**{name: torch.tensor(value) for name, value in vars(self).items()})
        made.logprobs.requires_grad_()
        made.mask = made.mask.double()
        return made

    def plain(self) -> dict[str, Any]:
        """Return everything as lists."""
        return {name: value.tolist() for name, value in vars(self).items()}


def trl_cases() -> Sequence[Case]:
    """Return the losses of TRL's GRPOTrainer."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    def case(ours: Mapping[str, Any], *, level: str = "token", **options: Any) -> Callable[[Any], Any]:
        def loss(batch: Any) -> Any:
            args = SimpleNamespace(delta=options.get("delta"), use_bias_correction_kl=False, steps_per_generation=1)
            accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x)
            trainer = SimpleNamespace(
                args=args,
                accelerator=accelerator,
                model=SimpleNamespace(training=True),
                loss_type=options["loss_type"],
                importance_sampling_level=level,
                beta=ours.get("kl_coefficient", 0.0),
                epsilon_low=options.get("epsilon_low", 0.2),
                epsilon_high=options.get("epsilon_high", 0.2),
                max_completion_length=ours.get("horizon"),
                current_gradient_accumulation_steps=1,
                aux_loss_enabled=False,
                top_entropy_quantile=1.0,
                off_policy_mask_threshold=None,
                use_vllm=False,
                vllm_importance_sampling_correction=False,
                _entropy_bonus_enabled=False,
                _metrics=defaultdict(lambda: defaultdict(list)),
                _get_per_token_logps_and_entropies=lambda *_, **__: (
                    batch.logprobs,
                    torch.zeros_like(batch.logprobs),
                    None,
                ),
            )
            nothing = torch.zeros((ROWS, 0), dtype=torch.int64)
            inputs = {
                "prompt_ids": nothing,
                "prompt_mask": nothing,
                "completion_ids": torch.zeros((ROWS, WIDTH), dtype=torch.int64),
                "completion_mask": batch.mask,
                "advantages": batch.advantages,
                "old_per_token_logps": batch.old,
                "ref_per_token_logps": batch.reference,
                "num_items_in_batch": batch.mask.sum(),
            }
            return GRPOTrainer._compute_loss(trainer, None, inputs)

        return loss

    settings: Sequence[tuple[str, dict[str, Any], dict[str, Any]]] = (
        ("dapo", {"clip_high": 0.28}, {"loss_type": "dapo", "epsilon_high": 0.28}),
        ("dapo with KL", {"kl_coefficient": 0.05}, {"loss_type": "dapo"}),
        ("bnpo", {}, {"loss_type": "bnpo"}),
        ("grpo", {"aggregation": "seq-mean-token-mean", "kl_coefficient": 0.04}, {"loss_type": "grpo"}),
        ("dr_grpo", {"aggregation": "seq-mean-token-sum-norm", "horizon": 32}, {"loss_type": "dr_grpo"}),
        (
            "cispo",
            {"policy": "cispo", "clip_low": 1.0, "clip_high": 0.25},
            {"loss_type": "cispo", "epsilon_high": 1.25},
        ),
        (
            "gspo",
            {"policy": "gspo", "aggregation": "seq-mean-token-mean", "clip_low": 0.05, "clip_high": 0.1},
            {"loss_type": "grpo", "level": "sequence", "epsilon_low": 0.05, "epsilon_high": 0.1},
        ),
    )
    return [(name, ours, case(ours, **theirs)) for name, ours, theirs in settings]


def verl_cases() -> Sequence[Case]:
    """Return the losses of verl's core_algos."""
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
    from verl.workers.config import ActorConfig

    def case(ours: Mapping[str, Any], name: str, weigh: str | None) -> Callable[[Any], Any]:
        how = ours.get("aggregation", "token-mean")
        config = ActorConfig(
            strategy="fsdp",
            rollout_n=1,
            ppo_micro_batch_size_per_gpu=1,
            clip_ratio_low=ours.get("clip_low", 0.2),
            clip_ratio_high=ours.get("clip_high", 0.2),
            # Without a dual clip: beyond any loss.
            clip_ratio_c=ours.get("dual_clip") or 1e9,
            loss_scale_factor=ours.get("horizon"),
        )
        config.global_batch_info["loss_scale_factor"] = ours.get("horizon")

        def loss(batch: Any) -> Any:
            weights = None
            if weigh:
                difference = (batch.old - batch.rollout).detach()
                weights, _ = compute_rollout_correction_weights(difference, batch.mask, weigh, 2.0)
            advantages = batch.advantages[:, None] * batch.mask
            run = get_policy_loss_fn(name)
            total, _ = run(batch.old, batch.logprobs, advantages, batch.mask, how, config, weights)
            if coefficient := ours.get("kl_coefficient"):
                theirs = {"k3": "low_var_kl"}.get(ours.get("kl", "k3"), ours.get("kl"))
                kl = kl_penalty(batch.logprobs, batch.reference, theirs)
                total = total + coefficient * agg_loss(kl, batch.mask, how, loss_scale_factor=ours.get("horizon"))
            return total

        return loss

    truncate = ({"rule": "token_truncate", "high": 2.0},)
    whole = ({"rule": "sequence_truncate", "high": 2.0},)
    gspo = {"policy": "gspo", "clip_low": 0.05, "clip_high": 0.1}
    settings: Sequence[tuple[str, dict[str, Any], str, str | None]] = (
        ("token-mean, dual clip", {"dual_clip": 1.3}, "vanilla", None),
        ("token-mean, KL", {"dual_clip": 3.0, "kl_coefficient": 0.01}, "vanilla", None),
        ("token-mean, k1", {"dual_clip": 3.0, "kl_coefficient": 0.1, "kl": "k1"}, "vanilla", None),
        ("token-mean, k2", {"dual_clip": 3.0, "kl_coefficient": 0.1, "kl": "k2"}, "vanilla", None),
        ("token-mean, k1+", {"dual_clip": 3.0, "kl_coefficient": 0.1, "kl": "k1+"}, "vanilla", None),
        ("token-mean, k3+", {"dual_clip": 3.0, "kl_coefficient": 0.1, "kl": "k3+"}, "vanilla", None),
        ("clip-higher", {"clip_high": 0.28, "dual_clip": 10.0}, "vanilla", None),
        ("seq-mean-token-sum", {"aggregation": "seq-mean-token-sum", "dual_clip": 3.0}, "vanilla", None),
        (
            "seq-mean-token-sum-norm",
            {"aggregation": "seq-mean-token-sum-norm", "horizon": 32, "dual_clip": 3.0},
            "vanilla",
            None,
        ),
        ("token TIS", {"dual_clip": 3.0, "importance": truncate}, "vanilla", "token"),
        ("sequence TIS", {"dual_clip": 3.0, "importance": whole}, "vanilla", "sequence"),
        ("gspo", {**gspo, "aggregation": "seq-mean-token-mean"}, "gspo", None),
        ("gspo, token-mean", gspo, "gspo", None),
        ("cispo", {"policy": "cispo", "clip_low": 0.1, "clip_high": 0.25}, "cispo", None),
    )
    return [(name, ours, case(ours, theirs, weigh)) for name, ours, theirs, weigh in settings]


def verl_advantages(seed: int) -> list[dict[str, Any]]:
    """Return the advantages that verl gives to rollouts of several groups, one of them of a single rollout."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo import core_algos

    draw = np.random.default_rng(seed)
    group = np.array([0, 0, 0, 1, 1, 2])
    batch = Batch(seed)
    rewards = np.zeros((ROWS, WIDTH))
    last = [np.flatnonzero(row)[-1] for row in batch.mask]
    rewards[np.arange(ROWS), last] = np.round(draw.normal(size=ROWS), 2)
    config = OmegaConf.create({"gamma": 0.9})
    records = []
    for name, options in (
        ("grpo", {}),
        ("grpo", {"norm_adv_by_std_in_grpo": False}),
        ("rloo", {}),
        ("reinforce_plus_plus", {}),
        ("reinforce_plus_plus_baseline", {}),
    ):
        run = core_algos.get_adv_estimator_fn(name)
        mask = torch.tensor(batch.mask).double()
        found, _ = run(
            token_level_rewards=torch.tensor(rewards), response_mask=mask, index=group, config=config, **options
        )
        records.append(
            {"name": name, "options": options, "group": group.tolist(), "mask": batch.mask.tolist(), "gamma": 0.9}
            | {"rewards": rewards.tolist(), "advantages": found.tolist()}
        )
    return records


def record(package: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Let one package compute all its cases on all batches."""
    cases = {"trl": trl_cases, "verl": verl_cases}[package]()
    losses = []
    for seed in seeds:
        for name, ours, loss in cases:
            batch = Batch(seed)
            tensors = batch.tensors()
            total = loss(tensors)
            total.backward()
            losses.append(
                {"name": name, "seed": seed, "config": ours, "loss": total.item()}
                | {"gradient": tensors.logprobs.grad.tolist()}
            )
    found: dict[str, Any] = {"version": metadata.version(package), "losses": losses}
    if package == "verl":
        found["advantages"] = [one for seed in seeds for one in verl_advantages(seed)]
    return found


def main() -> None:
    """Record every package that is here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    known = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    packages = known.get("packages", {})
    for package in ("trl", "verl"):
        try:
            packages[package] = record(package, options.seeds)
        except ImportError as error:
            print(f"{package} is left as it is: {error}")
            continue
        print(f"{package} {packages[package]['version']}: {len(packages[package]['losses'])} losses")
    batches = known.get("batches", {}) | {str(seed): Batch(seed).plain() for seed in options.seeds}
    written = {"made_by": "scripts/record_loss_vectors.py", "batches": batches, "packages": packages}
    options.out.write_text(json.dumps(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
