"""New weights for a running vLLM: files that it reads while it stands still between two tokens (extra `torch`).

See `docs/design/weights.md` for the endpoints that were tried. Those used here exist where the server was started with
`VLLM_SERVER_DEV_MODE=1`: `/server_info`, `/pause`, `/collective_rpc` (`reload_weights`), `/weight_checker`,
`/update_weight_version`, `/resume`.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agentgym_tok.errors import MissingExtra, PolicyError
from agentgym_tok.policies.http.engine import HttpEngine
from agentgym_tok.policies.http.failures import Refused
from agentgym_tok.policies.http.version_gate import VersionGate

try:
    import torch
except ImportError as error:
    raise MissingExtra(
        "new weights need torch", where="policy vllm:", fix='pip install "agentgym-tok[torch]"'
    ) from error

from agentgym_tok.policies.weight_files import WeightFiles
from agentgym_tok.policies.weight_proof import WeightProof
from agentgym_tok.policies.weights import WeightDelta

__all__ = ["ServedWeights"]

_LOG = logging.getLogger(__name__)


class ServedWeights:
    """Put new weights into a server, and know which it holds.

    Args:
        engine: The server.
        root: The folder that it serves, which this machine sees too.
        name: The policy's name, for what is logged.
        gate: Holds turns back while weights change, where the server does not say whose each token is; None where it
            does, and turns in flight just stand still.

    Raises:
        PolicyError: The folder is not on this machine.
    """

    def __init__(self, engine: HttpEngine, root: str | Path, name: str, gate: VersionGate | None) -> None:
        self._engine = engine
        self._name = name
        self._gate = gate
        self._files = WeightFiles(root)
        self._lock = threading.Lock()
        self._proof: WeightProof | None = None

    def update(self, state: "Mapping[str, torch.Tensor] | WeightDelta", version: str) -> None:
        """Write the weights, let the server read them, and see that it did; if not, it gets the old ones back.

        Raises:
            PolicyError: They are not this model's; or the server takes no weights, or did not take these.
        """
        with self._lock:
            if self._proof is None:
                found = self._engine.loop.run(self._checksums())
                self._files.check_head(self._engine.loop.run(self._device()), self._engine.url)
                self._proof = WeightProof(self._files.read(), [found], self._engine.url)
            folder, own = self._files.next(state)
            expected = self._proof.expect(own)
            del own
            self._engine.loop.run(self._swap(self._proof, folder, version, expected))

    async def _swap(self, proof: WeightProof, folder: Path, version: str, expected: Mapping[str, str]) -> None:
        # Shielded: whoever interrupts the caller must not leave a server that stands still.
        await asyncio.shield(self._swap_all(proof, folder, version, expected))

    async def _swap_all(self, proof: WeightProof, folder: Path, version: str, expected: Mapping[str, str]) -> None:
        async with AsyncExitStack() as stack:
            if self._gate is not None:
                await stack.enter_async_context(self._gate.alone())
            start = time.perf_counter()
            try:
                # Turns in flight keep their tokens. The cache goes, so that new weights compute all that comes.
                await self._ask("/pause?mode=keep&clear_cache=true", {})
                await self._load(folder)
                proof.check(expected, [await self._checksums()])
                await self._ask("/update_weight_version", {"new_version": version})
            except BaseException as error:
                await self._put_back(error)
                self._files.drop(folder)
                raise
            self._files.keep(folder)
            if self._gate is not None:
                self._gate.version = version
            await self._ask("/resume", {})
        seconds, count = time.perf_counter() - start, len(expected)
        _LOG.info(
            "%s has weights %s after %.2f s of pause; %d tensors proven equal; its KV cache is dropped, and turns in "
            "flight compute theirs again",
            self._name,
            version,
            seconds,
            count,
        )

    async def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return await self._engine.retrying(lambda: self._engine.ask(path, body))  # each may be asked twice

    async def _load(self, folder: Path) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        await self._ask("/collective_rpc", body)

    async def _put_back(self, reason: BaseException) -> None:
        # A vLLM whose loading broke off has lost its tensors, and its next forward pass ends it: never resume that.
        try:
            await self._load(self._files.newest)
            await self._ask("/resume", {})
        except PolicyError as error:
            raise PolicyError(
                "the server has neither the new weights nor the old ones, and stands still",
                where=self._engine.url,
                got=f"{reason}; then {error}",
                fix="start it again",
            ) from reason

    async def _device(self) -> str:
        """Return where the server computes, as it says of its configuration; empty where it does not say."""
        try:
            told = await self._ask("/server_info")
        except PolicyError:
            return ""
        found = re.search(r"device_config=([a-z]+)", str(told.get("vllm_config")) if isinstance(told, dict) else "")
        return found[1] if found else ""

    async def _checksums(self) -> dict[str, str]:
        try:
            found = await self._ask("/weight_checker", {"action": "checksum"})
        except Refused as error:
            raise PolicyError(
                "the server takes no weights",
                where=self._engine.url,
                got=error.got,
                fix="start vLLM 0.32 or later with VLLM_SERVER_DEV_MODE=1, where only friends reach it",
            ) from error
        checksums: dict[str, str] = found["checksums"]
        return checksums
