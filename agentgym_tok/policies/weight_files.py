"""A served model's weights as files, one version after the other: what engines that load from disk are given."""

import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from agentgym_tok.errors import PolicyError
from agentgym_tok.policies import weights

__all__ = ["WeightFiles"]

_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"


class WeightFiles:
    """Keep the newest weights of a model in a folder of their own, and leave the model's folder as it is.

    The folder lies where temporary files do (`TMPDIR`), and goes with this object.

    Args:
        served: The model's own folder.

    Raises:
        PolicyError: It holds no safetensors on this machine.
    """

    def __init__(self, served: str | Path) -> None:
        self.newest = Path(served)
        if not any(self.newest.glob("*.safetensors")):
            raise PolicyError(
                "the model's weights are not within reach",
                where=str(served),
                got="no safetensors there on this machine",
                expected="the folder that the engine serves",
                fix="serve a folder by its path, on this machine or on a disk that both see",
            )
        self._made = Path(tempfile.mkdtemp(prefix="agentgym-tok-weights-"))
        self._count = 0
        weakref.finalize(self, shutil.rmtree, self._made, ignore_errors=True)

    def next(self, state: "Mapping[str, torch.Tensor] | weights.WeightDelta") -> tuple[Path, dict[str, torch.Tensor]]:
        """Write the weights that come after the newest ones.

        Args:
            state: All tensors, rounded to the dtype of the files, or what changed in them.

        Returns:
            Their folder, and the tensors by name.

        Raises:
            PolicyError: They are not this model's, or a change does not lead to the weights that were sent.
        """
        own = self.read()
        tied = self._tied(own)
        if tied:  # files leave the second name of tied tensors out, state dicts do not
            own[_HEAD] = own[tied]
        if isinstance(state, weights.WeightDelta):
            weights.apply(own, state)
        else:
            weights.copy_into(own, state)
        if tied:
            del own[_HEAD]
        self._count += 1
        folder = self._made / str(self._count)
        folder.mkdir()
        save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
        return folder, own

    def keep(self, folder: Path) -> None:
        """Make these the newest weights, and remove those before."""
        before, self.newest = self.newest, folder
        self.drop(before)

    def drop(self, folder: Path) -> None:
        """Remove weights that were written here."""
        if folder.parent == self._made:
            shutil.rmtree(folder, ignore_errors=True)

    def check_head(self, device: str, where: str) -> None:
        """Refuse a model whose output head is its embedding, where an engine would go on with the old head.

        vLLM 0.32 packs the head for a CPU when it starts. A reload of the embedding packs that anew, and not the head,
        which then draws from the weights of before; no checksum shows it.

        Args:
            device: Where the engine computes, as it says; empty where it does not say.
            where: Names the engine in errors.

        Raises:
            PolicyError: The model is of this kind, and the engine on a CPU, or who knows where.
        """
        if (not device or device == "cpu") and self._tied(self.read()):
            raise PolicyError(
                "the engine would keep the old output head",
                where=where,
                got=f"tied embeddings, device {device or 'unknown'}",
                expected="a head of its own in the files, or a GPU",
                fix="serve a copy with tie_word_embeddings=false in its config.json and lm_head.weight in its files",
            )

    @staticmethod
    def _tied(own: Mapping[str, torch.Tensor]) -> str | None:
        """Return the name of the embedding that is the head, too; None where the head has values of its own."""
        return None if _HEAD in own else next((name for name in own if name.endswith(_EMBEDDING)), None)

    def read(self) -> dict[str, torch.Tensor]:
        """Return the newest weights, by name."""
        index = self.newest / "model.safetensors.index.json"
        if index.is_file():
            files = [self.newest / name for name in sorted(set(json.loads(index.read_bytes())["weight_map"].values()))]
        else:
            files = sorted(self.newest.glob("*.safetensors"))
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
