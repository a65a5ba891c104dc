"""Stand in for an interpreter: replay what one said to the adapter, or pass it on and write it down.

    python interpreter.py replay VECTOR
    python interpreter.py record VECTOR PYTHON [ARGUMENTS of the interpreter]

A vector is JSON: lines `["tell", ...]` from the adapter and `["answer", ...]` to it, in order. That an episode is left
is not in it: it may come after the last answer, when nobody may be there any more.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path


def replay(vector: Path) -> None:
    for kind, line in json.loads(vector.read_text(encoding="utf-8")):
        if kind == "answer":
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            continue
        told = next((one for one in map(json.loads, sys.stdin) if one["do"] != "drop"), None)
        if told != line:
            sys.exit(f"told {told}, where {line} was recorded")
    sys.stdin.read()


def record(vector: Path, command: list[str]) -> None:
    lines: list[tuple[str, object]] = []
    lock = threading.Lock()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    there, back = process.stdin, process.stdout

    def note(kind: str, line: str) -> None:
        with lock:
            lines.append((kind, json.loads(line)))
            vector.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")

    def answers() -> None:
        for line in back:
            note("answer", line)
            sys.stdout.write(line)
            sys.stdout.flush()

    threading.Thread(target=answers, daemon=True).start()
    for line in sys.stdin:
        if json.loads(line)["do"] != "drop":
            note("tell", line)
        there.write(line)
        there.flush()


if __name__ == "__main__":
    if sys.argv[1] == "replay":
        replay(Path(sys.argv[2]))
    else:
        record(Path(sys.argv[2]), sys.argv[3:])
