"""The distributions every latency model is built from."""

import numpy as np
import pytest

from hsd.measure.record import BlockGain
from hsd.plan.gains import (
    blocks_at,
    capped,
    every_threshold,
    fill,
    gain_of_blocks,
    histogram,
    histograms_along,
    mean,
    visits,
)

ALPHAS = [0.0, 0.3, 0.75, 0.999, 1.0]


def point(length, size=None):
    block = np.zeros((1, (size or length) + 1))
    block[0, length] = 1
    return block


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("drafted", [0, 1, 5])
def test_round_of_fixed_block_is_truncated_geometric(alpha, drafted):
    gain = gain_of_blocks(np.array([alpha]), point(drafted))[0]
    expected = [0.0] + [alpha**k * (1 - alpha) for k in range(drafted)] + [alpha**drafted]
    assert gain == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.75, 0.999])
def test_mean_gain_equals_closed_form(alpha):
    gain = gain_of_blocks(np.array([alpha]), point(7))
    assert mean(gain)[0] == pytest.approx((1 - alpha**8) / (1 - alpha))


def test_mean_gain_of_perfect_draft_has_no_division_by_zero():
    assert mean(gain_of_blocks(np.array([1.0]), point(7)))[0] == 8


def test_random_block_lengths_are_the_mixture_of_fixed_ones():
    weights, alpha = [0.1, 0.0, 0.5, 0.4], np.array([0.6])
    mixed = gain_of_blocks(alpha, np.array([weights]))[0]
    parts = sum(w * gain_of_blocks(alpha, point(n, 3))[0] for n, w in enumerate(weights))
    assert mixed == pytest.approx(parts)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_rounds_solve_the_recurrence(alpha):
    """R[n] = 1 + Σ_k P(Z=k)·R[max(0, n−k)] (design §4), solved here by plain recursion."""
    gain = gain_of_blocks(np.array([alpha]), point(4))[0]

    def rounds(n):
        return 0.0 if n <= 0 else 1 + sum(gain[k] * rounds(n - k) for k in range(1, gain.size))

    u = visits(gain[None], 9)[0]
    assert np.cumsum(u) == pytest.approx([rounds(n) for n in range(1, 10)])


def test_filling_keeps_the_overshoot_and_obeys_wald():
    gain = gain_of_blocks(np.array([0.8, 0.3]), np.tile(point(4), (2, 1)))
    threshold = np.array([6, 3])
    rounds, block = fill(gain, threshold)
    assert block.sum(axis=1) == pytest.approx([1, 1])
    assert all(block[s, : threshold[s]].sum() == 0 for s in range(2))
    assert block[0, 7:].sum() > 0.1  # longer than asked for
    assert mean(block) == pytest.approx(rounds * mean(gain))


def test_variable_draft_is_capped_at_its_threshold():
    joint = histogram([BlockGain(0, 0, 50), BlockGain(2, 1, 20), BlockGain(5, 5, 20), BlockGain(5, 2, 10)])
    block, gain = capped(joint, 3)
    assert block == pytest.approx([0.5, 0, 0.2, 0.3])
    assert gain == pytest.approx([0, 0.5, 0.2, 0.1, 0.2])  # min(accepted, 3) + 1
    block, gain = capped(joint, 9)
    assert block.size == 10 and gain.size == 11
    assert mean(gain) == pytest.approx(1 + 0.2 * 1 + 0.2 * 5 + 0.1 * 2)


def test_rounds_along_a_text_are_counted_not_positions():
    """A hit of four tokens among misses: decoding meets it once, though four positions lie in it."""
    text = [(0, 0), (4, 4), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0)]
    tables = histograms_along([text])
    assert tables.shape == (4, 5, 5)
    assert tables[3, 4, 4] == tables[3].sum() / 3 and tables[3, 0, 0] == pytest.approx(2 / 3)  # miss, hit and its bonus, miss
    assert tables[0, 4, 4] == tables[0, 2, 2] == pytest.approx(1 / 5)  # asked for one token at a time: met again in the middle
    assert blocks_at(tables, 9)[0].size == 10
    assert mean(blocks_at(tables, 4)[1]) == pytest.approx(7 / 3)


def test_without_texts_every_threshold_has_the_same_histogram():
    joint = histogram([BlockGain(3, 1, 2), BlockGain(0, 0, 2)])
    assert (every_threshold(joint) == joint).all() and every_threshold(joint).shape == (3, 4, 4)
    assert every_threshold(histogram([BlockGain(0, 0, 5)])).shape == (1, 1, 1)
