"""An examination of an engine: does it draw what was asked for, and say what it drew?"""

from agentgym_tok.doctor.examination import CHECKS, Diagnosis, examine, no_answer
from agentgym_tok.doctor.finding import Finding, Status

__all__ = ["CHECKS", "Diagnosis", "Finding", "Status", "examine", "no_answer"]
