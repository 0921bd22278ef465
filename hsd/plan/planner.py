"""The plan: the hierarchy with the least predicted seconds per token, and what it was chosen against (design §5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.exact import exact_latency
from hsd.plan.graph import build
from hsd.plan.paper import paper_latency
from hsd.plan.problem import LARGEST_THRESHOLD, Problem, from_measurement, require_pairs, widest_pass
from hsd.plan.record import Alternative, Plan, Prediction
from hsd.plan.search import Candidate, best_by_exact, descend
from hsd.plan.trace import Positions, load, replay
from hsd.plan.uncertainty import exact_interval, trace_interval
from hsd.records import Hierarchy, Level
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD
from hsd.units import byte_size

ALTERNATIVES = 12  # ranked hierarchies in a plan, the best of different chains of models
REPLAYED_CHAINS = 12  # chains whose thresholds are refined once more by replaying the traces
SEARCHED_CHAINS = 3  # the best of those, for which all values of a threshold are tried


@dataclass(frozen=True, slots=True)
class Predictor:
    """One measurement, prepared to predict any hierarchy of its models with passes up to `widest` tokens."""

    measurement: Measurement
    problem: Problem
    positions: Positions | None

    @classmethod
    def prepare(cls, measurement: Measurement, widest: int) -> Predictor:
        problem = from_measurement(measurement, widest)
        return cls(measurement, problem, load(measurement, problem))

    @property
    def ranked_by(self) -> str:
        return "exact" if self.positions is None else "trace"

    def seconds(self, chain: tuple[int, ...], thresholds: tuple[int, ...]) -> float:
        """Seconds per token under the model that ranks."""
        if self.positions is None:
            return float(exact_latency(self.problem, chain, _one_case(thresholds)).total[0])
        shares, overhead = replay(self.positions, self.problem, chain, thresholds).per_token(
            self.problem.overhead_s, self.problem.token_overhead_s
        )
        return float(shares.sum()) + overhead

    def predict(self, hierarchy: Hierarchy) -> Alternative:
        """Every prediction of one hierarchy; raises `BadInput` when a model or a pair of it was not measured."""
        if max(hierarchy.thresholds, default=1) > LARGEST_THRESHOLD:
            raise BadInput(f"A threshold of {hierarchy} is above {LARGEST_THRESHOLD}, the largest that is predicted; give a smaller one.")
        if _widest_of(hierarchy) > self.problem.widest:
            return Predictor.prepare(self.measurement, _widest_of(hierarchy)).predict(hierarchy)
        return self.alternative(self.problem.chain(hierarchy), hierarchy.thresholds)

    def alternative(self, chain: tuple[int, ...], thresholds: tuple[int, ...]) -> Alternative:
        problem = self.problem
        exact = exact_latency(problem, chain, _one_case(thresholds))
        shares, overhead, traced = exact.by_level[0], float(exact.overhead[0]), None
        if self.positions is None:
            low, high = exact_interval(self.measurement, problem, chain, thresholds)
        else:
            replayed = replay(self.positions, problem, chain, thresholds)
            shares, overhead = replayed.per_token(problem.overhead_s, problem.token_overhead_s)
            traced = float(shares.sum()) + overhead
            low, high = trace_interval(self.measurement, problem, chain, replayed)
        best = float(exact.total[0]) if traced is None else traced
        prediction = Prediction(
            paper=paper_latency(problem, chain, thresholds),
            exact=float(exact.total[0]),
            low=min(low, best),
            high=max(high, best),
            trace=traced,
        )
        names = [problem.models[model] for model in chain]
        levels = (*(Level(name, t) for name, t in zip(names, thresholds, strict=False)), Level(names[-1]))
        by_model = {name: float(share) for name, share in zip(names, shares, strict=True)}
        return Alternative(Hierarchy(levels), prediction, by_model, overhead)


def predict(measurement: Measurement, hierarchy: Hierarchy) -> Alternative:
    """Predicted seconds per token of one hierarchy; raises `BadInput` when a model or a pair of it was not measured.

    For many hierarchies of one measurement prepare a `Predictor` once and ask it.
    """
    return Predictor.prepare(measurement, _widest_of(hierarchy)).predict(hierarchy)


def plan(
    measurement: Measurement,
    *,
    max_depth: int = MAX_DEPTH,
    max_threshold: int = MAX_THRESHOLD,
    memory_limit_bytes: int | None = None,
) -> Plan:
    """The hierarchy with the least predicted seconds per token among all with at most `max_depth` drafts and thresholds up to
    `max_threshold` whose models fit in `memory_limit_bytes` together.

    Ranked by replaying the traces where they were recorded, by the exact expression otherwise; `Plan.ranked_by` says which. Replays are
    searched one threshold at a time from the optimum of the exact expression, so that two thresholds that only pay together can be
    missed (by up to 1 % of the latency in measurements searched whole).
    "No draft" and the best single draft always compete. Raises `BadInput` naming what the measurement lacks.
    """
    _check_limits(max_depth, max_threshold)
    max_depth = min(max_depth, len(measurement.models) - 1)
    predictor = Predictor.prepare(measurement, widest_pass(max_depth, max_threshold))
    require_pairs(predictor.problem)
    _check_memory(predictor.problem, memory_limit_bytes)
    return plan_with(predictor, max_depth, max_threshold, memory_limit_bytes)


def plan_with(predictor: Predictor, max_depth: int, max_threshold: int, memory_limit_bytes: int | None = None) -> Plan:
    """The plan over whatever pairs `predictor` knows; `plan` is the checked entrance."""
    problem, measurement = predictor.problem, predictor.measurement
    graph = build(problem, max_threshold)
    ranked = _ranked(predictor, best_by_exact(graph, max_depth, memory_limit_bytes), max_threshold)
    alone = next(candidate for candidate in ranked if not candidate.thresholds)
    single = next((candidate for candidate in ranked if len(candidate.thresholds) == 1), None)
    shown = [candidate for rank, candidate in enumerate(ranked) if rank < ALTERNATIVES or candidate in (single, alone)]
    alternatives = tuple(predictor.alternative(candidate.chain, candidate.thresholds) for candidate in shown)
    return Plan(
        hierarchy=alternatives[0].hierarchy,
        predicted_s_per_token=alternatives[0].predicted_s_per_token,
        autoregressive_s_per_token=alternatives[shown.index(alone)].predicted_s_per_token.best,
        best_single_draft=None if single is None else alternatives[shown.index(single)],
        alternatives=alternatives,
        candidates=problem.models,
        sampling=measurement.sampling,
        environment=measurement.environment,
        context_tokens=measurement.context_tokens,
        ranked_by=predictor.ranked_by,
    )


def _ranked(predictor: Predictor, found: list[Candidate], max_threshold: int) -> list[Candidate]:
    """Candidates by the model that ranks, best first; equal ones with fewer drafts first."""

    def order(candidate: Candidate) -> tuple[float, int, Candidate]:
        return candidate.seconds, len(candidate.chain), candidate

    def replayed(candidate: Candidate, reach: int) -> Candidate:
        chain = candidate.chain
        return descend(lambda thresholds: predictor.seconds(chain, thresholds), candidate, predictor.problem, max_threshold, reach)

    if predictor.positions is None:
        return sorted(found, key=order)
    near = [replayed(candidate, 1) for rank, candidate in enumerate(found) if rank < REPLAYED_CHAINS or len(candidate.chain) <= 2]
    near.sort(key=order)
    # Replayed seconds have hollows, where the last pass of most blocks is just filled: the winner must not sit in a side one.
    whole = [candidate for rank, candidate in enumerate(near) if rank < SEARCHED_CHAINS or len(candidate.chain) <= 2]
    return sorted(
        [*(replayed(candidate, max_threshold) for candidate in whole), *(other for other in near if other not in whole)], key=order
    )


def _widest_of(hierarchy: Hierarchy) -> int:
    return min(sum(hierarchy.thresholds), len(hierarchy.drafts) * LARGEST_THRESHOLD) + len(hierarchy.levels) + 2


def _one_case(thresholds: tuple[int, ...]) -> np.ndarray:
    return np.array(thresholds, np.int64).reshape(1, -1)


def _check_limits(max_depth: int, max_threshold: int) -> None:
    if not isinstance(max_depth, int) or max_depth < 0:
        raise BadInput(f"The maximum depth is {max_depth!r}; give the largest number of drafts, 0 or more.")
    if not isinstance(max_threshold, int) or not 1 <= max_threshold <= LARGEST_THRESHOLD:
        raise BadInput(f"The maximum threshold is {max_threshold!r}; give a whole number from 1 to {LARGEST_THRESHOLD}.")


def _check_memory(problem: Problem, limit: int | None) -> None:
    if limit is None:
        return
    for name, size in zip(problem.models, problem.memory_bytes, strict=True):
        if size is None:
            raise BadInput(f"The memory of {name} was not measured, so a memory limit cannot be kept; measure again.")
    if problem.memory_bytes[problem.target] > limit:
        need, have = byte_size(problem.memory_bytes[problem.target]), byte_size(limit)
        raise BadInput(f"{problem.models[-1]} alone needs {need}, more than the limit of {have}; raise the limit.")
