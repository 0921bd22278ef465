"""Step 3: the hierarchy, what it is predicted to cost, what-if, and a calculator."""

from __future__ import annotations

from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.calculator import from_csv
from hsd.plan.record import Plan
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD
from ui import examples, text
from ui import format as fmt
from ui.figures.hierarchy import graph
from ui.figures.latency import bars, stacked
from ui.figures.path import layers
from ui.jobs import explain
from ui.nodes import Node, decoded, el, json_html, nodes, sends, table
from ui.page import Ids, Page, Updates, done, failure
from ui.planning import Limits, check_whole, make_plan, shortest_path, sliders, what_if


def create_plan(page: Page) -> None:
    with gr.Tab(text.PLAN, id="plan", elem_id="tab-plan"):
        gr.Markdown(text.PLAN_HELP)
        with gr.Row(elem_classes="actions"):
            depth = gr.Number(MAX_DEPTH, label=text.MAX_DEPTH, minimum=1, maximum=MAX_DEPTH, precision=0, min_width=120)
            threshold = gr.Number(MAX_THRESHOLD, label=text.MAX_THRESHOLD, minimum=1, maximum=MAX_THRESHOLD, precision=0, min_width=120)
            memory = gr.Number(0, label=text.MEMORY_LIMIT, minimum=0, min_width=120)
        facts = nodes(elem_id="plan-facts")
        with gr.Row():
            with gr.Column(min_width=340):
                gr.Markdown(text.GRAPH, elem_classes="caption")
                picture = gr.Plot(show_label=False, elem_id="hierarchy-graph", label=text.GRAPH)
            with gr.Column(min_width=340):
                gr.Markdown(text.LATENCY, elem_classes="caption")
                latency = gr.Plot(show_label=False, elem_id="latency", label=text.LATENCY)
        gr.Markdown(text.STACKED, elem_classes="caption")
        parts = gr.Plot(show_label=False, elem_id="stacked", label=text.STACKED)
        ranked = nodes(elem_id="alternatives")
        with gr.Accordion(text.WHAT_IF, open=False, elem_id="what-if-box"):
            gr.Markdown(text.WHAT_IF_HELP)
            answer = nodes(elem_id="what-if-answer")
            knobs = json_html(
                html_template=f'<div class="hsd-slot sliders" data-empty="{text.WHAT_IF_EMPTY}"></div>',
                js_on_load="window.hsd.sliders(element, props, trigger, watch); /* 'change' */",
                elem_id="what-if",
            )
            reset = gr.Button(text.WHAT_IF_RESET, size="sm", elem_id="what-if-reset")
        with gr.Accordion(text.PATH, open=False, elem_id="path-box"):
            path = gr.Plot(show_label=False, elem_id="path-graph", label=text.PATH)
        with gr.Accordion(text.CALCULATOR, open=False, elem_id="calculator-box"):
            gr.Markdown(text.CALCULATOR_HELP)
            pasted = gr.Textbox(examples.HELPS.table, lines=5, label=text.CALCULATOR_TABLE, elem_id="calculator-table", max_length=20_000)
            with gr.Row():
                calculate = gr.Button(text.CALCULATE, variant="primary", elem_id="calculate", size="sm")
                for example in (examples.HELPS, examples.HELPS_NOT):
                    gr.Button(example.title, size="sm").click(
                        lambda table=example.table: table, None, pasted, show_progress="hidden", api_visibility="private"
                    )
            computed = nodes(elem_id="calculator-answer")

    outputs = [facts, picture, latency, parts, ranked, knobs, answer, path]

    def draw(plan: Plan, measurement: Measurement | None, limits: Limits = Limits(), recorded: bool = False) -> Updates:  # noqa: B008
        updates: Updates = {
            facts: plan_facts(plan, recorded),
            picture: graph(plan, measurement),
            latency: bars(plan),
            parts: stacked(plan.alternatives, plan.candidates),
            ranked: alternatives(plan),
            answer: None,
        }
        if measurement:
            updates[knobs] = {"sliders": sliders(measurement, plan), "values": {}}
            updates[path] = layers(*shortest_path(measurement, limits))
        return updates

    def show(ids: Ids) -> Updates:
        plan, measurement = page.plan(ids), page.measurement(ids)
        if plan:
            return draw(plan, measurement)
        if measurement:
            return {facts: el("p", text.NO_PLAN, cls="muted")}
        if page.sample:
            return draw(page.sample.plan, page.sample.measurement, recorded=True)
        return {facts: el("p", text.NO_PLAN, cls="muted")}

    page.shows.append(show)
    page.outputs += outputs

    @sends
    def make(ids: Ids, depth: Any, threshold: Any, memory: Any) -> Updates:
        try:
            measurement = page.measurement(ids)
            if measurement is None:
                raise BadInput(text.NEED_MEASUREMENT)
            limits = read_limits(depth, threshold, memory)
            plan = make_plan(measurement, limits)
            new = page.keep(ids, plan=plan)
            updates = page.show(new) | draw(plan, measurement, limits)
            return updates | {page.status: done(f"Planned {plan.hierarchy} ({text.RUN_ID.format(key=new.plan)}).")}
        except Exception as error:
            return {page.status: failure(explain(error))}

    @sends
    def explore(ids: Ids, value: Any, depth: Any, threshold: Any) -> Updates:
        try:
            measurement, plan = page.measurement(ids), page.plan(ids)
            if plan is None and page.sample and measurement is None:
                measurement, plan = page.sample.measurement, page.sample.plan
            value = decoded(value)
            if not plan or not measurement or not isinstance(value, dict) or not isinstance(value.get("values"), dict):
                return {answer: None}
            limits = read_limits(depth, threshold, 0)
            return {answer: what_if_answer(plan, what_if(measurement, plan, value["values"], limits))}
        except Exception as error:
            return {answer: el("p", explain(error).message, cls="bad", role="alert")}

    @sends
    def again(ids: Ids) -> Updates:
        return {knobs: show(ids).get(knobs), answer: None}

    @sends
    def compute(table: str, depth: Any, threshold: Any) -> Updates:
        try:
            plan = make_plan(from_csv(str(table)), read_limits(depth, threshold, 0))
            return {computed: calculator_answer(plan)}
        except Exception as error:
            return {computed: el("p", explain(error).message, cls="bad", role="alert")}

    quiet = dict(show_progress="hidden", api_visibility="private")
    page.wire.append(
        lambda everything: page.actions["plan"].click(
            make, [page.ids, depth, threshold, memory], [page.ids, page.hero, page.status, *everything], **quiet
        )
    )
    knobs.change(explore, [page.ids, knobs, depth, threshold], [answer], trigger_mode="always_last", queue=False, **quiet)
    reset.click(again, [page.ids], [knobs, answer], **quiet)
    calculate.click(compute, [pasted, depth, threshold], [computed], **quiet)


