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
    changed = measurement
    for model, factor in (cost_factors or {}).items():
        if model not in measurement.models:
            raise BadInput(f"{model} was not measured; measured are {', '.join(measurement.models)}.")
        if not 0 <= factor < float("inf"):
            raise BadInput(f"The cost of {model} times {factor} is no cost; give a factor of 0 or more.")
        changed = scaled(changed, model, factor)
    rows = {draft: dict(row) for draft, row in measurement.acceptance.items()}
    for (draft, verifier), rate in (acceptance or {}).items():
        if verifier not in rows.get(draft, {}):
            raise BadInput(f"The acceptance of {draft} at {verifier} was not measured as one rate, so it cannot be changed.")
        if not 0 <= rate <= 1:
            raise BadInput(f"The acceptance of {draft} at {verifier} is {rate}; it must lie between 0 and 1.")
        rows[draft][verifier] = Acceptance(rate, rate, rate, 0, 0)
    changed = replace(changed, acceptance=rows)
    return without_agreements(changed) if acceptance else changed


def without_agreements(measurement: Measurement) -> Measurement:
    """The measurement without the per-position agreements, so that it is predicted by the exact expression.

    What a lookup offered stays: its rounds along the text are needed by that expression too.
    """
    return replace(measurement, traces=tuple(replace(trace, accept={}) for trace in measurement.traces))


def scaled(measurement: Measurement, model: str, factor: float) -> Measurement:
    """The measurement with every cost of a model times `factor`: at all widths and contexts."""

    def times(costs: Mapping[int, Estimate]) -> dict[int, Estimate]:
        return {width: _scaled(cost, factor) for width, cost in costs.items()}

    by_context = measurement.context_cost_s
    return replace(
        measurement,
        cost_s={**measurement.cost_s, model: times(measurement.cost_s[model])},
        context_cost_s={**by_context, model: {context: times(row) for context, row in by_context[model].items()}}
        if model in by_context
        else by_context,
    )


def _scaled(cost: Estimate, factor: float) -> Estimate:
    return Estimate(cost.median * factor, cost.low * factor, cost.high * factor, cost.samples)
