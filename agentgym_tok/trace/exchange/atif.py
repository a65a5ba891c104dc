"""A rollout as an ATIF document: what other tools read of it in ATIF's fields, all the rest under one key of `extra`.

ATIF (Agent Trajectory Interchange Format, RFC 0001 of the harbor project) is JSON: an agent, and steps that a system, a
user or the agent took.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agentgym_tok.tokens import Span
from agentgym_tok.trace.drafts import new_folder
from agentgym_tok.trace.exchange.atif_record import VERSION, end_record, turn_record
from agentgym_tok.trace.exchange.atif_spans import KEY, Nodes, carry, span_document
from agentgym_tok.trace.exchange.atif_steps import ReadingChat, Steps, clean, image_path
from agentgym_tok.trace.records import Episode, RunMeta, Turn, library_version
from agentgym_tok.trace.store import TraceStore

__all__ = ["ReadingChat", "export_atif", "to_atif"]

SCHEMA: Final = "ATIF-v1.7"
"""The oldest version that has all that is written here."""


def export_atif(run: str | Path, out: str | Path, *, chat: ReadingChat | None = None, prompt_ids: bool = True) -> int:
    """Write each rollout of a run as an ATIF file, its subagents inside.

    Args:
        run: Folder of the run.
        out: The folder; nothing may stand there. Files are named by place and id of the episode, and
            images go to `images/`.
        chat: The run's chat format, which tells content, reasoning and tool calls apart; without it the message of an
            agent's step is the turn's whole text.
        prompt_ids: Write every prompt out in full, as ATIF has it and other tools need it to train on tokens. The size
            grows with the square of the turns; without it the files come back equal all the same.

    Returns:
        Number of files.

    Raises:
        TraceError: There is no trace, or the folder cannot be written.
        TraceCorrupt: A record is damaged or missing.
        FingerprintMismatch: The chat format is another one than the run's.
    """
    count = 0
    with TraceStore(run, mode="r") as store, new_folder(Path(out)) as folder:
        for count, episode in enumerate(store.episodes(), 1):
            images = _write_images(store, episode, folder)
            document = to_atif(episode, meta=store.meta, chat=chat, prompt_ids=prompt_ids, images=images)
            text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            name = f"{count:06}-{re.sub('[^A-Za-z0-9._-]', '_', episode.id)[:64]}.json"
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return count


def _write_images(store: TraceStore, episode: Episode, folder: Path) -> dict[str, str]:
    """Write the images that a rollout shows; return their media types."""
    types: dict[str, str] = {}
    for name in sorted(_shown(episode)):
        types[name], body = store.image(name)
        path = folder / image_path(name, types[name])
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)
    return types


def _shown(episode: Episode) -> set[str]:
    own = {name for turn in episode.turns for message in turn.messages for name in message.images}
    return own.union(*map(_shown, episode.children))


def to_atif(
    episode: Episode,
    *,
    meta: RunMeta | None = None,
    chat: ReadingChat | None = None,
    prompt_ids: bool = True,
    images: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a rollout as an ATIF document, of which `from_atif` makes the equal rollout.

    Used attempts are steps of the agent. The messages of their prompts are steps of the system or the user before them;
    where a turn goes on from the step before, they are what that step observed. Attempts that were thrown away, and
    whatever ATIF has no field for, stand under the key `agentgym_tok` of `extra`.

    Args:
        episode: The rollout.
        meta: What its run was made with.
        chat: See `export_atif`.
        prompt_ids: See `export_atif`.
        images: Media type of each image that messages show; others are named and not shown.

    Raises:
        FingerprintMismatch: The chat format is another one than the episode's.
        TraceError: It holds something that JSON has no word for.
    """
    types, run = dict(images or {}), None if meta is None else meta.model_dump(mode="json")
    version = library_version() if run is None else run["library"]

    def document(member: Episode, **more: Any) -> dict[str, Any]:
        steps = Steps(chat, prompt_ids, types)
        record = {"version": VERSION, **more, **_record(member, steps)}
        taken = steps.documents()
        made = {
            "schema_version": SCHEMA,
            "session_id": clean(episode.id),
            "trajectory_id": clean(member.id),
            "agent": _agent(member, version),
            "steps": taken,
            "final_metrics": _final_metrics(member, len(taken)),
            "extra": {KEY: carry(record)},
        }
        if member.children:
            made["subagent_trajectories"] = [document(child) for child in member.children]
        return made

    return document(episode, run=run, images=types)


def _record(episode: Episode, steps: Steps) -> dict[str, Any]:
    """Fill the steps of a rollout; return what they do not hold."""
    nodes, attempts, first = Nodes(), [], dict[int, Turn]()
    for place, turn in enumerate(episode.turns):
        first.setdefault(turn.index, turn)
        context, completion = nodes.add(turn.context), turn.completion
        answer = Span(completion.ids_T, completion.origin, completion.logprobs_T)
        record = turn_record(turn, place, context)
        if turn.used:
            origin = first[turn.index] if turn.edge.source == turn.index else turn
            steps.add(turn, origin, record)
            nodes.answer(context, answer, step=len(steps))
        else:
            attempts.append(carry(record | span_document(answer)))
    for child in episode.children:
        steps.refer(child)
    return {"episode": carry(end_record(episode)), "roots": nodes.roots, "nodes": nodes.nodes, "attempts": attempts}


def _agent(episode: Episode, version: str) -> dict[str, Any]:
    used = [turn for turn in episode.turns if turn.used]
    agent = {
        "name": "agentgym-tok",
        "version": version or "unknown",
        "model_name": next((clean(turn.completion.engine) for turn in used if turn.completion.engine), None),
        "tool_definitions": clean(list(used[0].context.root.tools)) if used else None,
        "extra": {KEY: {"role": clean(episode.head.role)}},
    }
    return {name: part for name, part in agent.items() if part}


def _final_metrics(episode: Episode, steps: int) -> dict[str, Any]:
    used = [turn for turn in episode.turns if turn.used]
    return {
        "total_prompt_tokens": sum(len(turn.context) for turn in used),
        "total_completion_tokens": sum(len(turn.completion.ids_T) for turn in used),
        "total_steps": steps,
        "extra": {KEY: {"return": episode.return_, "success": episode.success}},
    }
