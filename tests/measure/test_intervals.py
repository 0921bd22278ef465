"""Intervals: where they lie, what narrows them, and what is resampled."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from hsd.measure.intervals import acceptance_estimate, median_estimate


def test_the_median_is_that_of_the_values_in_any_order():
    assert median_estimate([3.0, 1.0, 2.0]).median == 2.0
    assert median_estimate([4.0, 1.0, 2.0, 3.0]).median == 2.5
    alone = median_estimate([5.0])
    assert (alone.median, alone.low, alone.high, alone.samples) == (5.0, 5.0, 5.0, 1)


def test_the_interval_of_a_median_covers_it_in_95_of_100_cases_and_no_narrower_one_does():
    """Its bounds are two of the sorted values; that the median lies between them is a binomial question."""

    def covered(count, low, high):
        """In how many of 2 ** `count` equally likely cases."""
        return sum(comb(count, k) for k in range(low + 1, high + 1))

    for count in (*range(6, 200), 2000):
        estimate = median_estimate(range(count))
        low, high = int(estimate.low), int(estimate.high)
        assert high == count - 1 - low, "as many values lie below it as above"
        assert 20 * covered(count, low, high) >= 19 * 2**count > 20 * covered(count, low + 1, high - 1), count


def test_of_few_values_the_interval_is_all_of_them():
    for count in range(1, 6):
        estimate = median_estimate(range(count))
        assert (estimate.low, estimate.high) == (0, count - 1)


def test_an_outlier_moves_neither_the_median_nor_the_interval():
    quiet = median_estimate([1.0 + i / 100 for i in range(30)])
    spiked = median_estimate([*(1.0 + i / 100 for i in range(29)), 1000.0])
    assert (spiked.median, spiked.low, spiked.high) == (quiet.median, quiet.low, quiet.high)


def per_prompt(prompts, positions, seed=0, spread=0.25):
    random = np.random.default_rng(seed)
    return [list((random.random(positions) < rate).astype(float)) for rate in random.normal(0.6, spread, prompts).clip(0, 1)]


def test_the_mean_is_over_all_positions_and_lies_within_its_interval():
    values = [[1.0] * 9, [0.0], [0.5, 0.5]]
    estimate = acceptance_estimate(values)
    assert estimate.mean == pytest.approx(10 / 12)
    assert (estimate.positions, estimate.prompts) == (12, 3)
    assert estimate.low <= estimate.mean <= estimate.high


def test_the_interval_shrinks_with_the_number_of_prompts():
    def width(prompts):
        estimates = [acceptance_estimate(per_prompt(prompts, 40, seed)) for seed in range(10)]
        return sum(estimate.high - estimate.low for estimate in estimates) / 10

    few, more, many = width(8), width(32), width(128)
    assert 1.6 < few / more < 2.4 and 1.6 < more / many < 2.4  # as the square root


def test_prompts_are_resampled_and_not_tokens():
    """Half of the prompts are always right and half always wrong: a thousand tokens of them tell no more than ten."""
    short, long = (acceptance_estimate([[float(i % 2)] * count for i in range(8)]) for count in (10, 1000))
    assert (short.low, short.high) == (long.low, long.high)
    assert long.high - long.low > 0.4


def test_one_prompt_says_nothing_about_the_spread_of_prompts():
    estimate = acceptance_estimate([[1.0, 0.0, 1.0, 1.0]])
    assert estimate.mean == estimate.low == estimate.high == 0.75


@pytest.mark.parametrize("prompts", [5, 8, 16, 40])
def test_the_interval_covers_the_true_rate_in_about_95_of_100_measurements(prompts):
    """From the fewest prompts on for which it is given; resampling without more ado covers 86 of 100 at five."""
    hits = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        values = [list((random.random(30) < rate).astype(float)) for rate in random.beta(6, 4, prompts)]
        estimate = acceptance_estimate(values)
        hits += estimate.low <= 0.6 <= estimate.high
    assert 0.90 <= hits / 400 <= 0.98


def test_prompts_without_a_position_are_left_out():
    estimate = acceptance_estimate([[], [1.0, 0.0], []])
    assert (estimate.positions, estimate.prompts) == (2, 1)


def test_the_same_values_give_the_same_interval():
    values = per_prompt(8, 20)
    assert acceptance_estimate(values) == acceptance_estimate(values)
