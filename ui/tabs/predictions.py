"""The latency models side by side, each with its error against what was measured."""

from __future__ import annotations

from hsd.compare.record import Comparison, Sweep
from hsd.records import Estimate
from ui import format as fmt
from ui import text
from ui.nodes import Node, el, table, valued

ORDER = ("trace", "exact", "paper")


def against_measured(comparison: Comparison) -> Node | None:
    """One row a method that was predicted: measured seconds per token beside each model's; None when nothing can be compared."""
    rows: list[list[Node]] = []
    for method in comparison.methods:
        rates, speed = method.predicted_by_model, method.tokens_per_s
        if not rates or speed.low <= 0:
            continue
        measured = Estimate(1 / speed.median, 1 / speed.high, 1 / speed.low, speed.samples)
        row: list[Node] = [text.METHODS.get(method.name, method.name), _ms(measured)]
        rows.append(row + [_with_error(rates.get(name), speed.median) for name in ORDER])
    if not rows:
        return None
    head: list[Node] = [text.METHOD, text.MEASURED_A_TOKEN, *(text.LATENCY_MODELS[name] for name in ORDER)]
    return el("div", el("p", text.MODELS_CAPTION, cls="caption-line"), table(head, rows, text.MODELS_CAPTION))


def sweep_errors(sweep: Sweep) -> Node:
    """Median and largest error of each latency model over a sweep."""
    found = sweep.latency_models
    rows: list[list[Node]] = [
        [
            text.LATENCY_MODELS[name] + (text.RANKS if name == sweep.ranked_by else ""),
            fmt.percent(found[name].median_error),
            fmt.percent(found[name].max_error),
        ]
        for name in ORDER
        if name in found
    ]
    return table(list(text.SWEEP_HEAD), rows, text.SWEEP_BUTTON)


def _ms(measured: Estimate) -> Node:
    return valued(fmt.milliseconds(measured.median), f"{fmt.interval(1e3 * measured.low, 1e3 * measured.high)}, n={measured.samples}")


def _with_error(predicted_rate: float | None, measured_rate: float) -> Node:
    if not predicted_rate:
        return "–"
    error = measured_rate / predicted_rate - 1  # of the seconds per token
    return valued(fmt.milliseconds(1 / predicted_rate), f"{'+' if error >= 0 else '−'}{fmt.percent(abs(error))}")
