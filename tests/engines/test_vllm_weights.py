"""A running vLLM takes new weights, draws from them, and says of each token whose it is."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from models import untied
from renewed import asked, prove_versions, states, turns_of
from vllm_server import Server, eventually, metric, serving

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies import weight_files
from agentgym_tok.policies.http import vllm
from agentgym_tok.policies.http.vllm import VLLMPolicy
from agentgym_tok.policies.weights import delta

pytestmark = pytest.mark.engine

GENERATE, COMPLETIONS = "/inference/v1/generate", "/v1/completions"


@pytest.fixture(scope="module")
def developed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve in the development mode, in which alone vLLM takes weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_SERVER_DEV_MODE", "1")
        own_head = untied(folder, tmp_path_factory.mktemp("untied") / "model")
        with serving(own_head, tmp_path_factory.mktemp("developed") / "log") as running:
            yield running


@pytest.fixture(params=[GENERATE, COMPLETIONS])
def policy(
    request: pytest.FixtureRequest, developed: Server, chat: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VLLMPolicy]:
    """Return a policy of each endpoint that takes ids; the server has its own folder's weights, called `v0`."""
    monkeypatch.setattr(vllm, "_ROUTES", tuple(route for route in vllm._ROUTES if route.path == request.param))
    with VLLMPolicy(developed.url, chat) as made:
        yield made
        made.update_weights(states(developed.folder, 1)[0], "v0")


def test_whole_weights_and_changes_are_drawn_from(
    policy: VLLMPolicy, developed: Server, chat: ChatFormat, record_property: Any
) -> None:
    first, second, third = states(developed.folder, 3)
    requests = asked(chat, 3, 16)
    policy.update_weights(first, "v0")
    before = turns_of(policy.generate(requests))
    policy.update_weights(second, "v1")
    between = turns_of(policy.generate(requests))
    policy.update_weights(delta(second, third), "v2")
    after = turns_of(policy.generate(requests))
    for version, turns in (("v0", before), ("v1", between), ("v2", after)):
        assert {turn.weight_versions for turn in turns} == {((version, 0, len(turn.ids_T)),) for turn in turns}
    drawn = [*zip(requests * 3, [*before, *between, *after], strict=True)]
    named = {"v0": first, "v1": second, "v2": third}
    record_property("largest difference", prove_versions(developed.folder, chat, named, drawn))
    with pytest.raises(PolicyError, match="not those that were sent"):
        policy.update_weights(delta(first, second), "v3")  # starts from weights that are not there any more
    (same,) = turns_of(policy.generate(requests[:1]))
    assert same.weight_versions == after[0].weight_versions
    assert same.ids_T.tolist() == after[0].ids_T.tolist()


def test_an_update_lands_in_the_middle_of_turns(
    policy: VLLMPolicy, developed: Server, chat: ChatFormat, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr(chat, "stop_ids", ())
    first, second = states(developed.folder, 2)
    policy.update_weights(first, "v0")
    requests = asked(chat, 2, 200)
    drawn: list[tuple[Request, Completion]] = []
    renewed = threading.Event()

    def draw_on() -> None:
        while not renewed.is_set():
            drawn.extend(zip(requests, turns_of(policy.generate(requests)), strict=True))

    tokens = "vllm:generation_tokens_total"
    drawn_before = metric(developed, tokens)
    # Turns upon turns from several sides, so that the update meets some however fast the machine draws.
    with ThreadPoolExecutor() as threads:
        drawing = [threads.submit(draw_on) for _ in range(3)]
        try:
            assert eventually(lambda: metric(developed, tokens) > drawn_before + 20)
            policy.update_weights(second, "v1")
        finally:
            renewed.set()
        for done in drawing:
            done.result()
    drawn.extend(zip(requests, turns_of(policy.generate(requests)), strict=True))
    labels = [tuple(version for version, _, _ in turn.weight_versions) for _, turn in drawn]
    assert labels[-1] == ("v1",)
    if GENERATE in policy.describe().partition(";")[0]:
        assert ("v0", "v1") in labels
    else:
        assert {*labels} == {("v0",), ("v1",)}
    record_property("largest difference", prove_versions(developed.folder, chat, {"v0": first, "v1": second}, drawn))


def test_weights_that_do_not_arrive_leave_the_old_ones(
    policy: VLLMPolicy, developed: Server, chat: ChatFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = states(developed.folder, 2)
    policy.update_weights(first, "v0")
    requests = asked(chat, 2, 8)
    before = turns_of(policy.generate(requests))
    save = weight_files.save_file

    def cut(tensors: Any, file: Path, **rest: Any) -> None:
        save(tensors, file, **rest)
        file.write_bytes(file.read_bytes()[:100_000])

    def others(tensors: Any, file: Path, **rest: Any) -> None:
        save({name: tensor + 1 for name, tensor in tensors.items()}, file, **rest)

    for broken, message in ((cut, "the engine failed"), (others, "does not hold the weights that it was given")):
        with monkeypatch.context() as patch:
            patch.setattr(weight_files, "save_file", broken)
            with pytest.raises(PolicyError, match=message):
                policy.update_weights(second, "v1")
        again = turns_of(policy.generate(requests))
        for turn, want in zip(again, before, strict=True):
            assert turn.ids_T.tolist() == want.ids_T.tolist()
            assert turn.weight_versions == want.weight_versions
    with pytest.raises(PolicyError, match="another shape"):
        policy.update_weights({name: tensor[:1] for name, tensor in second.items()}, "v1")
