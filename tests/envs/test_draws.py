from collections import Counter

import pytest

from agentgym_tok.envs.draws import Draws


def test_equal_keys_draw_equally_and_others_do_not() -> None:
    def numbers(*key: object) -> list[int]:
        draws = Draws(*key)
        return [draws.between(0, 999) for _ in range(20)]

    assert numbers("a", 1) == numbers("a", 1)
    assert len({tuple(numbers("a", index)) for index in range(50)}) == 50


def test_the_stream_is_the_one_of_all_python_versions() -> None:
    draws = Draws("key", 7)
    assert [draws.between(1, 6) for _ in range(12)] == [1, 3, 4, 2, 6, 4, 4, 1, 3, 6, 5, 6]


def test_between_reaches_both_ends_and_nothing_else() -> None:
    draws = Draws("ends")
    assert {draws.between(3, 5) for _ in range(200)} == {3, 4, 5}


def test_weights_are_shares_and_zero_is_never() -> None:
    draws = Draws("weights")
    seen = Counter(draws.weighted({"rare": 1, "never": 0, "often": 3}) for _ in range(4000))
    assert set(seen) == {"rare", "often"}
    assert 0.22 < seen["rare"] / 4000 < 0.28


def test_chance_is_a_share() -> None:
    draws = Draws("chance")
    assert 0.22 < sum(draws.chance(0.25) for _ in range(4000)) / 4000 < 0.28
    assert not any(draws.chance(0.0) for _ in range(100))
    assert all(draws.chance(1.0) for _ in range(100))


def test_pick_takes_every_item_in_turn() -> None:
    draws = Draws("pick")
    assert {draws.pick("abc") for _ in range(100)} == set("abc")


def test_nothing_to_draw_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to draw from"):
        Draws("none").weighted({"never": 0})
