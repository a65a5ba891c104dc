"""Memory that was freed, and that the allocator keeps."""

import ctypes
from collections.abc import Callable

__all__ = ["give_back"]


def _trimmer() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # no glibc
        return None
    return found


_trim = _trimmer()


def give_back() -> None:
    """Give freed memory back to the system, where the C library can (glibc); else do nothing.

    Contexts of thousands of ids that come and go leave holes between what stays, and glibc never gives those back by
    itself: a proxy that serves long conversations for days would seem to grow.
    """
    if _trim is not None:
        _trim(0)
