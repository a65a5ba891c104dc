"""What commands print for people."""

from rich.console import Console

__all__ = ["show"]


def show(*parts: object) -> None:
    """Print to the terminal, as wide as it is; into a file or a pipe, as wide as needed."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(*parts)
