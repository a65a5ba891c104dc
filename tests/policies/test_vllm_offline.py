"""vLLM in this process, told by a stand-in for it: what it is asked, and what becomes of what it answers."""

import hashlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

from safetensors.torch import load_file  # noqa: E402

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.errors import ConfigError, DataMissing, MissingExtra, PolicyError  # noqa: E402
from agentgym_tok.policies import load_policy  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402
from agentgym_tok.types import ScoreRequest  # noqa: E402

CHAT = ChatFormat.builtin()
MODULE = "agentgym_tok.policies.vllm_offline"


@dataclass
class Engine:
    """Answer each request at the second step after it came, with its prompt's first ids and the stop token."""

    folder: Path
    waiting: dict[str, tuple[list[int], Any]] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    loaded: list[Path] = field(default_factory=list)
    version: str = ""
    steps: int = 0
    twist: Callable[[Any], None] = lambda _: None
    model_config: Any = field(default_factory=lambda: types.SimpleNamespace(max_model_len=64))
    params: list[Any] = field(default_factory=list)

    def add_request(self, number: str, prompt: dict[str, Any], params: Any) -> None:
        ids = prompt["prompt_token_ids"]
        if 13 in ids:
            raise ValueError("no 13")
        self.params.append(params)
        self.waiting[number] = (ids, params)

    def step(self) -> list[Any]:
        self.steps += 1
        if self.steps % 2:
            return []
        done = [self.output(number, ids, params) for number, (ids, params) in self.waiting.items()]
        self.waiting.clear()
        return done

    def output(self, number: str, ids: list[int], params: Any) -> Any:
        drawn = [*ids[:3], *params.stop_token_ids[:1]][: params.max_tokens]
        turn = types.SimpleNamespace(
            token_ids=drawn,
            logprobs=[{index: types.SimpleNamespace(logprob=-index / 100)} for index in drawn],
            finish_reason="stop" if drawn[-1] in params.stop_token_ids else "length",
            weight_versions=[types.SimpleNamespace(version=self.version, start=0, end=len(drawn))],
        )
        near = [None, *({index: types.SimpleNamespace(logprob=-index / 100)} for index in ids[1:])]
        out = types.SimpleNamespace(
            request_id=number, finished=True, prompt_token_ids=list(ids), outputs=[turn], prompt_logprobs=near
        )
        self.twist(out)
        return out

    def abort_request(self, numbers: list[str]) -> None:
        self.aborted += numbers
        for number in numbers:
            self.waiting.pop(number, None)

    def set_weight_version(self, version: str) -> None:
        self.version = version

    def get_weight_version(self) -> str:
        return self.version

    def reset_prefix_cache(self, *, reset_running_requests: bool) -> None:
        assert reset_running_requests

    def collective_rpc(self, method: str, kwargs: Any = None) -> list[Any]:
        if method == "reload_weights":
            self.loaded.append(Path(kwargs["weights_path"]))
            held = load_file(self.loaded[-1] / "model.safetensors")
            if any(bool(tensor.isnan().any()) for tensor in held.values()):
                raise RuntimeError("no numbers")
            return [None]
        assert method == "compute_weight_checksums"
        held = load_file((self.loaded or [self.folder])[-1] / "model.safetensors")
        return [{f"dp0:{name}": sha256(tensor) for name, tensor in held.items()}]


