"""What stock TextWorld said, and the walkthroughs of all official games."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym_tok.envs.alfworld import rules
from agentgym_tok.envs.alfworld.engine import ALFWorldEngine
from agentgym_tok.envs.alfworld.game import Game, SingleGame

SIZES = {"train": 3553, "valid_seen": 140, "valid_unseen": 134, "valid_train": 200}


def records(shared: Path) -> list[Any]:
    path = shared / "alfworld" / "golden" / "textworld_lockstep.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"no golden records at {path}")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_the_engine_says_what_textworld_said_in_every_recorded_step(shared: Path, official: Path) -> None:
    steps = 0
    for record in records(shared):
        engine = ALFWorldEngine.from_file(official / record["game"] / "game.tw-pddl")
        seen, said = engine.reset(), record["reset"]
        assert (seen.text, list(seen.admissible_commands), seen.success) == (
            said["feedback"],
            said["admissible"],
            said["won"],
        )
        for said in record["steps"]:
            # TextWorld was recorded beyond the win, where our engine ends the episode.
            engine._running = True
            seen = engine.step(said["command"])
            assert (seen.text, list(seen.admissible_commands)) == (said["feedback"], said["admissible"])
            assert (seen.success, seen.reward, seen.terminated) == (said["won"], said["reward"], said["done"])
            assert seen.valid == (said["feedback"] != "Nothing happens.")
            steps += 1
    assert steps == 1783


def official_games(shared: Path, archive: str) -> Iterator[Game]:
    path = shared / "alfworld" / f"alfworld_json_2.1.1_{archive}.tar.xz"
    if not path.is_file():
        pytest.skip(f"no official ALFWorld games at {path}")
    with tarfile.open(path) as packed:
        for member in packed:
            if member.name.endswith("/game.tw-pddl"):
                content = packed.extractfile(member)
                assert content is not None
                task = "/".join(Path(member.name).parts[-4:-1])
                yield Game.from_json(content.read().decode(), task=task)


@pytest.mark.parametrize("archive", ["train", "valid", "valid_train"])
def test_every_official_walkthrough_wins_exactly_with_its_last_command(shared: Path, archive: str) -> None:
    played = dict.fromkeys(SIZES, 0)
    for game in official_games(shared, archive):
        engine = ALFWorldEngine(SingleGame(game))
        assert not rules.solved(game.room, game.room.start), game.task
        seen = engine.reset()
        for _ in game.walkthrough:
            assert not seen.terminated, game.task
            seen = engine.step(engine.expert_command() or "")
        assert seen.success, game.task
        played[game.task.split("/")[0]] += 1
    assert {split: count for split, count in played.items() if count} == {
        split: SIZES[split] for split in (("valid_seen", "valid_unseen") if archive == "valid" else (archive,))
    }
