"""Seconds of a forward pass at any width, from the widths that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hsd.errors import BadInput
from hsd.records import Estimate


def cost_table(model: str, measured: Mapping[int, Estimate], widest: int) -> NDArray[np.float64]:
    """Seconds by width, shape (widest+1,), index = new tokens in the pass; index 0 is unused (NaN).

    Linear between measured widths, after levelling falls that are within the measurement's noise: a planner would otherwise seek out
    the widths that were cheap by luck. Beyond the widest measured pass it goes on with the slope of the last segment, never
    downwards; with one width only the cost is constant.
    """
    widths = sorted(width for width in measured if width > 0)
    check_costs(model, measured)
    if not widths or widths[0] != 1:
        raise BadInput(f"The cost of {model} for a pass of one token was not measured; measure again.")
    seconds = levelled([measured[width] for width in widths])
    table = np.interp(np.arange(widest + 1), widths, seconds)
    if len(widths) > 1 and widest > widths[-1]:
        slope = max(0.0, (seconds[-1] - seconds[-2]) / (widths[-1] - widths[-2]))
        table[widths[-1] :] = seconds[-1] + slope * np.arange(widest + 1 - widths[-1])
    table[0] = np.nan
    return table


def levelled(costs: Sequence[Estimate]) -> list[float]:
    """Costs by growing width, where a wider pass that seems cheaper shares one level with its neighbour if their intervals overlap.

    Isotonic regression (pool adjacent violators, weights from the widths of the intervals), except that a fall which the
    intervals confirm is kept: kernels do change with the width.
    """
    pools: list[tuple[float, Estimate]] = []  # weight, level; `samples` counts the widths pooled
    for cost in costs:
        spread = max(cost.high - cost.low, 1e-6 * cost.median, 1e-12)
        pools.append((1 / spread**2, Estimate(cost.median, cost.low, cost.high, 1)))
        while len(pools) > 1 and pools[-2][1].median > pools[-1][1].median and pools[-2][1].low <= pools[-1][1].high:
            (u, a), (v, b) = pools[-2:]
            low, median, high = ((u * x + v * y) / (u + v) for x, y in ((a.low, b.low), (a.median, b.median), (a.high, b.high)))
            pools[-2:] = [(u + v, Estimate(median, low, high, a.samples + b.samples))]
    return [level.median for _, level in pools for _ in range(level.samples)]


def call_cost(model: str, measured: Mapping[int, Estimate]) -> float:
    """Seconds per call of a draft without weights (width 0)."""
    check_costs(model, measured)
    if 0 not in measured:
        raise BadInput(f"The cost of a call of {model} (width 0) was not measured; measure again.")
    return measured[0].median


def check_costs(model: str, measured: Mapping[int, Estimate]) -> None:
    for width, cost in measured.items():
        if width < 0:
            raise BadInput(f"The cost of {model} is given for a width of {width}; a width is a number of tokens, 0 or more.")
        if not (0 <= cost.median < float("inf")):
            raise BadInput(f"The cost of {model} at width {width} is {cost.median}; a cost is a number of seconds, 0 or more.")
        if not (0 <= cost.low <= cost.high < float("inf")):
            raise BadInput(f"The interval of the cost of {model} at width {width} is {cost.low} to {cost.high}; measure again.")


def relative_spread(measured: Mapping[int, Estimate]) -> float:
    """Standard deviation of a model's cost relative to its median, from the 95 % intervals (mean over widths)."""
    spreads = [(cost.high - cost.low) / (2 * 1.96 * cost.median) for cost in measured.values() if cost.median > 0]
    return float(np.mean(spreads)) if spreads else 0.0
