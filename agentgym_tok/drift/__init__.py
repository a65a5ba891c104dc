"""Drift: what a text pipeline would have trained on instead of the ids that were sampled."""

from agentgym_tok.drift.audit import audit, classify
from agentgym_tok.drift.change import Conversation
from agentgym_tok.drift.chats import read_chats
from agentgym_tok.drift.picture import draw
from agentgym_tok.drift.probe import probe_template
from agentgym_tok.drift.report import DRIFT_CLASSES, Drift, DriftClass, DriftReport
from agentgym_tok.drift.template import Probe, TemplateReport

__all__ = [
    "DRIFT_CLASSES",
    "Conversation",
    "Drift",
    "DriftClass",
    "DriftReport",
    "Probe",
    "TemplateReport",
    "audit",
    "classify",
    "draw",
    "probe_template",
    "read_chats",
]
