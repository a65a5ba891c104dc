"""Write generated ALFWorld games as files in the official layout, for any program that reads those."""

import importlib.util
import json
from pathlib import Path

from agentgym_tok.envs.alfworld.synth import SynthProblem, synth_problem
from agentgym_tok.envs.alfworld.synth_tasks import SOURCE, SPLITS, TRIAL_NAME, SynthTask, synth_tasks
from agentgym_tok.errors import ConfigError, MissingExtra, unknown_name

__all__ = ["write_games"]

_GAME_FILE = "game.tw-pddl"

# What a reader of the official files looks for in a grammar: the task, and the command set of release 0.4.
_TASK_LINE = "Your task is to: UNKNOWN GOAL."
_GRAMMAR = f"""grammar :: \"\"\"
    {{
        "task": [
            {{
                "rhs": "{_TASK_LINE}"
            }}
        ]
    }}
\"\"\";

action PutObject {{
    template :: "move {{o}} to {{r}}";
}}
"""


def write_games(folder: str | Path, split: str, count: int | None = None, *, stock: bool = False) -> list[Path]:
    """Write the first games of a split below a folder, which then serves as a data folder of ALFWorld.

    Each game is `json_2.1.1/<split>/<task>/<trial>/game.tw-pddl` with its `traj_data.json`. Equal files that
    are there already stay as they are, so the first games can be joined by more.

    Args:
        folder: The data folder; it must not hold official games.
        split: `"train"`, `"valid_seen"` or `"valid_unseen"`.
        count: How many games; all of the split by default.
        stock: Add the domain and the grammar of the installed package `alfworld`, so that its own engine can play
            the games too. Without them the files serve this library alone.

    Returns:
        The `game.tw-pddl` files in the order of the tasks.

    Raises:
        UnknownName: There is no such split.
        ConfigError: `count` is beyond the split, or the folder holds other games.
        MissingExtra: `stock` needs the package `alfworld`.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS, where="write_games")
    tasks = synth_tasks(split)
    if count is not None and not 1 <= count <= len(tasks):
        raise ConfigError(
            "no such number of games", where=f"write_games, split {split}", got=count, expected=f"1 to {len(tasks)}"
        )
    domain, grammar = _stock_texts() if stock else ("", _GRAMMAR)
    root = Path(folder) / "json_2.1.1"
    trials = {root / split / task.folder / task.trial: task for task in tasks[:count]}

    def texts(task: SynthTask) -> dict[str, str]:
        problem = synth_problem(task)
        return {_GAME_FILE: _game_text(problem, domain, grammar), "traj_data.json": _traj_text(problem)}

    def is_planned(path: Path) -> bool:
        text = texts(trials[path.parent]).get(path.name) if path.parent in trials else None
        return text is not None and path.read_bytes() == text.encode()

    # Scores name their source: generated games among official ones would be taken for official.
    other = [trial for trial in root.glob("*/*/*") if not TRIAL_NAME.fullmatch(trial.name)]
    other += [path for path in (root / split).rglob("*") if path.is_file() and not is_planned(path)]
    if other:
        raise ConfigError(
            "the folder holds other games",
            where=root,
            got=min(other),
            expected="an empty folder, or the same games",
            fix="choose another folder, or remove this one's json_2.1.1",
        )
    for trial, task in trials.items():
        trial.mkdir(parents=True, exist_ok=True)
        for name, text in texts(task).items():
            if not (trial / name).exists():
                (trial / name).write_text(text, encoding="utf-8", newline="\n")
    return [trial / _GAME_FILE for trial in trials]


def _game_text(problem: SynthProblem, domain: str, grammar: str) -> str:
    parts = {
        "pddl_domain": domain,
        "grammar": grammar.replace(_TASK_LINE, problem.task_text),
        "pddl_problem": problem.pddl_problem,
        "solvable": True,
        "walkthrough": problem.walkthrough,
    }
    return json.dumps(parts)


def _traj_text(problem: SynthProblem) -> str:
    task = problem.task
    look = task.task_type == "look_at_obj_in_light"
    parts = {
        "task_id": task.trial,
        "task_type": task.task_type,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": task.object_target,
            "parent_target": "" if look else task.target,
            "toggle_target": task.target if look else "",
        },
        "scene": {"floor_plan": f"FloorPlan{task.plan}", "scene_num": task.plan},
        "turk_annotations": {"anns": []},
        "source": SOURCE,
    }
    return json.dumps(parts)


def _stock_texts() -> tuple[str, str]:
    # Looked up without an import, which would name a folder of its own in ALFWORLD_DATA.
    package = importlib.util.find_spec("alfworld")
    if package is None or package.origin is None:
        raise MissingExtra(
            "the domain and grammar of the stock engine come with the package alfworld, which is not installed",
            where="write_games, stock=True",
            fix="pip install 'agentgym-tok[alfworld]'",
        )
    data = Path(package.origin).with_name("data")
    return (data / "alfred.pddl").read_text(encoding="utf-8"), (data / "alfred.twl2").read_text(encoding="utf-8")
