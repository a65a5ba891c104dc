"""Environments of OpenEnv servers as token environments.

OpenEnv serves an environment over a WebSocket: `reset` and `step` with actions and observations of JSON. An action is a
tool call here, in the chat template's own dialect: `step` with the fields of the action's schema, or, where the server
offers tools of its own (MCP), one of those. Checked against openenv 0.10.0.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import requests

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.adapters.conversation import Conversation, Said, Spoken, read_said
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import CloneUnsupported, MissingExtra, ResetNeeded, WorldError, unknown_name
from agentgym_tok.types import Message, ToolCall

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["OpenEnvEngine", "OpenEnvWorld"]

_TOOLS = "You act in an environment by calling its tools. What they return is what you see."
_PLAIN = "You act in an environment. Each of your answers is one action, and nothing else."
_REMINDER = "No tool was called. Call one of the tools."
_READY = "The environment is ready."
_MCP_ACTIONS = frozenset({"Action", "CallToolAction", "ListToolsAction"})
"""Titles of action schemas that say nothing of the tools that the server offers."""
_LONGEST = 100 * 2**20


class OpenEnvEngine:
    """Play an environment that an OpenEnv server has; each engine is a session of its own.

    Task `"n"` is `reset(seed=n)`; whether seeds change anything is up to the environment. Rewards are those of its
    steps, summed where a turn calls several tools. It says nothing of success.

    Args:
        url: The server's address, `http://HOST:PORT`.
        tools: Offer actions as tool calls; otherwise the turn's text is the action: JSON by the action's schema, or
            the value of its one required field.
        reset: Further arguments of the environment's own `reset`.
        tasks: How many seeds count as tasks.
        timeout_s: Seconds that the server has for each answer.

    Raises:
        WorldError: The server cannot be reached, or is none of OpenEnv's.
        MissingExtra: The package websockets is not installed.
    """

    blocking = True
    """Harnesses call it in a thread, so that other episodes go on."""

    def __init__(
        self,
        url: str,
        *,
        tools: bool = True,
        reset: Mapping[str, Any] | None = None,
        tasks: int = 1000,
        timeout_s: float = 60.0,
    ) -> None:
        self._url, self._reset, self._timeout_s = url.rstrip("/"), dict(reset or {}), timeout_s
        self.source = f"openenv/{self._get('metadata').get('name', self._url)}"
        self._schema = _without_metadata(self._get("schema")["action"])
        self._is_mcp = self._schema.get("title") in _MCP_ACTIONS
        self._tasks = tuple(map(str, range(tasks)))
        self._task = self._tasks[0]
        self._session: ClientConnection | None = None
        self._left = contextlib.ExitStack()
        self._running = False
        self.tools: tuple[Mapping[str, Any], ...] = self._offered() if tools else ()

    def tasks(self) -> Sequence[str]:
        """Return the seeds as task ids."""
        return self._tasks

    def reset(self, task: str | None = None) -> Spoken:
        """Start the episode of a seed, in a new session if the last one has ended.

        Raises:
            UnknownName: The task is no seed of this engine.
            WorldError: The server failed.
        """
        if task is not None:
            if task not in self._tasks:
                raise unknown_name("task", task, self._tasks, where=self.source)
            self._task = task
        self._running = False
        seen = self._observed(self._ask("reset", {**self._reset, "seed": int(self._task)}))
        self._running = not seen["done"]
        messages = (Message("system", self._words(), trusted=True), Message("user", seen["text"]))
        return Spoken(
            seen["text"],
            success=None,
            facts={"observation": seen["observation"]},
            messages=messages,
            tools=self.tools,
        )

    def step(self, command: str) -> Spoken:
        """Take the actions of a turn: the JSON of `Said`, or plain text.

        Raises:
            ResetNeeded: No episode is running.
            WorldError: The server failed.
        """
        if not self._running:
            raise ResetNeeded("no episode is running", where=self.source, fix="call reset")
        said = read_said(command)
        self._running = False  # until all actions are taken
        reward, done, valid, messages = 0.0, False, True, list[Message]()
        observation: Mapping[str, Any] = {}
        for call, action in self._actions(said):
            seen = self._refused("this is no action of the environment") if action is None else self._take(action)
            reward, done = reward + seen["reward"], seen["done"]
            valid, observation = valid and seen["valid"], seen["observation"]
            messages.append(_answer(call, seen["text"]))
            if done:
                break
        if not messages:
            valid, messages = False, [Message("user", _REMINDER, trusted=True)]
        self._running = not done
        return Spoken(
            "\n".join(message.content for message in messages),
            reward=reward,
            terminated=done,
            success=None,
            valid=valid,
            facts={"observation": observation},
            messages=tuple(messages),
            tools=self.tools,
        )

    def clone(self) -> NoReturn:
        """Refuse: what a server holds cannot be copied.

        Raises:
            CloneUnsupported: Always.
        """
        raise CloneUnsupported("a session of a server cannot be copied", where=self.source, fix="reset another engine")

    def task_info(self) -> Mapping[str, Any]:
        """Return the task's id."""
        return {"task": self._task}

    def expert_command(self) -> str | None:
        """Return None: these environments have no expert."""
        return None

    def close(self) -> None:
        """Leave the session."""
        session, self._session = self._session, None
        self._running = False
        if session is not None:
            with contextlib.suppress(Exception):  # the server may be gone
                session.send(json.dumps({"type": "close"}))
            with contextlib.suppress(Exception):
                self._left.close()

    # ---- actions and observations

    def _words(self) -> str:
        if self.tools:
            return _TOOLS
        if _only_field(self._schema) is not None:
            return f"{_PLAIN} It is taken as it is."
        return f"{_PLAIN} It is JSON by this schema: {json.dumps(self._schema)}"

    def _offered(self) -> tuple[Mapping[str, Any], ...]:
        """Return the server's own tools, or `step` with the fields of an action."""
        if not self._is_mcp:
            return (_tool("step", self._schema.get("description", ""), self._schema),)
        told = self._ask("step", {"type": "list_tools"})["observation"]["tools"]
        return tuple(_tool(tool["name"], tool["description"], tool["input_schema"]) for tool in told)

    def _actions(self, said: Said) -> list[tuple[ToolCall | None, Mapping[str, Any] | None]]:
        """Return the actions of a turn, each with its call; None where a call is none of the tools."""
        if said.calls:
            return [(call, self._called(call)) for call in said.calls]
        action = self._written(said.content)
        return [] if action is None and self.tools else [(None, action)]

    def _called(self, call: ToolCall) -> Mapping[str, Any] | None:
        if self._is_mcp:
            return {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
        return call.arguments if call.name == "step" else None

    def _written(self, text: str) -> Mapping[str, Any] | None:
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(text)
            if isinstance(given, dict):
                return {"type": "call_tool", **given} if self._is_mcp else given
        field = _only_field(self._schema)
        return None if field is None or self._is_mcp else {field: text}

    def _take(self, action: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._observed(self._ask("step", action))
        except _RefusedError as refused:
            return self._refused(str(refused))

    @staticmethod
    def _refused(why: str) -> dict[str, Any]:
        return {"text": f"Refused: {why}", "reward": 0.0, "done": False, "valid": False, "observation": {}}

    @staticmethod
    def _observed(told: Mapping[str, Any]) -> dict[str, Any]:
        given = told["observation"]
        observation = {name: part for name, part in given.items() if name != "metadata"}
        shown = observation or given.get("metadata") or {}  # servers of tools say their first words there
        return {
            "text": _text_of(shown) if shown else _READY,
            "reward": float(told.get("reward") or 0.0),
            "done": bool(told.get("done")),
            "valid": observation.get("error") is None,
            "observation": observation,
        }

    # ---- the wire

    def _get(self, page: str) -> dict[str, Any]:
        try:
            answer = requests.get(f"{self._url}/{page}", timeout=self._timeout_s)
            answer.raise_for_status()
            told: dict[str, Any] = answer.json()
        except (requests.RequestException, ValueError) as error:
            fix = "check that an OpenEnv server runs there"
            raise WorldError(
                "the server does not answer", where=f"{self._url}/{page}", got=str(error), fix=fix
            ) from error
        return told

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            session = self._session or self._left.enter_context(_connect(self._url, self._timeout_s))
            self._session = session
            session.send(json.dumps({"type": kind, "data": data}))
            told = json.loads(session.recv(timeout=self._timeout_s))
        except MissingExtra:
            raise
        except Exception as error:  # of the network, of time, of a server that goes away
            self.close()  # what comes late would be taken for the next answer
            got = f"{type(error).__name__}: {error}"
            raise WorldError("the session with the server broke", where=self.source, got=got) from error
        answer: Mapping[str, Any] = told.get("data", {})
        if told.get("type") == "observation":
            return answer
        words = "; ".join([str(answer.get("message")), *map(_place, answer.get("errors", ()))])
        if answer.get("code") == "VALIDATION_ERROR" and kind == "step":
            raise _RefusedError(words)
        self.close()
        raise WorldError("the environment failed", where=self.source, got=f"{answer.get('code')}: {words}")


class _RefusedError(Exception):
    """The server takes an action for none: that is the policy's business, not a failure."""


def _place(error: Mapping[str, Any]) -> str:
    return f"{'.'.join(map(str, error.get('loc', ())))}: {error.get('msg')}"


def _connect(url: str, timeout_s: float) -> "contextlib.AbstractContextManager[ClientConnection]":
    try:
        from websockets.sync.client import connect  # noqa: PLC0415  # extra `openenv`
    except ImportError as error:
        fix = 'pip install "agentgym-tok[openenv]"'
        raise MissingExtra("OpenEnv servers need websockets", where="OpenEnvEngine", fix=fix) from error
    address = "ws" + url.removeprefix("http") + "/ws"
    return connect(address, open_timeout=timeout_s, max_size=_LONGEST, proxy=None if _is_here(url) else True)


def _is_here(url: str) -> bool:
    return url.partition("://")[2].startswith(("localhost", "127.0.0.1", "[::1]"))


def _without_metadata(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: field for name, field in schema.get("properties", {}).items() if name != "metadata"}
    return {**schema, "properties": fields}


def _only_field(schema: Mapping[str, Any]) -> str | None:
    """Return the field that a plain text can be: the only required one, if it holds text."""
    required = schema.get("required", [])
    if len(required) != 1 or schema["properties"].get(required[0], {}).get("type") != "string":
        return None
    return str(required[0])


def _tool(name: str, description: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def _answer(call: ToolCall | None, text: str) -> Message:
    if call is None:
        return Message("user", text)
    return Message("tool", text, tool_call_id=call.id, name=call.name)


def _text_of(observation: Mapping[str, Any]) -> str:
    """Return an observation as words: of a tool its result, of one text that, of anything else JSON."""
    if observation.get("error") is not None:
        error = observation["error"]
        return str(error.get("message", error)) if isinstance(error, Mapping) else str(error)
    told = {name: part for name, part in observation.items() if part is not None}
    if "tool_name" in told and "result" in told:
        return _result(told["result"])
    if len(told) == 1:
        (only,) = told.values()
        if isinstance(only, str):
            return only
    return json.dumps(told, ensure_ascii=False)


def _result(result: Any) -> str:
    parts = result.get("content") if isinstance(result, Mapping) else None
    if isinstance(parts, list) and all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts):
        return "\n".join(str(part["text"]) for part in parts)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


class OpenEnvWorld(TokenEnv):
    """An environment of an OpenEnv server, in token ids.

    The observation is the whole context; the action is a turn as sampled. An episode ends where the environment says
    so, and is truncated after `max_steps` or where the next context would pass `max_context`.

    Args:
        chat: Tokenizer and template; None takes the builtin format.
        url: The server's address, `http://HOST:PORT`.
        tools: Offer actions as tool calls; otherwise the turn's text is the action.
        reset: Further arguments of the environment's own `reset`.
        tasks: How many seeds count as tasks.
        timeout_s: Seconds that the server has for each answer.
        max_steps: Turns after which the episode is truncated.
        max_context: Most ids of an observation.
        max_action: Most ids of an action.
        render_mode: `"ansi"` or None.

    Raises:
        ConfigError: Tools are offered, and the template has no word for calls.
        WorldError: The server cannot be reached, or is none of OpenEnv's.
        MissingExtra: The package websockets is not installed.
    """

    def __init__(
        self,
        chat: ChatFormat | None = None,
        *,
        url: str,
        tools: bool = True,
        reset: Mapping[str, Any] | None = None,
        tasks: int = 1000,
        timeout_s: float = 60.0,
        max_steps: int = 50,
        max_context: int = 32_768,
        max_action: int = 8_192,
        render_mode: str | None = None,
    ) -> None:
        engine = OpenEnvEngine(url, tools=tools, reset=reset, tasks=tasks, timeout_s=timeout_s)
        super().__init__(
            engine,
            chat or ChatFormat.builtin(),
            Conversation(engine.tools),
            max_steps=max_steps,
            max_context=max_context,
            max_action=max_action,
            render_mode=render_mode,
        )
