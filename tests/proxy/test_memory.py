"""Freed memory goes back to the system: a proxy does not seem to grow by what came and went."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Blocks with something that stays between them, so that none can be given back from the end.
HOLES = """
import ctypes, os
from agentgym_tok.proxy import memory
assert memory._trim is not None

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
size, kept = 64_000, []
blocks = []
for _ in range(1500):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    blocks.append(block)
    kept.append(libc.malloc(32))
for block in blocks:
    libc.free(block)
before = resident()
memory.give_back()
print(before - resident())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux only")
def test_what_lies_between_what_stays_is_given_back() -> None:
    if "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""):
        pytest.skip("the C library is not glibc")
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50e6


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentgym_tok.proxy import memory

    monkeypatch.setattr(memory, "_trim", None)
    memory.give_back()
