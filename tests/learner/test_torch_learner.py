"""An update is that of its rows, one by one; no cut, order or shared prefix is in its loss or gradients."""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from row_groups import VOCAB, make_group, make_row  # noqa: E402

from agentgym_tok import ChatFormat, Sampling  # noqa: E402
from agentgym_tok.errors import ConfigError, DataMissing, InvalidIds, InvalidLogprobs  # noqa: E402
from agentgym_tok.learner import Batch, Learner  # noqa: E402
from agentgym_tok.learner.losses import OBJECTIVES, Importance, Layout, LossConfig, Scores, total_loss  # noqa: E402
from agentgym_tok.learner.teacher import TeacherContext, TeacherRefusal  # noqa: E402
from agentgym_tok.learner.torch_learner import LoraConfig, TorchConfig, TorchLearner  # noqa: E402
from agentgym_tok.policies.hf import HFPolicy  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402
from agentgym_tok.trace import Row  # noqa: E402
from agentgym_tok.types import ScoreRequest, Support  # noqa: E402

CHAT = ChatFormat.builtin()
ALL = {name: loss.model_copy(update={"horizon": 16}) for name, loss in OBJECTIVES.items()}
"""Dr.GRPO needs a horizon; the others do not look at it."""
EVERYTHING = OBJECTIVES["sdar"].model_copy(
    update={"kl_coefficient": 0.3, "distillation_coefficient": 0.5, "entropy_coefficient": 0.1}
)


def qwen2(seed: int = 0, *, double: bool = True) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    config.initializer_range = 0.3  # so that tokens are not all alike
    model = transformers.Qwen2ForCausalLM(config).eval()
    if not double:
        return model
    for name, module in list(model.named_modules()):
        if name.endswith("norm"):  # transformers' own computes in float32, whatever the dtype
            model.set_submodule(name, torch.nn.RMSNorm(16, eps=module.variance_epsilon))
    return model.double()


def contexts(rows: Sequence[Row], seed: int = 5) -> list[TeacherContext | TeacherRefusal | None]:
    """Give each row a teacher with three more ids, but for one that has none."""
    draw = np.random.default_rng(seed)
    made = [TeacherContext.of(row, 2, as_ids(draw.integers(VOCAB, size=3))) for row in rows]
    return [*made[:-1], TeacherRefusal(rows[-1].rollout_id, "no_room")]


def others(rows: Sequence[Row], seed: int) -> list[np.ndarray[Any, Any]]:
    """Return log-probabilities that somebody else gave, near those of the rows."""
    draw = np.random.default_rng(seed)
    return [np.where(row.mask_T, row.logprobs_T + draw.normal(size=len(row.ids_T)) / 3, np.nan) for row in rows]


def plain(model: Any, row: Row, ids: Any = None) -> tuple[Any, Any]:
    """Return the model's own log-probabilities and entropies of a row's trained tokens, in its own forward pass."""
    ids_T = row.ids_T if ids is None else ids
    shift = len(ids_T) - len(row.ids_T)
    logits = model(input_ids=torch.tensor(ids_T[None].astype(np.int64)), use_cache=False).logits[0]
    logprobs, entropies = [], []
    for place in np.flatnonzero(row.mask_T).tolist():
        p = torch.log_softmax(logits[place + shift - 1] / float(row.temperature_T[place]), -1)
        logprobs.append(p[int(row.ids_T[place])])
        entropies.append(-(p.exp() * p).sum())
    return torch.stack(logprobs), torch.stack(entropies)


def gradients(model: Any) -> Any:
    return torch.cat([value.grad.ravel() for value in model.parameters() if value.grad is not None])


def of_update(batch: Batch, loss: LossConfig, *, double: bool = True, **options: Any) -> tuple[float, Any]:
    """Return a learner's loss and gradients."""
    learner = TorchLearner(qwen2(double=double), CHAT, loss, TorchConfig(device="cpu", **options))
    assert learner.packed == options.get("packed", True)
    return learner.backward(batch)["loss"], gradients(learner.model)


