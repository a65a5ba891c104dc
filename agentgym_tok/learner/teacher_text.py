"""Shorter skills: whole lines, since half a skill can say the opposite."""

from collections.abc import Iterator

__all__ = ["shortened"]


def shortened(text: str) -> Iterator[str]:
    """Yield a text, then its beginnings in whole lines, longest first; none of those ends in a blank or a headline.

    Args:
        text: Skills, one a line, as `SkillBank.render` writes them: the general ones first.
    """
    yield text
    lines = text.split("\n")
    while len(lines) > 1:
        lines.pop()
        is_headline = lines[-1].endswith(":") and not lines[-1].startswith("- ")
        if lines[-1].strip() and not is_headline:
            yield "\n".join(lines)
