"""What a chat template does to a conversation that grows: the answers to a list of questions."""

from dataclasses import asdict, dataclass
from typing import Any

from agentgym_tok.drift.report import DriftClass
from agentgym_tok.errors import unknown_name

__all__ = ["Probe", "TemplateReport"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Hold the answer to one question about a template.

    Args:
        name: What was tried.
        preserves: The ids before stay as they are, and the text is kept; None where the template refuses.
        kind: The class of what changes.
        count: Ids that change.
        bridge: `ok`, or why `ChatFormat.bridge` refuses; empty where there is nothing to bridge.
        detail: For people.
    """

    name: str
    preserves: bool | None
    kind: DriftClass | None = None
    count: int = 0
    bridge: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """Hold what a template does.

    Args:
        reference: The chat format.
        fingerprint: Of tokenizer, template and settings.
        dialect: How turns are read.
        probes: One for each question.
    """

    reference: str
    fingerprint: str
    dialect: str
    probes: tuple[Probe, ...]

    def __getitem__(self, name: str) -> Probe:
        """Return one probe by its name.

        Raises:
            UnknownName: No probe has this name.
        """
        for probe in self.probes:
            if probe.name == name:
                return probe
        raise unknown_name("probe", name, [probe.name for probe in self.probes], where="TemplateReport")

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the probes after which earlier ids or texts are not what they were."""
        return tuple(probe.name for probe in self.probes if probe.preserves is False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        return asdict(self)