def by_hand(batch: Batch, loss: LossConfig) -> tuple[float, Any]:
    """Return the loss and gradients of SDAR, token by token as published, from the model's own forward passes."""
    model = qwen2()
    rows = [(place, row) for place, row in enumerate(batch.rows) if row.weight > 0 and row.mask_T.any()]
    tokens = sum(int(row.mask_T.sum()) for _, row in rows)
    sequences = sum(row.weight for _, row in rows)
    total = torch.zeros((), dtype=torch.float64)
    for place, row in rows:
        logprobs, entropies = plain(model, row)
        assert batch.old_logprobs_T is not None
        assert batch.reference_logprobs_T is not None
        assert batch.teachers is not None
        assert row.advantage_T is not None
        old = torch.tensor(batch.old_logprobs_T[place])[row.mask_T]
        reference = torch.tensor(batch.reference_logprobs_T[place])[row.mask_T]
        context = batch.teachers[place]
        teacher = plain(model, row, context.ids_S)[0].detach() if isinstance(context, TeacherContext) else old
        share = 1 / tokens if loss.aggregation == "token-mean" else row.weight / int(row.mask_T.sum()) / sequences
        for k, advantage in enumerate(row.advantage_T[row.mask_T].tolist()):
            ratio = (logprobs[k] - old[k]).exp()
            term = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
            if advantage < 0:
                term = torch.minimum(term, torch.tensor(-3.0 * advantage, dtype=torch.float64))
            x = logprobs[k] - reference[k]
            gap = teacher[k] - logprobs[k]
            gate = torch.sigmoid(5 * gap.detach())
            term = term + loss.kl_coefficient * ((-x).exp() - 1 + x) - loss.entropy_coefficient * entropies[k]
            total = total + share * (term + loss.distillation_coefficient * gate * gap)
    total.backward()
    return total.item(), gradients(model)


@pytest.fixture(scope="module")
def whole() -> Batch:
    rows = make_group()
    return Batch(
        rows,
        teachers=contexts(rows),
        old_logprobs_T=others(rows, 1),
        reference_logprobs_T=others(rows, 2),
    )


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("micro_tokens", [10_000, 25, 1])
@pytest.mark.parametrize("packed", [True, False])
def test_loss_and_gradients_are_those_of_the_rows_one_by_one(
    whole: Batch, aggregation: str, micro_tokens: int, packed: bool
) -> None:
    loss = EVERYTHING.model_copy(update={"aggregation": aggregation})
    expected, slope = by_hand(whole, loss)
    value, found = of_update(whole, loss, micro_tokens=micro_tokens, packed=packed)
    assert value == pytest.approx(expected, abs=1e-10)
    torch.testing.assert_close(found, slope, rtol=0, atol=1e-10)


def test_gradients_in_single_precision_agree_to_four_digits(whole: Batch) -> None:
    expected, slope = by_hand(whole, EVERYTHING)
    value, found = of_update(whole, EVERYTHING, double=False, micro_tokens=40)
    assert value == pytest.approx(expected, rel=1e-4)
    assert float((found - slope).norm() / slope.norm()) < 1e-4


def test_the_order_of_rows_does_not_matter(whole: Batch) -> None:
    order = np.random.default_rng(0).permutation(len(whole.rows)).tolist()
    named = ("rows", "teachers", "old_logprobs_T", "reference_logprobs_T")
    shuffled = Batch(**{name: [getattr(whole, name)[place] for place in order] for name in named})
    value, found = of_update(shuffled, EVERYTHING, micro_tokens=30)
    expected, slope = of_update(whole, EVERYTHING)
    assert value == pytest.approx(expected, abs=1e-10)
    torch.testing.assert_close(found, slope, rtol=0, atol=1e-10)


