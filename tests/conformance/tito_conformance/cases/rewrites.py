"""Cases in which a chat template writes an earlier turn otherwise than it was sampled."""

from tito_conformance.cases.shapes import SEARCH, call, im_tool, im_user, says, schema, step, tool, user
from tito_conformance.script import Case

__all__ = ["REWRITES"]


def _xml(name: str, parameters: str = "") -> str:
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call><|im_end|>"


_END = says("That is all.<|im_end|>")
_THOUGHT_END = says("Fine.\n</think>\n\nThat is all.<|im_end|>")
_EMPTY = "<think>\n\n</think>\n\n"

REWRITES = (
    Case(
        "5",
        "false becomes False",
        "renderers README",
        "tiny-qwen35",
        ("arguments",),
        (
            step(
                user("Off, please."),
                says("Off.\n</think>\n\n" + _xml("set", "<parameter=on>\nfalse\n</parameter>\n")),
            ),
            step(tool("It is off."), _THOUGHT_END, im_tool("It is off.", "<think>\n")),
        ),
        tools=(schema("set", on="boolean"),),
    ),
    Case(
        "6",
        "a closing parameter tag without a parameter is dropped",
        "renderers README",
        "tiny-qwen35",
        ("arguments",),
        (
            step(user("Look."), says("Look.\n</think>\n\n" + _xml("look", "</parameter>\n"))),
            step(tool("A desk."), _THOUGHT_END, im_tool("A desk.", "<think>\n")),
        ),
        tools=(schema("look"),),
    ),
    Case(
        "8",
        "earlier reasoning is stripped",
        "Qwen3 template; Rapid-MLX #3464; mlc-llm #3484",
        "tiny-qwen3",
        ("reasoning_strip",),
        (
            step(user("Two and two?"), says("<think>\nI add them.\n</think>\n\nFour.<|im_end|>")),
            step(user("And three?"), says("<think>\nMore.\n</think>\n\nSeven.<|im_end|>"), im_user("And three?")),
        ),
        real=("qwen3",),
    ),
    Case(
        "9",
        "an empty reasoning block on the last turn only",
        "TITO blog; TRL #6124",
        "tiny-qwen3",
        ("template", "reasoning_strip"),
        (
            step(user("Find tea."), says(call(), "<|im_end|>")),
            step(tool("3 shops"), says(_EMPTY, call(), "<|im_end|>"), im_tool("3 shops")),
            step(tool("4 shops"), _END, im_tool("4 shops")),
        ),
        tools=(SEARCH,),
        real=("qwen3",),
    ),
    Case(
        "10",
        "the generation prompt has an empty reasoning block and history has not",
        "Qwen3 #1826; Qwen3.8 #48; PR #1901",
        "tiny-qwen3-nothink",
        ("template", "reasoning_strip"),
        (
            step(user("Hello."), says("Hello.<|im_end|>")),
            step(user("Again."), _END, im_user("Again.", _EMPTY)),
        ),
    ),
    Case(
        "12",
        "newlines before reasoning and content are trimmed",
        "tinker-cookbook PR #849",
        "tiny-qwen3",
        ("whitespace",),
        (
            step(
                user("Find tea."),
                says("<think>\n\n\nTea it is.\n</think>\n\n\n\nI look.\n", call(), "<|im_end|>"),
            ),
            step(tool("3 shops"), _END, im_tool("3 shops")),
        ),
        tools=(SEARCH,),
        real=("qwen3",),
    ),
    Case(
        "13",
        "text is trimmed",
        "tinker-cookbook PR #852; ms-swift #9279",
        "tiny-qwen35",
        ("whitespace",),
        (
            step(user("Find tea. \n"), says("Tea it is. \n</think>\n\n\nI look. \n\n" + _xml("look"))),
            step(tool(" A desk.\n"), _THOUGHT_END, im_tool("A desk.", "<think>\n")),
        ),
        tools=(schema("look"),),
    ),
    Case(
        "26",
        "text around a call changes places",
        "verl docs",
        "tiny-chatml",
        ("template", "whitespace", "arguments"),
        (
            step(user("Find tea."), says("Let me call a ", call(), " and wait.<|im_end|>")),
            step(tool("3 shops"), _END, im_tool("3 shops")),
        ),
        tools=(SEARCH,),
        real=("qwen2_5", "qwen3"),
    ),
)
