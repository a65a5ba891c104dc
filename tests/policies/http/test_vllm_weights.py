"""New weights for a server: it has them or the old ones, and turns say whose they are."""

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("aiohttp", reason="the extra engines is not installed")
pytest.importorskip("starlette", reason="the extra serve is not installed")

from fake_vllm import COMPLETIONS, GENERATE, FakeVLLM  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from starlette.applications import Starlette  # noqa: E402
from starlette.requests import Request as Asked  # noqa: E402
from starlette.responses import JSONResponse, Response  # noqa: E402
from starlette.routing import Route  # noqa: E402

from agentgym_tok import ChatFormat, Completion, Request, Sampling  # noqa: E402
from agentgym_tok.errors import PolicyError  # noqa: E402
from agentgym_tok.policies.http.vllm import VLLMPolicy  # noqa: E402
from agentgym_tok.policies.weights import delta  # noqa: E402
from agentgym_tok.tokens import as_ids  # noqa: E402

OLD = {
    "model.embed_tokens.weight": torch.arange(12.0).reshape(4, 3) / 7,
    "model.layers.0.self_attn.q_proj.weight": torch.ones(3, 3),
    "model.norm.weight": torch.tensor([1.0, 2.0, 3.0]) / 3,
}
NEW = {name: tensor + 0.25 for name, tensor in OLD.items()}


class TrainedVLLM(FakeVLLM):
    """A server in its development mode: it holds what it read, rounded to a dtype, and joins some layers."""

    def __init__(self, chat: ChatFormat, path: str, folder: Path, dtype: Any = torch.float32) -> None:
        super().__init__(chat, (path,))
        self.folder = folder
        self.dtype = dtype
        self.label = "default"
        self.calls: list[str] = []
        self.paused = self.meta = self.slow = False
        self.broken: Callable[[str], bool] = lambda path: False
        self.held = load_file(folder / "model.safetensors")
        self.config = "model='tiny', device_config=cuda, seed=0"

    async def info(self, _: Asked) -> Response:
        return JSONResponse({"vllm_config": self.config})

    async def list_models(self, _: Asked) -> Response:
        return JSONResponse({"data": [{"id": "tiny", "max_model_len": 4096, "root": str(self.folder)}]})

    async def answer(self, request: Asked) -> Response:
        while self.paused or self.slow:  # noqa: ASYNC110  # other threads set it
            await asyncio.sleep(0.005)
        assert not self.meta, "a forward pass without weights ends the engine"
        return await super().answer(request)

    def piece(
        self, path: str, said: dict[str, Any], start: int, end: int, *, first: bool, last: bool
    ) -> dict[str, Any]:
        said = said | {"versions": [{"version": self.label, "start": 0, "end": len(said["ids"])}]}
        return super().piece(path, said, start, end, first=first, last=last)

    async def steer(self, request: Asked) -> Response:
        path = request.url.path
        body = json.loads(await request.body())
        self.calls.append(path)
        if path == "/pause":
            assert dict(request.query_params) == {"mode": "keep", "clear_cache": "true"}
            self.paused = True
        if path == "/resume":
            self.paused = False
        if path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            self.meta = True
            if self.broken(body["kwargs"]["weights_path"]):
                return JSONResponse({"error": {"message": "Worker failed with error"}}, 500)
            self.held = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
            self.meta = False
        if path == "/update_weight_version":
            self.label = body["new_version"]
        return JSONResponse({"checksums": self.checksums()} if path == "/weight_checker" else {})

    def checksums(self) -> dict[str, str]:
        shown = {name.replace("q_proj", "qkv_proj"): tensor.to(self.dtype) for name, tensor in self.held.items()}
        return {f"dp0:tp0:{name}": sha256(tensor) for name, tensor in shown.items()}

    def app(self) -> Starlette:
        app = super().app()
        paths = ("/pause", "/resume", "/collective_rpc", "/update_weight_version", "/weight_checker")
        app.routes.extend(Route(path, self.steer, methods=["POST"]) for path in paths)
        app.routes.append(Route("/server_info", self.info))
        return app


