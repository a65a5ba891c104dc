"""Puts `play` where the tests find it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
