"""A server that speaks OpenEnv's wire: two pages, and a session that echoes."""

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from websockets.sync.server import serve

__all__ = ["Wire"]


class Wire:
    """Serve pages and sessions, and remember what was asked."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.says: Callable[[dict[str, Any]], str | None] = self.echo
        self._server = serve(self._session, "127.0.0.1", 0, process_request=self._page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    @staticmethod
    def observation(said: str, reward: float | None = 0.5, *, done: bool = False) -> str:
        data = {"observation": {"said": said, "metadata": {}}, "reward": reward, "done": done}
        return json.dumps({"type": "observation", "data": data})

    def echo(self, message: dict[str, Any]) -> str:
        if message["type"] == "reset":
            return self.observation(f"seed {message['data']['seed']}", None)
        return self.observation(message["data"]["word"], done=message["data"]["word"] == "end")

    def _session(self, session: Any) -> None:
        for raw in session:
            message = json.loads(raw)
            self.heard.append(message)
            if message["type"] == "close":
                return
            answer = self.says(message)
            if answer is None:
                return
            session.send(answer)

    @staticmethod
    def _page(connection: Any, request: Any) -> Any:
        action = {"title": "Word", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        pages = {"/metadata": {"name": "Wire"}, "/schema": {"action": action}}
        if request.path == "/ws":
            return None
        found = pages.get(request.path)
        return connection.respond(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND, json.dumps(found))

    def close(self) -> None:
        self._server.shutdown()