def test_gradient_checkpointing_and_pieces_of_logits_change_nothing(
    whole: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, slope = of_update(whole, EVERYTHING)
    monkeypatch.setattr("agentgym_tok.learner.token_scores._PIECE", 3 * VOCAB)
    value, found = of_update(whole, EVERYTHING, gradient_checkpointing=True)
    assert value == pytest.approx(expected, abs=1e-10)
    torch.testing.assert_close(found, slope, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_every_objective_has_the_gradients_of_its_rows_one_by_one(name: str, whole: Batch) -> None:
    loss = ALL[name]
    model = qwen2()
    rows = [row for row in whole.rows if row.weight > 0 and row.mask_T.any()]
    places = [place for place, row in enumerate(whole.rows) if row.weight > 0 and row.mask_T.any()]
    layout = Layout.of(rows)

    def laid(parts: Sequence[Any]) -> Any:
        flat = torch.zeros(len(layout.mask_T), dtype=torch.float64)
        return flat.masked_scatter(layout.mask_T, torch.cat(list(parts)))

    scored = [plain(model, row) for row in rows]
    old = [torch.tensor(whole.old_logprobs_T[place])[row.mask_T] for place, row in zip(places, rows, strict=True)]  # type: ignore[index]
    reference = [
        torch.tensor(whole.reference_logprobs_T[place])[row.mask_T] for place, row in zip(places, rows, strict=True)
    ]  # type: ignore[index]
    teachers = [whole.teachers[place] for place in places]  # type: ignore[index]
    read = [
        context.ids_S if isinstance(context, TeacherContext) else row.ids_T
        for context, row in zip(teachers, rows, strict=True)
    ]
    taught = [plain(model, row, ids_S)[0].detach() for row, ids_S in zip(rows, read, strict=True)]
    divergences = []
    for row, ids_S in zip(rows, read, strict=True):
        shift = len(ids_S) - len(row.ids_T)
        at = np.flatnonzero(row.mask_T) - 1
        heat = torch.tensor(row.temperature_T[row.mask_T])[:, None]
        both = [model(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0] for ids in (row.ids_T, ids_S)]
        p, q = (torch.log_softmax(logits[at + move] / heat, -1) for logits, move in zip(both, (0, shift), strict=True))
        divergences.append((p.exp() * (p - q.detach())).sum(-1))
    scores = Scores(
        layout,
        layout.totals(),
        laid([logprobs for logprobs, _ in scored]),
        old_T=laid(old),
        advantage_T=torch.tensor(np.concatenate([row.advantage_T for row in rows])),  # type: ignore[misc]
        reference_T=laid(reference),
        teacher_T=laid(taught),
        entropy_T=laid([entropies for _, entropies in scored]),
        divergence_T=laid(divergences),
    )
    expected, _ = total_loss(scores, loss)
    torch.autograd.backward(expected)
    value, found = of_update(whole, loss, micro_tokens=30)
    assert value == pytest.approx(expected.item(), abs=1e-10)
    torch.testing.assert_close(found, gradients(model), rtol=0, atol=1e-10)


PROMPT, GOOD, BAD = 5, 6, 7
TOY = [
    make_row([PROMPT, GOOD], [0, 1], rollout="good", advantage=1.0),
    make_row([PROMPT, BAD], [0, 1], rollout="bad", advantage=-1.0),
]


@pytest.mark.parametrize("name", ALL)
def test_every_objective_steps_towards_what_is_good(name: str) -> None:
    rows = TOY[:1] if name == "sft" else TOY
    loss = ALL[name]
    learner = TorchLearner(qwen2(), CHAT, loss, TorchConfig(device="cpu", learning_rate=1e-3))
    before = np.array([score[1] for score in learner.score(TOY)])
    if name == "opsd_full":  # the student reads 5, the teacher 9
        teachers = [TeacherContext.of(row, 1, as_ids([9])) for row in rows]
        gap = learner.backward(Batch(rows, teachers=teachers))["distillation/loss"]
        target = learner.score_teachers(rows, teachers)
        figures = learner.update(Batch(rows, teachers=teachers))
        assert "teacher/gap_mean" not in figures  # distributions are compared, and nobody scores what was sampled
        closer = learner.backward(Batch(rows, teachers=teachers))["distillation/loss"]
        assert closer < gap
        assert target[0] is not None
        return
    liked = [np.array([0, score + step]) for score, step in zip(before, (0.5, -0.5), strict=True)][: len(rows)]
    figures = learner.update(Batch(rows, teacher_logprobs_T=liked))
    after = np.array([score[1] for score in learner.score(TOY)])
    assert figures["update/grad_norm"] > 0
    assert after[0] - before[0] > max(0.0, after[1] - before[1])


def test_sft_is_the_mean_negative_log_likelihood_of_demonstrations() -> None:
    rows = make_group(advantages=False)
    model = qwen2()
    trained = [row for row in rows if row.weight > 0 and row.mask_T.any()]
    expected = -torch.cat([plain(model, row)[0] for row in trained]).mean()
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["sft"], TorchConfig(device="cpu"))
    figures = learner.update(Batch(rows))
    assert figures["loss"] == pytest.approx(expected.item(), abs=1e-10)
    assert isinstance(learner, Learner)


def test_an_update_takes_one_step_of_adamw_on_cut_gradients() -> None:
    rows = make_group()
    model = qwen2()
    by_hand = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    learner = TorchLearner(model, CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))
    learner.backward(Batch(rows))
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    by_hand.step()
    other = qwen2()
    options = TorchConfig(device="cpu", learning_rate=1e-2, weight_decay=0.1, max_grad_norm=0.01)
    figures = TorchLearner(other, CHAT, OBJECTIVES["ppo"], options).update(Batch(rows))
    assert figures["update/grad_norm"] == pytest.approx(float(norm))
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
        assert mine.grad is None


