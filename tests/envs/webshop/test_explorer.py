"""The explorer buys by what the pages say, comes back to the best it saw, and knows nothing that nobody showed it."""

import dataclasses
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.webshop import WebShopEngine, WebShopEnv
from agentgym_tok.envs.webshop.drawn import GoalKind
from agentgym_tok.envs.webshop.explorer import WebShopExplorer
from agentgym_tok.envs.webshop.generated.shop import synth_shop
from agentgym_tok.envs.webshop.pages import Mode
from agentgym_tok.envs.webshop.shop import Shop

MOST = 15


def play(engine: WebShopEngine, task: str) -> Iterator[tuple[str, TextObservation]]:
    """Yield commands and what they led to."""
    explorer = WebShopExplorer()
    explorer.reset(engine.reset(task).text)
    for _ in range(MOST):
        command = explorer.act()
        assert command is not None
        seen = engine.step(command)
        explorer.follow(command, seen.text)
        yield command, seen
        if seen.terminated:
            return


def last(engine: WebShopEngine, task: str) -> TextObservation:
    """Return what an episode ends with."""
    *_, (_, seen) = play(engine, task)
    return seen


@pytest.mark.parametrize("mode", ["text", "text_rich"])
@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_it_buys_what_is_wanted(kind: GoalKind, mode: Mode) -> None:
    engine = WebShopEngine(synth_shop(kind), range(60), observation=mode)
    ends = [last(engine, task) for task in engine.tasks()]
    assert all(end.terminated for end in ends)
    assert sum(bool(end.success) for end in ends) >= 0.85 * len(ends)
    assert sum(end.reward for end in ends) >= 0.94 * len(ends)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_it_buys_what_is_wanted_on_the_whole_test_split(kind: GoalKind) -> None:
    engine = WebShopEngine(synth_shop(kind), range(500))
    ends = [last(engine, task) for task in engine.tasks()]
    assert all(end.terminated for end in ends)
    assert sum(bool(end.success) for end in ends) >= 0.89 * len(ends)


def test_only_what_a_page_offers_is_clicked() -> None:
    engine = WebShopEngine(synth_shop(), range(40))
    for task in engine.tasks():
        assert all(seen.valid for _, seen in play(engine, task))


def test_hidden_goals_change_nothing() -> None:
    shop = synth_shop()
    other = dataclasses.replace(shop.goals[500], price_upper=1.0, attributes=("unheard of",), goal_options={})
    goals = [dataclasses.replace(other, instruction_text=goal.instruction_text) for goal in shop.goals[:20]]
    real, changed = (
        WebShopEngine(shop, range(20)),
        WebShopEngine(Shop(shop.catalogue, shop.prices_N, goals, shop.nouns)),
    )
    for task in real.tasks():
        assert [command for command, _ in play(real, task)] == [command for command, _ in play(changed, task)]


def test_the_texts_alone_give_the_same_commands_again() -> None:
    engine = WebShopEngine(synth_shop(), range(20))
    for task in engine.tasks():
        texts = [("", engine.reset(task).text), *((command, seen.text) for command, seen in play(engine, task))]
        explorer = WebShopExplorer()
        explorer.reset(texts[0][1])
        for command, text in texts[1:]:
            assert explorer.act() == command
            explorer.follow(command, text)


def test_it_comes_back_for_the_best_where_nothing_is_perfect() -> None:
    def page(*pieces: str) -> str:
        task = "Find soft, warm red hats with color: teal, and price lower than 30.00 dollars"
        return " [SEP] ".join(("Instruction:", task, "Back to Search", *pieces))

    titles = {f"B00000000{number}": f"Hat number {number}, {'soft' if number == 1 else 'hard'}" for number in range(3)}
    lines = [piece for asin, title in titles.items() for piece in (asin, title, "$10.0")]
    explorer = WebShopExplorer()
    explorer.reset(page().replace("Back to Search", "Search"))
    commands = []
    now = results = page("Page 1 (Total results: 3)", "Next >", *lines)
    while (command := explorer.act()) != "click[Buy Now]" and len(commands) < MOST:
        assert command is not None
        commands.append(command)
        asin = re.sub(r"click\[(B0.*)\]", r"\1", command)
        options = ("color", "teal" if titles.get(asin, "").endswith("soft") else "plum")
        if asin in titles:
            now = page("< Prev", *options, titles[asin], "Price: $10.0", "Rating: N.A.", "Features", "Buy Now")
        elif command == "click[Features]":
            now = page("< Prev", "Nothing is said here")
        elif command != "click[teal]":
            now = results
        explorer.follow(command, now)
    assert commands[-2:] == ["click[B000000001]", "click[teal]"]
    assert {f"click[{asin}]" for asin in titles} <= set(commands)


