"""Words and numbers as people read them; what nobody could see in a text is spelled out."""

from collections.abc import Sequence

import regex

__all__ = ["file_name", "number", "one_line", "percent", "probability", "signed", "visible"]

_UNSEEN = regex.compile(
    r"[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}"
    r"\u00a0\u2000-\u200a\u202f\u205f\u2800\u3000\ufffe\uffff--\n]",
    regex.VERSION1,
)
"""Characters that show nothing, or that change how others are shown; blanks that are no space."""

_MINUS = "\u2212"


def visible(text: str) -> str:
    """Return a text in which every character can be seen; line breaks stay."""
    return _UNSEEN.sub(lambda found: f"\u2039U+{ord(found[0]):04X}\u203a", text.replace("\t", "    "))


def one_line(text: str, most: int = 160) -> str:
    """Return a text on one line, cut where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}\u2026"


def percent(share: float) -> str:
    """Return a share in percent, without the sign."""
    return f"{100 * share:.1f}"


def number(value: float) -> str:
    """Return a number with about four digits; whole ones with all of them."""
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{round(value):,}".replace("-", _MINUS)
    digits = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}".replace("-", _MINUS)


def signed(value: float) -> str:
    """Return a difference with its sign and one decimal."""
    return f"{value:+.1f}".replace("-", _MINUS)


def probability(p: float) -> str:
    """Return a p-value."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def file_name(text: str, taken: Sequence[str] = ()) -> str:
    """Return a name for a file, of letters, digits and `._-`, that no other file has.

    Args:
        text: What it shall be like.
        taken: Names of other files.
    """
    name = regex.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "run"
    folded = {each.lower() for each in taken}  # there are disks that know no capitals
    return name if name.lower() not in folded else file_name(f"{name}-{len(taken) + 1}", taken)
