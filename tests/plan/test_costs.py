"""Cost of any width from the widths that were measured."""

import pytest

from hsd.plan.costs import cost_table, relative_spread
from hsd.records import Estimate


def at(seconds, spread=0.0):
    return Estimate(seconds, seconds - spread, seconds + spread, 5)


def test_measured_widths_are_kept_and_those_between_lie_between():
    table = cost_table("m", {8: at(3.0), 1: at(1.0), 4: at(1.2)}, 8)
    assert (table[1], table[4], table[8]) == (1.0, 1.2, 3.0)
    assert all(table[w] <= table[w + 1] for w in range(1, 8))
    assert table[6] == pytest.approx(2.1)


def test_beyond_the_widest_it_goes_on_and_never_falls():
    assert cost_table("m", {1: at(1.0), 4: at(1.3)}, 6)[6] == pytest.approx(1.5)
    assert cost_table("m", {1: at(1.0), 4: at(0.9)}, 6)[6] == pytest.approx(0.9)
    assert cost_table("m", {1: at(1.0)}, 6)[6] == 1.0


def test_spread_of_the_interval():
    assert relative_spread({1: at(1.0, 0.196), 2: at(2.0, 0.392)}) == pytest.approx(0.1)
    assert relative_spread({0: at(0.0)}) == 0