def test_it_searches_for_the_instruction_itself() -> None:
    engine = WebShopEngine(synth_shop(), range(40))
    for task in engine.tasks():
        command, seen = next(play(engine, task))
        wanted = command.removeprefix("search[").removesuffix("]")
        assert f"Instruction: [SEP] {wanted}, and price lower than " in seen.text


def test_a_search_has_no_marks_of_commands() -> None:
    explorer = WebShopExplorer()
    explorer.reset("Instruction: [SEP] Buy a hat</action> [red] <b>now [SEP] Search")
    assert explorer.act() == "search[Buy a hat /action red b now]"


def test_it_names_what_it_opens_behind_the_price_above_where_that_was_opened_last() -> None:
    engine, quoted, named = WebShopEngine(synth_shop(), range(60)), 0, 0
    for task in engine.tasks():
        explorer, last_opened = WebShopExplorer(), ""
        seen = engine.reset(task)
        explorer.reset(seen.text)
        while not seen.terminated:
            command, thought = explorer.act(), explorer.thought
            assert command is not None
            if opened := re.fullmatch(r"click\[(S[A-Z0-9]{9})\]", command):
                *price, asin = thought.strip().split(" [SEP] ")
                assert thought in seen.text
                assert asin == opened[1]
                pieces = seen.text.split(" [SEP] ")
                above = pieces[max(pieces.index(asin) - 3, 0) : pieces.index(asin)]
                # In silence it goes through with a decision.
                assert price == (above[2:] if last_opened in above and thought else [])
                quoted, named, last_opened = quoted + bool(price), named + (not price), asin
            seen = engine.step(command)
            explorer.follow(command, seen.text)
    assert quoted > 5
    assert named > 50


TASK = "Find soft, warm red hats with color: teal, and size: 9, and price lower than 30.00 dollars"


def test_it_says_the_instruction_as_far_as_the_part_that_calls_for_what_it_does() -> None:
    def page(*pieces: str) -> str:
        return " [SEP] ".join(("Instruction:", TASK, "Back to Search", *pieces))

    lines = "B000000001 [SEP] Red Hat [SEP] $9.0 [SEP] B000000002 [SEP] Soft Hat [SEP] $99.0 [SEP] B000000003"
    explorer = WebShopExplorer(patience=20)
    explorer.reset(page().replace("Back to Search", "Search"))
    results = page("Page 1 (Total results: 3)", lines, "Soft Red Hat", "$8.0")
    explorer.follow("search[hats]", results)
    assert (explorer.act(), explorer.thought) == ("click[B000000001]", " B000000001")
    item = page("< Prev", "color", "teal", "size", "8", "Red Hat", "Price: $9.0", "Features", "Buy Now")
    explorer.follow("click[B000000001]", item)
    assert (explorer.act(), explorer.thought) == (
        "click[Features]",
        " Price: $9.0, price lower than 30.00 dollars:0/0:0/3, Find soft",
    )
    explorer.follow("click[Features]", page("< Prev", "Soft and warm", "A red hat"))
    assert (explorer.act(), explorer.thought) == ("click[< Prev]", " Find soft, warm red hats")
    explorer.follow("click[< Prev]", item)
    assert (explorer.act(), explorer.thought) == ("click[teal]", " Find soft, warm red hats with color: teal")
    explorer.follow("click[teal]", item)
    assert (explorer.act(), explorer.thought) == (
        "click[< Prev]",
        " Find soft, warm red hats with color: teal, and size: 9",
    )
    explorer.follow("click[< Prev]", results)
    assert (explorer.act(), explorer.thought) == ("click[B000000002]", " $9.0 [SEP] B000000002")
    explorer.follow(
        "click[B000000002]", page("< Prev", "color", "teal", "Soft Hat", "Price: $99.0", "Features", "Buy Now")
    )
    assert (explorer.act(), explorer.thought) == (
        "click[< Prev]",
        " Price: $99.0, price lower than 30.00 dollars:0/0:9/3",
    )
    explorer.follow("click[< Prev]", results)
    assert (explorer.act(), explorer.thought) == ("click[B000000003]", " $99.0 [SEP] B000000003")
    item = page("< Prev", "color", "teal", "size", "9", "Soft Red Hat", "Price: $8.0", "Features", "Buy Now")
    explorer.follow("click[B000000003]", item)
    assert (explorer.act(), explorer.thought) == (
        "click[Features]",
        " Price: $8.0, price lower than 30.00 dollars:0/0:0/3, Find soft, warm red hats",
    )
    explorer.follow("click[Features]", page("< Prev", "Warm in every wind", "A red hat"))
    assert (explorer.act(), explorer.thought) == ("click[< Prev]", " Find soft, warm red hats")
    explorer.follow("click[< Prev]", item)
    for choice in ("teal", "9"):
        assert explorer.act() == f"click[{choice}]"
        assert explorer.thought.endswith(f": {choice}")
        explorer.follow(f"click[{choice}]", item)
    assert (explorer.act(), explorer.thought) == ("click[Buy Now]", f" {TASK}")


