"""New skills from failures, proposed by any policy (SkillRL, arXiv 2602.08234)."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import AgentGymTokError, PolicyError
from agentgym_tok.seeds import derive_seed
from agentgym_tok.skills.asked import Asked, Grown, Growth
from agentgym_tok.skills.asking import request
from agentgym_tok.skills.bank import SkillBank
from agentgym_tok.skills.matching import SkillQuery
from agentgym_tok.skills.proposals import Refused, judge, parse_proposals
from agentgym_tok.skills.skill import Skill
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Episode
from agentgym_tok.types import Completion, Policy, Request

__all__ = ["grow"]

_GROWN = re.compile(r"dyn_(\d+)")


def grow(
    bank: SkillBank,
    episodes: Iterable[Episode],
    policy: Policy,
    chat: ChatFormat,
    settings: Growth | None = None,
    *,
    query: Callable[[Episode], SkillQuery] = SkillQuery.of_episode,
    seed: int = 0,
) -> Grown:
    """Ask a policy for skills that failed episodes lacked, and add those that are of use.

    Only episodes with a verdict count: `done`, with `success`. New skills are called `dyn_001` and on, and say which
    episodes they come from. A policy that fails, or that says anything but skills, leaves a record and no skill.

    Args:
        bank: The bank.
        episodes: Successes and failures, of training tasks: what is learned from test tasks gives them away.
        policy: Whom to ask; it gets one batch of requests.
        chat: Its chat format.
        settings: When and how; SkillRL's numbers by default.
        query: Tells the task of an episode, as for retrieval.
        seed: Of the requests.
    """
    settings = settings or Growth()
    asked = [
        _prompted(bank, name, seen, chat, settings)
        for name, seen in _by_category(bank, episodes, query)
        if _rate(seen) < settings.threshold
    ]
    sent = [(one.category, one.context) for one in asked if one.context is not None]
    answers = dict(zip((name for name, _ in sent), _answers(policy, sent, settings, seed), strict=True))
    for place, one in enumerate(asked):
        if one.category in answers:
            asked[place] = _answered(bank, one, answers[one.category], chat, settings)
            bank = bank.with_skills({one.category: asked[place].added})
    return Grown(bank, tuple(asked))


def _by_category(
    bank: SkillBank, episodes: Iterable[Episode], query: Callable[[Episode], SkillQuery]
) -> list[tuple[str, list[Episode]]]:
    found: dict[str, list[Episode]] = {name: [] for name in ("", *(one.name for one in bank.categories))}
    for episode in episodes:
        if episode.status == "done" and episode.success is not None:
            for name in [category.name for category in bank.match(query(episode))] or [""]:
                found[name].append(episode)
    return [(name, seen) for name, seen in found.items() if seen]


def _rate(episodes: Sequence[Episode]) -> float:
    return sum(bool(episode.success) for episode in episodes) / len(episodes)


def _to_show(episodes: Sequence[Episode], most: int) -> list[Episode]:
    """Return failed episodes, those of tasks that are not shown yet first."""
    failed = [episode for episode in episodes if not episode.success]
    seen: dict[str, Episode] = {}
    again = [episode for episode in failed if seen.setdefault(episode.head.task, episode) is not episode]
    return [*seen.values(), *again][:most]


def _prompted(bank: SkillBank, name: str, episodes: list[Episode], chat: ChatFormat, settings: Growth) -> Asked:
    """Write the prompt with as many failed episodes as fit, or say why there is none."""
    asked = Asked(name, _rate(episodes), ())
    if _room(bank, name, settings) <= 0:
        return replace(asked, refused=(Refused(f"it holds {settings.most} grown skills already", ""),))
    shown = _to_show(episodes, settings.failures)
    while shown:
        try:
            context = chat.open([request(name, _known(bank, name), shown, new=settings.new, steps=settings.steps)])
        except AgentGymTokError as error:
            return replace(asked, refused=(Refused(f"no prompt can be made: {error}", ""),))
        if len(context) <= settings.prompt_tokens:
            return replace(asked, context=context, episodes=tuple(episode.id for episode in shown))
        shown.pop()
    return replace(asked, refused=(Refused(f"no prompt has {settings.prompt_tokens} tokens or fewer", ""),))


def _answers(
    policy: Policy, sent: Sequence[tuple[str, Context]], settings: Growth, seed: int
) -> Sequence[Completion | Exception]:
    requests = [
        Request(context.ids, settings.sampling, derive_seed(seed, "grow", name), f"grow/{name}")
        for name, context in sent
    ]
    try:
        answers = policy.generate(requests) if requests else ()
    except Exception as error:  # noqa: BLE001  # a run goes on with the skills that it has
        return [error] * len(requests)
    if len(answers) != len(requests):
        got = f"{len(answers)} answers to {len(requests)} requests"
        return [PolicyError("the policy lost count", where=policy.name, got=got)] * len(requests)
    return answers


def _answered(
    bank: SkillBank, asked: Asked, answer: Completion | Exception, chat: ChatFormat, settings: Growth
) -> Asked:
    """Take from an answer what is new, and say of the rest why it was not taken."""
    if isinstance(answer, Exception):
        return replace(asked, refused=(Refused(f"the policy failed: {type(answer).__name__}: {answer}", ""),))
    try:
        text = chat.parse(answer.ids_T).content
    except AgentGymTokError as error:
        return replace(asked, completion=answer, refused=(Refused(f"the answer cannot be read: {error}", ""),))
    proposals = parse_proposals(text)
    refused = [] if proposals else [Refused("there is no JSON object in the answer", text[:400])]
    numbers = (_GROWN.fullmatch(skill.skill_id) for skill in bank.skills)
    number = max((int(found[1]) for found in numbers if found), default=0)
    room = min(settings.new, _room(bank, asked.category, settings))
    known, added = _known(bank, asked.category), list[Skill]()
    for proposal in proposals:
        judged = judge(proposal, f"dyn_{number + len(added) + 1:03}", asked.episodes, [*known, *added])
        if isinstance(judged, Refused):
            refused.append(judged)
        elif len(added) == room:
            refused.append(Refused("enough skills were taken before it", judged.principle[:400]))
        else:
            added.append(judged)
    return replace(asked, completion=answer, text=text, added=tuple(added), refused=tuple(refused))


def _held(bank: SkillBank, category: str) -> tuple[Skill, ...]:
    found = bank.category(category)
    return bank.general_skills if found is None else found.skills


def _known(bank: SkillBank, category: str) -> tuple[Skill, ...]:
    """Return what an agent with such a task is told already."""
    return (*(bank.general_skills if category else ()), *_held(bank, category))


def _room(bank: SkillBank, category: str, settings: Growth) -> int:
    return settings.most - sum(_GROWN.fullmatch(skill.skill_id) is not None for skill in _held(bank, category))
