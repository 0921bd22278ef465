"""How far a prediction may be off because the measurement is a sample: 95 % intervals by resampling it.

The costs of one model rise and fall together (a busy machine slows every width), so each model gets one factor per draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hsd.measure.intervals import expanded_percentiles
from hsd.measure.record import FEWEST_PROMPTS, Measurement
from hsd.plan.costs import relative_spread
from hsd.plan.exact import exact_latency
from hsd.plan.gains import Array
from hsd.plan.problem import Problem
from hsd.plan.trace import Replayed

DRAWS = 200  # of the exact expression
RESAMPLES = 1000  # of the prompts: with five, the ends lie beyond 3 in 1000
SEED = 0
PLAIN = (0.025, 0.975)
TWO_SIGMAS = 2 * 1.96  # width of a 95 % interval in standard deviations


def exact_interval(
    measurement: Measurement, problem: Problem, chain: Sequence[int], thresholds: Sequence[int], draws: int = DRAWS
) -> tuple[float, float]:
    """Interval of the exact expression: acceptances drawn from their measured intervals, proposers' blocks and costs resampled."""
    random = np.random.default_rng(SEED)
    pairs = list(pairwise(chain))
    alphas, joint = np.zeros((draws, len(pairs))), None
    for n, (i, j) in enumerate(pairs):
        if problem.proposer[i]:
            joint = _resample_blocks(measurement, problem, i, j, thresholds[0], random, draws)
            continue
        measured = measurement.acceptance[problem.models[i]][problem.models[j]]
        spread = max(0.0, measured.high - measured.low) / TWO_SIGMAS
        alphas[:, n] = np.clip(random.normal(measured.mean, spread, draws), 0, 1)
    cases = np.tile(np.array(thresholds, np.int64).reshape(1, -1), (draws, 1))
    latency = exact_latency(problem, chain, cases, alphas, joint)
    total = (latency.by_level * _cost_factors(measurement, problem, chain, random, draws)).sum(axis=1) + latency.overhead
    return _interval(total, PLAIN)


def trace_interval(
    measurement: Measurement, problem: Problem, chain: Sequence[int], replayed: Replayed, draws: int = RESAMPLES
) -> tuple[float, float]:
    """Interval of the replay: whole prompts are drawn with replacement, because tokens of one prompt are correlated.

    Of fewer than `FEWEST_PROMPTS` the interval holds the spread of the costs alone (`hsd.measure.doubts` says so).
    """
    random = np.random.default_rng(SEED)
    prompts = replayed.tokens.size
    enough = prompts >= FEWEST_PROMPTS
    weights = random.multinomial(prompts, np.full(prompts, 1 / prompts), draws) if enough else np.ones((draws, prompts))
    factors = _cost_factors(measurement, problem, chain, random, draws)
    seconds = ((weights @ replayed.seconds) * factors).sum(axis=1) + problem.overhead_s * (weights @ replayed.rounds)
    ends = expanded_percentiles(prompts) if enough else PLAIN
    return _interval(seconds / (weights @ replayed.tokens) + problem.token_overhead_s, ends)


def _cost_factors(measurement: Measurement, problem: Problem, chain: Sequence[int], random: np.random.Generator, draws: int) -> Array:
    spreads = [relative_spread(measurement.cost_s[problem.models[model]]) for model in chain]
    return np.clip(1 + random.standard_normal((draws, len(chain))) * spreads, 0, None)


def _resample_blocks(
    measurement: Measurement, problem: Problem, i: int, j: int, threshold: int, random: np.random.Generator, draws: int
) -> Array:
    tables = problem.gains[i, j]
    joint = tables[min(threshold, tables.shape[0]) - 1]
    count = sum(gain.count for gain in measurement.block_gains[problem.models[i]][problem.models[j]])
    return (random.multinomial(count, joint.ravel(), draws) / count).reshape(draws, *joint.shape)


def _interval(values: Array, ends: tuple[float, float]) -> tuple[float, float]:
    low, high = np.quantile(values, ends)
    return float(low), float(high)