def test_the_ratio_begins_at_one_and_leaves_it_with_the_second_step() -> None:
    options = {"device": "cpu", "learning_rate": 1e-2}
    once = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(**options))  # type: ignore[arg-type]
    figures = once.update(Batch(make_group()))
    assert (figures["policy/ratio_gap_max"], figures["update/steps"]) == (0, 1)
    twice = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(epochs=2, **options))  # type: ignore[arg-type]
    figures = twice.update(Batch(make_group()))
    assert (figures["policy/ratio_gap_max"] > 1e-4, figures["update/steps"]) == (True, 2)


def test_mini_batches_hold_whole_groups_and_know_their_own_denominators() -> None:
    rows = make_group()
    options = {"device": "cpu", "learning_rate": 0.0}
    parts = [[row for row in rows if row.group_id == group] for group in ("g", "h")]
    alone = [
        TorchLearner(qwen2(), CHAT, OBJECTIVES["grpo"], TorchConfig(**options)).update(Batch(part))  # type: ignore[arg-type]
        for part in parts
    ]
    both = TorchLearner(qwen2(), CHAT, OBJECTIVES["grpo"], TorchConfig(minibatches=2, **options))  # type: ignore[arg-type]
    figures = both.update(Batch(rows))
    assert figures["loss"] == pytest.approx((alone[0]["loss"] + alone[1]["loss"]) / 2)
    three = TorchLearner(qwen2(), CHAT, OBJECTIVES["grpo"], TorchConfig(minibatches=3, device="cpu"))
    with pytest.raises(ConfigError, match="fewer groups than mini-batches"):
        three.update(Batch(rows))


def test_the_teacher_and_the_reference_are_scored_before_the_update() -> None:
    rows = make_group()
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["sdar"], TorchConfig(device="cpu", learning_rate=1e-2, epochs=3))
    teachers = contexts(rows)
    frozen = [None if score is None else score.copy() for score in learner.score_teachers(rows, teachers)]
    given = TorchLearner(qwen2(), CHAT, OBJECTIVES["sdar"], TorchConfig(device="cpu", learning_rate=1e-2, epochs=3))
    first = learner.update(Batch(rows, teachers=teachers))
    second = given.update(Batch(rows, teacher_logprobs_T=frozen, reference_logprobs_T=given.score(rows, "reference")))
    assert first["loss"] == pytest.approx(second["loss"], abs=1e-10)
    assert first["kl/mean"] > 0
    before, after = (one.score(rows, "reference")[0] for one in (learner, given))
    assert np.array_equal(before, after)
    assert not np.allclose(before, learner.score(rows)[0])


def test_a_row_without_a_teacher_has_a_gap_of_zero() -> None:
    rows = make_group()[:2]
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["sdar"], TorchConfig(device="cpu"))
    figures = learner.update(Batch(rows, teachers=[None, TeacherRefusal("a", "no_room")]))
    assert figures["teacher/gap_mean"] == 0
    assert figures["sdar/gate_mean"] == 0.5
    assert figures["teacher/refused"] == 1


