# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar
"""More ways to lose ids, from the notes on engines and templates."""

from tito_conformance.cases.engines import faulty
from tito_conformance.cases.shapes import im_user, llama_user, says, step, user
from tito_conformance.script import Case, Text

__all__ = ["EXTRA"]

# Nobody sampled the end of the reasoning; it may stand there in any form, or not at all.
_REASONING_ENDS = ("", "</think>", "</think>\n\n", "\n</think>", "\n</think>\n\n")

EXTRA = (
    Case(
        "X1",
        "the token limit cuts reasoning",
        "renderers bridge_to_next_turn",
        "tiny-qwen3",
        ("reasoning_strip", "stop_token"),
        (
            step(user("Two and two?"), says("<think>\nI add the", cut=True)),
            step(
                user("Well?"),
                says("Four.<|im_end|>"),
                *((f"{end}<|im_end|>", *im_user("Well?")) for end in _REASONING_ENDS),
            ),
        ),
        real=("qwen3",),
    ),
    Case(
        "X2",
        "the template tells the time",
        "Llama 3.2 template",
        "tiny-llama3-clock",
        ("template",),
        (
            step(user("Hello."), says("Hello.<|eot_id|>")),
            step(user("More."), says("Bye.<|eot_id|>"), llama_user("More.")),
        ),
    ),
    Case(
        "X3",
        "the engine tells no ids",
        "vLLM #28246, #28256; engines that speak text only",
        "tiny-chatml",
        ("stream_loss", "other"),
        faulty("no_ids"),
        best="reported",
    ),
    Case(
        "X4",
        "a log-probability of -9999",
        "vLLM sentinel; renderers client",
        "tiny-chatml",
        ("logprob_misalignment",),
        faulty("sentinel"),
        best="reported",
        audited=False,
    ),
    Case(
        "X5",
        "a stream tells ids in its first piece only",
        "vLLM streams",
        "tiny-chatml",
        ("stream_loss",),
        faulty("first_ids_only", stream=True),
        naive="prevented",
    ),
    Case(
        "X6",
        "one log-probability more than ids",
        "eval-protocol PR #457",
        "tiny-chatml",
        ("logprob_misalignment",),
        faulty("extra_logprob"),
        best="reported",
    ),
    Case(
        "X7",
        "HAVING where nothing but a token closes a turn",
        "vLLM blog 2025-10-22",
        "tiny-deepseek",
        ("retokenised",),
        (
            step(user("Tell me."), says("H", "AVING", " tea.<｜end▁of▁sentence｜>")),
            step(
                user("And then?"),
                says("That is all.<｜end▁of▁sentence｜>"),
                ("<｜User｜>", Text("And then?"), "<｜Assistant｜>"),
            ),
        ),
        real=("deepseek_v3",),
    ),
    Case(
        "X8",
        "half a surrogate pair and a NUL",
        "JavaScript clients that cut strings",
        "tiny-chatml",
        ("other",),
        (
            step(
                user("Tea \ud83d or \0?"),
                says("Tea.<|im_end|>"),
                opening=(
                    "<|im_start|>system\nYou are a careful helper.<|im_end|>\n<|im_start|>user\n",
                    Text("Tea \ufffd or \0?"),
                    "<|im_end|>\n<|im_start|>assistant\n",
                ),
            ),
            step(user("\udc00"), says("Fine.<|im_end|>"), im_user("\ufffd")),
        ),
        audited=False,
    ),
)
