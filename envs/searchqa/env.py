"""`gym.make("agentgym_tok/SearchQA-v0")`."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from agentgym_tok.chat import ChatFormat
from agentgym_tok.envs.presets import Presets
from agentgym_tok.envs.prompting import Prompting
from agentgym_tok.envs.react import React
from agentgym_tok.envs.searchqa.engine import Match, SearchQAEngine
from agentgym_tok.envs.searchqa.explorer import SearchQAExplorer
from agentgym_tok.envs.searchqa.prompts import SEARCHQA_WORDS, SearchWords
from agentgym_tok.envs.searchqa.questions import DATASETS, question_files, read_questions
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.retriever import Retriever, open_retriever, takes_corpus
from agentgym_tok.envs.searchqa.scoring import FormatScores, format_reward
from agentgym_tok.envs.searchqa.synth import KINDS, source_of, synth_passages, synth_questions
from agentgym_tok.envs.searchqa.tagged import SearchR1, SearchStep, to_judge
from agentgym_tok.envs.searchqa.tool_calls import ToolCalls
from agentgym_tok.envs.token_env import TokenEnv
from agentgym_tok.errors import ConfigError, DataMissing, unknown_name
from agentgym_tok.tokens import Ids

__all__ = ["SearchQAEnv", "make_searchqa_engine"]

# Turns of an episode. Published: Search-R1's scripts allow 4 and a last one without a search; verl-agent 4 in all.
_STEPS = {"search_r1": 5, "step": 4}
_OTHER_STEPS = 10


class SearchQAEnv(TokenEnv):
    """Questions that need a search engine (Search-R1, Jin et al. 2025), in token ids.

    The observation is the whole context; the action is a turn as sampled. An episode ends with an answer and is
    truncated after `max_steps`, of which the last one searches no more.

    Args:
        chat: Tokenizer and template; None takes the builtin format.
        source: `"synth"` (a generated world, `SearchQA-synth`) or `"official"` (published files, `SearchQA`).
        split: `train`, `valid` or `test`; in a folder of official files, the name of the file.
        world: Which generated world; 0 is the one that scores are about. Others, `SearchQA-synth-1` and so on, have
            none of its names, and other facts: name several to train on more names than one world has.
        data: Official questions: a file or folder, see `question_files`; None reads the variable `SEARCHQA_DATA`.
        dataset: One dataset of them; needed where the rows do not name theirs.
        corpus: File or folder of the passages; the generated world has its own.
        retriever: One that is open, or the name of one: `bm25`, `sqlite`, `dense`, `http`, `wikipedia`, `hybrid`, or a
            plug-in's.
        retriever_options: What the named one takes beside the corpus, such as `{"url": "http://..."}`.
        topk: Passages of one search.
        reward: `"em"`, `"subem"`, `"f1"`, or `"format"` (Search-R1's, in prompting `search_r1` only).
        format_scores: What form is worth in reward `"format"`.
        errors: `"raise"` ends an episode whose search fails; `"text"` shows the failure to the policy.
        prompting: `"transcript"` (tool calls), `"search_r1"`, `"step"` (verl-agent, SDAR), `"react"`, or your own.
        words: Another wording of the prompts.
        max_steps: Steps after which the episode is truncated; None takes what was published: 5 in `search_r1`, 4 in
            `step`, 10 elsewhere.
        max_context: Most ids of an observation.
        max_action: Most ids of an action.
        max_observation_tokens: Shorten longer texts of a search.
        render_mode: `"ansi"` or None.

    Raises:
        UnknownName: An option has no such value.
        DataMissing: The official files are not there, or nobody says where the corpus is.
        DataCorrupt: A file is not what it should be.
        ConfigError: Options that do not go together.
    """

    presets: ClassVar[Presets] = MappingProxyType(
        {"transcript": ToolCalls, "search_r1": SearchR1, "step": SearchStep, "react": React}
    )
    labels: ClassVar[Mapping[str, str]] = MappingProxyType({name: name for name in (*DATASETS, *KINDS)})
    metrics: ClassVar[Mapping[str, str]] = MappingProxyType({"em": "EM", "f1": "F1"})
    explorer = SearchQAExplorer

    def __init__(
        self,
        chat: ChatFormat | None = None,
        *,
        source: Literal["synth", "official"] = "synth",
        split: str = "train",
        world: int = 0,
        data: str | Path | None = None,
        dataset: str | None = None,
        corpus: str | Path | None = None,
        retriever: str | Retriever = "bm25",
        retriever_options: Mapping[str, Any] | None = None,
        topk: int = 3,
        reward: Match | Literal["format"] = "em",
        format_scores: FormatScores | None = None,
        errors: Literal["raise", "text"] = "raise",
        prompting: str | Prompting = "transcript",
        words: SearchWords = SEARCHQA_WORDS,
        max_steps: int | None = None,
        max_context: int = 32_768,
        max_action: int = 8_192,
        max_observation_tokens: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        form = prompting if isinstance(prompting, str) else prompting.name
        steps = _STEPS.get(form, _OTHER_STEPS) if max_steps is None else max_steps
        engine = make_searchqa_engine(
            source,
            split,
            data,
            dataset=dataset,
            corpus=corpus,
            retriever=retriever,
            retriever_options=retriever_options,
            world=world,
            topk=topk,
            reward="em" if reward == "format" else reward,
            layout="contents" if form == "step" else "title",
            search_turns=max(steps - 1, 0),
            errors=errors,
        )
        super().__init__(
            engine,
            chat or ChatFormat.builtin(),
            prompting,
            words=words,
            max_steps=steps,
            max_context=max_context,
            max_action=max_action,
            max_observation_tokens=max_observation_tokens,
            render_mode=render_mode,
        )
        if reward == "format" and not isinstance(self.prompting, SearchR1):
            raise ConfigError(
                "this reward judges the tags of one prompting",
                where="reward='format'",
                got=f"prompting={self.prompting.name!r}",
                fix="choose prompting='search_r1'",
            )
        self._form_scores = (format_scores or FormatScores()) if reward == "format" else None

    def step(self, action: Ids) -> tuple[Ids, float, bool, bool, dict[str, Any]]:
        """Give the world one turn; see `TokenEnv.step`. Reward `"format"` comes with the last one."""
        ids_T, reward, terminated, truncated, info = super().step(action)
        if self._form_scores is not None and (terminated or truncated):
            assert isinstance(self.engine, SearchQAEngine)
            reward = format_reward(to_judge(self.conversation[1:]), self.engine.answers, self._form_scores)
        return ids_T, reward, terminated, truncated, info


def make_searchqa_engine(
    source: str = "synth",
    split: str = "train",
    data: str | Path | None = None,
    *,
    dataset: str | None = None,
    corpus: str | Path | None = None,
    retriever: str | Retriever = "bm25",
    retriever_options: Mapping[str, Any] | None = None,
    world: int = 0,
    **options: Any,
) -> SearchQAEngine:
    """Make the text engine of a source and split; `options` are those of `SearchQAEngine`.

    Raises:
        UnknownName: No source, split, dataset or retriever has this name.
        DataMissing: The official files are not there, or nobody says where the corpus is.
        DataCorrupt: A file is not what it should be.
        ConfigError: The retriever does not take these options, or there is no such world.
    """
    if source not in {"synth", "official"}:
        raise unknown_name("source", source, ["synth", "official"], where="SearchQA")
    if world < 0 or (world and source != "synth"):
        expected = "0 for official questions, else 0 or more"
        raise ConfigError("there is no such world", where="world of SearchQA", got=str(world), expected=expected)
    if source == "synth":
        questions = synth_questions(split, world)
    else:
        questions = tuple(read_questions(question_files(_folder(data), split, dataset), dataset))
    if isinstance(retriever, str):
        more = dict(retriever_options or {})
        if source == "synth" and corpus is None and takes_corpus(retriever):
            corpus_of = _synth_corpus(world)
            opened = open_retriever(retriever, corpus=corpus_of, **more) if more else _synth_retriever(retriever, world)
        else:
            opened = open_retriever(retriever, **_with_corpus(retriever, corpus), **more)
    else:
        opened = retriever
    return SearchQAEngine(questions, opened, source=source_of(world) if source == "synth" else "SearchQA", **options)


@lru_cache(maxsize=2)
def _synth_corpus(world: int) -> Corpus:
    return Corpus.store(synth_passages(world))


@lru_cache(maxsize=8)
def _synth_retriever(name: str, world: int) -> Retriever:
    """Return the one retriever of this process over a generated world."""
    return open_retriever(name, corpus=_synth_corpus(world))


def _with_corpus(retriever: str, corpus: str | Path | None) -> dict[str, Any]:
    if not takes_corpus(retriever):
        return {}
    if corpus is None:
        raise DataMissing("nobody says where the passages are", where=f"retriever {retriever}", fix="pass corpus=")
    return {"corpus": corpus}


def _folder(data: str | Path | None) -> str | Path:
    found = data or os.environ.get("SEARCHQA_DATA")
    if not found:
        raise DataMissing(
            "nobody says where the questions are",
            where="SearchQA, source='official'",
            fix="pass data=, or set SEARCHQA_DATA to the folder",
        )
    return found
