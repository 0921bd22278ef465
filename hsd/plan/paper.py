"""Expected latency by Theorem 2.2 of Mohri et al. (arXiv 2510.19705): E[seconds per token] = Σ_i c_i · Π_{j≥i} R_j.

One constant cost per model: its pass of width 1 at the measured contexts on average, with the loop's own time in that round. Blocks of
exactly T_j tokens: the overshoot of a level is ignored, and so is what a round of the target costs beside its models' rounds. The exact
expression (exact.py) has none of these simplifications.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsd.plan.gains import blocks_at, gain_of_blocks, mean, visits
from hsd.plan.problem import Array, Problem


def paper_latency(problem: Problem, chain: Sequence[int], thresholds: Sequence[int]) -> float:
    """Seconds per token of the models `chain` (smallest first, target last) with `thresholds` (one fewer)."""
    levels = len(chain) - 1
    if levels == 0:
        return float(problem.cost_s[chain[0], 1])
    bottom = chain[0]
    # Seconds for what is below, per block: R_0 = T_0 passes, or one call of a draft without weights.
    below = float(problem.call_s[bottom]) if problem.proposer[bottom] else thresholds[0] * float(problem.cost_s[bottom, 1])
    for level in range(1, levels):
        gain = fixed_gain(problem, chain[level - 1], chain[level], thresholds[level - 1])
        rounds = float(visits(gain, thresholds[level]).sum())
        below = rounds * (below + float(problem.cost_s[chain[level], 1]))
    gain = fixed_gain(problem, chain[-2], chain[-1], thresholds[-1])
    return (below + float(problem.cost_s[chain[-1], 1])) / float(mean(gain))


def fixed_gain(problem: Problem, draft: int, verifier: int, threshold: int) -> Array:
    """Distribution (T+2,) of the tokens of one round when `draft` hands up `threshold` tokens (a proposer: at most so many)."""
    if problem.proposer[draft]:
        return blocks_at(problem.gains[draft, verifier], threshold)[1]
    block = np.zeros((1, threshold + 1))
    block[0, threshold] = 1.0
    return gain_of_blocks(problem.alpha[draft, verifier : verifier + 1], block)[0]
