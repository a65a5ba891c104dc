"""Evaluations: playing them, scores with intervals, costs, and comparing two runs."""

from agentgym_tok.evaluate.comparison import Comparison, compare
from agentgym_tok.evaluate.evaluation import Evaluation
from agentgym_tok.evaluate.parts import Part, Share
from agentgym_tok.evaluate.results import EpisodeResult, result_of
from agentgym_tok.evaluate.run_results import RunResults
from agentgym_tok.evaluate.scores import Macro, Mean, Passes, Score, macro_of, passes_of, scores_of
from agentgym_tok.evaluate.stats import wilson
from agentgym_tok.evaluate.stats_bootstrap import bootstrap
from agentgym_tok.evaluate.stats_paired import mcnemar, paired_permutation
from agentgym_tok.evaluate.stats_passes import pass_all_k, pass_at_k

__all__ = [
    "Comparison",
    "EpisodeResult",
    "Evaluation",
    "Macro",
    "Mean",
    "Part",
    "Passes",
    "RunResults",
    "Score",
    "Share",
    "bootstrap",
    "compare",
    "macro_of",
    "mcnemar",
    "paired_permutation",
    "pass_all_k",
    "pass_at_k",
    "passes_of",
    "result_of",
    "scores_of",
    "wilson",
]
