"""An environment of openenv 0.10.0 that offers tools: a door with a code."""

from uuid import uuid4

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class DoorEnvironment(MCPEnvironment):
    """Read the note, and enter its code."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("door")
        self._code, self._open, self._state = 0, False, State()

        @server.tool
        def read_note() -> str:
            """Read the note on the door."""
            return f"The code is {self._code}."

        @server.tool
        def enter(code: int) -> str:
            """Enter a code."""
            self._open = code == self._code
            return "The door opens." if self._open else "Nothing happens."

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs) -> Observation:
        self._code, self._open = 1000 + (seed or 0), False
        self._state = State(episode_id=episode_id or str(uuid4()))
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action: Action, timeout_s=None, **kwargs) -> Observation:
        raise ValueError("only tools move this environment")

    def _judged(self, seen: Observation) -> Observation:
        if isinstance(seen, CallToolObservation):
            seen.reward, seen.done = float(self._open), self._open
        return seen

    def step(self, action: Action, timeout_s=None, **kwargs) -> Observation:
        return self._judged(super().step(action, timeout_s=timeout_s, **kwargs))

    async def step_async(self, action: Action, timeout_s=None, **kwargs) -> Observation:
        return self._judged(await super().step_async(action, timeout_s=timeout_s, **kwargs))

    @property
    def state(self) -> State:
        return self._state


app = create_app(DoorEnvironment, CallToolAction, CallToolObservation, env_name="door", max_concurrent_envs=8)
