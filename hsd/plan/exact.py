"""Expected latency with overshoot and width-dependent costs, exact when acceptances are independent (design §4).

Evaluated for many cases at once: a case is one setting of the thresholds (a search) or of the acceptances (resampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hsd.plan.gains import blocks_at, capped, fill, gain_of_blocks, mean
from hsd.plan.problem import Array, Problem


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds per token of S cases."""

    by_level: Array  # (S, K+1) share of each model, smallest first
    overhead: Array  # (S,) outside of the models' rounds

    @property
    def total(self) -> Array:
        return self.by_level.sum(axis=1) + self.overhead


def exact_latency(
    problem: Problem,
    chain: Sequence[int],
    thresholds: NDArray[np.int64],
    alphas: Array | None = None,
    joint: Array | None = None,
) -> Latency:
    """Latency of `chain` (smallest first, target last) for each row of `thresholds` (S, K).

    `alphas` (S, K) replaces the measured acceptance of each draft at the model above; `joint` (S, N+1, N+1) replaces the measured
    block gains of a proposer at the bottom. Needs costs up to the longest block plus one (`problem.widest`).
    """
    cases, drafts = thresholds.shape
    if drafts == 0:
        alone = np.full((cases, 1), problem.cost_s[chain[0], 1])
        return Latency(alone, np.full(cases, problem.overhead_s + problem.token_overhead_s))
    if alphas is None:
        alphas = np.tile([problem.alpha[i, j] for i, j in pairwise(chain)], (cases, 1))
    block, gain, seconds = _bottom(problem, chain, thresholds[:, 0], alphas[:, 0], joint)
    for level in range(1, drafts + 1):
        verifier = problem.cost_s[chain[level], 1 : block.shape[1] + 1]  # block of n tokens: a pass of n+1
        seconds = np.concatenate([seconds, (block @ verifier)[:, None]], axis=1)
        if level == drafts:
            break
        rounds, block = fill(gain, thresholds[:, level])
        seconds *= rounds[:, None]  # Wald's identity
        gain = gain_of_blocks(alphas[:, level], block)
    tokens = mean(gain)
    return Latency(seconds / tokens[:, None], problem.overhead_s / tokens + problem.token_overhead_s)


def _bottom(
    problem: Problem, chain: Sequence[int], threshold: NDArray[np.int64], alpha: Array, joint: Array | None
) -> tuple[Array, Array, Array]:
    """Block lengths (S, B+1), gains of a round above (S, B+2) and seconds (S, 1) of the lowest draft."""
    cases, longest = threshold.shape[0], int(threshold.max())
    if not problem.proposer[chain[0]]:
        block = np.zeros((cases, longest + 1))
        block[np.arange(cases), threshold] = 1.0
        return block, gain_of_blocks(alpha, block), (threshold * problem.cost_s[chain[0], 1])[:, None]
    block, gain = np.zeros((cases, longest + 1)), np.zeros((cases, longest + 2))
    measured = problem.gains[chain[0], chain[1]]
    for value in np.unique(threshold):
        rows = threshold == value
        here = blocks_at(measured, int(value)) if joint is None else capped(joint[rows], int(value))
        block[rows, : value + 1], gain[rows, : value + 2] = here
    return block, gain, np.full((cases, 1), problem.call_s[chain[0]])
