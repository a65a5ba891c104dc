"""`openai:URL#MODEL`: servers that read and write text, such as Ollama, LM Studio or a hosted API (extra `engines`)."""

import logging

from pydantic import PositiveFloat, PositiveInt

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies.base import Tell
from agentgym_tok.policies.http.engine import HttpEngine
from agentgym_tok.policies.http.failures import Garbled, Refused
from agentgym_tok.policies.http.policy import HttpPolicy, split_address
from agentgym_tok.policies.http.text_servers import ROUTES, Asked, Route
from agentgym_tok.types import Completion, Request, Sampling

__all__ = ["OpenAIPolicy"]

_LOG = logging.getLogger(__name__)


class OpenAIPolicy(HttpPolicy):
    """Sample from a server that knows text only: for evaluation, since learners refuse turns of guessed ids.

    The context goes to the server as text and the answer is encoded again, so every turn says `ids_exact=False`. One
    server of this kind takes and returns ids, llama.cpp's own; there the turns are exact. When it is made it draws one
    token, through the first of these endpoints that answers; `describe` says which:

    1. `/completion` of llama.cpp, with ids, and log-probabilities of the model's own distribution (`raw`).
    2. `/api/generate` of Ollama, `raw`, so that it puts no template around the prompt.
    3. `/v1/completions` with every sampling parameter, so that the server's own defaults have no say.
    4. `/v1/completions` with those that OpenAI has; a turn that needs another is refused.

    Chat endpoints are not used: they take messages and put a template of their own around them, while a policy is asked
    with ids that a template is in already.

    Args:
        target: `URL#MODEL`, such as `http://127.0.0.1:11434#qwen3:4b`; the URL may end in `/v1`.
        chat: Writes contexts as text and reads turns.
        concurrency: Most requests in flight.
        timeout_s: Longest wait for one turn, in seconds; a request's deadline may be earlier.

    Raises:
        ConfigError: The address is none.
        PolicyError: The server does not answer, or has none of these endpoints.
    """

    def __init__(
        self, target: str, chat: ChatFormat, *, concurrency: PositiveInt = 16, timeout_s: PositiveFloat = 600.0
    ) -> None:
        url, self._model = split_address(target)
        super().__init__(HttpEngine(url, concurrency=concurrency, timeout_s=timeout_s))
        self._chat = chat
        self.name = self.engine = f"openai:{self._model}"
        self._passed: list[str] = []
        try:
            self._engine.loop.run(self._probe())
        except BaseException:
            self.close()
            raise
        _LOG.info("%s", self.describe())

    def describe(self) -> str:
        """Say what the server offers, and what is used of it."""
        ids = "exact ids" if self._route.exact else "text, so that every turn is inexact and never trained"
        passed = "".join(f"; not {reason}" for reason in self._passed)
        return f"{self.engine} at {self._engine.url}: {ids}{passed}"

    async def draw(self, request: Request, room: int, tell: Tell | None) -> Completion:  # noqa: ARG002
        """Make one attempt at a turn; it comes whole.

        Raises:
            Transient: Another attempt may help.
            PolicyError: None will.
        """
        return await self._draw(self._route, request, room)

    async def _draw(self, route: Route, request: Request, room: int) -> Completion:
        body = {"model": self._model} if self._model else {}
        answer = await self._engine.ask(route.path, body | route.body(self._chat, request, room))
        return route.read(answer, Asked(self._chat, request, self._engine.url + route.path, self.engine))

    async def _probe(self) -> None:
        request = Request(self._chat.encode("Hello"), Sampling(max_tokens=1), seed=1)
        for route in ROUTES:
            try:
                await self._engine.retrying(lambda route=route: self._draw(route, request, 1))  # type: ignore[misc]
            except (Refused, Garbled) as error:
                self._passed.append(f"{route.name}: {error.got}")
                continue
            self._route = route
            self.engine += f" {route.name}"
            return
        raise PolicyError(
            "the server completes no text",
            where=self._engine.url,
            got="; ".join(self._passed),
            expected="/v1/completions, or the endpoints of llama.cpp or Ollama",
            fix="name the model, and check that the server offers completions and not only chat",
        )
