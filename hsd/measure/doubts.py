"""Whether costs and acceptances are known well enough to be predicted from."""

from __future__ import annotations

from hsd.measure.record import FEWEST_PROMPTS, Measurement
from hsd.units import counted

UNSTEADY = 0.05  # half width of the 95 % interval relative to the median; a quiet machine ends below 0.02


def doubts(measurement: Measurement) -> list[str]:
    """Sentences for people: what keeps predictions from being as good as they look."""
    return [told for told in (_unsteady(measurement), _few_prompts(measurement)) if told]


def _unsteady(measurement: Measurement) -> str | None:
    """When the pass of one new token of any model is known worse than to `UNSTEADY`."""
    passes = {name: costs[1] for name, costs in measurement.cost_s.items() if 1 in costs and costs[1].median > 0}
    widths = {name: (cost.high - cost.low) / 2 / cost.median for name, cost in passes.items()}
    worst = max(widths, key=widths.__getitem__, default=None)
    if worst is None or widths[worst] <= UNSTEADY:
        return None
    return (
        f"Costs are known to ±{100 * widths[worst]:.0f} % only (a pass of {worst}): the machine was busy or its clock changed; "
        "predictions can be as far off. Measure again on a quiet machine."
    )


def _few_prompts(measurement: Measurement) -> str | None:
    """When resampling the prompts says nothing of how much they differ; a measurement without traces does not tell their number."""
    prompts = len(measurement.traces)
    if not 0 < prompts < FEWEST_PROMPTS:
        return None
    return (
        f"Acceptance comes from {counted(prompts, 'prompt')}, too few to tell how far others may be from it: the intervals of predictions "
        f"hold the spread of the costs alone. Measure with {FEWEST_PROMPTS} prompts or more."
    )
