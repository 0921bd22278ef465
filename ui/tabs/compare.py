"""Step 5: measured runs beside the prediction, and the lossless verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from hsd.compare.record import Comparison, MethodResult
from hsd.errors import BadInput
from hsd.settings import MAX_NEW_TOKENS
from ui import format as fmt
from ui import text
from ui.engine import CompareRequest
from ui.figures.measured import bars, scatter
from ui.jobs import Job
from ui.nodes import Node, el, nodes, table
from ui.page import Ids, Page, Updates, done
from ui.planning import check_whole
from ui.sidebar import Sidebar, read_setup


def create_compare(page: Page, side: Sidebar) -> None:
    with gr.Tab(text.COMPARE, id="compare", elem_id="tab-compare"):
        gr.Markdown(text.COMPARE_HELP)
        with gr.Row(elem_classes="actions"):
            button = gr.Button(text.COMPARE_BUTTON, variant="primary", elem_id="compare", scale=0, min_width=180)
            repeats = gr.Number(3, label=text.REPEATS, minimum=1, maximum=20, precision=0, min_width=120)
            limit = gr.Number(64, label=text.MAX_NEW, minimum=1, maximum=MAX_NEW_TOKENS, precision=0, min_width=120)
            others = gr.Checkbox(True, label=text.WITH_TRANSFORMERS, min_width=160)
        verdict = nodes(elem_id="verdict")
        with gr.Row():
            with gr.Column(min_width=340):
                gr.Markdown(text.COMPARE_BARS, elem_classes="caption")
                chart = gr.Plot(show_label=False, elem_id="compare-bars", label=text.COMPARE_BARS)
            with gr.Column(min_width=340):
                gr.Markdown(text.COMPARE_SCATTER, elem_classes="caption")
                points = gr.Plot(show_label=False, elem_id="scatter", label=text.COMPARE_SCATTER)
        figures = nodes(elem_id="compare-table")

    page.run_buttons.append(button)
    outputs = [verdict, chart, points, figures]

    def draw(comparison: Comparison, recorded: bool) -> Updates:
        return {
            verdict: verdict_of(comparison, recorded),
            chart: bars(comparison),
            points: scatter(predicted_points(comparison)),
            figures: methods_table(comparison),
        }

    def show(ids: Ids) -> Updates:
        comparison = page.comparison(ids)
        if comparison:
            return draw(comparison, False)
        if page.sample and page.sample.comparison and not ids.measurement:
            return draw(page.sample.comparison, True)
        return {verdict: el("p", text.NO_COMPARISON, cls="muted"), chart: None, points: None, figures: None}

    page.shows.append(show)
    page.outputs += outputs

    def compare(job: Job, ids: Ids, repeats: Any, limit: Any, others: bool, *settings: Any) -> Iterator[Updates]:
        plan = page.plan(ids)
        if plan is None:
            raise BadInput(text.NEED_PLAN)
        setup = read_setup(*settings)
        if setup.target != plan.hierarchy.target:
            raise BadInput(
                f"The plan is for {plan.hierarchy.target}, the target picked is {setup.target}; measure and plan with that target."
            )
        used = replace(setup, drafts=tuple(name for name in plan.candidates if name != setup.target))
        request = CompareRequest(
            plan, check_whole(repeats, text.REPEATS, 1, 20), check_whole(limit, text.MAX_NEW, 1, MAX_NEW_TOKENS), bool(others)
        )

        def work() -> Ids:
            return page.keep(ids, comparison=page.engine.compare(used, request, job.items.put, job.notify, job.should_stop))

        def on_done(new: Ids) -> Updates:
            return page.show(new) | {page.status: done(f"Compared ({text.RUN_ID.format(key=new.comparison)}).")}

        yield from page.stream(job, work, lambda _: {}, on_done)

    page.wire.append(lambda everything: page.on_device(button, compare, [page.ids, repeats, limit, others, *side.setup], everything))


def predicted_points(comparison: Comparison) -> list[tuple[str, float, float]]:
    """(label, predicted, measured) seconds per token of every method that was predicted."""
    return [
        (text.METHODS.get(method.name, method.name), 1 / method.predicted_tokens_per_s, 1 / method.tokens_per_s.median)
        for method in comparison.methods
        if method.predicted_tokens_per_s and method.tokens_per_s.median > 0
    ]


def verdict_of(comparison: Comparison, recorded: bool) -> Node:
    near = bool(comparison.divergences) and all(divergence.near_tie for divergence in comparison.divergences)
    if comparison.identical:
        words, cls = text.IDENTICAL_YES, "good"
    elif comparison.identical is None:
        words, cls = text.IDENTICAL_SAMPLED, "muted"
    elif near:
        words, cls = text.IDENTICAL_NEAR.format(dtype=comparison.environment.dtype), "muted"
    else:
        words, cls = text.IDENTICAL_NO, "bad"
    where = (
        f"{comparison.prompts} prompts × {comparison.repeats} repeats · up to {comparison.max_new_tokens} tokens · "
        f"{comparison.sampling.label()} · {comparison.environment.label()} · {comparison.environment.time[:16].replace('T', ' ')}"
    )
    lines: list[Node] = [el("p", el("b", words), cls=cls)]
    for one in comparison.divergences[:5]:
        kind = "near-tie" if one.near_tie else "different"
        method = text.METHODS.get(one.method, one.method)
        lines.append(
            el("p", f"{method}, prompt {one.prompt_id}, token {one.position + 1}: {kind}, logit margin {one.logit_margin:.3g}", cls="small")
        )
    badge = el("span", "recorded sample", cls="pill download") if recorded else None
    return el("div", *lines, el("p", badge, " " if badge else "", where, cls="muted small"))


def methods_table(comparison: Comparison) -> Node:
    rows = [_row(method, comparison) for method in sorted(comparison.methods, key=lambda method: method.tokens_per_s.median)]
    head: list[Node] = [
        "Method",
        "Tokens/s (spread)",
        "Predicted",
        "Against target alone",
        "Tokens per target pass",
        "Same text",
        "Outside passes",
    ]
    return table(head, rows, text.COMPARE_TABLE)


def _row(method: MethodResult, comparison: Comparison) -> list[Node]:
    alone = next((other.tokens_per_s.median for other in comparison.methods if other.name == "target"), None)
    speed = method.tokens_per_s
    label = el(
        "span", el("b", text.METHODS.get(method.name, method.name)), el("br"), el("small", method.hierarchy, cls="muted"), cls="method"
    )
    return [
        label,
        f"{fmt.significant(speed.median)} ({fmt.interval(speed.low, speed.high)}, n={speed.samples})",
        fmt.significant(method.predicted_tokens_per_s) if method.predicted_tokens_per_s else "–",
        fmt.times(speed.median / alone) if alone else "–",
        f"{method.tokens_per_target_pass:.2f}",
        {True: "yes", False: "no", None: "not compared"}[method.identical],
        "–" if method.outside_forward_share is None else fmt.percent(method.outside_forward_share),
    ]
