"""Which weights a turn was drawn from, where the server does not say: updates wait until no turn is being drawn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["VersionGate"]


class VersionGate:
    """Let turns through side by side, and an update only alone; used from one event loop."""

    def __init__(self) -> None:
        self.version: str | None = None
        """Label of the weights; None where nobody said."""
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()
        self._drawing = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[str | None]:
        """Draw a turn inside; yields the label of the weights that draw all of it."""
        while not self._open.is_set():
            await self._open.wait()
        self._drawing += 1
        self._idle.clear()
        try:
            yield self.version
        finally:
            self._drawing -= 1
            if not self._drawing:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Change the weights inside: no turn is being drawn, and those that come wait."""
        self._open.clear()
        try:
            await self._idle.wait()
            yield
        finally:
            self._open.set()
