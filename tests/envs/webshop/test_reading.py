"""Pages and instructions are read alike in both modes."""

from hypothesis import given
from hypothesis import strategies as st

from agentgym_tok.envs.webshop import WebShopEngine
from agentgym_tok.envs.webshop.generated.shop import synth_shop
from agentgym_tok.envs.webshop.reading import read_demand, read_page, words_of

INSTRUCTION = """
Buy hats, red, 's with color: teal, and size: 9, and price lower than $30.00 dollars İ a. 8.5 oz : ! with: of
"""
WORDS = st.sampled_from(INSTRUCTION.split())


def test_both_modes_say_the_same() -> None:
    plain, rich = (WebShopEngine(synth_shop(), range(5), observation=mode) for mode in ("text", "text_rich"))
    for task in plain.tasks():
        kinds = []
        one, other = plain.reset(task), rich.reset(task)
        while not one.terminated:
            first, second = read_page(one.text), read_page(other.text)
            assert first == second
            assert first.offers == second.offers
            kinds.append(first.kind)
            command = plain.expert_command()
            assert command is not None
            one, other = plain.step(command), rich.step(command)
        assert kinds[:3] == ["start", "results", "item"]
        assert read_page(one.text).kind == "other"


def test_results_and_options_are_read() -> None:
    engine = WebShopEngine(synth_shop(), range(5))
    engine.reset("0")
    results = read_page(engine.step("search[bean soup]").text)
    assert len(results.offers) == 10
    assert results.more
    shown = 0
    for offer in results.offers:
        assert 0 < offer.low <= offer.high
        seen = engine.step(f"click[{offer.asin.lower()}]")
        values = seen.facts["available_actions"]["clickables"][6:]  # behind the buttons
        assert [option for option in read_page(seen.text).options(offer.title) if option in values] == values
        shown += len(values)
        engine.step("click[< prev]")
    assert shown > 10


def test_a_listed_instruction_is_taken_apart() -> None:
    demand = read_demand(
        "Get me easy install, dust proof screen covers with color: beige, and style: usb c, and price lower than 80.00 "
        "dollars"
    )
    assert demand.phrases == [("easy", "install"), ("dust", "proof", "screen", "cover")]
    assert (demand.options, demand.limit, demand.head) == (["beige", "usb c"], 80.0, "cover")
    assert demand.query == "Get me easy install, dust proof screen covers with color: beige, and style: usb c"
    assert read_demand("Buy hair masks, color safe").head == "mask"
    # An option without a value asks for nothing.
    assert read_demand("Buy hats with color: , and size: 9").options == ["9"]


def test_a_persons_instruction_is_taken_apart() -> None:
    demand = read_demand("i'm looking for a hair mask, tea tree and color safe, and price lower than 1,000.00 dollars")
    assert demand.phrases == [("hair", "mask"), ("tea", "tree"), ("safe",)]
    assert (demand.listed, demand.limit) == (False, 1000.0)
    assert words_of("Women's glasses, 8 fl oz.") == ("women", "glasse", "8", "fl", "oz")


@given(st.one_of(st.text(), st.lists(WORDS, max_size=12).map(" ".join)))
def test_parts_stand_in_order_in_what_was_read(instruction: str) -> None:
    demand, end = read_demand(instruction), 0
    for part in demand.parts:
        assert end <= part.start < part.end <= len(instruction)
        assert part.words == words_of(instruction[part.start : part.end])
        end = part.end
    assert len(demand.options) == sum(part.what == "option" for part in demand.parts)
