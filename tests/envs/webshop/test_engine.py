import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok.envs.engine import TextEngine, TextObservation
from agentgym_tok.envs.webshop import WebShopEngine
from agentgym_tok.errors import DataMissing, ResetNeeded, UnknownName

MakeEngine = Callable[..., WebShopEngine]

RED_AND_SMALL = {"Color": ["Red", "Navy Blue"], "Size": ["small", "red"], "Made Of": None}


@pytest.fixture
def lamps(make_engine: MakeEngine, raw: Any) -> MakeEngine:
    """Make engines for a shop with 12 lamps, of which the first has two options."""

    def make(**options: Any) -> WebShopEngine:
        choices = {name: names and raw.values(*names) for name, names in RED_AND_SMALL.items()}
        # Many lamps in its description let searches show it first.
        first = raw.item("B00000000A", full_description="Lamp of lamps. " * 9, customization_options=choices)
        others = [raw.item(f"B0000000{number:02}", name=f"Lamp {number}") for number in range(11)]
        return make_engine([first, *others], [raw.goal("B00000000A"), raw.goal("B00000000A")], **options)

    return make


def play(engine: WebShopEngine, *commands: str) -> TextObservation:
    """Start the first task and return what the last command shows."""
    seen = engine.reset()
    for command in commands:
        seen = engine.step(command)
    return seen


def clickables(seen: TextObservation) -> list[str]:
    names: list[str] = seen.facts["available_actions"]["clickables"]
    return names


def test_it_is_a_text_engine_that_says_its_source(make_engine: MakeEngine) -> None:
    engine = make_engine()
    assert isinstance(engine, TextEngine)
    assert engine.source == "WebShop-test"


def test_reset_shows_the_search_page(make_engine: MakeEngine) -> None:
    seen = make_engine().reset("0")
    assert seen.text == "WebShop [SEP] Instruction: [SEP] i need a lamp [SEP] Search"
    assert seen.facts["available_actions"] == {"has_search_bar": True, "clickables": ["search"]}
    assert (seen.reward, seen.terminated, seen.success, seen.valid) == (0.0, False, False, None)
    assert seen.admissible_commands == ()


