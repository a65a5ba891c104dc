"""`agentgym-tok bench weights`: how little of a model's weights a training step changes, and what sending it costs."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import Field
from rich.table import Table

from agentgym_tok.chat import ChatFormat
from agentgym_tok.cli.figures import load_average, write_figures
from agentgym_tok.cli.terminal import show
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.envs.alfworld import ALFWorldEnv
from agentgym_tok.errors import MissingExtra
from agentgym_tok.harness import Harness

if TYPE_CHECKING:
    import torch

__all__ = ["Options", "run"]

_EPISODES = 40
_WARM_UP = 40
_WARM_UP_RATE = 1e-3

T = TypeVar("T")


class Options(Config):
    """Train a model for a few steps, and send each step's change of its bfloat16 weights to a receiver.

    The weights that are trained are float32; the receiver holds them rounded to bfloat16. Each step is one of AdamW,
    on the loss of expert episodes of ALFWorld as the chat format renders them. The optimizer has settled for as many
    steps before the first that is measured: AdamW's very first steps move every weight by the whole learning rate.
    Without `--model` the model is a small Qwen2, first trained for a while from random weights.
    """

    model: str | None = Field(default=None, description="a model's folder, with its tokenizer; a small one without it")
    learning_rates: list[float] = Field(default=[1e-6, 1e-5], description="measured one after the other")
    steps: int = Field(default=5, ge=1, description="steps of each learning rate")
    rows: int = Field(default=4, ge=1, description="sequences of a step")
    length: int = Field(default=256, ge=2, description="tokens of a sequence")
    out: str | None = Field(default=None, description="file for the figures as JSON")


def run(options: Options) -> int:
    """Measure and print; return 0.

    Raises:
        MissingExtra: torch is not installed.
        PolicyError: A receiver ended with other weights than those that were sent.
    """
    try:
        import torch  # noqa: PLC0415  # heavy
    except ImportError as error:
        raise MissingExtra(
            "training needs torch", where="bench weights", fix='pip install "agentgym-tok[torch]"'
        ) from error
    torch.manual_seed(0)
    chat = chat_format(options.model or "builtin")
    batches = _batches(chat, options)
    load = load_average()
    trained = _model(options.model, chat)
    if options.model is None:
        _train(trained, batches, _WARM_UP_RATE, _WARM_UP)
    start = {name: tensor.detach().clone() for name, tensor in trained.named_parameters()}
    measured: dict[str, dict[str, float]] = {}
    for rate in options.learning_rates:
        with torch.no_grad():
            for name, tensor in trained.named_parameters():
                tensor.copy_(start[name])
        measured[f"learning rate {rate:g}"] = measure(trained, batches, rate, options.steps)
    size = sum(tensor.numel() for tensor in start.values())
    name = Path(options.model).name if options.model else "small Qwen2"
    table = Table(title=f"{name}, {size:,} weights, load {load:.1f}", title_justify="left")
    table.add_column("figure")
    for column in measured:
        table.add_column(column, justify="right")
    for figure in next(iter(measured.values())):
        table.add_row(figure, *(_number(figures[figure]) for figures in measured.values()))
    show(table)
    write_figures(options.out, options, {"load": load, "weights": size, "figures": measured})
    return 0


def measure(model: Any, batches: "Iterator[torch.Tensor]", rate: float, steps: int) -> dict[str, float]:
    """Train, and send each step's change through its bytes.

    Args:
        model: The model with its float32 weights, trained in place.
        batches: int64 [N, T], one for each step.
        rate: Learning rate.
        steps: How many steps are measured, after as many that are not.

    Returns:
        Figures by name.

    Raises:
        PolicyError: The receiver's weights are not those that were sent.
    """
    import torch  # noqa: PLC0415  # heavy

    from agentgym_tok.policies.weights import WeightDelta, apply, delta, digest  # noqa: PLC0415  # imports torch

    def rounded() -> "dict[str, torch.Tensor]":
        return {name: tensor.detach().to(torch.bfloat16, copy=True) for name, tensor in model.named_parameters()}

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    _train(model, batches, rate, steps, optimizer)
    sent = rounded()
    receiver = {name: tensor.clone() for name, tensor in sent.items()}
    shares, sizes, times = [], [], []
    full = sum(tensor.nbytes for tensor in sent.values())
    for _ in range(steps):
        _train(model, batches, rate, 1, optimizer)
        new = rounded()
        change, find_s = _timed(delta, sent, new)
        data, write_s = _timed(change.to_bytes)
        received, read_s = _timed(WeightDelta.from_bytes, data)
        _, apply_s = _timed(apply, receiver, received)
        shares.append(change.changed / change.total)
        sizes.append(len(data))
        times.append((find_s, write_s + read_s, apply_s))
        sent = new
    equal = sum(digest(receiver[name]) == digest(tensor) for name, tensor in sent.items())
    find_s, bytes_s, apply_s = np.mean(times, axis=0).tolist()
    return {
        "changed values a step, %": 100 * float(np.mean(shares)),
        "changed values, least of a step, %": 100 * min(shares),
        "changed values, most of a step, %": 100 * max(shares),
        "change, bytes": float(np.mean(sizes)),
        "whole weights, bytes": full,
        "change, % of the whole": 100 * float(np.mean(sizes)) / full,
        "find the change, s": find_s,
        "to bytes and back, s": bytes_s,
        "apply and prove, s": apply_s,
        "tensors equal at the end, %": 100 * equal / len(sent),
    }


def _train(model: Any, batches: "Iterator[torch.Tensor]", rate: float, steps: int, optimizer: Any = None) -> None:
    import torch  # noqa: PLC0415  # heavy

    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        ids_NT = next(batches)
        loss = model(input_ids=ids_NT, labels=ids_NT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _batches(chat: ChatFormat, options: Options) -> "Iterator[torch.Tensor]":
    """Yield batches of whole rows, episode after episode; the first comes again after the last."""
    import torch  # noqa: PLC0415  # heavy

    harness, env = Harness("expert", chat), ALFWorldEnv(chat, split="train")
    size = options.rows * options.length
    left_T = np.zeros(0, dtype=np.int64)
    for index in itertools.count():
        last = harness.run(env, task=index % _EPISODES).turns[-1]
        left_T = np.concatenate([left_T, last.context.ids, last.completion.ids_T])
        while len(left_T) >= size:
            batch_T, left_T = left_T[:size], left_T[size:]
            yield torch.from_numpy(batch_T.reshape(options.rows, options.length))


def _model(path: str | None, chat: ChatFormat) -> Any:
    import torch  # noqa: PLC0415  # heavy
    import transformers  # noqa: PLC0415

    if path is not None:
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    config = transformers.Qwen2Config(
        vocab_size=chat.vocab_size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.Qwen2ForCausalLM(config)


def _timed(work: Callable[..., T], *given: Any) -> tuple[T, float]:
    start = time.perf_counter()
    return work(*given), time.perf_counter() - start


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
