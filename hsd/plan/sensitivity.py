"""What would change the plan: how far each cost and each acceptance is from a value at which another set of models wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np

from hsd.errors import BadInput
from hsd.measure.record import Acceptance, Measurement
from hsd.plan.exact import Latency, exact_latency
from hsd.plan.gains import Array
from hsd.plan.planner import Predictor, plan_with
from hsd.plan.problem import Problem, from_measurement, widest_pass
from hsd.plan.record import Plan
from hsd.plan.whatif import without_agreements
from hsd.records import Estimate
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD

FACTORS = np.geomspace(1 / 8, 8, 241)  # costs from an eighth to eight times the measured one
RATES = np.linspace(0, 1, 41)


@dataclass(frozen=True, slots=True)
class TippingPoint:
    """The nearest value of one measured quantity at which other models win; the thresholds are tuned along the way."""

    quantity: str  # "cost" or "acceptance"
    model: str  # whose cost, or the draft
    verifier: str | None  # for an acceptance
    measured: float  # seconds of a pass of width 1 (a proposer: of a call) without what its round takes beside it, or rate
    tipping: float  # same unit; all widths of a cost scale together, at all contexts
    winner: tuple[str, ...]  # models that win beyond it, smallest first

    @property
    def change(self) -> float:
        """Relative change of a cost (+0.5: half as dear again), difference of a rate."""
        return self.tipping / self.measured - 1 if self.quantity == "cost" else self.tipping - self.measured


@dataclass(frozen=True, slots=True)
class _Option:
    """One chain of models with the thresholds it may be tuned to."""

    chain: tuple[int, ...]
    thresholds: Array  # (S, K)
    latency: Latency
    passes: Array  # (S, K+1) of `latency` by level, without what rounds take beside their passes
    correction: float  # ranking model / exact expression at the planned thresholds: the replay is not repeated for each value


def sensitivity(measurement: Measurement, plan: Plan, *, max_threshold: int = MAX_THRESHOLD) -> tuple[TippingPoint, ...]:
    """Tipping points of `plan` among its own alternatives, the nearest first; quantities that never tip it are left out.

    Costs vary from 1/8 to 8 times, acceptances from 0 to 1, one at a time, under the exact expression (scaled to the model that ranked).
    """
    max_threshold = max(max_threshold, *(level.threshold for a in plan.alternatives for level in a.hierarchy.drafts), 1)
    widest = widest_pass(max(len(a.hierarchy.drafts) for a in plan.alternatives), max_threshold)
    problem = from_measurement(measurement, widest)
    bare = from_measurement(replace(measurement, round_overhead_s={}), widest)
    options = [_option(problem, bare, plan, index, max_threshold) for index in range(len(plan.alternatives))]
    costs = [measurement.cost_s[model] for model in problem.models]
    found = [_tip_cost(problem, options, model, cost[min(cost)].median) for model, cost in enumerate(costs)]
    pairs = sorted({pair for option in options for pair in pairwise(option.chain) if not problem.proposer[pair[0]]})
    found += [_tip_acceptance(problem, options, i, j) for i, j in pairs]
    return tuple(sorted((point for point in found if point), key=_distance))


@dataclass(frozen=True, slots=True)
class Benefit:
    """The best plan without and with one more draft, both under the exact expression."""

    before: Plan
    after: Plan

    @property
    def speedup(self) -> float:
        return self.before.predicted_s_per_token.exact / self.after.predicted_s_per_token.exact


def one_more_draft(
    measurement: Measurement,
    name: str,
    cost_s: float,
    acceptance: Mapping[str, float],
    accepts: Mapping[str, float] | None = None,
    *,
    max_depth: int = MAX_DEPTH,
    max_threshold: int = MAX_THRESHOLD,
) -> Benefit:
    """What a draft of `cost_s` seconds a pass would bring, accepted by larger models at the rates `acceptance`.

    It is placed just below the smallest model in `acceptance`. `accepts` gives the rates at which it would accept smaller
    drafts; those that are not given are not considered below it.
    """
    larger = [model for model in measurement.models if model in acceptance]
    rates = {**acceptance, **(accepts or {})}
    for model, rate in rates.items():
        if model not in measurement.models:
            raise BadInput(f"{model} was not measured; give acceptances at {', '.join(measurement.models)}.")
        if not 0 <= rate <= 1:
            raise BadInput(f"The acceptance between {name} and {model} is {rate}; it must lie between 0 and 1.")
    if name in measurement.models:
        raise BadInput(f"{name} is already among the models; give the new draft another name.")
    if not larger:
        raise BadInput(f"Give the acceptance of {name} at one larger model at least, for example at {measurement.target}.")
    if not 0 <= cost_s < float("inf"):
        raise BadInput(f"The cost of {name} is {cost_s}; a cost is a number of seconds, 0 or more.")
    place = measurement.models.index(larger[0])
    for model in accepts or {}:
        if measurement.models.index(model) >= place:
            raise BadInput(f"{model} is not smaller than {name}, which stands below {larger[0]}.")
    typed = {model: Acceptance(rate, rate, rate, 0, 0) for model, rate in rates.items()}
    rows = {draft: dict(row) for draft, row in measurement.acceptance.items()}
    rows[name] = {model: typed[model] for model in larger}
    for model in accepts or {}:
        rows.setdefault(model, {})[name] = typed[model]
    without = without_agreements(measurement)
    extended = replace(
        without,
        models=(*measurement.models[:place], name, *measurement.models[place:]),
        cost_s={**measurement.cost_s, name: {1: Estimate(cost_s, cost_s, cost_s, 0)}},
        acceptance=rows,
    )
    widest = widest_pass(max_depth, max_threshold)
    before, after = (plan_with(Predictor.prepare(m, widest), max_depth, max_threshold) for m in (without, extended))
    return Benefit(before, after)


def _option(problem: Problem, bare: Problem, plan: Plan, index: int, max_threshold: int) -> _Option:
    alternative = plan.alternatives[index]
    chain, planned = problem.chain(alternative.hierarchy), alternative.hierarchy.thresholds
    near = (lambda t: {1, t // 2, t - 1, t, t + 1, 2 * t}) if len(planned) < 4 else (lambda t: {t // 2, t, 2 * t})
    values = [
        sorted(v for v in near(t) | {t} if 1 <= v <= max(t, problem.longest(m, max_threshold)))
        for t, m in zip(planned, chain, strict=False)
    ]
    thresholds = np.array(list(product(*values)), np.int64)
    predicted = alternative.predicted_s_per_token
    correction = predicted.best / predicted.exact if predicted.exact > 0 else 1.0
    passes = exact_latency(bare, chain, thresholds).by_level
    return _Option(chain, thresholds, exact_latency(problem, chain, thresholds), passes, correction)


def _tip_cost(problem: Problem, options: list[_Option], model: int, measured: float) -> TippingPoint | None:
    """What a round takes beside its pass stays as it is, as in `hsd.plan.whatif.scaled`."""
    if measured == 0:
        return None
    rows = []
    for option in options:
        total = option.latency.total[:, None]
        if model in option.chain:
            total = total + option.passes[:, option.chain.index(model), None] * (FACTORS - 1)
        rows.append(np.broadcast_to(total.min(axis=0) * option.correction, FACTORS.shape))
    tip = _nearest_change(np.array(rows), FACTORS, 1.0)
    if tip is None:
        return None
    at, winner = tip
    return TippingPoint("cost", problem.models[model], None, measured, measured * at, _names(problem, options[winner]))


def _tip_acceptance(problem: Problem, options: list[_Option], draft: int, verifier: int) -> TippingPoint | None:
    measured = float(problem.alpha[draft, verifier])
    rates = np.unique(np.append(RATES, measured))
    rows = []
    for option in options:
        pairs = list(pairwise(option.chain))
        if (draft, verifier) not in pairs:
            rows.append(np.full(rates.size, option.latency.total.min() * option.correction))
            continue
        cases = option.thresholds.shape[0]
        alphas = np.tile([np.nan_to_num(problem.alpha[pair]) for pair in pairs], (cases * rates.size, 1))
        alphas[:, pairs.index((draft, verifier))] = np.repeat(rates, cases)
        total = exact_latency(problem, option.chain, np.tile(option.thresholds, (rates.size, 1)), alphas).total
        rows.append(total.reshape(rates.size, cases).min(axis=1) * option.correction)
    tip = _nearest_change(np.array(rows), rates, measured)
    if tip is None:
        return None
    at, winner = tip
    return TippingPoint("acceptance", problem.models[draft], problem.models[verifier], measured, at, _names(problem, options[winner]))


def _nearest_change(values: Array, grid: Array, here: float) -> tuple[float, int] | None:
    """Where on `grid` (N,) the smallest of `values` (options, N) first differs from that at `here`, and which it then is."""
    winners = values.argmin(axis=0)
    start = int(np.abs(grid - here).argmin())
    found = []
    for step, end in ((1, grid.size), (-1, -1)):
        at = next((k for k in range(start, end, step) if winners[k] != winners[start]), None)
        if at is not None:
            before, after = values[winners[start], [at - step, at]], values[winners[at], [at - step, at]]
            ahead, behind = before[0] - after[0], before[1] - after[1]  # the difference changes sign in between
            share = -ahead / (behind - ahead) if behind != ahead else 1.0
            crossing = float(grid[at - step] + share * (grid[at] - grid[at - step]))
            found.append((abs(crossing - here), crossing, int(winners[at])))
    return min(found)[1:] if found else None


def _distance(point: TippingPoint) -> float:
    return abs(point.change)


def _names(problem: Problem, option: _Option) -> tuple[str, ...]:
    return tuple(problem.models[model] for model in option.chain)
