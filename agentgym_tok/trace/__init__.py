"""Traces: what happened, token by token, in a file that proves itself, and the rows that learners train on."""

from agentgym_tok.trace.accounting import Accounting, account
from agentgym_tok.trace.credit import assign_advantages, group_returns
from agentgym_tok.trace.edges import FoundEdge, Lineage, classify
from agentgym_tok.trace.laws import Breach, ReplayChat
from agentgym_tok.trace.records import (
    Boundary,
    Edge,
    EdgeKind,
    Episode,
    EpisodeHead,
    Failure,
    Redacted,
    Row,
    RowStatus,
    RunMeta,
    Status,
    Turn,
    sent_digest,
)
from agentgym_tok.trace.redact import Redaction, redact
from agentgym_tok.trace.rescore import Rescoring, rescore
from agentgym_tok.trace.rows import MaskReason, Merge, Objective, Weighting, mask_reason, rows
from agentgym_tok.trace.store import TraceStore
from agentgym_tok.trace.verify import Verification, verify

__all__ = [
    "Accounting",
    "Boundary",
    "Breach",
    "Edge",
    "EdgeKind",
    "Episode",
    "EpisodeHead",
    "Failure",
    "FoundEdge",
    "Lineage",
    "MaskReason",
    "Merge",
    "Objective",
    "Redacted",
    "Redaction",
    "ReplayChat",
    "Rescoring",
    "Row",
    "RowStatus",
    "RunMeta",
    "Status",
    "TraceStore",
    "Turn",
    "Verification",
    "Weighting",
    "account",
    "assign_advantages",
    "classify",
    "group_returns",
    "mask_reason",
    "redact",
    "rescore",
    "rows",
    "sent_digest",
    "verify",
]
