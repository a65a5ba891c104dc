"""Play a case: an agent on one side of the gateway, the fake engine on the other."""

import copy
import secrets
from dataclasses import replace

from tito_conformance.agent import Agent, Stuck
from tito_conformance.engine import FakeEngine
from tito_conformance.judge import Outcome, Taken, judge
from tito_conformance.models import Model
from tito_conformance.script import Case

__all__ = ["play", "taken_steps"]


def play(case: Case, url: str, engine: FakeEngine, model: Model) -> Outcome:
    """Play a case and judge it.

    Args:
        case: The case.
        url: The gateway's base URL, with or without `{session}`.
        engine: The engine behind the gateway.
        model: The model; its name may be another than the case's.
    """
    try:
        return judge(model, case, taken_steps(case, url, engine, model))
    except Stuck as stuck:
        return Outcome("not applicable", str(stuck))


def taken_steps(case: Case, url: str, engine: FakeEngine, model: Model) -> list[Taken]:
    """Play a case to its end, or to the first request that got no answer.

    Raises:
        Stuck: The gateway does not offer what the case needs.
    """
    # A gateway may outlive a run, so no two conversations have the same name.
    agent = Agent(url, replace(case, model=model.name), f"{case.name}-{model.name}-{secrets.token_hex(4)}")
    taken: list[Taken] = []
    for step in case.steps:
        engine.put_on(step.reply)
        received = agent.take(step)
        sent = agent.history[:-1] if received.message else agent.history
        taken.append(Taken(step, copy.deepcopy(sent), list(agent.tools), list(engine.calls), received))
        if received.error:
            break
    return taken
