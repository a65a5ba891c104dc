"""Ids of answers and calls are made from their parts alone."""

import re

from agentgym_tok.proxy.wire import call_namer, wire_id


def test_ids_follow_from_their_parts_alone() -> None:
    namer = call_namer("call_", "session", 3)
    assert namer(0, 0) == call_namer("call_", "session", 3)(0, 0)
    assert len({namer(0, 0), namer(1, 0), namer(0, 1), call_namer("call_", "session", 4)(0, 0)}) == 4
    assert re.fullmatch("call_[0-9a-f]{24}", namer(0, 0))
    assert wire_id("x", "a", "bc") != wire_id("x", "ab", "c")