def test_a_teacher_that_knows_no_more_has_a_gap_of_zero_where_the_model_drops_out_too() -> None:
    model = qwen2()
    for module in model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    rows = make_group()
    same = [TeacherContext.of(row, 2, as_ids([])) for row in rows]
    learner = TorchLearner(model.train(), CHAT, OBJECTIVES["sdar"], TorchConfig(device="cpu"))
    figures = learner.update(Batch(rows, teachers=same))
    assert abs(figures["teacher/gap_mean"]) < 1e-9
    assert figures["sdar/gate_mean"] == pytest.approx(0.5, abs=1e-9)


def test_figures_say_how_old_and_how_far_from_the_engine_rows_are() -> None:
    rows = [replace(row, versions=("1",)) for row in make_group()]
    learner = TorchLearner(
        qwen2(),
        CHAT,
        LossConfig(importance=(Importance(),)),
        TorchConfig(device="cpu"),
    )
    exact = [
        replace(row, logprobs_T=score.astype(np.float32)) for row, score in zip(rows, learner.score(rows), strict=True)
    ]
    figures = learner.update(Batch(exact))
    assert figures["staleness/unknown_share"] == 1  # nobody knows a version 1 yet
    assert figures["mismatch/ess_share"] == pytest.approx(1)
    assert figures["importance/token_truncate_mean"] == pytest.approx(1)
    learner.update(Batch(rows))
    figures = learner.update(Batch(rows))
    assert (figures["staleness/mean"], figures["staleness/max"], figures["staleness/unknown_share"]) == (1, 1, 0)
    assert figures["mismatch/ess_share"] < 1
    assert (figures["rows/given"], figures["rows/trained"]) == (9, 7)
    assert figures["update/tokens"] == sum(len(row.ids_T) for row in rows[:7])
    assert figures["update/computed_tokens"] < figures["update/tokens"]
    assert {"entropy/mean", "policy/clip_share", "update/tokens_per_second"} <= figures.keys()
    assert all(isinstance(value, float) for value in figures.values())


def test_experts_and_supports_of_rows_are_counted_and_not_used() -> None:
    row = TOY[0]
    support = Support(as_ids([0, 2]), as_ids([GOOD, BAD]))
    routed = replace(row, experts_T_L_K=np.zeros((2, 2, 1), np.uint16), support=support)
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))
    figures = learner.update(Batch([routed, TOY[1]]))
    assert (figures["rows/experts_ignored"], figures["rows/support_ignored"]) == (1, 1)
    plain = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu")).update(Batch(TOY))
    assert figures["loss"] == plain["loss"]


def test_a_greedy_turn_is_scored_at_temperature_one() -> None:
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))
    greedy, warm = (replace(TOY[0], temperature_T=np.full(2, heat, np.float32)) for heat in (0, 1))
    assert np.array_equal(*learner.score([greedy]), *learner.score([warm]))


def test_a_gradient_that_is_not_finite_changes_nothing_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = qwen2()
    learner = TorchLearner(model, CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu", learning_rate=1e-2))
    before = [value.detach().clone() for value in model.parameters()]
    model.model.norm.weight.register_hook(lambda slope: slope * float("nan"))
    with caplog.at_level(logging.WARNING):
        figures = learner.update(Batch(TOY))
    assert figures["update/skipped"] == 1
    assert "is skipped" in caplog.text
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("loss", "batch", "error", "message"),
    [
        ("ppo", Batch(make_group(advantages=False)), ConfigError, "rows without advantages"),
        ("sdar", Batch(TOY), ConfigError, "needs a teacher"),
        ("opsd_full", Batch(TOY, teacher_logprobs_T=others(TOY, 0)), ConfigError, "needs a teacher"),
        ("ppo", Batch(make_group()[-2:]), ConfigError, "nothing is to be trained"),
        ("ppo", Batch([make_row([PROMPT] * 65 + [GOOD], [0] * 65 + [1], advantage=1.0)]), ConfigError, "context"),
        ("ppo", Batch([make_row([VOCAB, GOOD], [0, 1], advantage=1.0)]), InvalidIds, "vocabulary"),
        ("ppo", Batch([make_row([GOOD, BAD], [1, 0], advantage=1.0)]), InvalidIds, "first token"),
        ("sdar", Batch(TOY, teachers=[TeacherContext.of(TOY[1], 1, as_ids([9])), None]), InvalidIds, "other tokens"),
        ("opd", Batch(TOY, teacher_logprobs_T=[np.full(2, -np.inf)] * 2), InvalidLogprobs, "teacher_T"),
    ],
)
def test_rows_that_an_objective_cannot_train_on_are_refused(
    loss: str, batch: Batch, error: type[Exception], message: str
) -> None:
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES[loss], TorchConfig(device="cpu"))
    with pytest.raises(error, match=message):
        learner.update(batch)
    assert learner.updates == 0


