"""Seeds that depend on what is drawn, never on the order or the process in which it is drawn."""

import hashlib

__all__ = ["derive_seed"]


def derive_seed(run_seed: int, *parts: object) -> int:
    """Derive an independent seed.

    Args:
        run_seed: Seed of the whole run.
        parts: What the seed is for, such as task, replica, turn and attempt; compared by their text.

    Returns:
        63-bit seed: the same in every process, on every platform, in every batch.
    """
    text = "\x1f".join([str(run_seed), *map(str, parts)])
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()) >> 1
