"""What `make demo` shows: three policies on the embedded games, scored and proved. Takes seconds.

python examples/demo.py
"""

import tempfile
from pathlib import Path

from agentgym_tok.cli.main import main


def demo() -> int:
    """Evaluate the expert, the model that ships and random commands, and verify what each did.

    Returns:
        The first exit status that is not 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        for policy in ("expert", "builtin", "random"):
            run = str(Path(folder) / policy)
            print(f"$ agentgym-tok eval alfworld --policy {policy}\n")
            status = main(["eval", "alfworld", "--policy", policy, "--out", run])
            print(f"\n$ agentgym-tok trace verify {Path(run).name}\n")
            status = status or main(["trace", "verify", run])
            print()
            if status:
                return status
    return 0


if __name__ == "__main__":
    raise SystemExit(demo())
