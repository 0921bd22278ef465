"""A measurement in the form the mathematics wants: arrays over models, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hsd.errors import BadInput
from hsd.measure.record import BlockGain, Measurement
from hsd.plan.context import by_context, mean_extra
from hsd.plan.costs import call_cost, cost_table
from hsd.plan.gains import every_threshold, histogram, histograms_along
from hsd.records import Hierarchy

Array = NDArray[np.float64]

LARGEST_THRESHOLD = 256  # tables grow with its square


@dataclass(frozen=True, slots=True)
class Problem:
    """What planning needs to know; models are numbered as in the measurement, the target is the last.

    The seconds of a pass or a call hold all of the round that it makes, at the contexts of the recorded texts on average.
    """

    models: tuple[str, ...]
    cost_s: Array  # (M, W+1) seconds of a pass by width; for a proposer the row is NaN
    call_s: Array  # (M,) seconds of one call of a proposer, NaN for networks
    proposer: tuple[bool, ...]  # draft without weights: can only stand at the bottom
    alpha: Array  # (M, M) acceptance of draft i at verifier j > i, NaN where unknown
    gains: dict[tuple[int, int], Array]  # (L, N+1, N+1) of a proposer at a verifier: (drafted, accepted) by threshold
    overhead_s: float  # per target round
    memory_bytes: tuple[int | None, ...]
    token_overhead_s: float = 0.0  # per committed token
    contexts: tuple[int, ...] = (0,)  # ascending
    context_s: Array | None = None  # (C, M, W+1) what a pass costs more at each of the contexts; None: the same at all

    @property
    def target(self) -> int:
        return len(self.models) - 1

    @property
    def widest(self) -> int:
        return self.cost_s.shape[1] - 1

    def known(self, draft: int, verifier: int) -> bool:
        """Whether `verifier` may stand directly above `draft`: it can verify, and the pair was measured."""
        if draft >= verifier or self.proposer[verifier]:
            return False
        return (draft, verifier) in self.gains if self.proposer[draft] else not np.isnan(self.alpha[draft, verifier])

    def longest(self, model: int, limit: int) -> int:
        """Largest threshold worth considering: a proposer never offered more than its longest measured block."""
        if not self.proposer[model]:
            return limit
        offered = [joint.shape[-1] - 1 for (draft, _), joint in self.gains.items() if draft == model]
        return max(1, min(limit, max(offered, default=1)))

    def chain(self, hierarchy: Hierarchy) -> tuple[int, ...]:
        """Numbers of a hierarchy's models, checked: known, in size order, verifiable, measured."""
        for level in hierarchy.levels:
            if level.model not in self.models:
                raise BadInput(f"{level.model} was not measured; measured are {', '.join(self.models)}.")
        chain = tuple(self.models.index(level.model) for level in hierarchy.levels)
        if chain[-1] != self.target:
            raise BadInput(f"The measurement's target is {self.models[-1]}, not {hierarchy.target}; measure with that target.")
        for below, above in pairwise(chain):
            if below >= above:
                raise BadInput(f"{self.models[below]} stands below {self.models[above]}, but it was measured as the larger one.")
            if self.proposer[above]:
                raise BadInput(f"{self.models[above]} has no weights and cannot verify; it can only stand at the bottom.")
            if not self.known(below, above):
                raise unmeasured_pair(self.models[below], self.models[above])
        return chain


def unmeasured_pair(draft: str, verifier: str) -> BadInput:
    return BadInput(f"The acceptance of {draft} at {verifier} was not measured; measure again with both, or leave {draft} out.")


def widest_pass(max_depth: int, max_threshold: int) -> int:
    """Widest forward pass the hierarchies of a search can ask for: the longest block, one token more, and catching up."""
    return max(1, max_depth) * (max_threshold + 1) + 2


