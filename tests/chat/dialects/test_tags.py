"""Tagged blocks are found in order, apart from each other, with the tokens that they stand in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.chat.dialects.tags import Tag

NAMES = ["search", "answer", "think"]

parts = st.sampled_from([*(f"{end}{name}>" for name in NAMES for end in ("<", "</")), "a b", "\n", "é🤖", "<", ">"])


def tags(chat: ChatFormat, text: str, names: list[str]) -> list[tuple[str, str, bool]]:
    return [(tag.name, tag.text, tag.closed) for tag in chat.tags(chat.encode(text), names)]


@given(st.lists(parts, max_size=20).map("".join), st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_block_stands_in_its_tokens(builtin: ChatFormat, text: str, control: bool) -> None:
    ids = (builtin._tokenizer.encode(text) if control else builtin.encode(text)).tolist()
    place = 0
    for tag in builtin.tags([*ids, *builtin.stop_ids[:1]], NAMES):
        start, end = tag.tokens
        assert place <= start < end <= len(ids)
        inside = builtin.decode(ids[start:end])
        assert f"<{tag.name}>" in inside
        assert tag.text in inside
        assert (f"</{tag.name}>" in inside) >= tag.closed
        place = end - 1  # one token may hold the end of a block and the beginning of the next


def test_blocks_are_read_in_order(builtin: ChatFormat) -> None:
    text = "First <search> a\n</search> then <answer>é</answer><search></search>."
    assert tags(builtin, text, NAMES) == [("search", "a", True), ("answer", "é", True), ("search", "", True)]
    assert tags(builtin, text, ["answer"]) == [("answer", "é", True)]
    assert tags(builtin, text, []) == []
    (tag,) = builtin.tags(builtin.encode("a<answer>b</answer>"), ["answer"])
    assert isinstance(tag, Tag)


def test_what_is_tagged_inside_a_block_is_its_text(builtin: ChatFormat) -> None:
    text = "<think>I could <search>a</search></think><search>b</search>"
    assert tags(builtin, text, NAMES) == [("think", "I could <search>a</search>", True), ("search", "b", True)]
    assert tags(builtin, text, ["search"]) == [("search", "a", True), ("search", "b", True)]


def test_an_opener_without_a_closer_reaches_to_the_next_opener_or_the_end(builtin: ChatFormat) -> None:
    assert tags(builtin, "<search>a <answer>b</answer>", NAMES) == [("search", "a", False), ("answer", "b", True)]
    assert tags(builtin, "</search><search>a", NAMES) == [("search", "a", False)]
    (tag,) = builtin.tags(builtin.encode_turn("<search>a"), NAMES)
    assert (tag.text, tag.closed) == ("a", False)


def test_names_are_taken_as_they_are_written(builtin: ChatFormat) -> None:
    assert tags(builtin, "<a.b>1</a.b><axb>2</axb>", ["a.b"]) == [("a.b", "1", True)]


def test_a_turn_of_openers_takes_no_longer_than_others(builtin: ChatFormat) -> None:
    for text in ("<search>", "</search>", "<search><answer>", "<search><answer></search>"):
        ids = builtin.encode(text).tolist()
        assert len(builtin.tags(ids * (30_000 // len(ids)), NAMES)) >= ("</" not in text)