def test_a_reference_that_the_learner_was_not_built_for_is_refused() -> None:
    learner = TorchLearner(qwen2(), CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))
    learner.loss = OBJECTIVES["grpo"]
    with pytest.raises(ConfigError, match="there is no reference"):
        learner.update(Batch(TOY))
    assert learner.update(Batch(TOY, reference_logprobs_T=others(TOY, 0)))["kl/mean"] > 0


def test_the_learning_rate_rises_and_falls() -> None:
    config = TorchConfig(learning_rate=1.0, warmup=2, decay=6)
    assert [config.rate(step) for step in range(8)] == [0.5, 1, 1, 0.75, 0.5, 0.25, 0, 0]
    assert TorchConfig(learning_rate=1.0, warmup=2).rate(100) == 1


def test_weights_lead_a_policy_to_the_learners_log_probabilities(
    tmp_path: Path, save_qwen2: Callable[..., Path]
) -> None:
    folder = save_qwen2(tmp_path / "model")
    policy = HFPolicy(folder, CHAT, device="cpu")
    learner = TorchLearner(folder, CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu", learning_rate=1e-2))
    rows = [replace(row, temperature_T=np.where(row.mask_T, 0.5, 1).astype(np.float32)) for row in TOY]
    learner.update(Batch(rows))
    policy.update_weights(learner.weights(), learner.version)
    requests = [ScoreRequest(row.ids_T, ((1, 2, Sampling(temperature=0.5)),)) for row in rows]
    for mine, theirs in zip(learner.score(rows), policy.score(requests), strict=True):
        assert mine[1] == pytest.approx(float(theirs.processed_S[0]), abs=1e-5)
        assert theirs.version == "1"


def test_a_model_that_is_not_there_or_knows_too_few_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no model could be loaded"):
        TorchLearner(tmp_path, CHAT, OBJECTIVES["ppo"])
    small = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
        )
    )
    with pytest.raises(ConfigError, match="ids that the model does not know"):
        TorchLearner(small, CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))


def test_adapters_train_alone_and_merge_into_the_models_own_names() -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    model = qwen2(double=False)
    names = set(model.state_dict())
    start = {name: value.clone() for name, value in model.state_dict().items()}
    options = TorchConfig(device="cpu", learning_rate=1e-2, lora=LoraConfig(rank=2))
    learner = TorchLearner(model, CHAT, OBJECTIVES["verl_agent_grpo"], options)
    assert learner.packed
    before = learner.score(TOY)
    for _ in range(2):
        learner.update(Batch(TOY))
    merged = learner.weights()
    assert set(merged) == names
    changed = {name for name in names if not torch.equal(merged[name], start[name])}
    assert changed
    assert all("_proj" in name for name in changed)
    for reference, first in zip(learner.score(TOY, "reference"), before, strict=True):
        assert np.array_equal(reference, first)
    other = qwen2(seed=1, double=False)
    other.load_state_dict(merged)
    plain = TorchLearner(other, CHAT, OBJECTIVES["ppo"], TorchConfig(device="cpu"))
    for mine, theirs in zip(learner.score(TOY), plain.score(TOY), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_autocast_comes_near_the_full_precision() -> None:
    rows = make_group()
    _, exact = of_update(Batch(rows), OBJECTIVES["ppo"], double=False)
    _, rounded = of_update(Batch(rows), OBJECTIVES["ppo"], double=False, precision="bfloat16")
    assert 0 < float((exact - rounded).norm() / exact.norm()) < 0.1
