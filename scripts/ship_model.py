"""Put a trained model among the weights that ship with the package, in float16.

python scripts/ship_model.py runs/alfworld-dagger/model alfworld --opening "You solve household tasks in a text world."

The card of its folder, `card.md`, is written by hand.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from agentgym_tok import ChatFormat

WEIGHTS = Path(__file__).resolve().parents[1] / "agentgym_tok" / "policies" / "small" / "weights"


def main() -> None:
    """Write the folder, and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder that `agentgym-tok train` wrote, of the builtin chat format")
    parser.add_argument("name", help="of its folder among the weights")
    parser.add_argument("--opening", action="append", default=[], help="text that its prompts begin with")
    options = parser.parse_args()
    folder = WEIGHTS / options.name
    folder.mkdir(parents=True, exist_ok=True)
    tensors = load_file(options.model / "model.safetensors")
    save_file({name: value.astype(np.float16) for name, value in tensors.items()}, folder / "model.safetensors")
    shutil.copyfile(options.model / "config.json", folder / "config.json")
    about = {"fingerprint": ChatFormat.builtin().fingerprint, "openings": options.opening}
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder.name}: {len(tensors)} tensors, {size / 2**20:.2f} MB")


if __name__ == "__main__":
    main()
