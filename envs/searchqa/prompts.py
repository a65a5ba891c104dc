"""Our words for the prompts of Search-QA."""

from dataclasses import dataclass

from agentgym_tok.envs.prompting import Words

__all__ = ["SEARCHQA_WORDS", "SearchWords"]


@dataclass(frozen=True, slots=True)
class SearchWords(Words):
    """Hold the wording of Search-QA's prompts.

    Args:
        search_r1: What stands before `Question: ` in prompting `search_r1`.
        invalid: What prompting `search_r1` writes behind a turn that neither searches nor answers.
        reminder: What prompting `transcript` says after a turn that calls no tool.
    """

    search_r1: str = ""
    invalid: str = ""
    reminder: str = ""


SEARCHQA_WORDS = SearchWords(
    system="""You answer questions with the help of a search engine.
You have two tools: search(query) finds passages, and answer(text) gives the final answer, once.
Each turn, call one of them. Search again as long as something is missing. Answer in a few words, not in a sentence.""",
    role="You answer a question with the help of a search engine, by one action a turn.",
    answer="""Reason first, between <think> and </think>, about what is known and what is missing.
Then do exactly one of these two:
(1) where something is missing, search for it: <search>QUERY</search>
(2) where you know enough, answer in a few words: <answer>TEXT</answer>""",
    react="""You answer questions with the help of a search engine. Commands:
search[QUERY] finds passages
answer[TEXT] gives the final answer, in a few words, once""",
    search_r1="""Answer the question below.
Whenever you have learned something new, reason about it between <think> and </think> first.
Where something is missing, search for it by <search> QUERY </search>; what is found comes between <information> and \
</information>. Search as often as you need.
When you know enough, give only the answer, in a few words: <answer> TEXT </answer>.
""",
    invalid="""
That was neither a search nor an answer.
A search stands between <search> and </search>, the final answer between <answer> and </answer>.
I try again.
""",
    reminder="Call search(query) to find passages, or answer(text) to give the final answer.",
)
