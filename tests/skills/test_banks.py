"""The shipped banks fit their worlds: every kind of task has its skills, and their commands are the world's."""

import re

import pytest

from agentgym_tok.envs.alfworld import TASK_TYPES, SynthGames
from agentgym_tok.envs.alfworld.problem_writer import SENTENCES
from agentgym_tok.envs.searchqa.questions import DATASETS
from agentgym_tok.envs.searchqa.synth import KINDS
from agentgym_tok.envs.webshop.generated.words import USES
from agentgym_tok.skills import SHIPPED, Keyword, SkillBank, SkillQuery, load_bank

KINDS_OF_TASK = {"alfworld": TASK_TYPES, "webshop": tuple(USES), "searchqa": (*KINDS, *DATASETS)}
# Commands of ALFWorld with the world's own names, or with a capital for anything of a kind.
THING = r"(?:[a-z]+ \d+|[A-Z]+(?: \d+)?)"
ALFWORLD = re.compile(
    rf"(?:go to|open|close|use|examine) {THING}|take {THING} from {THING}|move {THING} to {THING}"
    rf"|(?:clean|heat|cool) {THING} with {THING}|look|inventory|go to|examine|open|close"
)


def _texts(bank: SkillBank) -> list[str]:
    mistakes = [text for one in bank.common_mistakes for text in (one.description, one.how_to_avoid)]
    return [*(skill.principle for skill in bank.skills), *mistakes]


def _quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_kind_of_task_has_a_category_of_its_name_and_every_category_a_kind(name: str) -> None:
    bank = load_bank(name)
    found = {kind: bank.match(SkillQuery("", (kind,))) for kind in KINDS_OF_TASK[name]}
    assert all(len(categories) == 1 and kind in categories[0].types for kind, categories in found.items())
    assert {category.name for (category,) in found.values()} == {category.name for category in bank.categories}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_bank_is_complete_short_and_has_no_twins(name: str) -> None:
    bank = load_bank(name)
    assert len(bank.general_skills) >= 6
    assert len(bank.common_mistakes) >= 6
    assert all(len(category.skills) >= 3 for category in bank.categories)
    assert all(skill.title and skill.when_to_apply for skill in bank.skills)
    assert len({skill.principle for skill in bank.skills}) == len(bank.skills)
    # Published skills for ALFWorld have 4.4 to 6 kB for a task; prompts of 2,048 tokens must hold them.
    for category in bank.categories:
        assert len(Keyword(bank).retrieve(SkillQuery("", category.types)).text) < 5200
    assert bank.metadata["source"]


def test_alfworlds_goals_are_recognised_by_their_words_as_well() -> None:
    bank = load_bank("alfworld")
    by_name = {kind: bank.match(SkillQuery("", (kind,))) for kind in SENTENCES}
    for kind, sentences in SENTENCES.items():
        for sentence in sentences:
            said = sentence.format(object="mug", target="desklamp" if "look" in kind else "shelf")
            expected = () if kind == "pick_and_place_simple" else by_name[kind]
            assert bank.match(SkillQuery(said)) == expected


def test_alfworlds_patterns_name_both_goals_and_the_commands_in_the_order_that_wins() -> None:
    bank = load_bank("alfworld")
    walks = {kind: set[tuple[str, ...]]() for kind in TASK_TYPES}
    games = SynthGames("train")
    for task in games.tasks()[:120]:
        game = games.game(task)
        verbs = (command.split()[0] for command in game.walkthrough)
        walks[game.task_type].add(tuple(verb for verb in verbs if verb not in ("go", "open")))
    for kind, sentences in SENTENCES.items():
        (category,) = bank.match(SkillQuery("", (kind,)))
        quoted = _quoted(category.skills[0].principle)
        target = "desklamp" if "look" in kind else "Y"
        for sentence in sentences:
            assert sentence.format(object="X", target=target) in quoted
        commands = [quote for quote in quoted if quote not in {s.format(object="X", target=target) for s in sentences}]
        pattern = tuple(command.split()[0] for command in commands)
        assert walks[kind] == {tuple(verb for verb in pattern if verb != "go")}


def test_alfworlds_commands_have_the_worlds_form() -> None:
    quoted = [quote for text in _texts(load_bank("alfworld")) for quote in _quoted(text)]
    # Other quotations are goals, what the world answers, and a command of older versions.
    other = re.compile(r"[A-Z]|put |look at |find two|heat some|cool some|clean some|examine the|desklamp 1")
    commands = [quote for quote in quoted if not other.match(quote)]
    assert len(commands) > 50
    assert [command for command in commands if not ALFWORLD.fullmatch(command)] == []


def test_the_two_other_worlds_commands_have_their_form() -> None:
    shop = [quote for text in _texts(load_bank("webshop")) for quote in _quoted(text)]
    assert sum(bool(re.fullmatch(r"(?:search|click)\[[^\[\]]+\]", quote)) for quote in shop) > 25
    assert {quote for quote in shop if "[" in quote and not re.match(r"(?:search|click)\[", quote)} == {
        "Search[...]",
        "Click[...]",
    }
    asked = [quote for text in _texts(load_bank("searchqa")) for quote in _quoted(text)]
    tags = [quote for quote in asked if "<" in quote]
    assert len(tags) > 5
    assert all(re.fullmatch(r"<(search|answer)>[^<>]+</\1>", quote) for quote in tags)
