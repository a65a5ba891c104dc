"""What every policy shares, and how plain callables become one."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from agentgym_tok.chat import ChatFormat
from agentgym_tok.chat.stops import stop_end
from agentgym_tok.errors import AgentGymTokError, PolicyError, TransientPolicyError
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.types import Completion, Delta, FinishReason, Message, Request, Sampling

__all__ = ["BasePolicy", "CallablePolicy", "Listen", "Tell", "tell_all"]

Listen: TypeAlias = Callable[[Request, int, int, float], bool]
"""Gets the request, the token's place in the turn, the id and its log-probability; false breaks the turn off.

Called in the thread that draws. A turn that is drawn again, as where memory ran out, is told again from its beginning.
"""

Tell: TypeAlias = Callable[[Delta], Awaitable[None]]
"""Takes each piece of a turn; the next one is read when it returns."""


async def tell_all(pieces: AsyncGenerator[Delta, None], tell: Tell, name: str) -> Completion:
    """Tell all pieces of a turn but the last one, which holds the whole of it and is returned.

    Args:
        pieces: Of `Policy.stream`; they are closed.
        tell: Takes each.
        name: The policy's, for errors.

    Raises:
        PolicyError: They end without one.
    """
    async with aclosing(pieces):
        async for piece in pieces:
            if piece.completion is not None:
                return piece.completion
            await tell(piece)
    raise PolicyError("the turn never ended", where=name)


class BasePolicy:
    """Answer one request after the other, and stream by answering whole.

    A policy of one's own overrides `answer`; one that draws a batch at once overrides `generate` instead.
    """

    name = "policy"
    deterministic = False
    wants_info = False
    listens = False
    """`generate` takes `listen`, which is told of each token, and says whether its turn goes on."""
    context_limit: int | None = None
    """Most ids of a context together with its turn; None where the policy knows none."""

    def answer(self, request: Request) -> Completion:
        """Answer one request; what it raises costs this turn alone."""
        raise NotImplementedError

    def generate(self, requests: Sequence[Request]) -> Sequence[Completion | Exception]:
        """Answer a batch, in order; an exception in a turn's place says why there is none."""
        return [self._kept(request) for request in requests]

    def _kept(self, request: Request) -> Completion | Exception:
        try:
            return self.answer(request)
        except Exception as error:  # noqa: BLE001  # the other requests' turns are drawn, and must not be lost
            return error

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Answer one request; the only piece is the whole turn."""
        (answer,) = self.generate([request])
        if isinstance(answer, Exception):
            raise answer
        yield Delta(answer.ids_T, answer.logprobs_T, answer)


class CallablePolicy(BasePolicy):
    """Make a policy of a function from ids to ids.

    The function gets the context (int32 [T], read-only) and returns the turn: ids, or a pair of ids and their
    log-probabilities in nats, or a whole `Completion`. Its ids count as sampled; without log-probabilities they are
    kept and never trained. Where temperature, top-k or top-p change what is drawn from, a pair does not say which
    log-probabilities it holds, and only a `Completion` is taken. Nobody holds it to `Sampling.stop`: a function that
    takes the request can end its turn there.

    Args:
        function: `ids -> ids`. One that takes two arguments also gets the `Request`.
        chat: Knows the stop tokens and the vocabulary.
        name: The name that results carry.
        deterministic: The function promises equal ids for equal contexts and seeds.
    """

    def __init__(
        self, function: Callable[..., Any], chat: ChatFormat, *, name: str | None = None, deterministic: bool = False
    ) -> None:
        self._function = function
        self._chat = chat
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.deterministic = deterministic
        self._with_request = _takes_two(function)

    def answer(self, request: Request) -> Completion:
        """Call the function.

        Raises:
            PolicyError: The function raised (`transient` where it met no connection or no answer in time), or returned
                no ids of this vocabulary, or log-probabilities of who knows what.
            InvalidLogprobs: The log-probabilities do not fit the ids.
        """
        try:
            arguments = (request.ids_T, request) if self._with_request else (request.ids_T,)
            answer = self._function(*arguments)
        except AgentGymTokError:
            raise
        except Exception as error:
            what = f"the policy raised {type(error).__name__}"
            kind = TransientPolicyError if isinstance(error, (ConnectionError, TimeoutError)) else PolicyError
            raise kind(what, where=self.name, got=str(error)) from error
        if isinstance(answer, Completion):
            return answer
        ids, logprobs = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, None)
        try:
            ids_T = as_ids(ids, where=f"turn of {self.name}", vocab_size=self._chat.vocab_size)
        except AgentGymTokError as error:
            raise PolicyError(
                "the policy returned no ids",
                where=self.name,
                got=str(error),
                expected="1-D integers, or (ids, logprobs)",
            ) from error
        if logprobs is not None and not draws_untouched(request.sampling):
            raise PolicyError(
                "nobody says what the log-probabilities are of",
                where=self.name,
                got=f"(ids, logprobs) under {request.sampling}",
                expected='a Completion that says logprobs="raw" or "processed"',
            )
        return Completion(
            ids_T,
            logprobs,
            finish_reason=finish_reason(self._chat, ids_T, request.sampling.stop),
            logprobs="missing" if logprobs is None else "raw",
            engine=self.name,
            sampling=request.sampling,
        )


def draws_untouched(sampling: Sampling) -> bool:
    """Tell whether tokens are drawn from the model's own distribution, so that `raw` and `processed` are one."""
    return sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0


def finish_reason(chat: ChatFormat, ids_T: Ids, stop: Sequence[str] = ()) -> FinishReason:
    """Return `stop` where the turn ends in a stop token or with a stop string, else `length`."""
    if len(ids_T) and int(ids_T[-1]) in chat.stop_ids:
        return "stop"
    return "stop" if stop_end(chat, ids_T, stop) == len(ids_T) else "length"


def demonstration(chat: ChatFormat, turn: str | Message, engine: str, sampling: Sampling) -> Completion:
    """Return a turn that was written, not sampled."""
    return Completion(chat.encode_turn(turn), engine=engine, sampling=sampling, origin="demonstration")


def _takes_two(function: Callable[..., Any]) -> bool:
    import inspect  # noqa: PLC0415  # slow to import, and needed here only

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.default is p.empty and p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}
    ]
    return len(required) == 2
