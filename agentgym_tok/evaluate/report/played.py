"""What a report takes from traces: how long things took, how long turns were, and a few episodes to read."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from agentgym_tok.evaluate.report.sources import Run
from agentgym_tok.trace import Episode, TraceStore, Turn

__all__ = ["Line", "Played", "Transcript", "read_played"]

_MOST_TURNS = 12
_MOST_CHARACTERS = 1200


@dataclass(frozen=True, slots=True)
class Line:
    """Hold what one side said.

    Args:
        speaker: The role, `failure`, or `left out`.
        text: Its words, cut where they are long.
    """

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """Hold an episode for people: its beginning and its end."""

    lines: tuple[Line, ...]


@dataclass(slots=True)
class Played:
    """Hold what the trace of a run says.

    Args:
        seconds: From the first request to the last answer of the world, by episode; these episodes are in the trace.
        turn_tokens: How many turns had so many tokens, by part.
        transcripts: Of the episodes that were asked for.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    turn_tokens: dict[str, Counter[int]] = field(default_factory=dict)
    transcripts: dict[str, Transcript] = field(default_factory=dict)


def read_played(run: Run, wanted: Collection[str]) -> Played:
    """Read the trace of a run, once, episode by episode.

    Args:
        run: One with results and a trace.
        wanted: Ids of episodes to transcribe.

    Raises:
        TraceError: The trace cannot be read.
    """
    played = Played()
    parts = {} if run.results is None else {result.episode: result.part for result in run.results.episodes}
    with TraceStore(run.folder, mode="r") as store:
        for episode in store.episodes():
            if episode.id not in parts:
                continue
            times = [(turn.started, turn.ended) for turn in episode.turns]
            played.seconds[episode.id] = max(end for _, end in times) - min(start for start, _ in times) if times else 0
            counted = played.turn_tokens.setdefault(parts[episode.id], Counter())
            counted.update(len(turn.completion.ids_T) for turn in episode.turns if turn.used)
            if episode.id in wanted:
                played.transcripts[episode.id] = _transcript(episode)
    return played


def _transcript(episode: Episode) -> Transcript:
    steps = episode.steps
    skipped = max(0, len(steps) - _MOST_TURNS)
    half = _MOST_TURNS // 2
    lines: list[Line] = []
    for place, turn in enumerate(steps):
        if skipped and half <= place < half + skipped:
            if place == half:
                lines.append(Line("left out", f"{skipped} turns"))
            continue
        lines += _said(turn)
    if episode.failure is not None:
        failure = episode.failure
        lines.append(Line("failure", _cut(f"{failure.boundary}: {failure.kind}: {failure.message}")))
    return Transcript(tuple(lines))


def _said(turn: Turn) -> list[Line]:
    asked = [Line(message.role, _cut(message.content)) for message in turn.messages if message.role != "assistant"]
    return [*asked, Line("policy", _cut(turn.text))] if turn.text else asked


def _cut(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}\n\u2026 {len(text) - _MOST_CHARACTERS:,} more characters"
