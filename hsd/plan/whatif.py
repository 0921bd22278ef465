"""A measurement with some numbers changed by hand: what would be planned if a model were faster or better accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hsd.errors import BadInput
from hsd.measure.record import Acceptance, Measurement
from hsd.records import Estimate


def what_if(
    measurement: Measurement,
    cost_factors: Mapping[str, float] | None = None,
    acceptance: Mapping[tuple[str, str], float] | None = None,
) -> Measurement:
    """Every width's cost of a model times its factor, and acceptances replaced by typed rates (intervals of zero width).

    A changed acceptance takes the recorded agreements away, since they no longer fit: plans are then ranked by the exact expression.
    """
    costs = dict(measurement.cost_s)
    for model, factor in (cost_factors or {}).items():
        if model not in measurement.models:
            raise BadInput(f"{model} was not measured; measured are {', '.join(measurement.models)}.")
        if not 0 <= factor < float("inf"):
            raise BadInput(f"The cost of {model} times {factor} is no cost; give a factor of 0 or more.")
        costs[model] = {width: _scaled(cost, factor) for width, cost in costs[model].items()}
    rows = {draft: dict(row) for draft, row in measurement.acceptance.items()}
    for (draft, verifier), rate in (acceptance or {}).items():
        if verifier not in rows.get(draft, {}):
            raise BadInput(f"The acceptance of {draft} at {verifier} was not measured as one rate, so it cannot be changed.")
        if not 0 <= rate <= 1:
            raise BadInput(f"The acceptance of {draft} at {verifier} is {rate}; it must lie between 0 and 1.")
        rows[draft][verifier] = Acceptance(rate, rate, rate, 0, 0)
    changed = replace(measurement, cost_s=costs, acceptance=rows)
    return without_agreements(changed) if acceptance else changed


def without_agreements(measurement: Measurement) -> Measurement:
    """The measurement without the per-position agreements, so that it is predicted by the exact expression.

    What a lookup offered stays: its rounds along the text are needed by that expression too.
    """
    return replace(measurement, traces=tuple(replace(trace, accept={}) for trace in measurement.traces))


def _scaled(cost: Estimate, factor: float) -> Estimate:
    return Estimate(cost.median * factor, cost.low * factor, cost.high * factor, cost.samples)
