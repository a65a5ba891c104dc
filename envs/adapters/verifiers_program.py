"""The other side of `VerifiersEngine`: plays environments of `verifiers` in an interpreter that has that package.

It is run as a file and imports nothing of this library, whose packages that interpreter need not have. Each line on
standard input is a command, each line on its standard output an answer, both JSON; what environments print goes to
standard error. The environment runs its own loop; in the place of a model stands whoever answers here.
"""

import asyncio
import importlib
import json
import os
import sys
import threading
import types
from contextlib import AsyncExitStack
from typing import Any


def main() -> None:
    """Load one environment, then play episodes until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(_Desk(answers).serve())


class _Desk:
    """Read commands, and write what episodes ask and how they end."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._playing: dict[int, asyncio.Task[None]] = {}
        self._environment: Any = None

    async def serve(self) -> None:
        commands: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
            os._exit(0)  # whoever asked is gone, and an environment may hang

        threading.Thread(target=read, daemon=True).start()
        while True:
            self._obey(await commands.get())

    def _obey(self, command: dict[str, Any]) -> None:
        episode = command.get("episode", 0)
        if command["do"] == "load":
            self._playing[0] = asyncio.ensure_future(self._load(command))
        elif command["do"] == "start":
            self._playing[episode] = asyncio.ensure_future(self._play(episode, command["task"]))
        elif command["do"] == "say":
            waiting = self._waiting.pop(episode, None)
            if waiting is not None:
                waiting.set_result(command)
        elif episode in self._playing:
            self._playing.pop(episode).cancel()

    def _write(self, **answer: Any) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    async def _load(self, command: dict[str, Any]) -> None:
        try:
            if _is_classic(command["environment"]):
                self._environment = _Classic(command)
            else:
                self._environment = _Current(command)
                await self._environment.open()
            self._write(episode=0, loaded=self._environment.about())
        except Exception as error:  # noqa: BLE001  # whatever an environment raises is told, in its words
            self._write(episode=0, failed=_words(error))

    async def _play(self, episode: int, task: int) -> None:
        async def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
            if episode in self._waiting:
                raise RuntimeError("the environment asks for two turns at once")
            self._waiting[episode] = asyncio.get_running_loop().create_future()
            self._write(episode=episode, asks={"messages": messages, "tools": tools})
            return await self._waiting[episode]

        try:
            self._write(episode=episode, ends=await self._environment.play(task, ask))
        except Exception as error:  # noqa: BLE001  # as above
            self._write(episode=episode, failed=_words(error))
        finally:
            waiting = self._waiting.pop(episode, None)
            if waiting is not None:
                waiting.cancel()
            self._playing.pop(episode, None)


def _words(error: BaseException) -> str:
    cause = "" if error.__cause__ is None else f"; because of {_words(error.__cause__)}"
    return f"{type(error).__name__}: {error}{cause}"


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _is_classic(environment: str) -> bool:
    """Tell whether a module has `load_environment`, as environments had before verifiers 0.4."""
    name = environment.rsplit("/", 1)[-1].replace("-", "_")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return False  # a taskset that comes with verifiers
    return hasattr(module, "load_environment")


def _plain(message: Any) -> dict[str, Any]:
    """Return a message as the OpenAI API has it; one that holds more than text is refused."""
    given = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    content = given.get("content")
    if isinstance(content, list):
        kinds = {part.get("type") for part in content}
        if kinds - {"text"}:
            raise ValueError(f"only text can be shown to the policy, got parts of type {sorted(map(str, kinds))}")
        content = "\n".join(part["text"] for part in content)
    out = {"role": given["role"], "content": content or ""}
    for name in ("tool_call_id", "name", "reasoning_content"):
        if given.get(name) is not None:
            out[name] = given[name]
    if given.get("tool_calls"):
        out["tool_calls"] = [_plain_call(call) for call in given["tool_calls"]]
    return out


def _plain_call(call: Any) -> dict[str, Any]:
    given = call if isinstance(call, dict) else call.model_dump(exclude_none=True)
    function = given.get("function", given)
    return {
        "id": given["id"],
        "type": "function",
        "function": {"name": function["name"], "arguments": function["arguments"]},
    }


