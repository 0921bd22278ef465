"""Step 3: the hierarchy, what it is predicted to cost, what-if, and a calculator."""

from __future__ import annotations

from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD
from ui import format as fmt
from ui import text
from ui.figures.hierarchy import graph
from ui.figures.latency import bars, stacked
from ui.figures.path import layers
from ui.jobs import explain
from ui.nodes import Node, decoded, el, json_html, nodes, sends, table
from ui.page import Ids, Page, Updates
from ui.planning import Limits, WhatIf, make_plan, multipliers, read_limits, shortest_path, sliders, what_if
from ui.status import done, failure
from ui.tabs.calculator import create_calculator
from ui.tabs.foresight import create_foresight, first_rates, tipping
from ui.tabs.ranking import alternatives


def create_plan(page: Page) -> None:
    with gr.Tab(text.PLAN, id="plan", elem_id="tab-plan"):
        gr.Markdown(text.PLAN_HELP)
        with gr.Row(elem_classes="actions"):
            depth = gr.Number(MAX_DEPTH, label=text.MAX_DEPTH, min_width=120, elem_id="max-depth")
            threshold = gr.Number(MAX_THRESHOLD, label=text.MAX_THRESHOLD, min_width=120)
            memory = gr.Number(0, label=text.MEMORY_LIMIT, min_width=120, elem_id="memory-limit")
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
            gr.Markdown(text.PATH_HELP)
            path = gr.Plot(show_label=False, elem_id="path-graph", label=text.PATH)
        tips, rates = create_foresight(page, depth, threshold)
        create_calculator(depth, threshold)

    outputs = [facts, picture, latency, parts, ranked, knobs, answer, path, tips, rates]

    def draw(plan: Plan, measurement: Measurement | None, limits: Limits = Limits(), recorded: bool = False) -> Updates:  # noqa: B008
        updates: Updates = {
            facts: plan_facts(plan, recorded),
            latency: bars(plan),
            parts: stacked(plan.alternatives, plan.candidates),
            ranked: alternatives(plan),
            answer: None,
        }
        if measurement is None:  # a plan from a file: what stood there belongs to another measurement
            return updates | {picture: graph(plan, None, {}), knobs: {"sliders": [], "values": {}}, path: None, tips: None}
        problem, solution = shortest_path(measurement, limits)
        return updates | {
            picture: graph(plan, measurement, multipliers(problem, plan)),
            knobs: {"sliders": sliders(measurement, plan), "values": {}},
            path: layers(problem, solution),
            tips: tipping(measurement, plan, limits),
            rates: first_rates(measurement),
        }

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
    def explore(ids: Ids, value: Any, depth: Any, threshold: Any, memory: Any) -> Updates:
        try:
            measurement, plan = page.measurement(ids), page.plan(ids)
            if plan is None and page.sample and measurement is None:
                measurement, plan = page.sample.measurement, page.sample.plan
            value = decoded(value)
            if not plan or not measurement or not isinstance(value, dict) or not isinstance(value.get("values"), dict):
                return {answer: None}
            limits = read_limits(depth, threshold, memory)
            return {answer: what_if_answer(plan, what_if(measurement, plan, value["values"], limits))}
        except Exception as error:
            return {answer: el("p", explain(error).message, cls="bad", role="alert")}

    @sends
    def again(ids: Ids) -> Updates:
        return {knobs: show(ids).get(knobs), answer: None}

    quiet = dict(show_progress="hidden", api_visibility="private")
    page.wire.append(
        lambda everything: page.actions["plan"].click(
            make, [page.ids, depth, threshold, memory], [page.ids, page.hero, page.status, *everything], **quiet
        )
    )
    knobs.change(explore, [page.ids, knobs, depth, threshold, memory], [answer], trigger_mode="always_last", queue=False, **quiet)
    reset.click(again, [page.ids], [knobs, answer], **quiet)


def plan_facts(plan: Plan, recorded: bool) -> Node:
    best = plan.predicted_s_per_token
    parts = [
        f"{fmt.drafts(plan.hierarchy)}: {fmt.milliseconds(best.best)} a token ({fmt.interval(1e3 * best.low, 1e3 * best.high)})",
        f"target alone {fmt.milliseconds(plan.autoregressive_s_per_token)}",
        f"ranked by {'replayed traces' if plan.ranked_by == 'trace' else 'the exact expression'}",
        plan.environment.label(),
    ]
    badge = el("span", "recorded sample", cls="pill download") if recorded else None
    return el("p", badge, " " if badge else "", " · ".join(parts), cls="muted small")


def what_if_answer(plan: Plan, found: WhatIf) -> Node:
    alone = found.best.autoregressive_s_per_token
    rows: list[list[Node]] = [[text.WHAT_IF_BEST, el("b", fmt.drafts(found.best.hierarchy)), *_speed(found.best, alone)]]
    if found.fixed:
        rows.append([text.WHAT_IF_FIXED, fmt.drafts(found.fixed.hierarchy), *_speed(found.fixed, alone)])
    rows.append([text.WHAT_IF_ALONE, "–", fmt.milliseconds(alone), "1.00×"])
    notes = []
    if found.changed:
        same = found.best.hierarchy == found.measured.hierarchy
        notes.append(text.WHAT_IF_SAME if same else text.WHAT_IF_OTHER.format(plan=fmt.drafts(found.measured.hierarchy)))
    if plan.ranked_by == "trace" and found.measured.hierarchy != plan.hierarchy:
        notes.append(text.WHAT_IF_RANKED.format(plan=fmt.drafts(plan.hierarchy)))
    told = el("p", " ".join(notes), cls="small") if notes else None
    return el("div", table(["", text.DRAFTS_BELOW, text.PREDICTED_EXACT, text.SPEEDUP], rows, text.WHAT_IF), told)


def _speed(found: Any, alone: float) -> list[Node]:
    exact = found.predicted_s_per_token.exact
    return [fmt.milliseconds(exact), fmt.times(alone / exact)]
