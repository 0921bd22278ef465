"""What a pass costs more or less than at the mean context, by the length of the text before it.

Attention reads the keys and values of all that came before, so a pass late in a long text costs more than one in a short text. Between
the measured lengths it is linear in the context; beyond them the nearest length serves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hsd.measure.record import Measurement

Array = NDArray[np.float64]


def by_context(measurement: Measurement, widest: int) -> tuple[tuple[int, ...], Array | None]:
    """Measured contexts, ascending, and the seconds (contexts, models, widest+1) that a pass at each costs beyond the mean context.

    Differences are taken at the widths that were measured at both and are linear between them. (0,) and None where only the mean
    context was measured, or where the texts do not tell their contexts.
    """
    measured = measurement.context_cost_s
    others = {context for rows in measured.values() for context in rows}
    if not others - {measurement.context_tokens} or any(trace.prompt_tokens is None for trace in measurement.traces):
        return (0,), None
    contexts = tuple(sorted({measurement.context_tokens, *others}))
    extra = np.zeros((len(contexts), len(measurement.models), widest + 1))
    for i, name in enumerate(measurement.models):
        for context, costs in measured.get(name, {}).items():
            base = measurement.cost_s[name]
            widths = sorted(width for width in costs if width > 0 and width in base)
            if widths:
                differences = [costs[width].median - base[width].median for width in widths]
                extra[contexts.index(context), i] = np.interp(np.arange(widest + 1), widths, differences)
    return contexts, extra


def mean_extra(measurement: Measurement, contexts: tuple[int, ...], context_s: Array) -> Array:
    """`context_s` (contexts, models, widths) averaged over the positions of the recorded texts: (models, widths)."""
    if not measurement.traces:
        return np.zeros(context_s.shape[1:])
    places = np.concatenate([trace.prompt_tokens + np.arange(trace.tokens) for trace in measurement.traces])
    below, share = segments(contexts, places)
    weights = np.zeros(len(contexts))
    np.add.at(weights, below, 1 - share)
    np.add.at(weights, np.minimum(below + 1, len(contexts) - 1), share)
    return np.tensordot(weights / places.size, context_s, 1)


def segments(contexts: tuple[int, ...], places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """For each place the measured context below it, and how far (0 to 1) it lies towards the next one."""
    inside = np.clip(places, contexts[0], contexts[-1])
    below = np.clip(np.searchsorted(contexts, inside, side="right") - 1, 0, max(len(contexts) - 2, 0))
    if len(contexts) == 1:
        return below, np.zeros(places.size)
    ends = np.asarray(contexts, float)
    return below, (inside - ends[below]) / (ends[below + 1] - ends[below])
