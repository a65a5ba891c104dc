"""A notebook: what a policy writes down in one turn it can read in a later one."""

from typing import Literal, Self

from agentgym_tok.errors import ConfigError

__all__ = ["Notebook"]


class Notebook:
    """Keep notes through one episode.

    Args:
        max_characters: All titles and texts together.

    Raises:
        ConfigError: The number is not positive.
    """

    def __init__(self, max_characters: int = 10_000) -> None:
        if max_characters < 1:
            raise ConfigError("a notebook needs room", where="Notebook", got=f"{max_characters=}", expected="1 or more")
        self.notes: dict[str, str] = {}
        self._max_characters = max_characters

    def fresh(self) -> Self:
        """Return an empty notebook of the same size."""
        return type(self)(self._max_characters)

    def __call__(self, action: Literal["write", "read", "list", "delete"], title: str = "", text: str = "") -> str:
        """Write, read, list or delete notes that stay for later turns.

        Args:
            action: `write` replaces a note of the same title; `list` shows all titles.
            title: The note's title; not needed to list.
            text: What to write.

        Raises:
            ValueError: There is no such note, no title, or no room.
        """
        title = title.strip()
        if action == "list":
            return self._titles()
        if not title:
            raise ValueError(f"to {action} a note, name its title")
        if action == "write":
            return self._write(title, text)
        if title not in self.notes:
            raise ValueError(f"there is no note {title!r}. {self._titles()}")
        if action == "read":
            return self.notes[title]
        del self.notes[title]
        return f"Deleted {title!r}."

    def _write(self, title: str, text: str) -> str:
        others = sum(len(name) + len(note) for name, note in self.notes.items() if name != title)
        used = others + len(title) + len(text)
        if used > self._max_characters:
            room = max(0, self._max_characters - others - len(title))
            raise ValueError(f"the note has {len(text)} characters, and {room} are left: write less, or delete a note")
        self.notes[title] = text
        return f"Saved {title!r}: {len(text)} characters, {self._max_characters - used} left."

    def _titles(self) -> str:
        return f"The notes are: {', '.join(map(repr, self.notes))}." if self.notes else "There are no notes."
