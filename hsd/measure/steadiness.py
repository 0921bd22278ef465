"""Whether costs are known well enough to be predicted from."""

from __future__ import annotations

from hsd.measure.record import Measurement

UNSTEADY = 0.05  # half width of the 95 % interval relative to the median; a quiet machine ends below 0.02


def unsteady(measurement: Measurement) -> str | None:
    """A sentence for people when the pass of one new token of any model is known worse than to `UNSTEADY`, else None."""
    passes = {name: costs[1] for name, costs in measurement.cost_s.items() if 1 in costs and costs[1].median > 0}
    widths = {name: (cost.high - cost.low) / 2 / cost.median for name, cost in passes.items()}
    worst = max(widths, key=widths.__getitem__, default=None)
    if worst is None or widths[worst] <= UNSTEADY:
        return None
    return (
        f"Costs are known to ±{100 * widths[worst]:.0f} % only (a pass of {worst}): the machine was busy or its clock changed; "
        "predictions can be as far off. Measure again on a quiet machine."
    )
