"""SDAR in TRL: `GRPOTrainer` with one more term."""

from typing import Any

import torch

from agentgym_tok.errors import ConfigError
from agentgym_tok.learner.adapters.packages import imported
from agentgym_tok.learner.losses import gap, gate, sdar_loss

__all__ = ["SDARTrainer"]


_GRPOTrainer: Any = imported("trl", "pip install trl==1.16.0").GRPOTrainer


class SDARTrainer(_GRPOTrainer):  # type: ignore[misc]
    """Train GRPO and SDAR on rollouts of `rollout_func(play, teach)`.

    The teacher is the model itself before the update: it scores the very completions after prompts with skills, once
    for each generation batch. The term is the mean over the batch's trained tokens, as TRL's `dapo` loss is,
    whatever the `loss_type`. A completion without a teacher is not in it.

    Args:
        args: As for `GRPOTrainer`.
        sdar_coefficient: Lambda.
        sdar_beta: Sharpness of the gate.
        kwargs: As for `GRPOTrainer`.
    """

    def __init__(self, *args: Any, sdar_coefficient: float = 0.01, sdar_beta: float = 5.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sdar_coefficient, self._sdar_beta = sdar_coefficient, sdar_beta
        self._scored: torch.Tensor | None = None

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if any("teacher_prompt_ids" not in one for one in inputs):
            fix = "make it by rollout_func(play, teach)"
            raise ConfigError("the rollouts have no teachers", where="SDARTrainer, rollout_func", fix=fix)
        completions, mask = output["completion_ids"], output["completion_mask"]
        has_teacher = torch.tensor([[bool(one["teacher_prompt_ids"])] for one in inputs], device=mask.device)
        pad = self._tokenizer.pad_token_id
        prompts: list[list[int]] = [one["teacher_prompt_ids"] or [pad] for one in inputs]
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), pad, device=mask.device)
        attention = torch.zeros_like(ids)
        for place, prompt in enumerate(prompts):
            ids[place, width - len(prompt) :] = torch.tensor(prompt, device=mask.device)
            attention[place, width - len(prompt) :] = 1
        with torch.no_grad():
            scores, *_ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([ids, completions], 1),
                torch.cat([attention, mask], 1),
                completions.size(1),
                self.args.per_device_train_batch_size,
            )
        output["teacher_per_token_logps"] = scores
        output["teacher_mask"] = mask * has_teacher
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._scored = found[0]
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        loss = super()._compute_loss(model, inputs)
        student, self._scored = self._scored, None
        teacher = inputs["teacher_per_token_logps"]
        assert student is not None  # the loss has just asked for it
        mask = inputs["teacher_mask"] * inputs.get("tool_mask", 1) > 0
        total = inputs["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        mode = "train" if self.model.training else "eval"
        if mode == "train":
            total = total * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        term = torch.where(mask, sdar_loss(student, teacher, beta=self._sdar_beta), 0).sum() / total
        self._note(mode, gap(teacher, student)[mask])
        return loss + self._sdar_coefficient * term

    def _note(self, mode: str, gaps: torch.Tensor) -> None:
        gates = gate(gaps, beta=self._sdar_beta)
        for name, values in (("teacher_gap", gaps), ("gate", gates), ("gate_active", (gates > 0.5).float())):
            mean = values.mean() if len(values) else torch.zeros((), device=gaps.device)
            self._metrics[mode][f"sdar/{name}"].append(self.accelerator.gather(mean).mean().item())
