"""Experts and explorers write demonstrations; random commands come from the request's seed alone."""

import pytest

from agentgym_tok import ChatFormat, Completion, Request
from agentgym_tok.errors import PolicyError
from agentgym_tok.policies import BasePolicy, ExpertPolicy, ExplorerPolicy, RandomPolicy
from agentgym_tok.tokens import as_ids

CHAT = ChatFormat.builtin()
HINTS = {
    "expert": "<action>look</action>",
    "explorer": "<action>examine</action>",
    "admissible": tuple(f"<action>go {n}</action>" for n in range(30)),
}


def asked(seed: int, info: object = HINTS) -> Request:
    return Request(as_ids([1]), seed=seed, info=info)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [ExpertPolicy(CHAT), ExplorerPolicy(CHAT)], ids=lambda policy: policy.name)
def test_an_experts_turn_is_a_demonstration_that_ends_in_a_stop_token(policy: BasePolicy) -> None:
    turn = policy.answer(asked(0))
    assert turn.origin == "demonstration"
    assert CHAT.decode(turn.ids_T[:-1]) == HINTS[policy.name]
    assert turn.ids_T[-1] == CHAT.stop_ids[0]


def test_random_commands_depend_on_the_seed_and_not_on_the_batch() -> None:
    policy = RandomPolicy(CHAT)
    together = policy.generate([asked(seed) for seed in range(20)])
    alone = [policy.answer(asked(seed)).ids_T.tolist() for seed in range(20)]
    assert [turn.ids_T.tolist() for turn in together if isinstance(turn, Completion)] == alone
    assert len({tuple(ids) for ids in alone}) > 8


@pytest.mark.parametrize("info", [None, {}, {"expert": None, "explorer": None, "admissible": ()}])
def test_a_world_without_an_expert_is_named(info: object) -> None:
    for policy in (ExpertPolicy(CHAT), ExplorerPolicy(CHAT), RandomPolicy(CHAT)):
        with pytest.raises(PolicyError, match="gives no"):
            policy.answer(asked(0, info))
