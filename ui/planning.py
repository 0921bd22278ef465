"""What the Plan tab computes: plans, what-if plans, the shortest-path graph. No model and no torch is needed for any of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan import graph as gsp
from hsd.plan import planner, whatif
from hsd.plan.problem import from_measurement, widest_pass
from hsd.plan.record import Alternative, Plan
from hsd.plan.whatif import without_agreements
from hsd.records import Hierarchy, Level
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD, MOST_GB
from ui import text


@dataclass(frozen=True, slots=True)
class Limits:
    max_depth: int = MAX_DEPTH
    max_threshold: int = MAX_THRESHOLD
    memory_limit_bytes: int | None = None


def read_limits(depth: Any, threshold: Any, memory_gb: Any) -> Limits:
    """Limits out of number fields; raises `BadInput` that names the field."""
    if not isinstance(memory_gb, int | float) or not 0 <= memory_gb < MOST_GB:
        raise BadInput(f"The memory limit is empty, negative or too large; give a number of GB below {MOST_GB:,}, 0 for none.")
    return Limits(
        check_whole(depth, text.MAX_DEPTH, 1, MAX_DEPTH),
        check_whole(threshold, text.MAX_THRESHOLD, 1, MAX_THRESHOLD),
        int(memory_gb * 1e9) if memory_gb else None,
    )


def make_plan(measurement: Measurement, limits: Limits) -> Plan:
    return planner.plan(
        measurement, max_depth=limits.max_depth, max_threshold=limits.max_threshold, memory_limit_bytes=limits.memory_limit_bytes
    )


def shortest_path(measurement: Measurement, limits: Limits) -> tuple[gsp.Graph, gsp.Solution]:
    """The graph of the reduction and its solution under the same largest threshold as the plan."""
    problem = from_measurement(measurement, widest_pass(limits.max_depth, limits.max_threshold))
    graph = gsp.build(problem, limits.max_threshold)
    return graph, gsp.one_pass(graph)


@dataclass(frozen=True, slots=True)
class WhatIf:
    measured: Plan  # of the measured numbers, ranked as `best` is
    best: Plan
    fixed: Alternative | None  # the hierarchy whose thresholds were set by hand; None for the target alone
    changed: bool


def sliders(measurement: Measurement, plan: Plan) -> list[dict[str, Any]]:
    """One slider for each acceptance rate, each model's cost and each threshold of the plan (drawn by `assets/controls.js`)."""
    models = measurement.models
    made = [
        _slider(f"t:{level.model}", "Thresholds of the plan (T)", level.model, 1, MAX_THRESHOLD, 1, level.threshold, 0, "")
        for level in plan.hierarchy.drafts
    ]
    made += [
        _slider(f"c:{model}", "Cost of a pass (c)", model, ms / 5, ms * 5, ms / 50, ms, 3 if ms < 1 else 2, " ms")
        for model in models
        if (ms := 1e3 * _base_cost(measurement, model)) > 0
    ]
    made += [
        _slider(f"a:{models.index(d)}:{models.index(v)}", "Acceptance rate (α)", f"{d} → {v}", 0, 1, 0.01, rate.mean, 2, "")
        for d, row in measurement.acceptance.items()
        for v, rate in row.items()
        if d not in measurement.block_gains
    ]
    return made


def what_if(measurement: Measurement, plan: Plan, values: Mapping[str, Any], limits: Limits) -> WhatIf:
    """Plan again with some numbers replaced. `values` comes from the browser: only known sliders and numbers in range count."""
    known = {slider["id"]: slider for slider in sliders(measurement, plan)}
    chosen: dict[str, float] = {}
    for key, value in values.items():
        slider = known.get(key)
        if slider and isinstance(value, int | float) and not isinstance(value, bool):
            number = float(min(max(value, slider["min"]), slider["max"]))
            if abs(number - slider["base"]) > slider["step"] / 2 + 1e-12:
                chosen[key] = number
    models = measurement.models
    factors = {model: chosen[f"c:{model}"] / 1e3 / _base_cost(measurement, model) for model in models if f"c:{model}" in chosen}
    pairs = {
        (draft, verifier): f"a:{models.index(draft)}:{models.index(verifier)}"
        for draft, row in measurement.acceptance.items()
        for verifier in row
    }
    rates = {pair: chosen[key] for pair, key in pairs.items() if key in chosen}
    # The recorded agreements go in any case, so that moving a slider and moving it back are predicted by one and the same model.
    changed = without_agreements(whatif.what_if(measurement, factors, rates))
    measured = _exact_plan(_Itself(id(measurement), measurement), limits)
    best = make_plan(changed, limits) if factors or rates else measured
    levels = [Level(level.model, int(chosen.get(f"t:{level.model}", level.threshold or 1))) for level in plan.hierarchy.drafts]
    fixed = planner.predict(changed, Hierarchy((*levels, Level(measurement.target)))) if levels else None
    return WhatIf(measured, best, fixed, bool(chosen))


@dataclass(frozen=True, slots=True)
class _Itself:
    """A measurement as the key of a cache, told from others by identity: it holds dicts."""

    identity: int
    measurement: Measurement = field(compare=False)


@lru_cache(maxsize=8)  # a slider asks many times over
def _exact_plan(key: _Itself, limits: Limits) -> Plan:
    return make_plan(without_agreements(key.measurement), limits)


def multipliers(graph: gsp.Graph, plan: Plan) -> dict[tuple[str, str], float]:
    """R of each step of the plan, by (draft, verifier): rounds of the verifier per block it hands up, for the target per token."""
    models = graph.problem.models
    found = {}
    for draft, verifier in pairwise(plan.hierarchy.levels):
        rounds = graph.rounds.get((models.index(draft.model), models.index(verifier.model)))
        above = (verifier.threshold or 1) - 1
        if rounds is not None and draft.threshold <= rounds.shape[0] and above < rounds.shape[1]:
            found[draft.model, verifier.model] = float(rounds[draft.threshold - 1, above])
    return found


def _slider(key: str, group: str, label: str, low: float, high: float, step: float, base: float, digits: int, unit: str) -> dict[str, Any]:
    return {"id": key, "group": group, "label": label, "min": low, "max": high, "step": step, "base": base, "digits": digits, "unit": unit}


def _base_cost(measurement: Measurement, model: str) -> float:
    costs = measurement.cost_s[model]
    return costs[min(costs)].median


def check_whole(value: Any, what: str, low: int, high: int) -> int:
    """A whole number from a number field or text, or `BadInput` that names the field."""
    if value is None:
        raise BadInput(f"{what} is empty; give a whole number from {low} to {high}.")
    words = str(value).strip()
    if not re.fullmatch(r"\d+(\.0+)?", words) or not low <= float(words) <= high:
        raise BadInput(f"{what} is “{words[:40]}”; give a whole number from {low} to {high}.")
    return int(float(words))
