"""Search-QA: questions that need a search, and the retrievers that answer it."""

from agentgym_tok.envs.searchqa.engine import SearchQAEngine
from agentgym_tok.envs.searchqa.env import SearchQAEnv
from agentgym_tok.envs.searchqa.questions import Question, read_questions
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.envs.searchqa.retrieval.retriever import RETRIEVERS, Retriever, open_retriever

__all__ = [
    "RETRIEVERS",
    "Corpus",
    "Passage",
    "Question",
    "Retriever",
    "SearchQAEngine",
    "SearchQAEnv",
    "open_retriever",
    "read_questions",
]
