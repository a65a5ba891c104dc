"""All results of a run, as they stand in its `results.json`."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from agentgym_tok.config import Config
from agentgym_tok.errors import DataCorrupt, DataMissing
from agentgym_tok.evaluate.cost import Cost
from agentgym_tok.evaluate.provenance import MadeBy
from agentgym_tok.evaluate.results import EpisodeResult
from agentgym_tok.evaluate.scores import Macro, Passes, Score

__all__ = ["PartResults", "RunResults"]

_FILE = "results.json"


class PartResults(Config):
    """Say what one part of an evaluation was played on."""

    name: str
    world: str = Field(description="its short name, or the class of the environment")
    source: str = Field(description="the name that scores carry")
    prompting: str
    max_steps: int = Field(ge=1)
    seed: int = Field(ge=0, description="derives from the run's and the name")
    tasks: int = Field(ge=0, description="different tasks")
    samples: int = Field(ge=1, description="episodes of each")
    tasks_digest: str = Field(description="sha256 of their ids")
    data_digest: str = Field(description="sha256 of their ids and of what the world first said in each")
    metrics: dict[str, str] = Field(default_factory=dict, description="headings of further scores")


class RunResults(Config):
    """Hold all results of a run; equal to what is read back from its file."""

    schema_version: Literal[2] = 2
    library: str = Field(description="version")
    source: str = Field(description="the names that scores carry")
    fingerprint: str = Field(description="of the chat format: tokenizer, template and settings")
    config: dict[str, Any] = Field(description="the whole configuration")
    seconds: float = Field(ge=0, description="in which at least one turn was under way")
    parts: tuple[PartResults, ...]
    scores: tuple[Score, ...] = Field(description="kinds of task, then All, part by part")
    macros: tuple[Macro, ...] = ()
    passes: tuple[Passes, ...] = Field(default=(), description="where tasks have several samples")
    costs: tuple[Cost, ...] = Field(default=(), description="by part and engine")
    made_by: MadeBy
    episodes: tuple[EpisodeResult, ...] = Field(description="part by part, samples of a task together")

    def of_part(self, name: str) -> list[EpisodeResult]:
        """Return the episodes of a part."""
        return [episode for episode in self.episodes if episode.part == name]

    def write(self, folder: str | Path) -> Path:
        """Write the file into a run's folder, whole or not at all, and return its path."""
        file = Path(folder, _FILE)
        new = file.with_suffix(".part")
        new.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        new.replace(file)
        return file

    @classmethod
    def read(cls, run: str | Path) -> Self:
        """Read the results of a run.

        Args:
            run: Its folder, or the file itself.

        Raises:
            DataMissing: There are none.
            DataCorrupt: The file is damaged, or of another version of the library.
        """
        file = Path(run, _FILE) if Path(run).is_dir() else Path(run)
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            fix = f"agentgym-tok eval ... --resume --out {run} makes them of a trace; a run that goes on has none yet"
            raise DataMissing("there are no results", where=str(file), fix=fix) from error
        except (ValidationError, UnicodeDecodeError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise DataCorrupt(
                "these are no results that this version reads",
                where=str(file),
                got=got,
                expected="schema_version 2",
                fix="make them anew from the trace: agentgym-tok eval ... --resume --out FOLDER",
            ) from error
