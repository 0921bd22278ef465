"""Tokens gained by rounds of verification: the probabilities every latency model is built from (design §4).

A distribution is an array whose last axis is indexed by a number of tokens; leading axes are independent cases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hsd.measure.record import BlockGain

Array = NDArray[np.float64]


def gain_of_blocks(alpha: Array, block: Array) -> Array:
    """Distribution of the tokens one round yields, blocks of random length under a constant acceptance rate.

    `alpha` (S,) in [0, 1]; `block` (S, B+1) probabilities of each block length. Returns (S, B+2). Mixture of truncated
    geometric distributions: P(Z ≥ k+1) = α^k · P(length ≥ k), since k tokens are kept iff so many were drafted and accepted.
    """
    longest = block.shape[-1] - 1
    at_least = np.flip(np.cumsum(np.flip(block, -1), -1), -1)  # (S, B+1): P(length >= k)
    survival = alpha[..., None] ** np.arange(longest + 1) * at_least  # P(Z >= k+1)
    gain = np.zeros((*block.shape[:-1], longest + 2))
    gain[..., 1:] = survival
    gain[..., 1:-1] -= survival[..., 1:]
    return gain


def mean(distribution: Array) -> Array:
    """Expected number of tokens, last axis summed out."""
    return distribution @ np.arange(distribution.shape[-1], dtype=np.float64)


def visits(gain: Array, longest: int) -> Array:
    """Renewal masses: u[m] = probability that the tokens held pass through m, for 0 ≤ m < `longest`.

    `gain` (S, G+1) with no mass at 0. Returns (S, longest). The expected number of rounds until at least T tokens are held
    is u[0] + … + u[T−1], the solution of R[n] = 1 + Σ_k P(Z=k)·R[max(0, n−k)].
    """
    most = gain.shape[-1] - 1
    u = np.zeros((*gain.shape[:-1], longest))
    u[..., 0] = 1.0
    for m in range(1, longest):
        k = min(m, most)
        u[..., m] = np.einsum("...k,...k->...", gain[..., 1 : k + 1], u[..., m - k : m][..., ::-1])
    return u


def fill(gain: Array, threshold: NDArray[np.int64]) -> tuple[Array, Array]:
    """Rounds until at least `threshold` (S,) tokens are held, and the distribution of how many are then held.

    Returns expected rounds (S,) and block lengths (S, max threshold + G), overshoot included.
    """
    longest, most = int(threshold.max()), gain.shape[-1] - 1
    u = visits(gain, longest)
    u = np.where(np.arange(longest) < threshold[:, None], u, 0.0)
    block = np.zeros((gain.shape[0], longest + most))
    for m in range(longest):
        block[:, m + 1 : m + 1 + most] += u[:, m : m + 1] * gain[:, 1:]
    block[np.arange(block.shape[1]) < threshold[:, None]] = 0.0
    return u.sum(axis=1), block


def histogram(gains: Sequence[BlockGain]) -> Array:
    """Joint probabilities of (drafted, accepted), shape (N+1, N+1), of a draft of variable length."""
    longest = max((gain.drafted for gain in gains), default=0)
    joint = np.zeros((longest + 1, longest + 1))
    for gain in gains:
        joint[gain.drafted, gain.accepted] += gain.count
    return joint / joint.sum()


def every_threshold(joint: Array) -> Array:
    """The same histogram for thresholds 1 … N: shape (max(N, 1), N+1, N+1), what `histograms_along` gives where texts are recorded."""
    return np.broadcast_to(joint, (max(joint.shape[0] - 1, 1), *joint.shape))


def histograms_along(texts: Sequence[Sequence[tuple[int, int]]]) -> Array:
    """Histograms (max(N, 1), N+1, N+1) of the rounds that the verifier makes along recorded texts, for each threshold.

    `texts` holds (drafted, accepted) at every position. A lookup's hits come in long runs; counted at every position, a run of n
    tokens is met n times, while decoding meets it once and jumps to its end. So rounds are counted, not positions.
    """
    drafted, accepted = np.array([pair for text in texts for pair in text], np.int64).T
    longest = int(drafted.max())
    joint = np.zeros((max(longest, 1), longest + 1, longest + 1))
    ends = np.cumsum([len(text) for text in texts])
    threshold, end = (grid.ravel() for grid in np.meshgrid(np.arange(1, joint.shape[0] + 1), ends, indexing="ij"))
    here = np.tile(np.append(0, ends[:-1]), joint.shape[0])  # one walk per threshold and text, all at once
    while here.size:
        np.add.at(joint, (threshold - 1, drafted[here], accepted[here]), 1)
        here = here + np.minimum(accepted[here], threshold) + 1
        on = here < end
        threshold, end, here = threshold[on], end[on], here[on]
    return joint / joint.sum(axis=(1, 2), keepdims=True)


def blocks_at(tables: Array, threshold: int) -> tuple[Array, Array]:
    """Block lengths (T+1,) and round gains (T+2,) of a variable draft asked for at most `threshold` tokens; see `capped`."""
    return capped(tables[min(threshold, tables.shape[0]) - 1], threshold)


def capped(joint: Array, threshold: int) -> tuple[Array, Array]:
    """Block lengths and round gains of a variable draft asked for at most `threshold` tokens.

    `joint` (..., N+1, N+1). The block is min(drafted, T), of which min(accepted, T) are kept; a block of 0 tokens means that the
    verifier takes one ordinary step. Returns (..., T+1) and (..., T+2).
    """
    drafted, accepted = joint.sum(axis=-1), joint.sum(axis=-2)
    block = np.zeros((*joint.shape[:-2], threshold + 1))
    gain = np.zeros((*joint.shape[:-2], threshold + 2))
    most = min(threshold, joint.shape[-1] - 1)
    block[..., :most] = drafted[..., :most]
    block[..., most] = drafted[..., most:].sum(axis=-1)
    gain[..., 1 : most + 1] = accepted[..., :most]
    gain[..., most + 1] = accepted[..., most:].sum(axis=-1)
    return block, gain
