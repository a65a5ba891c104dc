"""A learner that was killed goes on bit for bit, and a checkpoint of something else is refused."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from row_groups import VOCAB, make_group  # noqa: E402

from agentgym_tok import ChatFormat  # noqa: E402
from agentgym_tok.errors import DataCorrupt, DataMissing, FingerprintMismatch  # noqa: E402
from agentgym_tok.learner import Batch  # noqa: E402
from agentgym_tok.learner.checkpoint import write_checkpoint  # noqa: E402
from agentgym_tok.learner.losses import OBJECTIVES  # noqa: E402
from agentgym_tok.learner.torch_learner import LoraConfig, TorchConfig, TorchLearner  # noqa: E402

UPDATES = 4


def make(seed: int = 0, loss: str = "grpo", *, layers: int = 1, **options: Any) -> TorchLearner:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    usual = {"device": "cpu", "learning_rate": 1e-2, "minibatches": 2, "epochs": 2, "warmup": 3, "decay": 50}
    model = transformers.Qwen2ForCausalLM(config)
    return TorchLearner(model, ChatFormat.builtin(), OBJECTIVES[loss], TorchConfig(**usual | options))


def train(learner: TorchLearner) -> list[dict[str, float]]:
    """Take the updates that are left, each on rows of its own, and return their figures but for the time they took."""
    figures = []
    while learner.updates < UPDATES:
        made = learner.update(Batch(make_group(seed=learner.updates)))
        figures.append({name: value for name, value in made.items() if "second" not in name})
    return figures


def same(first: TorchLearner, second: TorchLearner) -> bool:
    """Tell whether all that two learners hold is equal, bit for bit."""
    one, two = first.state(), second.state()
    slots = [state["optimizer"]["0"]["state"] for state in (one, two)]  # of AdamW, the only one
    return (
        all(torch.equal(one["weights"][name], two["weights"][name]) for name in one["weights"])
        and all(torch.equal(slots[0][at][name], slots[1][at][name]) for at in slots[0] for name in slots[0][at])
        and (one["updates"], one["steps"], one["fixed"]) == (two["updates"], two["steps"], two["fixed"])
        and torch.equal(one["rng"][0], two["rng"][0])
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums over several threads need not be equal bit for bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PROGRAM = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import torch
from test_checkpoint import Batch, make, make_group
torch.set_num_threads(1)
learner = make()
while True:
    learner.update(Batch(make_group(seed=learner.updates)))
    learner.save(sys.argv[1])
    print(learner.updates, flush=True)
    if learner.updates == 2:
        learner.update(Batch(make_group(seed=99)))  # lost: killed before it is saved
        sys.stdin.read()
"""


def test_after_a_kill_the_rest_of_the_run_is_bit_equal(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "learner.pt"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["1", "2"]
        process.send_signal(signal.SIGKILL)
    whole = make()
    figures = train(whole)
    resumed = make()
    resumed.load(file)
    assert resumed.version == "2"
    assert train(resumed) == figures[2:]
    assert same(resumed, whole)


def test_what_is_drawn_goes_on_too(tmp_path: Path) -> None:
    learner = make()
    learner.save(tmp_path / "learner.pt")
    expected = torch.rand(3)
    learner.load(tmp_path / "learner.pt")
    assert torch.equal(torch.rand(3), expected)


def test_adapters_go_on_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="the extra lora is not installed")
    first = make(lora=LoraConfig(rank=2))
    first.update(Batch(make_group()))
    first.save(tmp_path / "learner.pt")
    second = make(lora=LoraConfig(rank=2))
    second.load(tmp_path / "learner.pt")
    assert train(second) == train(first)
    assert same(first, second)
    with pytest.raises(DataCorrupt, match="another reference"):
        make(seed=1, lora=LoraConfig(rank=2)).load(tmp_path / "learner.pt")


def test_a_file_that_could_not_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "learner.pt"
    learner = make()
    learner.save(file)
    before = file.read_bytes()

    def fill_the_disk(_: object, target: Any) -> None:
        target.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        learner.save(file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "learner.pt"
    learner = make()
    learner.save(file)
    with pytest.raises(DataCorrupt, match="other weights"):
        make(layers=2).load(file)
    with pytest.raises(DataCorrupt, match="another reference"):
        make(seed=1).load(file)
    state = learner.state()
    with pytest.raises(FingerprintMismatch, match="another chat format"):
        make().load_state({**state, "fingerprint": "other"})
    with pytest.raises(DataMissing, match="no checkpoint"):
        learner.load(tmp_path / "nothing")
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(DataCorrupt, match="no checkpoint"):
        learner.load(file)
    file.write_text("not torch's")
    with pytest.raises(DataCorrupt, match="no checkpoint"):
        learner.load(file)


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "learner.pt", {"updates": np.array([1])})
    with pytest.raises(DataCorrupt, match="no checkpoint"):
        make().load(tmp_path / "learner.pt")


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 99}, tmp_path / "learner.pt")
    with pytest.raises(DataCorrupt, match="another format"):
        make().load(tmp_path / "learner.pt")
