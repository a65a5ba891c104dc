"""How skills read in a prompt."""

from collections.abc import Sequence

from agentgym_tok.skills.skill import Mistake, Skill

__all__ = ["render"]

_HEAD = "What has helped with such tasks before:"
_MISTAKES = "Mistakes to avoid:"


def render(sections: Sequence[tuple[str, Sequence[Skill]]], mistakes: Sequence[Mistake]) -> str:
    """Write sections of skills, and mistakes.

    Args:
        sections: Names and skills; a section without skills is left out.
        mistakes: Mistakes to warn of.

    Returns:
        One line for each skill and mistake; empty where there are none.
    """
    blocks = [
        "\n".join([f"{name.replace('_', ' ').capitalize()}:", *map(_skill, skills)])
        for name, skills in sections
        if skills
    ]
    if mistakes:
        blocks.append("\n".join([_MISTAKES, *map(_mistake, mistakes)]))
    return "\n\n".join([_HEAD, *blocks]) if blocks else ""


def _skill(skill: Skill) -> str:
    title = f"{skill.title}: " if skill.title else ""
    when = f" (When: {skill.when_to_apply})" if skill.when_to_apply else ""
    return f"- {title}{skill.principle}{when}"


def _mistake(mistake: Mistake) -> str:
    why = f" ({mistake.why_it_happens})" if mistake.why_it_happens else ""
    return f"- {mistake.description}{why} Instead: {mistake.how_to_avoid}"
