"""How a model is asked for new skills: our words around failed episodes."""

from collections.abc import Sequence

from agentgym_tok.skills.skill import Skill
from agentgym_tok.trace import Episode
from agentgym_tok.types import Message, Trusted

__all__ = ["request"]

_ASK = """You improve the notes of an agent that plays a text world. It failed at the tasks below. Find out why, and
write rules that would have helped, and that help with other tasks of this kind too: what to do, in which order, with
the exact form of the commands. Do not name the answer or the hiding place of one task. Do not repeat the notes.

"""
_FORM = """
Write at most {new} rules, as a JSON list and nothing else:
[{{"title": "three to five words", "principle": "one or two sentences", "when_to_apply": "the situation"}}]"""
_LONGEST = 600


def request(kind: str, known: Sequence[Skill], episodes: Sequence[Episode], *, new: int, steps: int) -> Message:
    """Return the message that asks for skills; only our own words in it are trusted.

    Args:
        kind: Name of the category; empty for tasks of any kind.
        known: What the notes say already.
        episodes: Failed episodes.
        new: Most skills that are wanted.
        steps: Most steps of each episode that are shown, the last ones.
    """
    notes = "\n".join(f"- {skill.title}: {skill.principle}" for skill in known)
    shown = [part for number, episode in enumerate(episodes, 1) for part in _told(number, episode, steps)]
    return Message.compose(
        "user",
        Trusted(_ASK + (f"Kind of task: {kind.replace('_', ' ')}\n" if kind else "") + "The notes:\n"),
        notes or "(none)",
        Trusted("\n"),
        *shown,
        Trusted(_FORM.format(new=new)),
    )


def _told(number: int, episode: Episode, steps: int) -> list[str]:
    """Tell an episode by what its world and its agent said, as untrusted parts."""
    walk = episode.steps
    first = max(0, len(walk) - steps)
    told: list[str] = [Trusted(f"\nFailed task {number}, {len(walk)} steps:\n")]
    if first and walk:
        told += [_cut(str(walk[0].facts.get("anchor", ""))), Trusted("\n...\n")]
    for turn in walk[first:]:
        told += [_cut(str(turn.facts.get("anchor", ""))), Trusted("\nAgent: "), _cut(turn.action_text or turn.text)]
        told.append(Trusted(" (no valid command)\n" if turn.valid_action is False else "\n"))
    return told


def _cut(text: str) -> str:
    """Leave the middle of a long text out: a world's task often stands at its end."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]} [...] {text[-_LONGEST // 2 :]}"
