"""What would change the plan, what one more draft would bring, and how planning itself scales (Plan tab)."""

from __future__ import annotations

from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.growth import measure_growth
from hsd.plan.record import Plan
from hsd.plan.sensitivity import Benefit, TippingPoint, one_more_draft, sensitivity
from ui import format as fmt
from ui import text
from ui.figures.growth import growth
from ui.jobs import explain
from ui.nodes import Node, el, nodes, sends, table
from ui.page import Ids, Page, Updates
from ui.planning import Limits, read_limits


def create_foresight(page: Page, depth: gr.Number, threshold: gr.Number) -> tuple[Any, Any]:
    """Returns the components that a plan fills: the tipping points, and the acceptance rates to start from."""
    with gr.Accordion(text.TIPPING, open=False, elem_id="tipping-box"):
        gr.Markdown(text.TIPPING_HELP)
        points = nodes(elem_id="tipping")
    with gr.Accordion(text.ONE_MORE, open=False, elem_id="one-more-box"):
        gr.Markdown(text.ONE_MORE_HELP)
        with gr.Row(elem_classes="inline-form"):
            cost = gr.Number(1.0, label=text.ONE_MORE_COST, min_width=140, elem_id="one-more-cost")
            rates = gr.Textbox("", label=text.ONE_MORE_RATES, max_length=4000, scale=3, min_width=240, elem_id="one-more-rates")
            ask = gr.Button(text.ONE_MORE_BUTTON, min_width=120, elem_id="one-more")
        answer = nodes(elem_id="one-more-answer")
    with gr.Accordion(text.GROWTH, open=False, elem_id="growth-box"):
        gr.Markdown(text.GROWTH_HELP)
        time_it = gr.Button(text.GROWTH_BUTTON, size="sm", elem_id="growth")
        curve = gr.Plot(show_label=False, elem_id="growth-plot", label=text.GROWTH, visible=False)

    @sends
    def compute(ids: Ids, cost: Any, rates: str, depth: Any, threshold: Any) -> Updates:
        try:
            measurement = page.measurement(ids) or (page.sample.measurement if page.sample and not ids.plan else None)
            if measurement is None:
                raise BadInput(text.ONE_MORE_NEEDS)
            return {answer: benefit(one_more(measurement, cost, rates, read_limits(depth, threshold, 0)))}
        except Exception as error:
            return {answer: el("p", explain(error).message, cls="bad", role="alert")}

    quiet = dict(show_progress="hidden", api_visibility="private")
    ask.click(compute, [page.ids, cost, rates, depth, threshold], [answer], **quiet)
    # It takes the processor for a moment, so it waits for its turn like everything that others are measured beside.
    time_it.click(
        lambda: gr.Plot(growth(measure_growth()), visible=True), None, [curve], concurrency_id="device", concurrency_limit=1, **quiet
    )
    return points, rates


def tipping(measurement: Measurement, plan: Plan, limits: Limits) -> Node:
    found = sensitivity(measurement, plan, max_threshold=limits.max_threshold)
    rows = [[_what(point), *_values(point), _winner(point)] for point in found]
    return table(list(text.TIPPING_HEAD), rows, text.TIPPING, empty=text.TIPPING_NONE)


def first_rates(measurement: Measurement) -> str:
    """An example to start from: a new draft below everything that is no proposer, at round numbers."""
    larger = [model for model in measurement.models if model not in measurement.block_gains]
    return ", ".join(f"{model}=0.7" for model in larger[-2:])


def one_more(measurement: Measurement, cost_ms: Any, rates: str, limits: Limits) -> Benefit:
    """What the typed draft would bring; raises `BadInput` that names the first thing that cannot be read."""
    if not isinstance(cost_ms, int | float) or isinstance(cost_ms, bool):
        raise BadInput(f"“{text.ONE_MORE_COST}” is empty or not a number.")
    acceptance: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in str(rates).split(","))):
        model, _, rate = part.rpartition("=")
        try:
            acceptance[model.strip()] = float(rate)
        except ValueError:
            raise BadInput(f"“{part[:80]}” is not a model with a rate; write for example {measurement.target}=0.7.") from None
    return one_more_draft(
        measurement, text.ONE_MORE_NAME, cost_ms / 1e3, acceptance, max_depth=limits.max_depth, max_threshold=limits.max_threshold
    )


def benefit(found: Benefit) -> Node:
    rows: list[list[Node]] = [
        [
            label,
            fmt.drafts(plan.hierarchy),
            fmt.milliseconds(plan.predicted_s_per_token.exact),
            fmt.times(plan.autoregressive_s_per_token / plan.predicted_s_per_token.exact),
        ]
        for label, plan in ((text.ONE_MORE_BEFORE, found.before), (text.ONE_MORE_AFTER, found.after))
    ]
    used = any(level.model == text.ONE_MORE_NAME for level in found.after.hierarchy.levels)
    note = text.ONE_MORE_USED.format(times=fmt.times(found.speedup)) if used else text.ONE_MORE_UNUSED
    head: list[Node] = ["", text.DRAFTS_BELOW, text.PREDICTED_EXACT, text.SPEEDUP]
    return el("div", table(head, rows, text.ONE_MORE), el("p", note, cls="small"))


def _what(point: TippingPoint) -> str:
    if point.quantity == "cost":
        return f"c of {point.model}"
    return f"α of {point.model} at {point.verifier}"


def _values(point: TippingPoint) -> list[Node]:
    sign = "+" if point.change > 0 else "−"
    if point.quantity == "cost":
        return [fmt.seconds(point.measured), fmt.seconds(point.tipping), f"{sign}{fmt.percent(abs(point.change))}"]
    return [f"{point.measured:.2f}", f"{point.tipping:.2f}", f"{sign}{abs(point.change):.2f}"]


def _winner(point: TippingPoint) -> str:
    return ", ".join(point.winner[:-1]) or text.TARGET_ALONE