def sha256(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(OLD, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def start(
    serve: Callable[[Any], str], builtin: ChatFormat, folder: Path
) -> Callable[..., tuple[TrainedVLLM, VLLMPolicy]]:
    def made(path: str = GENERATE, **options: Any) -> tuple[TrainedVLLM, VLLMPolicy]:
        engine = TrainedVLLM(builtin, path, folder, **options)
        return engine, VLLMPolicy(serve(engine.app()), builtin)

    return made


def turn_of(policy: VLLMPolicy, seed: int = 1) -> Completion:
    (turn,) = policy.generate([Request(as_ids([1, 2, 3]), Sampling(max_tokens=40), seed=seed)])
    assert isinstance(turn, Completion), turn
    return turn


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", [GENERATE, COMPLETIONS])
def test_a_server_holds_the_weights_that_were_sent(start: Any, folder: Path, path: str, dtype: Any) -> None:
    engine, policy = start(path, dtype=dtype)
    with policy:
        before = turn_of(policy)
        assert before.weight_versions == ((("default", 0, len(before.ids_T)),) if path == GENERATE else ())
        policy.update_weights(NEW, "v1")
        assert all(torch.equal(engine.held[name], tensor) for name, tensor in NEW.items())
        assert engine.label == "v1"
        after = turn_of(policy)
        assert after.weight_versions == (("v1", 0, len(after.ids_T)),)
        policy.update_weights(delta(NEW, OLD), "v2")
        assert all(torch.equal(engine.held[name], tensor) for name, tensor in OLD.items())
        once = ["/pause", "/collective_rpc", "/weight_checker", "/update_weight_version", "/resume"]
        assert engine.calls == ["/weight_checker", *once, *once]
    served = load_file(folder / "model.safetensors")
    assert all(torch.equal(served[name], tensor) for name, tensor in OLD.items())


def test_tied_weights_have_two_names_or_one(start: Any) -> None:
    engine, policy = start()
    head = NEW["model.embed_tokens.weight"]
    with policy:
        policy.update_weights({**NEW, "lm_head.weight": head}, "v1")
        assert engine.held.keys() == OLD.keys()
        assert torch.equal(engine.held["model.embed_tokens.weight"], head)


@pytest.mark.usefixtures("at_once")
def test_weights_that_do_not_load_leave_the_old_ones(start: Any, folder: Path) -> None:
    engine, policy = start()
    with policy:
        engine.broken = lambda path: Path(path) != folder
        with pytest.raises(PolicyError, match="the engine failed"):
            policy.update_weights(NEW, "v1")
        assert not engine.paused
        assert turn_of(policy).weight_versions[0][0] == "default"
        with pytest.raises(PolicyError, match="another shape"):
            policy.update_weights({name: tensor[:1] for name, tensor in NEW.items()}, "v1")
        engine.broken = lambda path: False
        policy.update_weights(delta(OLD, NEW), "v1")  # the change still starts from what is there
        assert turn_of(policy).weight_versions[0][0] == "v1"
        engine.broken = lambda path: True
        with pytest.raises(PolicyError, match=r"neither the new weights nor the old ones.*next: start it again"):
            policy.update_weights(OLD, "v2")
        assert engine.paused  # whoever resumes it, ends it


def test_a_server_that_took_other_weights_is_found_out(start: Any) -> None:
    engine, policy = start()
    checksums, asked = engine.checksums, iter(range(10))
    with policy:
        engine.checksums = lambda: {name: digest if next(asked) < 3 else "0" for name, digest in checksums().items()}
        with pytest.raises(PolicyError, match="does not hold the weights that it was given"):
            policy.update_weights(NEW, "v1")
        assert torch.equal(engine.held["model.norm.weight"], OLD["model.norm.weight"])
        assert (engine.label, engine.paused) == ("default", False)


def test_servers_that_cannot_take_weights_are_told_from_those_that_can(
    start: Any, serve: Callable[[Any], str], builtin: ChatFormat, folder: Path
) -> None:
    _, policy = start()
    with policy:
        save_file(NEW, folder / "model.safetensors")
        with pytest.raises(PolicyError, match="holds other weights than its folder"):
            policy.update_weights(NEW, "v1")
    plain = FakeVLLM(builtin)
    with VLLMPolicy(serve(plain.app()), builtin) as policy, pytest.raises(PolicyError, match="not within reach"):
        policy.update_weights(NEW, "v1")
    plain.list_models = TrainedVLLM(builtin, GENERATE, folder).list_models  # type: ignore[method-assign]
    with VLLMPolicy(serve(plain.app()), builtin) as policy, pytest.raises(PolicyError, match="VLLM_SERVER_DEV_MODE=1"):
        policy.update_weights(NEW, "v1")


def test_where_tokens_have_no_version_an_update_waits_for_turns_and_turns_for_it(start: Any) -> None:
    engine, policy = start(COMPLETIONS)
    turns: dict[str, Completion] = {}
    with policy:
        policy.update_weights(OLD, "v0")
        engine.calls.clear()
        engine.slow = True
        early = threading.Thread(target=lambda: turns.update(early=turn_of(policy, 1)))
        early.start()
        until(lambda: policy._gate._drawing == 1)
        updating = threading.Thread(target=policy.update_weights, args=(NEW, "v1"))
        updating.start()
        until(lambda: not policy._gate._open.is_set())
        late = threading.Thread(target=lambda: turns.update(late=turn_of(policy, 2)))
        late.start()
        assert engine.calls == []  # the update waits for the turn
        engine.slow = False
        for thread in (early, updating, late):
            thread.join()
    assert {name: turn.weight_versions[0][0] for name, turn in turns.items()} == {"early": "v0", "late": "v1"}
    assert [asked["seed"] for asked in engine.asked[-2:]] == [1, 2]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("config", ["model='tiny', device_config=cpu, seed=0", "model='tiny'"])
def test_a_head_that_would_stay_the_old_one_is_refused(start: Any, folder: Path, config: str) -> None:
    engine, policy = start()
    engine.config = config
    with policy, pytest.raises(PolicyError, match="keep the old output head"):
        policy.update_weights(NEW, "v1")
    assert "/pause" not in engine.calls
    head = {"lm_head.weight": OLD["model.embed_tokens.weight"] * 2}
    save_file(OLD | head, folder / "model.safetensors")
    engine, policy = start()
    engine.config = config
    with policy:
        policy.update_weights(NEW | head, "v1")
    assert engine.label == "v1"
