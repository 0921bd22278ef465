"""Cost of any width from the widths that were measured."""

import numpy as np
import pytest

from hsd.plan.costs import cost_table, levelled, relative_spread
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


def test_a_fall_within_the_noise_is_levelled_and_a_confirmed_one_kept():
    assert levelled([at(1.0, 0.1), at(1.3, 0.2), at(1.2, 0.2), at(2.0, 0.1)]) == pytest.approx([1.0, 1.25, 1.25, 2.0])
    assert levelled([at(1.0, 0.1), at(1.3, 0.01), at(1.2, 0.01)]) == [1.0, 1.3, 1.2]
    precise = levelled([at(1.3, 0.3), at(1.2, 0.01)])  # the sure one counts more
    assert precise[0] == precise[1] == pytest.approx(1.2, abs=0.001)
    assert levelled([at(3.0, 0.5), at(2.9, 0.5), at(2.8, 0.5)]) == pytest.approx([2.9] * 3)


def test_levelling_brings_noisy_costs_nearer_to_the_truth():
    random = np.random.default_rng(0)
    truth = np.linspace(1, 1.5, 12)
    raw, level = [], []
    for _ in range(200):
        noisy = truth + random.normal(0, 0.2, truth.size)
        raw.append(np.abs(noisy - truth).mean())
        level.append(np.abs(np.array(levelled([at(float(x), 0.4) for x in noisy])) - truth).mean())
    assert np.mean(level) < 0.7 * np.mean(raw)


def test_spread_of_the_interval():
    assert relative_spread({1: at(1.0, 0.196), 2: at(2.0, 0.392)}) == pytest.approx(0.1)
    assert relative_spread({0: at(0.0)}) == 0