def sha256(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()


class Params(types.SimpleNamespace):
    """`SamplingParams`, which has defaults for all that nobody sets."""

    stop_token_ids: Any = ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, save_qwen2: Callable[..., Path]) -> Path:
    return save_qwen2(tmp_path_factory.mktemp("model"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in for vLLM; returns what `LLM` was made with."""
    seen: dict[str, Any] = {}

    def llm(path: str, **options: Any) -> Any:
        if options["dtype"] == "float3":
            raise ValueError("no such dtype\nmore")
        seen.update(options, path=path)
        return types.SimpleNamespace(llm_engine=Engine(Path(path)))

    fake: Any = types.ModuleType("vllm")
    platforms: Any = types.ModuleType("vllm.platforms")
    fake.LLM, fake.SamplingParams, fake.__version__ = llm, Params, "0.32.0"
    fake.sampling_params = types.SimpleNamespace(RequestOutputKind=types.SimpleNamespace(FINAL_ONLY="final"))
    platforms.current_platform = types.SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    return seen


@pytest.fixture
def policy(made: dict[str, Any], folder: Path) -> Any:
    return load_policy(f"vllm-offline:{folder}?version=v0&context=64", CHAT)


def ask(*ids: int, **sampling: Any) -> Request:
    return Request(as_ids(ids), Sampling(**{"max_tokens": 8, **sampling}), seed=5)


def test_nothing_is_left_to_the_models_own_defaults(policy: Any, made: dict[str, Any], folder: Path) -> None:
    assert made["path"] == str(folder)
    assert (made["generation_config"], made["logprobs_mode"], made["max_model_len"]) == ("vllm", "raw_logprobs", 64)
    assert made["enable_chunked_prefill"] is False
    policy.generate([ask(1, 2, 3, 4, temperature=0.5, top_k=7, stop=("x",))])
    (params,) = policy._engine.params
    given = vars(params)
    assert (given["temperature"], given["top_k"], given["top_p"], given["min_p"]) == (0.5, 7, 1.0, 0.0)
    assert (given["repetition_penalty"], given["seed"], given["max_tokens"]) == (1.0, 5, 8)
    assert (given["stop"], given["stop_token_ids"], given["ignore_eos"]) == (["x"], list(CHAT.stop_ids), True)
    assert (given["logprobs"], given["output_kind"]) == (0, "final")


def test_turns_stand_in_order_with_what_is_known_of_them(policy: Any) -> None:
    first, second = policy.generate([ask(5, 6, 7), ask(8, 9, 10, max_tokens=2)])
    stop = CHAT.stop_ids[0]
    assert (first.ids_T.tolist(), first.finish_reason) == ([5, 6, 7, stop], "stop")
    assert (second.ids_T.tolist(), second.finish_reason) == ([8, 9], "length")
    assert second.logprobs_T.tolist() == pytest.approx([-0.08, -0.09])
    assert (first.weight_versions, first.logprobs) == ((("v0", 0, 4),), "raw")
    assert first.engine.startswith("vllm 0.32.0 ")
    assert policy.name.startswith("vllm-offline:")


def test_a_context_without_room_ends_as_truncated(policy: Any) -> None:
    nearly, full = policy.generate([ask(*[1] * 62), ask(*[1] * 64)])
    assert (len(nearly.ids_T), nearly.finish_reason) == (2, "truncated")
    assert (len(full.ids_T), full.finish_reason, full.weight_versions) == (0, "truncated", ())


def test_what_goes_wrong_costs_the_turns_that_it_met(policy: Any) -> None:
    well, refused = policy.generate([ask(1, 2, 3), ask(13)])
    assert isinstance(well, Completion)
    assert isinstance(refused, PolicyError)
    assert "ValueError: no 13" in str(refused)

    def other_prompt(output: Any) -> None:
        if output.prompt_token_ids[0] == 7:
            output.prompt_token_ids[-1] += 1

    policy._engine.twist = other_prompt
    well, wrong = policy.generate([ask(1, 2, 3), ask(7, 8, 9)])
    assert isinstance(well, Completion)
    assert isinstance(wrong, PolicyError)
    assert "read other ids than were sent" in str(wrong)

    def dies(_: Any) -> None:
        raise RuntimeError("out of everything")

    policy._engine.twist = dies
    for answer in policy.generate([ask(1, 2, 3), ask(4, 5, 6)]):
        assert isinstance(answer, PolicyError)
        assert "RuntimeError: out of everything" in str(answer)
    assert len(policy._engine.aborted) == 2
    assert not policy._engine.waiting


def test_prompts_are_scored_by_their_raw_log_probabilities(policy: Any) -> None:
    (scores,) = policy.score([ScoreRequest(as_ids([5, 6, 7, 8]), ((1, 2, Sampling()), (3, 4, Sampling())))])
    assert scores.raw_S.tolist() == pytest.approx([-0.06, -0.08])
    assert scores.version == "v0"
    with pytest.raises(PolicyError, match="raw log-probabilities of a prompt only"):
        policy.score([ScoreRequest(as_ids([1, 2]), ((1, 2, Sampling(top_p=0.5)),))])
    with pytest.raises(PolicyError, match="longer than the context"):
        policy.score([ScoreRequest(as_ids([1] * 64), ())])


def test_new_weights_are_there_or_the_old_ones(policy: Any, folder: Path) -> None:
    engine, state = policy._engine, load_file(folder / "model.safetensors")
    new = {name: tensor + 1 for name, tensor in state.items()}
    policy.update_weights(new, "v1")
    (kept,) = engine.loaded
    assert torch.equal(load_file(kept / "model.safetensors")["model.norm.weight"], new["model.norm.weight"])
    (turn,) = policy.generate([ask(1, 2, 3)])
    assert turn.weight_versions == (("v1", 0, 4),)
    broken = {name: tensor * float("nan") for name, tensor in state.items()}
    with pytest.raises(PolicyError, match="does not take the weights"):
        policy.update_weights(broken, "v2")
    assert engine.loaded[-1] == kept
    assert engine.version == "v1"
    assert [one.name for one in kept.parent.iterdir()] == [kept.name]
    with pytest.raises(PolicyError, match="another shape"):
        policy.update_weights({name: tensor[:1] for name, tensor in state.items()}, "v2")


def test_what_cannot_be_run_is_refused(made: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="vLLM cannot run this model"):
        load_policy(f"vllm-offline:{tmp_path}", CHAT)
    with pytest.raises(DataMissing, match="ValueError: no such dtype"):
        load_policy(f"vllm-offline:{folder}?dtype=float3", CHAT)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.vocab_size = 99
    config.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="ids that the model does not know"):
        load_policy(f"vllm-offline:{tmp_path}", CHAT)
    assert "path" not in made


def test_without_vllm_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(MissingExtra, match="pip install vllm"):
        load_policy("vllm-offline:x", CHAT)
