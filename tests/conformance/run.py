"""Judge a gateway: `python tests/conformance/run.py --help`, see docs/conformance.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tito_conformance.cli import main

if __name__ == "__main__":
    sys.exit(main())
