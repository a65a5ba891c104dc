"""Fixtures for all tests: where the shared data stands, and the formats of its tokenizers."""

import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from agentgym_tok import ChatFormat

# Machines of CI are slow and shared: a test's time says nothing, its answer does.
hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.load_profile("default")

ROOT = Path(__file__).resolve().parents[1]


def _shared() -> Path:
    return Path(os.environ.get("AGENTGYM_TOK_SHARED") or ROOT.parent / "shared")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data and golden records, or skip."""
    folder = _shared()
    if not folder.is_dir():
        pytest.skip(
            f"no shared data at {folder}: set AGENTGYM_TOK_SHARED to the folder that holds alfworld/, tokenizers/, ..."
        )
    return folder


@pytest.fixture(scope="session", autouse=True)
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what worlds prepare on disk out of the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_TOK_CACHE", str(tmp_path_factory.mktemp("prepared")))
        yield


@pytest.fixture(scope="session")
def builtin() -> ChatFormat:
    return ChatFormat.builtin()


@pytest.fixture(scope="session")
def unpack(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a model's tokenizer; each is unpacked once."""
    pytest.importorskip("transformers")
    target = tmp_path_factory.mktemp("tokenizers")

    def folder(name: str) -> Path:
        if not (target / name).is_dir():
            with tarfile.open(shared / "tokenizers" / f"{name}.tar.xz") as archive:
                archive.extractall(target, filter="data")
        return target / name

    return folder


@pytest.fixture(scope="session")
def qwen2_5(unpack: Callable[[str], Path]) -> ChatFormat:
    return ChatFormat.from_pretrained(unpack("qwen2_5"))


@pytest.fixture(scope="session")
def qwen3(unpack: Callable[[str], Path]) -> ChatFormat:
    return ChatFormat.from_pretrained(unpack("qwen3"))


@pytest.fixture(scope="session")
def deepseek_v3(unpack: Callable[[str], Path]) -> ChatFormat:
    return ChatFormat.from_pretrained(unpack("deepseek_v3"))


@pytest.fixture(scope="session")
def save_qwen2() -> Callable[..., Path]:
    """Return what saves a small random model with the builtin format's ids: `save_qwen2(folder, seed=1)`."""
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra torch is not installed")

    def save(folder: Path, *, seed: int = 0, **sizes: object) -> Path:
        torch.manual_seed(seed)
        usual = {
            "vocab_size": ChatFormat.builtin().vocab_size,
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 256,
            "tie_word_embeddings": False,
        }
        transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**usual | sizes)).save_pretrained(folder)
        return folder

    return save
