"""Cases in which text leads to other ids than those that were sampled."""

from tito_conformance.cases.shapes import said
from tito_conformance.script import Case

__all__ = ["VOCABULARY"]


_QWEN = ("qwen2_5", "qwen3")
_RETOKENISED = ("retokenised",)

VOCABULARY = (
    Case(
        "1",
        "HAVING sampled as H and AVING",
        "vLLM blog 2025-10-22; CooperBench #77; SkyRL docs",
        "tiny-chatml",
        _RETOKENISED,
        said("H", "AVING", " tea."),
        real=_QWEN,
    ),
    Case(
        "2",
        "Pantom has two spellings in tokens",
        "rllm PR #272",
        "tiny-chatml",
        _RETOKENISED,
        said("The", " Pant", "om", " tea."),
        real=_QWEN,
    ),
    Case(
        "3",
        "jsonpenderer cut one letter later",
        "renderers README",
        "tiny-chatml",
        _RETOKENISED,
        said("json", "p", "enderer", " is a typo."),
        real=_QWEN,
    ),
    Case(
        "4",
        "rollouts sampled as rollout and s",
        "tokin 0.1.0 README",
        "tiny-chatml",
        _RETOKENISED,
        said("rollout", "s", " go on."),
        real=_QWEN,
    ),
    Case(
        "14",
        "two newlines meet at the generation prompt",
        "renderers build_trajectory_step",
        "tiny-chatml",
        ("retokenised", "whitespace"),
        said("\nHi."),
        real=_QWEN,
    ),
    Case(
        "20",
        "byte tokens that are no characters",
        "eval-protocol PR #457; Megatron #4126",
        "tiny-chatml",
        _RETOKENISED,
        said("Caf", b"\xc3", " and ", b"\xed\x95", "."),
        real=_QWEN,
    ),
    Case(
        "21",
        "the token limit cuts a character",
        "Camelid #288; cs336 #15",
        "tiny-chatml",
        ("retokenised", "stop_token"),
        said("It costs 5 ", b"\xe2\x82", closed=False),
        real=_QWEN,
    ),
    Case(
        "35",
        "a full stop and two newlines merge",
        "llama.cpp #11970",
        "tiny-chatml",
        _RETOKENISED,
        said("Done", ".", "\n\n", "Next."),
        real=_QWEN,
    ),
)
