"""Does the policy answer, and what does it say of itself?"""

from agentgym_tok.doctor.finding import Finding, ok
from agentgym_tok.doctor.patient import Patient

__all__ = ["check_connection"]


def check_connection(patient: Patient) -> Finding:
    """Draw one token, and repeat what the policy says of itself."""
    policy = patient.policy
    (turn,) = patient.ask([patient.request(patient.contexts[0], max_tokens=1)])
    describe = getattr(policy, "describe", None)
    said = describe() if describe is not None else policy.name
    engine = f"; engine {turn.engine}" if turn.engine and turn.engine not in said else ""
    promise = "; says it is deterministic" if policy.deterministic else ""
    return ok(f"{said}{engine}{promise}")