def _schema(tool: Any) -> dict[str, Any]:
    given = tool if isinstance(tool, dict) else tool.model_dump(exclude_none=True)
    named = {name: given[name] for name in ("name", "description", "parameters")}
    return {"type": "function", "function": named}


def _last_words(messages: list[Any]) -> list[dict[str, Any]]:
    """Return what stands behind the last turn."""
    given = [message if isinstance(message, dict) else message.model_dump(exclude_none=True) for message in messages]
    turns = [place for place, message in enumerate(given) if message["role"] == "assistant"]
    return [_plain(message) for message in given[turns[-1] + 1 if turns else 0 :]]


class _Classic:
    """Play an environment of `load_environment`: a dataset, a loop of its own, and a rubric."""

    def __init__(self, command: dict[str, Any]) -> None:
        self._vf = _module("verifiers")
        self._environment = self._vf.load_environment(command["environment"], **command["arguments"])
        if self._environment.requires_group_rollouts:
            raise ValueError("its rubric scores whole groups, and here each episode is scored alone")
        make = self._environment.get_dataset if command["split"] == "train" else self._environment.get_eval_dataset
        self._rows = make().to_list()
        self._client = type("Asking", (_Asking, _module("verifiers.clients").Client), {})

    def about(self) -> dict[str, Any]:
        tools = [_schema(tool) for tool in self._environment.tool_defs or []]
        threshold = getattr(self._environment, "pass_threshold", None)
        version = self._vf.__version__
        return {"tasks": len(self._rows), "tools": tools, "threshold": threshold, "version": version}

    async def play(self, task: int, ask: Any) -> dict[str, Any]:
        out = await self._environment.run_rollout(self._rows[task], self._client(ask), "agentgym_tok", {})
        if out.get("error"):
            raise RuntimeError(out["error"].get("error_chain_repr") or str(out["error"]))
        return {
            "reward": out["reward"],
            "metrics": out.get("metrics") or {},
            "stop": out.get("stop_condition"),
            "messages": _last_words(out.get("completion") or []),
        }


class _Asking:
    """A client that asks here instead of an engine; what only engines need is left out."""

    def __init__(self, ask: Any) -> None:
        self._config = self._client = None
        self._ask = ask

    async def get_response(self, prompt: Any, model: str, tools: Any = None, **_: Any) -> Any:
        said = await self._ask([_plain(message) for message in prompt], [_schema(tool) for tool in tools or []])
        turn, finish = said["message"], said["finish"]
        parts = _module("verifiers.types")
        calls = [parts.ToolCall(id=call["id"], **call["function"]) for call in turn.get("tool_calls", ())]
        message = parts.ResponseMessage(
            content=turn["content"],
            reasoning_content=turn.get("reasoning_content"),
            tool_calls=calls or None,
            finish_reason=finish,
            is_truncated=finish == "length",
        )
        return parts.Response(id="turn", created=0, model=model, message=message)

    def _unneeded(self, *_: Any) -> Any:
        raise NotImplementedError

    setup_client = to_native_tool = to_native_prompt = get_native_response = _unneeded
    raise_from_native_response = from_native_response = close = _unneeded