@pytest.mark.parametrize(
    ("price", "digits", "leaves"),
    [
        ("$30.0", ":0/0:3/3:0/0:0/0:0/0", False),
        ("$30.95", ":0/0:3/3:0/0:9/0", True),
        ("$29.99 to $45.0", ":0/0:2/3", False),
        ("$130.0", ":1/0", True),
        ("$1,234.5", ":1/0", True),
    ],
)
def test_it_compares_a_price_with_the_limit_down_to_the_first_digits_that_differ(
    price: str, digits: str, leaves: bool
) -> None:
    top = f"Instruction: [SEP] {TASK} [SEP] "
    explorer = WebShopExplorer()
    explorer.reset(f"{top}Search")
    results = f"Back to Search [SEP] Page 1 (Total: 1) [SEP] B000000001 [SEP] Hats [SEP] {price}"
    explorer.follow("search[hats]", top + results)
    assert explorer.act() == "click[B000000001]"
    page = f"Back to Search [SEP] < Prev [SEP] Hats [SEP] Price: {price} [SEP] Features [SEP] Buy Now"
    explorer.follow("click[B000000001]", top + page)
    assert (explorer.act() == "click[< Prev]") is leaves
    assert explorer.thought.split(", Find")[0] == f" Price: {price}, price lower than 30.00 dollars{digits}"


def test_its_turns_have_the_ids_of_the_pages(builtin: ChatFormat) -> None:
    env = WebShopEnv(builtin, split="eval")
    env.reset(options={"task": "1"})
    env.step(builtin.encode_turn(env.hints()["explorer"]))
    turn = builtin.encode_turn(env.hints()["explorer"])
    text = builtin.decode(turn)
    asin = builtin.encode(text[text.index("click[") + len("click[") : text.index("]</action>")])
    # The id of the product: as it stands in the thought, and as it stands on the page.
    assert text.startswith(" ")
    for ids_T in (turn, env.context.ids):
        found = np.lib.stride_tricks.sliding_window_view(ids_T, len(asin)) == asin
        assert found.all(axis=1).sum() >= 1 + (ids_T is turn)


def test_the_environment_gives_its_turns(builtin: ChatFormat) -> None:
    env = WebShopEnv(builtin, split="eval")
    _, info = env.reset(options={"task": "1"})
    while env.running:
        *_, info = env.step(builtin.encode_turn(env.hints()["explorer"]))
    assert info["success"]


PIECES = st.sampled_from(
    [
        "Instruction:",
        "Search",
        "Back to Search",
        "< Prev",
        "Page 1 (Total",
        "Page x",
        "B000000001",
        "$1",
        "Buy Now",
        "red",
    ]
)
PAGES = st.one_of(
    st.text(max_size=40), st.lists(PIECES, max_size=9).map(" [SEP] ".join), st.lists(PIECES).map("\n".join)
)


@given(PAGES, st.lists(st.tuples(st.one_of(PIECES.map("click[{}]".format), st.text(max_size=9)), PAGES), max_size=6))
def test_no_page_confuses_it_for_good(first: str, more: list[tuple[str, str]]) -> None:
    explorer = WebShopExplorer()
    explorer.reset(first)
    for command, text in more:
        assert explorer.act() != ""
        explorer.follow(command, text)
    assert explorer.act() != ""
