"""Statistics and reports of evaluations."""

from agentgym_tok.evaluate.results import EpisodeResult, Mean, Score, result_of, scores_of
from agentgym_tok.evaluate.stats import wilson

__all__ = ["EpisodeResult", "Mean", "Score", "result_of", "scores_of", "wilson"]
