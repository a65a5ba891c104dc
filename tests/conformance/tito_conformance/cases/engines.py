"""Cases in which an engine, or the way it is called, tells other ids than it sampled."""

from typing import Any

from tito_conformance.cases.shapes import SEARCH, call, im_tool, im_user, said, says, step, tool, user
from tito_conformance.script import Case, Fault, Step

__all__ = ["ENGINES", "faulty"]

_END = says("That is all.<|im_end|>")
_STREAM = {"stream": True}


def faulty(fault: Fault, **options: Any) -> tuple[Step, ...]:
    """Return a short talk in ChatML whose first reply comes with a fault."""
    return (
        step(user("Tell me."), says("The tea", " is", " H", "OT.<|im_end|>", fault=fault), options=options),
        step(user("And then?"), _END, im_user("And then?"), options=options),
    )


ENGINES = (
    Case(
        "27",
        "a stream with tools loses the ids of control tokens",
        "vLLM #27482, #29074; agent-lightning #326",
        "tiny-chatml",
        ("stream_loss",),
        (
            step(user("Find tea."), says(call(), "<|im_end|>", fault="control_ids_lost"), options=_STREAM),
            step(tool("3 shops"), _END, im_tool("3 shops"), options=_STREAM),
        ),
        tools=(SEARCH,),
        real=("qwen2_5", "qwen3"),
        naive="prevented",
    ),
    Case(
        "28",
        "a stop string is cut from the text and stays in the ids",
        "vLLM docs",
        "tiny-chatml",
        ("stop_token",),
        (
            step(
                user("Look."),
                says("Action: look\nObservation:", stop="Observation:"),
                options={"stop": ["Observation:"]},
            ),
            step(user("A desk."), _END, ("<|im_end|>", *im_user("A desk."))),
        ),
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "29",
        "the sampled ids begin with the end of the prompt",
        "sglang #10896, #17240",
        "tiny-chatml",
        ("logprob_misalignment", "other"),
        faulty("prompt_tail"),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "30",
        "the engine decodes the prompt's ids and encodes the text",
        "sglang PR #26555",
        "tiny-chatml",
        ("retokenised",),
        (
            step(user("Tell me."), says("H", "AVING", " tea.<|im_end|>")),
            step(
                user("And then?"),
                says("That is all.<|im_end|>", fault="prompt_encoded_again"),
                im_user("And then?"),
            ),
        ),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
    Case(
        "31",
        "decoding skips special tokens",
        "TRL #3644",
        "tiny-chatml",
        ("control_token",),
        said("She said <|quote|>tea<|quote|> twice."),
    ),
    Case(
        "34",
        "the stop token is trimmed from the ids and not from the log-probabilities",
        "TensorRT-LLM #18190",
        "tiny-chatml",
        ("logprob_misalignment", "stop_token"),
        (
            step(user("Hello."), says("Hello.<|endoftext|>", fault="stop_id_trimmed")),
            step(user("More."), _END, ("<|im_end|>", *im_user("More.")), im_user("More.")),
        ),
        best="reported",
        real=("qwen2_5", "qwen3"),
    ),
)
