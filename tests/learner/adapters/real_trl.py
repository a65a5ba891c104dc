"""TRL's own trainers on rollouts: a small random model with the builtin format's ids, on the CPU."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import fixed
import torch
import transformers

from agentgym_tok.learner.adapters.trl import Teach, rollout_func, trace_reward
from agentgym_tok.learner.teacher import TeacherConfig, teacher_contexts

SKILLS = "What has helped:\n- Look first.\n- Then walk."
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def model_of(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=fixed.CHAT.vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2ForCausalLM(config)


def tokenizer_of() -> Any:
    path = resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json"
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(path))
    stop = fixed.CHAT.decode([fixed.CHAT.stop_ids[0]])
    tokenizer.pad_token = tokenizer.eos_token = stop  # a pad that equals the end of turns must fool no mask
    return tokenizer


def trainer_of(play: Callable[..., Any], teach: Teach | None = None, kind: Any = None, **options: Any) -> Any:
    """Return a trainer of four rollouts a step, in two groups."""
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=options.pop("per_device_train_batch_size", 4),
        gradient_accumulation_steps=options.pop("gradient_accumulation_steps", 1),
        num_generations=2,
        max_completion_length=128,
        max_steps=1,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        bf16=False,
        shuffle_dataset=False,
        logging_steps=1,
        seed=1,
    )
    return (kind or GRPOTrainer)(
        model=model_of(),
        reward_funcs=trace_reward,
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["task a", "task b"]}),
        processing_class=tokenizer_of(),
        rollout_func=rollout_func(play, teach),
        **options,
    )


def grpo_step() -> dict[str, Any]:
    """Train one step of GRPO."""
    trainer = trainer_of(lambda prompts, _: fixed.simple())
    before = weights(trainer.model)
    result = trainer.train()
    return {
        "prompts": 4,
        "loss": result.training_loss,
        "reward": trainer.state.log_history[0]["reward"],
        "moved": float((weights(trainer.model) - before).abs().max()),
    }


def sdar_step() -> dict[str, Any]:
    """Train one step of SDAR."""
    from agentgym_tok.learner.adapters.trl_sdar import SDARTrainer

    trainer = trainer_of(lambda prompts, _: fixed.simple(), teach, SDARTrainer)
    before = weights(trainer.model)
    result = trainer.train()
    logged = trainer.state.log_history[0]
    return {
        "loss": result.training_loss,
        "moved": float((weights(trainer.model) - before).abs().max()),
        "figures": {name: value for name, value in logged.items() if name.startswith("sdar/")},
    }


def sdar_batch() -> dict[str, Any]:
    """Compare the term with a plain forward pass over the teachers' sequences, and with its parts."""
    from agentgym_tok.learner.adapters.trl_sdar import SDARTrainer

    trainer = trainer_of(lambda prompts, _: fixed.simple(), teach, SDARTrainer, sdar_coefficient=0.5)
    batch = batch_of(trainer)
    rows = [row for episode in fixed.simple() for row in fixed.rows(episode)]
    contexts = [teach(episode, fixed.rows(episode))[0] for episode in fixed.simple()]
    teacher = [by_hand(trainer.model, context.ids_S, context.mask_S) for context in contexts]
    student = [by_hand(trainer.model, row.ids_T, row.mask_T) for row in rows]
    trained = (batch["tool_mask"] * batch["completion_mask"]) == 1
    differences = [
        (batch["teacher_per_token_logps"][place][trained[place]] - teacher[place]).abs().max().item()
        for place in range(4)
    ]
    gaps = torch.cat(teacher) - torch.cat(student)
    term = (torch.sigmoid(5 * gaps) * gaps).mean().item()
    loss = trainer._compute_loss(trainer.model, batch)
    loss.backward()
    gradient = gradients(trainer.model)
    trainer.model.zero_grad()
    trainer._sdar_coefficient = 0.0
    policy = trainer._compute_loss(trainer.model, batch)
    trainer._sdar_coefficient = 0.5
    # Micro-batches of two rows: their losses and gradients add up to those of the whole.
    trainer.model.zero_grad()
    trainer.args.per_device_train_batch_size, trainer.args.steps_per_generation = 2, 2
    trainer.current_gradient_accumulation_steps = 2
    halves = [
        {name: tensor[part] if tensor.dim() else tensor for name, tensor in batch.items()}
        for part in (slice(0, 2), slice(2, 4))
    ]
    parts = [trainer._compute_loss(trainer.model, half) for half in halves]
    sum(parts).backward()
    return {
        "teacher_difference": max(differences),
        "gap": float(gaps.abs().max()),
        "term": term,
        "found": (loss - policy).item() / 0.5,
        "halves": abs(float(sum(parts)) - loss.item()),
        "gradient_halves": float((gradients(trainer.model) - gradient).abs().max()),
        "gradient": float(gradient.abs().max()),
    }


def sdar_without() -> dict[str, Any]:
    """Look at teachers without skills, and at rollouts without teachers."""
    from agentgym_tok.errors import ConfigError
    from agentgym_tok.learner.adapters.trl_sdar import SDARTrainer

    def empty(episode: Any, rows: Any) -> Any:
        return teacher_contexts(episode, rows, "", fixed.CHAT)

    def refused(episode: Any, rows: Any) -> Any:
        return teacher_contexts(episode, rows, SKILLS, fixed.CHAT, TeacherConfig(max_tokens=1))

    def term_of(teach: Any) -> float:
        trainer = trainer_of(lambda prompts, _: fixed.simple(), teach, SDARTrainer, sdar_coefficient=1.0)
        batch = batch_of(trainer)
        loss = trainer._compute_loss(trainer.model, batch)
        trainer._sdar_coefficient = 0.0
        return float(loss - trainer._compute_loss(trainer.model, batch))

    try:
        batch_of(trainer_of(lambda prompts, _: fixed.simple(), None, SDARTrainer))
        said = ""
    except ConfigError as error:
        said = str(error)
    return {"empty": term_of(empty), "refused": term_of(refused), "said": said}


def batch_of(trainer: Any) -> Any:
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer._generate_and_score_completions([{"prompt": task} for task in fixed.TASKS])


def by_hand(model: Any, ids: Any, mask: Any) -> torch.Tensor:
    """Score trained ids with one plain forward pass, without padding."""
    with torch.no_grad():
        logits = model(torch.tensor(ids[None].astype("int64"))).logits[0].float()
    logprobs = torch.log_softmax(logits, -1)
    places = torch.tensor(mask).nonzero()[:, 0]
    return logprobs[places - 1, torch.tensor(ids.astype("int64"))[places]]


def weights(model: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def gradients(model: Any) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


def teach(episode: Any, rows: Any) -> Any:
    return teacher_contexts(episode, rows, SKILLS, fixed.CHAT)


if __name__ == "__main__":
    steps = (grpo_step, sdar_step, sdar_batch, sdar_without)
    Path(sys.argv[1]).write_text(json.dumps({step.__name__: step() for step in steps}), encoding="utf-8")
