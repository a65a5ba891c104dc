"""The socket that a proxy listens on, and the server that ends in good order."""

import ipaddress
import signal
import socket
from types import FrameType

import uvicorn

from agentgym_tok.errors import ConfigError
from agentgym_tok.proxy.app import Application

__all__ = ["Server", "is_loopback", "listen"]


class Server(uvicorn.Server):
    """Say that it goes down as soon as a signal says so."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's own
        """Take no more requests; a second SIGINT ends the answers too.

        Uvicorn would raise the signal once more when all is done, and the process would not end in good order.
        """
        self._app.turns.draining = True
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: An address of this machine.
        port: The port; 0 takes a free one.

    Raises:
        ConfigError: The address is not free.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError("the address is not free", where="proxy", got=f"{host}, port {port}") from error
    # asyncio does it for sockets of its own making only; without it each answer waits for the client's delayed ACK.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
