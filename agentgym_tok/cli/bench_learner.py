"""`agentgym-tok bench learner`: an update of a group with a long prompt, beside padded ones of the same loss."""

import multiprocessing
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import report
from agentgym_tok.config import Config
from agentgym_tok.errors import MissingExtra
from agentgym_tok.trace import Row

__all__ = ["Options", "run"]

Side: TypeAlias = Literal["packed", "padded", "trl"]

_RATE = 1e-6
_GRADIENTS = "gradients.npz"


class Options(Config):
    """Measure one update of a small Qwen2 on the CPU: a group of rollouts, one prompt, DAPO's loss.

    `packed` is `TorchLearner`. `padded` has the rows side by side in the model's own forward pass, and its head at the
    trained tokens alone. `trl` is the loss of TRL's own GRPOTrainer on the same padded rows, where trl can be imported;
    on a CPU its head scores every place. All rows are equally long, so that nobody computes padding. Each side has a
    process and a model of its own; it is timed in seconds of the process's CPU time, on one thread, and its memory is
    what the first update added to the most that the process had before.
    """

    group: int = Field(default=8, ge=2, description="rollouts")
    prompt: int = Field(default=2000, ge=1, description="tokens of the prompt that they share")
    new: int = Field(default=300, ge=10, description="tokens of each rollout behind it, a third of them the world's")
    turns: int = Field(default=5, ge=1, description="turns of each rollout")
    updates: int = Field(default=3, ge=1, description="updates that are timed, after one that is not")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0.

    Raises:
        MissingExtra: torch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtra("learners need torch", where="bench learner", fix='pip install "agentgym-tok[torch]"')
    has_trl = find_spec("trl") is not None and find_spec("accelerate") is not None
    sides: list[Side] = ["packed", "padded", *(("trl",) if has_trl else ())]
    tokens = options.group * (options.prompt + options.new)
    figures: dict[str, float] = {"tokens of an update": tokens}
    gradients: dict[Side, NDArray[np.float32]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for side in sides:
            # Spawned: the most memory of a process is never less than that of the one it was forked from.
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                measured = pool.apply(_measure, (side, options, folder))
            figures |= {f"{name}, {side}": value for name, value in measured.items()}
            with np.load(Path(folder) / _GRADIENTS) as saved:
                gradients[side] = np.concatenate([saved[name].ravel() for name in sorted(saved)])
    for other in sides[1:]:
        gap = float(np.linalg.norm(gradients["packed"] - gradients[other]) / np.linalg.norm(gradients[other]))
        figures[f"gradients, relative gap to {other}"] = gap
        figures[f"tokens/s, times those of {other}"] = figures["tokens/s, packed"] / figures[f"tokens/s, {other}"]
    report("learner, CPU time", figures, options, options.out)
    if not has_trl:
        print("trl and accelerate cannot be imported here: nothing was measured of them")
    return 0


def _measure(side: Side, options: Options, folder: str) -> dict[str, float]:
    """Measure a side in a process of its own, and leave its gradients in the folder."""
    import torch  # noqa: PLC0415  # heavy
    import transformers  # noqa: PLC0415  # heavy

    torch.set_num_threads(1)
    torch.manual_seed(0)
    chat = ChatFormat.builtin()
    config = transformers.Qwen2Config(
        vocab_size=chat.vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    model = transformers.Qwen2ForCausalLM(config)
    rows = _rows(options, chat.vocab_size)
    make = {"packed": _packed, "padded": _padded, "trl": _trl}[side]
    gradients, update = make(model, chat, rows)
    before = _memory_mb()
    gradients()
    named = {name: value.grad.numpy() for name, value in model.named_parameters() if value.grad is not None}
    np.savez(Path(folder) / _GRADIENTS, **named)
    model.zero_grad()
    update()
    spent = [_timed(update) for _ in range(options.updates)]
    tokens = sum(len(row.ids_T) for row in rows)
    return {
        "update, s": float(np.median(spent)),
        "tokens/s": tokens / float(np.median(spent)),
        "memory, MB": _memory_mb() - before,
    }


Work: TypeAlias = tuple[Callable[[], object], Callable[[], object]]
"""What adds gradients to those of a model, and what takes an update."""


def _packed(model: Any, chat: ChatFormat, rows: Sequence[Row]) -> Work:
    from agentgym_tok.learner import Batch  # noqa: PLC0415  # late, as torch is
    from agentgym_tok.learner.losses import OBJECTIVES  # noqa: PLC0415
    from agentgym_tok.learner.torch_learner import TorchConfig, TorchLearner  # noqa: PLC0415

    learner = TorchLearner(model, chat, OBJECTIVES["dapo"], TorchConfig(device="cpu", learning_rate=_RATE))
    return partial(learner.backward, Batch(rows)), partial(learner.update, Batch(rows))


def _padded(model: Any, _: ChatFormat, rows: Sequence[Row]) -> Work:
    import torch  # noqa: PLC0415

    ids_N_T = torch.tensor(np.stack([row.ids_T for row in rows]), dtype=torch.int64)
    mask_N_T = torch.tensor(np.stack([row.mask_T for row in rows]))
    advantage_K = torch.tensor(
        np.concatenate([row.advantage_T[row.mask_T] for row in rows if row.advantage_T is not None])
    )

    def gradients() -> None:
        hidden = model.model(input_ids=ids_N_T, use_cache=False).last_hidden_state
        logits_K_V = model.lm_head(hidden[:, :-1][mask_N_T[:, 1:]])
        logprobs_K = torch.log_softmax(logits_K_V, -1).gather(-1, ids_N_T[mask_N_T][:, None])[:, 0]
        ratio_K = (logprobs_K - logprobs_K.detach()).exp()
        torch.autograd.backward(-(advantage_K * ratio_K).mean())

    return gradients, _stepped(model, gradients)


def _trl(model: Any, _: ChatFormat, rows: Sequence[Row]) -> Work:
    import torch  # noqa: PLC0415

    trl_trainer: Any = import_module("trl.trainer.grpo_trainer").GRPOTrainer
    import_module("trl.trainer.utils").add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    trainer = SimpleNamespace(
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        accelerator=SimpleNamespace(
            num_processes=1,
            is_main_process=False,
            gather=lambda x: x,
            reduce=lambda x, **_: x,
            autocast=nullcontext,
        ),
        model=model,
        loss_type="dapo",
        importance_sampling_level="token",
        beta=0.0,
        epsilon_low=0.2,
        epsilon_high=0.28,
        max_completion_length=None,
        current_gradient_accumulation_steps=1,
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        _entropy_bonus_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
    )
    trainer._get_per_token_logps_and_entropies = partial(trl_trainer._get_per_token_logps_and_entropies, trainer)
    first = int(np.flatnonzero(rows[0].mask_T)[0])
    ids_N_T = torch.tensor(np.stack([row.ids_T for row in rows]), dtype=torch.int64)
    mask_N_T = torch.tensor(np.stack([row.mask_T for row in rows]))[:, first:]
    inputs = {
        "prompt_ids": ids_N_T[:, :first],
        "prompt_mask": torch.ones_like(ids_N_T[:, :first]),
        "completion_ids": ids_N_T[:, first:],
        "completion_mask": torch.ones_like(ids_N_T[:, first:]),
        "tool_mask": mask_N_T.long(),
        "advantages": torch.tensor([row.advantage_T[first] for row in rows if row.advantage_T is not None]),
        "num_items_in_batch": mask_N_T.sum(),
    }

    def gradients() -> None:
        torch.autograd.backward(trl_trainer._compute_loss(trainer, model, inputs))

    return gradients, _stepped(model, gradients)


def _stepped(model: Any, gradients: Callable[[], None]) -> Callable[[], None]:
    """Return what takes a whole update with these gradients."""
    import torch  # noqa: PLC0415

    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)

    def update() -> None:
        gradients()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def _rows(options: Options, vocab_size: int) -> list[Row]:
    """Draw a group of rollouts that share a prompt; of each turn's tokens the last third is the world's."""
    draw = np.random.default_rng(0)
    length = options.prompt + options.new
    prompt_T = draw.integers(vocab_size, size=options.prompt)
    turn_T = np.concatenate((np.full(options.prompt, -1), np.arange(options.new) * options.turns // options.new))
    for turn in range(options.turns):
        places = np.flatnonzero(turn_T == turn)
        turn_T[places[len(places) * 2 // 3 :]] = -1
    mask_T = turn_T >= 0
    return [
        Row(
            ids_T=np.concatenate((prompt_T, draw.integers(vocab_size, size=options.new))).astype(np.int32),
            mask_T=mask_T,
            logprobs_T=np.where(mask_T, -8.0, 0.0).astype(np.float32),
            version_T=np.where(mask_T, 0, -1).astype(np.int32),
            turn_T=turn_T.astype(np.int32),
            temperature_T=np.ones(length, np.float32),
            advantage_T=np.where(mask_T, draw.normal(), 0.0).astype(np.float32),
            reward=0.0,
            turn_rewards_N=np.zeros(options.turns),
            anchor_N=("",) * options.turns,
            valid_N=np.ones(options.turns, np.int8),
            rollout_id=f"rollout {index}",
            group_id="group",
            task="task",
            parent_rollout=None,
            weight=1.0,
            status="done",
            versions=("0",),
        )
        for index in range(options.group)
    ]


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _memory_mb() -> float:
    """Return the most memory that this process ever had; nan where the system does not tell."""
    try:
        import resource  # noqa: PLC0415  # not everywhere
    except ImportError:
        return float("nan")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
