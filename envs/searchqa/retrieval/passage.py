"""A passage: what a search finds."""

from dataclasses import dataclass

__all__ = ["Passage", "split_contents"]


@dataclass(frozen=True, slots=True)
class Passage:
    """Hold one passage of a corpus.

    Args:
        id: Its id, unique in its corpus.
        title: The title without quotes; empty where it has none.
        text: The words below the title.
        score: How well it fits the query, higher is better; comparable within one result only.
    """

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def contents(self) -> str:
        """The passage as Search-R1's corpora write it: the title in quotes, then the text on the next lines."""
        return f'"{self.title}"\n{self.text}' if self.title else self.text


def split_contents(contents: str) -> tuple[str, str]:
    """Return title and text of a passage in Search-R1's form.

    The first line is the title, with or without quotes; a single line without quotes is a text that has none.
    """
    first, line_end, rest = contents.partition("\n")
    quoted = len(first) > 1 and first.startswith('"') and first.endswith('"')
    if not (quoted or line_end):
        return "", contents
    return first[1:-1] if quoted else first, rest