def from_measurement(measurement: Measurement, widest: int) -> Problem:
    """Check a measurement and tabulate it up to passes of `widest` tokens; raises `BadInput` naming what is wrong.

    Pairs that are missing stay unknown here: `require_pairs` names them for a search over all candidates.
    """
    models = measurement.models
    if not models:
        raise BadInput("The measurement names no model; measure a target and at least one draft.")
    proposer = tuple(_is_proposer(measurement, name) for name in models)
    if proposer[-1]:
        raise BadInput(f"{models[-1]} has no weights and cannot be the target; the target is the last of the models.")
    cost_s = np.full((len(models), widest + 1), np.nan)
    call_s = np.full(len(models), np.nan)
    for i, name in enumerate(models):
        if not measurement.cost_s.get(name):
            raise BadInput(f"No cost was measured for {name}; measure again.")
        beside = measurement.round_overhead_s.get(name, 0.0)
        if proposer[i]:
            call_s[i] = call_cost(name, measurement.cost_s[name]) + beside
        else:
            cost_s[i] = cost_table(name, measurement.cost_s[name], widest) + beside
    if not (cost_s[-1, 1:] > 0).all():
        raise BadInput(f"The cost of {models[-1]} is 0; a pass of the target takes time. Measure again.")
    if not 0 <= measurement.overhead_s < float("inf"):
        raise BadInput(f"The overhead per target round is {measurement.overhead_s}; it is a number of seconds, 0 or more.")
    memory = tuple(measurement.memory_bytes.get(name) for name in models)
    alpha, gains = _acceptance(measurement, proposer)
    contexts, context_s = by_context(measurement, widest)
    if context_s is not None:
        mean = mean_extra(measurement, contexts, context_s)
        cost_s, context_s = cost_s + mean, context_s - mean
    overheads = measurement.overhead_s, memory, measurement.token_overhead_s
    return Problem(models, cost_s, call_s, proposer, alpha, gains, *overheads, contexts, context_s)


def require_pairs(problem: Problem) -> None:
    """Name the first thing that keeps a search from seeing every hierarchy: a single model, or a pair that was not measured."""
    if len(problem.models) < 2:
        raise BadInput(f"{problem.models[0]} is the only model; a plan needs a target and at least one draft. Measure with a candidate.")
    for draft in range(len(problem.models)):
        for verifier in range(draft + 1, len(problem.models)):
            if not problem.proposer[verifier] and not problem.known(draft, verifier):
                raise unmeasured_pair(problem.models[draft], problem.models[verifier])


def _is_proposer(measurement: Measurement, name: str) -> bool:
    return name in measurement.block_gains or 0 in measurement.cost_s.get(name, {})


def _acceptance(measurement: Measurement, proposer: tuple[bool, ...]) -> tuple[Array, dict[tuple[int, int], Array]]:
    models = measurement.models
    alpha = np.full((len(models), len(models)), np.nan)
    gains = {}
    for i, draft in enumerate(models):
        for j in range(i + 1, len(models)):
            verifier = models[j]
            if proposer[i]:
                counts = measurement.block_gains.get(draft, {}).get(verifier)
                if counts and sum(gain.count for gain in counts) > 0:
                    _check_blocks(draft, verifier, counts)
                    texts = [trace.proposals.get(draft, {}).get(verifier, ()) for trace in measurement.traces]
                    _check_records(draft, verifier, texts)
                    recorded = bool(texts) and all(texts)
                    gains[i, j] = histograms_along(texts) if recorded else every_threshold(histogram(counts))
            elif verifier in measurement.acceptance.get(draft, {}):
                value = measurement.acceptance[draft][verifier]
                if not 0 <= value.mean <= 1:
                    raise BadInput(f"The acceptance of {draft} at {verifier} is {value.mean}; it must lie between 0 and 1.")
                if not 0 <= value.low <= value.high <= 1:
                    raise BadInput(
                        f"The interval of the acceptance of {draft} at {verifier} is {value.low} to {value.high}; measure again."
                    )
                alpha[i, j] = value.mean
    return alpha, gains


def _check_records(draft: str, verifier: str, texts: Sequence[Sequence[tuple[int, int]]]) -> None:
    if not all(0 <= accepted <= drafted <= LARGEST_THRESHOLD for text in texts for drafted, accepted in text):
        raise BadInput(f"A recorded block of {draft} at {verifier} has an impossible number of tokens; measure again.")


def _check_blocks(draft: str, verifier: str, counts: Sequence[BlockGain]) -> None:
    for gain in counts:
        if not 0 <= gain.accepted <= gain.drafted <= LARGEST_THRESHOLD or gain.count < 0:
            raise BadInput(
                f"A block of {draft} at {verifier} counts {gain.accepted} accepted of {gain.drafted} drafted tokens, {gain.count} times; "
                f"a block has 0 to {LARGEST_THRESHOLD} tokens. Measure again."
            )
