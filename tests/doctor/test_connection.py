"""The connection: one token is drawn, and what the policy says of itself is repeated."""

from toy import Toy, patient

from agentgym_tok.doctor.connection import check_connection


def test_a_policy_says_what_it_is() -> None:
    asked = patient(Toy())
    found = check_connection(asked)
    assert (found.status, asked.requests, len(asked.turns[0].ids_T)) == ("ok", 1, 1)
    assert found.found == "toy engine 1.0; engine toy 1.0; says it is deterministic"


def test_a_policy_without_a_description_is_called_by_its_name() -> None:
    class Plain(Toy):
        describe = None  # type: ignore[assignment]
        deterministic = False

    assert check_connection(patient(Plain())).found == "toy; engine toy 1.0"
