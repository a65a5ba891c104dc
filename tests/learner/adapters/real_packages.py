"""Build the fixed rows' objects by the trainers' own classes, and write down what those classes make of them.

    python tests/learner/adapters/real_packages.py tinker verl ... --out FOLDER

What `vectors/` holds was written by this; `test_real_packages.py` runs it again where a package can be imported.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import fixed

from agentgym_tok.learner.adapters import prime_rl, skyrl, tinker, trl, verl


def plain(tensor: Any) -> dict[str, Any]:
    """Return a tensor's or array's dtype and values."""
    array = np.asarray(tensor)
    return {"dtype": str(array.dtype), "values": array.tolist()}


def record_tinker() -> dict[str, Any]:
    data = [tinker.datum(row, mask=True) for row in fixed.with_advantages(fixed.rich())]
    return {
        "version": version("tinker"),
        "data": [
            {
                "model_input": datum.model_input.to_ints(),
                "length": datum.model_input.length,
                "loss_fn_inputs": {
                    name: {"dtype": tensor.dtype, "shape": tensor.shape, "values": tensor.data}
                    for name, tensor in datum.loss_fn_inputs.items()
                },
            }
            for datum in data
        ],
    }


def record_verl() -> dict[str, Any]:
    from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
    from verl.trainer.ppo import core_algos

    rows = fixed.with_advantages(fixed.rich())
    proto = verl.data_proto(rows, prompt_length=40, response_length=90, pad_id=fixed.CHAT.stop_ids[0])
    proto.check_consistency()
    batch = proto.batch
    loss, figures = core_algos.get_policy_loss_fn("vanilla")(
        old_log_prob=batch["rollout_log_probs"],
        log_prob=batch["rollout_log_probs"] + 0.125,
        advantages=batch["advantages"],
        response_mask=batch["response_mask"],
        config=_actor_config(),
    )
    single = [row for episode in fixed.simple() for row in fixed.rows(episode)]
    bare = verl.data_proto(single)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(
        bare.batch["token_level_rewards"], bare.batch["response_mask"], bare.non_tensor_batch["uid"]
    )
    outputs = [verl.agent_loop_output(row) for row in single]
    return {
        "version": version("verl"),
        "agent_loop_fields": sorted(AgentLoopOutput.model_fields),
        "agent_loop": [
            {name: plain(value) for name, value in output.as_dict().items() if hasattr(value, "dtype")}
            for output in outputs
        ],
        "batch": {name: plain(tensor) for name, tensor in sorted(batch.items())},
        "non_tensor_batch": {name: array.tolist() for name, array in sorted(proto.non_tensor_batch.items())},
        "meta_info": proto.meta_info,
        "policy_loss": float(loss),
        "ppo_kl": figures["actor/ppo_kl"],
        "grpo_advantages": plain(advantages),
    }


def _actor_config() -> Any:
    from verl.workers.config import ActorConfig

    return ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=1)


def record_skyrl() -> dict[str, Any]:
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict  # its classes ask for Python 3.12, or for these
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
    from skyrl.train.generators.base import GeneratorOutput
    from skyrl.train.utils.trainer_utils import validate_generator_output

    output = skyrl.generator_output(fixed.with_advantages(fixed.rich()))
    validate_generator_output(4, output, step_wise=True)
    pad = type("Pad", (), {"pad_token_id": fixed.CHAT.stop_ids[0]})
    rewards = [
        [0.0] * (len(ids) - 1) + [reward] for ids, reward in zip(output["response_ids"], output["rewards"], strict=True)
    ]
    tensors = convert_prompts_responses_to_batch_tensors(
        pad,
        output["prompt_token_ids"],
        output["response_ids"],
        rewards,
        output["loss_masks"],
        output["rollout_logprobs"],
    )
    names = ("sequences", "attention_mask", "action_mask", "rewards", "loss_masks", "logprobs")
    return {
        "version": version("skyrl"),
        "fields": sorted(GeneratorOutput.__annotations__),
        "trajectories": [one.to_string() for one in output["trajectory_ids"]],
        "tensors": {name: plain(tensor) for name, tensor in zip(names, tensors, strict=False)},
    }


def record_prime_rl() -> dict[str, Any]:
    import msgspec
    from prime_rl.transports.rollouts.types import TrainingSample

    samples = [prime_rl.training_sample(row, env_name="world") for row in fixed.with_advantages(fixed.rich())]
    wire = msgspec.msgpack.encode(samples)
    assert msgspec.msgpack.decode(wire, type=list[TrainingSample]) == samples
    fields = msgspec.structs.fields(TrainingSample)
    return {
        "version": "0.8.0",
        "commit": "559b44772e471d1538537b8805cc77f3824a5e64",
        "fields": [[field.name, str(field.type), field.required] for field in fields],
        "samples": [msgspec.to_builtins(sample) for sample in samples],
    }


def record_trl() -> dict[str, Any]:
    import torch
    from real_trl import trainer_of

    episodes = fixed.simple()
    trainer = trainer_of(lambda prompts, _: episodes)
    inputs = [{"prompt": task} for task in fixed.TASKS]
    output = trainer._generate_and_score_completions(inputs)
    return {
        "version": version("trl"),
        "batch": {
            name: plain(tensor)
            for name, tensor in sorted(output.items())
            if isinstance(tensor, torch.Tensor) and not name.startswith("old")
        },
        "fields": sorted(trl.rollout_fields(episodes)),
    }


PACKAGES: dict[str, Callable[[], dict[str, Any]]] = {
    "tinker": record_tinker,
    "verl": record_verl,
    "skyrl": record_skyrl,
    "prime_rl": record_prime_rl,
    "trl": record_trl,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.packages:
        found = PACKAGES[name]()
        (given.out / f"{name}.json").write_text(json.dumps(found, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
