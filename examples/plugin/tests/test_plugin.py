"""The plug-in does what its parts promise."""
# ruff: noqa: D103  # the test's name is its promise

from agentgym_tok_guess.policy import Guesser
from agentgym_tok_guess.retriever import TitleRetriever
from agentgym_tok_guess.world import GuessEngine, GuessWorld

from agentgym_tok import ChatFormat
from agentgym_tok.envs.searchqa.retrieval.corpus import Corpus
from agentgym_tok.envs.searchqa.retrieval.passage import Passage
from agentgym_tok.harness import Harness
from agentgym_tok.plugins import plugin_names

CHAT = ChatFormat.builtin()


def test_what_is_declared_is_found() -> None:
    assert "guess" in plugin_names("world")
    assert "guesser" in plugin_names("policy")
    assert "titles" in plugin_names("retriever")


def test_halving_finds_every_number_in_time() -> None:
    episodes = Harness(Guesser("", CHAT), CHAT).run_many(lambda: GuessWorld(CHAT), tasks=range(20))
    assert all(episode.success for episode in episodes)
    assert max(len(episode.turns) for episode in episodes) <= 7


def test_a_guess_is_judged_and_a_clone_goes_on_alone() -> None:
    engine = GuessEngine(limit=10)
    engine.reset("guess/4")
    twin = engine.clone()
    assert engine.step(str(engine.expert_command())).success
    assert not twin.step("guess 0").success
    assert twin.step("what?").valid is False


def test_titles_that_share_more_words_come_first() -> None:
    corpus = Corpus.store(
        [Passage("1", "Red fox", "a"), Passage("2", "Red red brick house", "b"), Passage("3", "Sea", "c")]
    )
    found = TitleRetriever(corpus).search(["the red house", "", "nothing"], 2)
    assert [[passage.id for passage in passages] for passages in found] == [["2", "1"], [], []]
