"""Run the study, or go on with it: every cell (arm and seed) is stored, and what is done is left.

    python examples/study_sdar/run.py --out runs/study                      # everything; ALFWORLD_DATA names the games
    python examples/study_sdar/run.py --out runs/study --arm grpo --arm sdar
    python examples/study_sdar/run.py --out runs/small --reduced            # minutes, four generated games, one seed

Several processes may share the folder: each takes cells that no other one is at. Machines that share no folder leave
out what others did: `--done` takes the file that `draw.py --keep` wrote there. `draw.py` makes tables and pictures.
"""

import argparse
from pathlib import Path
from typing import Any

from arms import ARMS, BASE
from cell import Cell, Worlds, play_test
from lock import held
from measured import TEST_FOLDERS, WARM_START, read

WARM = Path(__file__).parent / "warm"
REDUCED: dict[str, Any] = {"steps": 20, "learner": {**BASE["learner"], "learning_rate": 6e-4}}
"""A higher rate than in the study, where it would ruin a model after some twenty updates."""
REDUCED_ARMS = ("grpo", "sdar")
REDUCED_WORLDS = Worlds(source="synth", splits=("train",), games=4, tries=32, train_steps=12, test_steps=12)
"""Four games, which are tested as they are trained: what they teach about others does not show in minutes."""


def cells(out: Path, *, arms: list[str], reduced: bool, warm: Path) -> list[Cell]:
    """Return all cells, seed by seed, so that a part of a study has as much of each arm."""
    worlds, changed = (REDUCED_WORLDS, REDUCED) if reduced else (Worlds(), {})
    chosen = {name: ARMS[name] for name in arms or (REDUCED_ARMS if reduced else ARMS)}
    most = 1 if reduced else max(arm.seeds for arm in chosen.values())
    return [
        Cell(name, seed, out / name / str(seed), warm, worlds, changed)
        for seed in range(most)
        for name, arm in chosen.items()
        if seed < arm.seeds
    ]


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the study")
    parser.add_argument("--arm", action="append", choices=list(ARMS), default=[], help="only this one; may be repeated")
    parser.add_argument("--reduced", action="store_true", help="a study of minutes")
    parser.add_argument("--warm", type=Path, default=WARM, help="folder of the model that all arms begin with")
    parser.add_argument("--done", type=Path, nargs="+", default=[], help="files or folders whose cells are left out")
    options = parser.parse_args()
    if options.reduced and options.done:
        parser.error("--done is about cells of the whole study")
    done = {(cell.arm, cell.seed) for cell in read(options.done)}
    worlds = REDUCED_WORLDS if options.reduced else Worlds()
    for skills in () if (WARM_START, 0) in done else (False, True):
        play_test(options.warm, options.out / WARM_START / TEST_FOLDERS[skills], worlds, skills=skills)
    for cell in cells(options.out, arms=options.arm, reduced=options.reduced, warm=options.warm):
        if (cell.arm, cell.seed) in done:
            continue
        with held(cell.folder) as mine:
            if mine:
                cell.run()
                print(f"{cell.arm} {cell.seed}: done", flush=True)


if __name__ == "__main__":
    main()