def read_limits(depth: Any, threshold: Any, memory: Any) -> Limits:
    if not isinstance(memory, int | float) or memory < 0:
        raise BadInput("The memory limit is empty or negative; give a number of GiB, 0 for none.")
    return Limits(
        check_whole(depth, text.MAX_DEPTH, 1, MAX_DEPTH),
        check_whole(threshold, text.MAX_THRESHOLD, 1, MAX_THRESHOLD),
        int(memory * (1 << 30)) if memory else None,
    )


def plan_facts(plan: Plan, recorded: bool) -> Node:
    best = plan.predicted_s_per_token
    parts = [
        f"{plan.hierarchy}: {fmt.milliseconds(best.best)} a token ({fmt.interval(1e3 * best.low, 1e3 * best.high)})",
        f"target alone {fmt.milliseconds(plan.autoregressive_s_per_token)}",
        f"ranked by {'replayed traces' if plan.ranked_by == 'trace' else 'the exact expression'}",
        plan.environment.label(),
    ]
    badge = el("span", "recorded sample", cls="pill download") if recorded else None
    return el("p", badge, " " if badge else "", " · ".join(parts), cls="muted small")


def alternatives(plan: Plan) -> Node:
    rows: list[list[Node]] = []
    for place, one in enumerate(plan.alternatives):
        predicted = one.predicted_s_per_token
        rows.append(
            [
                str(place + 1),
                el("b" if place == 0 else "span", one.hierarchy.drafts_label() or "target alone"),
                f"{fmt.milliseconds(predicted.best)} ({fmt.interval(1e3 * predicted.low, 1e3 * predicted.high)})",
                fmt.times(plan.autoregressive_s_per_token / predicted.best),
                fmt.milliseconds(predicted.exact),
                fmt.milliseconds(predicted.paper),
            ]
        )
    head: list[Node] = [
        "#",
        "Drafts below the target",
        "Predicted a token",
        "Against the target alone",
        "Exact expression",
        "Paper, Theorem 2.2",
    ]
    return table(head, rows, text.ALTERNATIVES)


def what_if_answer(plan: Plan, found: Any) -> Node:
    alone = found.best.autoregressive_s_per_token
    rows: list[list[Node]] = [
        [text.WHAT_IF_BEST, el("b", found.best.hierarchy.drafts_label() or "target alone"), *_speed(found.best, alone)]
    ]
    if found.fixed:
        rows.append([text.WHAT_IF_FIXED, found.fixed.hierarchy.drafts_label(), *_speed(found.fixed, alone)])
    rows.append([text.WHAT_IF_ALONE, "–", fmt.milliseconds(alone), "1.00×"])
    note = (
        text.WHAT_IF_SAME
        if found.best.hierarchy == plan.hierarchy
        else text.WHAT_IF_OTHER.format(plan=plan.hierarchy.drafts_label() or "target alone")
    )
    return el(
        "div", table(["", "Drafts", "Predicted a token (exact expression)", "Speed-up"], rows, text.WHAT_IF), el("p", note, cls="small")
    )


def _speed(found: Any, alone: float) -> list[Node]:
    exact = found.predicted_s_per_token.exact
    return [fmt.milliseconds(exact), fmt.times(alone / exact)]


def calculator_answer(plan: Plan) -> Node:
    lines = el("p", el("b", str(plan.hierarchy)), f" · {fmt.times(plan.predicted_speedup)} as fast as the target alone")
    return el("div", lines, alternatives(plan))