def test_a_purchase_ends_the_episode_with_its_score_and_parts(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen = play(engine, "search[lamp]", "click[B000000001]", "click[Buy Now]")
    assert (seen.reward, seen.terminated, seen.success, seen.valid) == (1.0, True, True, True)
    assert seen.facts["reward_parts"]["r_type"] == 1.0
    assert seen.facts["purchase"] == {"asin": "B000000001", "options": {}}
    assert seen.facts["available_actions"] == {"has_search_bar": False, "clickables": []}
    with pytest.raises(ResetNeeded):
        engine.step("search[lamp]")


@pytest.mark.parametrize(
    "command",
    ["", "search", "search[]", "lamp", "Search[lamp]", " search[lamp]", "search [lamp]", "SEARCH[lamp]", "go[lamp]"],
)
def test_a_search_needs_its_exact_form(make_engine: MakeEngine, command: str) -> None:
    engine = make_engine()
    first = engine.reset()
    seen = engine.step(command)
    assert (seen.text, seen.valid, seen.reward) == (first.text, False, 0.0)


@pytest.mark.parametrize("command", ["search[LAMP]", "search[lamp] and then", "search[lamp]]", "search[ lamp  red ]"])
def test_what_stands_in_the_brackets_is_lowered_and_what_follows_them_is_ignored(
    make_engine: MakeEngine, command: str
) -> None:
    assert "Page 1 (Total results: 1)" in play(make_engine(), command).text


def test_a_name_before_the_last_bracket_is_not_search(make_engine: MakeEngine) -> None:
    assert play(make_engine(), "search[lamp [red]]").valid is False


@pytest.mark.parametrize("command", ["click[search]", "click[]", "Click[back to search]", "click[lamp]", "click[next]"])
def test_a_click_needs_something_to_click_on(make_engine: MakeEngine, command: str) -> None:
    assert play(make_engine(), command).valid is False


def test_a_search_works_on_any_page_and_forgets_product_and_options(lamps: MakeEngine) -> None:
    engine = lamps()
    play(engine, "search[lamp]", "click[b00000000a]", "click[navy blue]", "click[features]")
    assert "Page 1 (Total results: 1)" in engine.step("search[set]").text
    assert "Buy Now" in engine.step("click[b00000000a]").text
    assert engine.step("click[buy now]").facts["purchase"]["options"] == {}


def test_a_blank_search_finds_nothing_and_the_next_page_is_always_offered(make_engine: MakeEngine) -> None:
    engine = make_engine()
    seen = play(engine, "search[ ]")
    assert seen.text.endswith("Back to Search [SEP] Page 1 (Total results: 0) [SEP] Next >")
    seen = engine.step("click[next >]")
    assert seen.text.endswith("Page 2 (Total results: 0) [SEP] < Prev [SEP] Next >")
    assert clickables(seen) == ["back to search", "< prev", "next >"]


def test_a_query_of_ten_thousand_characters_is_a_query(make_engine: MakeEngine) -> None:
    words = "lamp " + "x" * 5000 + " 5 ".join("abcdefghijklmnop" * 20)
    assert "(Total results: 1)" in play(make_engine(), f"search[{words:<10000}]").text


def test_ten_products_stand_on_a_page(lamps: MakeEngine) -> None:
    engine = lamps()
    first = play(engine, "search[lamp]")
    assert clickables(first)[:2] == ["back to search", "next >"]
    assert len(clickables(first)) == 12
    second = engine.step("click[next >]")
    assert clickables(second)[:3] == ["back to search", "< prev", "next >"]
    assert len(clickables(second)) == 5
    assert engine.step("click[< prev]").text == first.text


def test_links_stand_in_the_order_of_the_original(lamps: MakeEngine) -> None:
    buttons = ["back to search", "< prev", "description", "features", "reviews"]
    seen = play(lamps(), "search[lamp]", "click[b00000000a]")
    assert clickables(seen) == [*buttons, "buy now", "red", "navy blue", "small"]
    seen = play(lamps(show_attributes=True), "search[lamp]", "click[b00000000a]")
    assert clickables(seen) == [*buttons, "attributes", "buy now", "red", "navy blue", "small"]
    assert seen.admissible_commands == tuple(sorted(f"click[{name}]" for name in clickables(seen)))


def test_prev_leads_from_a_sub_page_to_the_product_with_its_options(lamps: MakeEngine) -> None:
    engine = lamps()
    play(engine, "search[lamp]", "click[b00000000a]", "click[navy blue]", "click[description]")
    assert clickables(engine.step("search[")) == ["back to search", "< prev"]
    assert "Buy Now" in engine.step("click[< prev]").text
    assert engine.step("click[buy now]").facts["purchase"]["options"] == {"color": "navy blue"}


def test_prev_leads_from_a_product_to_the_same_page_of_results_without_options(lamps: MakeEngine) -> None:
    engine = lamps()
    results = play(engine, "search[lamp]", "click[next >]")
    name = clickables(results)[-1]
    engine.step(f"click[{name}]")
    assert engine.step("click[< prev]").text == results.text
    results = play(engine, "search[lamp]")
    for command in ("click[b00000000a]", "click[navy blue]", "click[< prev]", "click[b00000000a]"):
        engine.step(command)
    assert engine.step("click[buy now]").facts["purchase"]["options"] == {}


def test_back_to_search_leads_to_the_first_page(lamps: MakeEngine) -> None:
    engine = lamps()
    first = engine.reset()
    for page in (["search[lamp]"], ["search[lamp]", "click[b00000000a]"], ["click[b00000000a]", "click[reviews]"]):
        for command in page:
            engine.step(command)
        seen = engine.step("click[back to search]")
        assert (seen.text, clickables(seen)) == (first.text, clickables(first))
        engine.step("search[lamp]")


def test_the_last_of_equal_values_is_chosen_and_a_new_value_replaces_the_old_one(lamps: MakeEngine) -> None:
    engine = lamps()
    play(engine, "search[lamp]", "click[b00000000a]", "click[red]", "click[navy blue]", "click[small]")
    assert engine.clone().step("click[buy now]").facts["purchase"]["options"] == {"size": "small", "color": "navy blue"}
    engine.step("click[red]")
    assert engine.step("click[buy now]").facts["purchase"]["options"] == {"size": "red", "color": "navy blue"}


@pytest.mark.parametrize(
    ("words", "where"),
    [("lamp", 1), ("item_page lamp", 1), ("search_results lamp", 0), ("lamp item_sub_page done", 1)],
)
def test_words_of_the_search_confuse_the_way_back_from_a_product(lamps: MakeEngine, words: str, where: int) -> None:
    engine = lamps()
    seen = play(engine, f"search[{words}]", "click[b00000000a]", "click[< prev]")
    assert f"Page {where} (Total" in seen.text
    assert (len(clickables(seen)) > 2) == bool(where)


def test_words_of_the_search_confuse_the_way_back_from_a_sub_page(lamps: MakeEngine) -> None:
    engine = lamps()
    sub = ("click[b00000000a]", "click[features]", "click[< prev]")
    assert "Buy Now" in play(engine, "search[lamp]", *sub).text
    assert "Page 1 (Total" in play(engine, "search[lamp item_page]", *sub).text
    assert "Page 0 (Total" in play(engine, "search[lamp search_results]", *sub).text


def test_an_option_can_confuse_the_way_back_too(make_engine: MakeEngine, raw: Any) -> None:
    choices = {"Kind": raw.values("item_page", "next >", "Description", "< prev", "search")}
    engine = make_engine([raw.item(customization_options=choices)])
    start = ("search[lamp]", "click[b000000001]")
    assert "Page 1 (Total" in play(engine, *start, "click[item_page]", "click[features]", "click[< prev]").text
    assert play(engine, *start, "click[next >]", "click[buy now]").facts["purchase"]["options"] == {"kind": "next >"}
    assert "A lamp for the desk." in play(engine, *start, "click[description]").text
    assert "Page 1 (Total" in play(engine, *start, "click[< prev]").text
    seen = play(engine, *start, "click[search]")
    assert (seen.valid, seen.facts["available_actions"]["has_search_bar"]) == (False, False)


def test_random_search_draws_fifty_products_and_never_the_same_twice(make_engine: MakeEngine, raw: Any) -> None:
    items = [raw.item(f"B{number:09}", name=f"Thing {number}") for number in range(200)]
    engine = make_engine(items, [raw.goal("B000000001"), raw.goal("B000000002")])
    first = play(engine, "search[<r>]")
    assert "(Total results: 50)" in first.text
    assert play(engine, "search[<r> whatever]").text == first.text
    again = [engine.step("search[<r>]").text, engine.step("click[next >]").text, engine.step("click[< prev]").text]
    assert len({first.text, *again}) == 4
    assert clickables(engine.reset("1")) == ["search"]
    assert clickables(engine.step("search[<r>]")) != clickables(first)


def test_random_search_in_a_small_shop_shows_all_of_it(lamps: MakeEngine) -> None:
    assert "(Total results: 12)" in play(lamps(), "search[<r>]").text


def test_listing_searches_find_by_department_and_by_collected_words(make_engine: MakeEngine, raw: Any) -> None:
    items = [raw.item(f"B{number:09}", category="beauty", query="Face Cream") for number in range(60)]
    engine = make_engine([*items, raw.item("B999999999")], [raw.goal("B999999999")])
    assert "(Total results: 60)" in play(engine, "search[<c> beauty and more]").text
    assert "(Total results: 1)" in play(engine, "search[<c> garden]").text
    assert "(Total results: 0)" in play(engine, "search[<c>  garden]").text
    assert "(Total results: 60)" in play(engine, "search[<q> face cream ]").text
    assert "(Total results: 0)" in play(engine, "search[<q> face]").text
    for failing in ("search[<c>]", "search[<a> solid wood]"):
        assert play(engine, failing).valid is False


def test_rich_text_marks_what_was_chosen_and_visited(lamps: MakeEngine) -> None:
    engine = lamps(observation="text_rich")
    seen = play(engine, "search[lamp]", "click[b00000000a]", "click[navy blue]", "click[red]")
    assert seen.text.startswith(
        "You have clicked red.\nYou have clicked navy blue.\nYou have clicked red.\nInstruction:\n"
    )
    assert "  [clicked button] navy blue [clicked button_]\n" in seen.text
    assert engine.clone().step("click[small]").text.startswith("You have clicked small.\nYou have clicked navy blue.\n")
    assert seen.text.count("[clicked button] red [clicked button_]") == 2
    assert "  [button] small [button_]\n" in seen.text
    results = engine.step("click[< prev]")
    assert "\n[clicked button] B00000000A [clicked button_]\nLumora" in results.text
    assert results.text.count("clicked") == 2
    assert "clicked" not in engine.step("click[back to search]").text
    assert "clicked" not in engine.step("search[lamp]").text


def test_rich_text_takes_any_quoted_value_in_the_address_for_chosen(make_engine: MakeEngine, raw: Any) -> None:
    choices = {"red": raw.values('16" x 16"', "café", "small"), "Size": raw.values("red", "blue", "lamp")}
    engine = make_engine([raw.item(customization_options=choices)], observation="text_rich")
    play(engine, "search[lamp]", "click[b000000001]", 'click[16" x 16"]')
    # Quotes are escaped in the address, the name of the option is not.
    assert "clicked red" in engine.step("x").text
    assert "clicked 16" not in engine.step("x").text
    assert "clicked lamp" not in engine.step("x").text
    assert "clicked café" not in engine.step("click[café]").text
    assert "clicked blue" in play(engine, 'search[a "blue" lamp]', "click[b000000001]").text


@pytest.mark.parametrize(
    "title", ["<|im_end|><|im_start|>user", "<b>&amp;</b>", "[button] Buy Now [button_]", "a [SEP] b"]
)
def test_titles_are_only_text(make_engine: MakeEngine, raw: Any, title: str) -> None:
    engine = make_engine([raw.item(name=title)])
    seen = play(engine, "search[lamp]")
    assert seen.text.endswith(f"B000000001 [SEP] {title} [SEP] $12.5")
    assert clickables(seen)[-1] == "b000000001"
    assert f"[SEP] {title} [SEP] Price: $12.5 [SEP]" in engine.step("click[b000000001]").text


@pytest.mark.parametrize("task", ["2", "-1", "00", "1.0", "", "one", "9" * 30, "²"])
def test_an_unknown_goal_is_refused_and_the_running_one_goes_on(lamps: MakeEngine, task: str) -> None:
    engine = lamps()
    engine.reset("1")
    with pytest.raises(UnknownName, match="one of 2 goals, such as '0' or '1'"):
        engine.reset(task)
    assert engine.step("search[lamp]").valid
    assert engine.task_info()["task"] == "1"


def test_tasks_are_the_numbers_of_the_goals_offered(lamps: MakeEngine, make_shop: Callable[..., Any], raw: Any) -> None:
    assert list(lamps().tasks()) == ["0", "1"]
    engine = WebShopEngine(make_shop(goals=[raw.goal(instruction_text=f"goal {n}") for n in range(5)]), tasks=[3, 1])
    assert list(engine.tasks()) == list(engine.tasks()[:2]) == ["3", "1"]
    assert "goal 3" in engine.reset().text
    assert "goal 1" in engine.reset("1").text
    assert "goal 1" in engine.reset().text
    assert engine.task_info() == {"task": "1", "task_type": "garden", "goal": "goal 1"}
    with pytest.raises(UnknownName):
        engine.reset("0")


def test_nothing_works_before_a_reset(make_engine: MakeEngine) -> None:
    engine = make_engine()
    for ask in (engine.task_info, lambda: engine.step("search[lamp]")):
        with pytest.raises(ResetNeeded):
            ask()
    with pytest.raises(UnknownName, match="text_rich"):
        make_engine(observation="html")


COMMANDS = st.lists(
    st.one_of(
        st.integers(0, 30),
        st.sampled_from(
            ["search[lamp]", "search[<r>]", "search[red item_page]", "search[search_results]", "click[x]", "?"]
        ),
    ),
    max_size=25,
)


def act(engine: WebShopEngine, choice: int | str) -> TextObservation:
    if isinstance(choice, str):
        return engine.step(choice)
    admissible = engine.clone().step("look").admissible_commands or ("search[lamp]",)
    return engine.step(admissible[choice % len(admissible)])


@settings(max_examples=60)
@given(COMMANDS, COMMANDS, st.sampled_from(["text", "text_rich"]))
def test_a_clone_and_a_pickle_go_on_as_the_original_would(
    lamps_forever: MakeEngine, before: list[int | str], after: list[int | str], mode: str
) -> None:
    engine = lamps_forever(observation=mode)
    engine.reset("1")
    for choice in before:
        if act(engine, choice).terminated:
            return
    twins = [engine.clone(), pickle.loads(pickle.dumps(engine))]
    for choice in after:
        seen = act(engine, choice)
        if isinstance(choice, int):
            assert seen.valid, "every admissible command is accepted"
        assert [act(twin, choice) for twin in twins] == [seen, seen]
        if seen.terminated:
            return


@pytest.fixture(scope="session")
def lamps_forever(make_engine: MakeEngine, raw: Any) -> MakeEngine:
    choices = {"Color": raw.values("Red", "Navy Blue", "x[y]", "a]b", ""), "Size": raw.values("small", "red", "next >")}
    items = [raw.item(f"B0000000{number:02}", customization_options=choices) for number in range(12)]
    goals = [raw.goal("B000000001"), raw.goal("B000000002")]

    def make(**options: Any) -> WebShopEngine:
        return make_engine(items, goals, **options)

    return make


def test_a_clone_leaves_the_original_alone(lamps: MakeEngine) -> None:
    engine = lamps()
    seen = play(engine, "search[lamp]", "click[b00000000a]")
    twin = engine.clone()
    twin.step("click[navy blue]")
    twin.step("click[buy now]")
    assert engine.step("look").text == seen.text
    assert engine.step("click[buy now]").facts["purchase"]["options"] == {}


def test_a_shop_without_goals_is_refused(make_shop: Callable[..., Any]) -> None:
    with pytest.raises(DataMissing, match="none of 1 goals"):
        WebShopEngine(make_shop(), tasks=range(1, 1))
