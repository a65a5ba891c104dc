"""Count where things stand in ALFWorld's train games, for the explorer: envs/alfworld/places.json.

    python scripts/count_alfworld_places.py FOLDER_WITH_json_2.1.1

For a class of things and a class of places the table holds, in thousandths, the share of those places that hold such a
thing at the start, counted over the train games in which the thing occurs at all. What is never seen is left out.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from agentgym_tok.envs.alfworld.official import OfficialGames

TABLE = Path(__file__).resolve().parents[1] / "envs" / "alfworld" / "places.json"


def main(folder: str) -> None:
    """Write the table."""
    games = OfficialGames("train", folder)
    held: Counter[tuple[str, str]] = Counter()
    stood: Counter[tuple[str, str]] = Counter()
    for task in games.tasks():
        room = games.game(task).room
        places = [name.rpartition(" ")[0] for name in room.receptacles]
        things = [name.rpartition(" ")[0] for name in room.objects]
        inside = [{things[o] for o in contents} for contents in room.start.contents]
        for thing in set().union(*inside):
            for place, kinds in zip(places, inside, strict=True):
                stood[thing, place] += 1
                held[thing, place] += thing in kinds
    table: dict[str, dict[str, int]] = {}
    for (thing, place), number in sorted(held.items()):
        if share := round(1000 * number / stood[thing, place]):
            table.setdefault(thing, {})[place] = share
    lines = (f'"{thing}": {json.dumps(shares)}' for thing, shares in table.items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
