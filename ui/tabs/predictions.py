"""The latency models side by side, each with its error against what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hsd.compare.record import Comparison, Sweep
from hsd.plan.record import Plan, Prediction
from hsd.records import Estimate
from ui import format as fmt
from ui import text
from ui.nodes import Node, el, table, valued

ORDER = ("trace", "exact", "paper")


def against_measured(comparison: Comparison, plan: Plan | None) -> Node | None:
    """One row a method that `plan` predicted: measured seconds per token beside each model's; None when nothing can be compared."""
    known = _predictions(plan) if plan else {}
    rows: list[list[Node]] = []
    for method in comparison.methods:
        predicted, speed = known.get(method.hierarchy), method.tokens_per_s
        if predicted is None or speed.low <= 0:
            continue
        measured = Estimate(1 / speed.median, 1 / speed.high, 1 / speed.low, speed.samples)
        row: list[Node] = [text.METHODS.get(method.name, method.name), _ms(measured)]
        rows.append(row + [_with_error(getattr(predicted, name), measured.median) for name in ORDER])
    if not rows:
        return None
    head: list[Node] = [text.METHOD, text.MEASURED_A_TOKEN, *(text.LATENCY_MODELS[name] for name in ORDER)]
    return el("div", el("p", text.MODELS_CAPTION, cls="caption-line"), table(head, rows, text.MODELS_CAPTION))


def sweep_errors(sweep: Sweep) -> Node:
    """Median and largest error of each latency model over a sweep."""
    models: list[tuple[str, Sequence[float]]] = [
        (text.SWEEP_RANKED, [point.predicted_s_per_token for point in sweep.points]),
        (text.LATENCY_MODELS["exact"], [point.exact_s_per_token for point in sweep.points]),
        (text.LATENCY_MODELS["paper"], [point.paper_s_per_token for point in sweep.points]),
    ]
    rows: list[list[Node]] = []
    for label, predicted in models:
        errors = [abs(value / point.measured_s_per_token.median - 1) for value, point in zip(predicted, sweep.points, strict=True)]
        rows.append([label, fmt.percent(statistics.median(errors)), fmt.percent(max(errors))])
    return table(list(text.SWEEP_HEAD), rows, text.SWEEP_BUTTON)


def _predictions(plan: Plan) -> dict[str, Prediction]:
    entries = [*plan.alternatives, *((plan.best_single_draft,) if plan.best_single_draft else ())]
    return {str(entry.hierarchy): entry.predicted_s_per_token for entry in entries}


def _ms(measured: Estimate) -> Node:
    return valued(fmt.milliseconds(measured.median), f"{fmt.interval(1e3 * measured.low, 1e3 * measured.high)}, n={measured.samples}")


def _with_error(predicted: float | None, measured: float) -> Node:
    if predicted is None:
        return "–"
    error = predicted / measured - 1
    return valued(fmt.milliseconds(predicted), f"{'+' if error >= 0 else '−'}{fmt.percent(abs(error))}")