class _Current:
    """Play a taskset of `verifiers.v1`: tasks, a harness that asks a model over HTTP, and rewards of its traces.

    The harness is a loop of this process, and the model an endpoint of it, which the environment's own interception
    server asks as it asks any other.
    """

    def __init__(self, command: dict[str, Any]) -> None:
        self._vf, self._version = _module("verifiers.v1"), _module("verifiers").__version__
        loaders, name = _module("verifiers.v1.utils.loaders"), command["environment"]
        roles = list(_module("verifiers.v1.configs.agent").agent_config_fields(loaders.env_config_type(name)()))
        if len(roles) != 1:
            raise ValueError(f"it has agents {', '.join(roles)}, and here one policy plays one agent")
        _install_harness(self._vf)
        given = dict(command["arguments"])
        agent = {"harness": {"id": _HARNESS}, "runtime": {"type": "subprocess"}, **given.pop(roles[0], {})}
        config = {"taskset": {"id": name, **given}, roles[0]: agent}
        self._environment = loaders.load_environment(loaders.resolve_env_config(config))
        tasks = self._environment.taskset
        self._tasks = list(tasks if tasks.bounded else tasks.take(command["limit"]))
        self._asking: dict[str, Any] = {}
        self._asked = 0
        self._url = ""

    async def open(self) -> None:
        web = _module("aiohttp.web")
        app = web.Application(client_max_size=2**30)
        app.router.add_post("/v1/chat/completions", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._serving = self._environment.serving()
        await self._serving.__aenter__()  # until the process ends

    def about(self) -> dict[str, Any]:
        return {"tasks": len(self._tasks), "tools": [], "threshold": None, "version": self._version}

    async def play(self, task: int, ask: Any) -> dict[str, Any]:
        self._asked += 1
        model = f"episode-{self._asked}"
        self._asking[model] = ask
        endpoint = self._vf.EvalClientConfig(base_url=self._url, api_key_var="AGENTGYM_TOK_NO_KEY")
        try:
            episode = await self._environment.run_episode(
                self._tasks[task], self._vf.ModelContext(model=model, client=endpoint)
            )
        finally:
            del self._asking[model]
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if not episode.ok:
            raise RuntimeError("; ".join(f"{error.type}: {error.message}" for error in errors) or "it failed")
        (trace,) = episode.traces
        rewards = {name: reward.score for name, reward in trace.rewards.items() if reward is not None}
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        return {"reward": trace.reward, "metrics": {**metrics, **rewards}, "stop": trace.stop_condition, "messages": []}

    async def _answer(self, request: Any) -> Any:
        body = await request.json()
        ask = self._asking[body["model"]]
        said = await ask([_plain(message) for message in body["messages"]], body.get("tools") or [])
        choice = {"index": 0, "message": said["message"], "finish_reason": said["finish"]}
        answer = {"id": "turn", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return _module("aiohttp.web").json_response(answer)


_HARNESS = "agentgym_tok_turns"


def _install_harness(vf: Any) -> None:
    """Make a module of the harness: verifiers finds harnesses by the names of modules."""
    module = types.ModuleType(_HARNESS)
    module.Turns = _harness(vf)  # type: ignore[attr-defined]
    module.__all__ = ["Turns"]  # type: ignore[attr-defined]
    sys.modules[_HARNESS] = module


def _harness(vf: Any) -> type:
    """Return a harness that asks for turns and carries their tool calls out, until a turn calls none."""
    httpx, mcp = _module("httpx"), _module("verifiers.v1.harnesses.utils.mcp")
    written = _module("verifiers.v1.dialects.chat").message_to_wire

    class Turns(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
        APPENDS_SYSTEM_PROMPT = True
        SUPPORTS_MCP = True
        SUPPORTS_RESUME = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, _trace: Any, _runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages = [] if system is None else [{"role": "system", "content": system}]
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += [written(message) for message in prompt or []]
            servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
            async with AsyncExitStack() as stack:
                tools, places, connections = await mcp.connect_mcp({"mcpServers": servers}, stack)
                http = await stack.enter_async_context(httpx.AsyncClient(timeout=None))
                while True:
                    answer = await http.post(
                        f"{endpoint}/chat/completions",
                        headers={"Authorization": f"Bearer {secret}"},
                        json={"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})},
                    )
                    if answer.is_error:  # a stop of the task, or a failure that the server knows
                        return vf.ProgramResult(1, "", answer.text)
                    turn = answer.json()["choices"][0]["message"]
                    messages.append(turn)
                    if not turn.get("tool_calls"):
                        return vf.ProgramResult(0, "", "")
                    for call in turn["tool_calls"]:
                        name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                        said = f"There is no tool {name!r}."
                        if name in places:
                            said = await mcp.call_mcp(connections, places, name, arguments)
                        messages.append({"role": "tool", "tool_call_id": call["id"], "name": name, "content": said})

    return Turns


if __name__ == "__main__":
    main()
