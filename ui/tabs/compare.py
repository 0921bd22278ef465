"""Step 5: measured runs beside the prediction, and the lossless verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from hsd.compare.record import Comparison, Divergence, LosslessReport, MethodResult
from hsd.errors import BadInput
from hsd.settings import MAX_NEW_TOKENS
from hsd.units import counted
from ui import format as fmt
from ui import text
from ui.engine import CompareRequest, Setup
from ui.figures.measured import bars, scatter
from ui.jobs import Job
from ui.nodes import Node, el, nodes, table, valued
from ui.page import Ids, Page, Updates
from ui.planning import check_whole
from ui.sidebar import Sidebar, read_setup
from ui.status import done
from ui.tabs.predictions import against_measured
from ui.tabs.sweep import create_sweep

TOLD = 5  # places where texts depart


def create_compare(page: Page, side: Sidebar) -> None:
    with gr.Tab(text.COMPARE, id="compare", elem_id="tab-compare"):
        gr.Markdown(text.COMPARE_HELP)
        with gr.Row(elem_classes="actions"):
            prompts = gr.Number(8, label=text.COMPARE_PROMPTS, min_width=100, elem_id="compare-prompts")
            repeats = gr.Number(3, label=text.REPEATS, min_width=100)
            limit = gr.Number(64, label=text.MAX_NEW, min_width=100)
        others = gr.Checkbox(True, label=text.WITH_TRANSFORMERS, container=False)
        verdict = nodes(elem_id="verdict")
        with gr.Row():
            with gr.Column(min_width=340):
                gr.Markdown(text.COMPARE_BARS, elem_classes="caption")
                chart = gr.Plot(show_label=False, elem_id="compare-bars", label=text.COMPARE_BARS)
            with gr.Column(min_width=340):
                gr.Markdown(text.COMPARE_SCATTER, elem_classes="caption")
                points = gr.Plot(show_label=False, elem_id="scatter", label=text.COMPARE_SCATTER)
        figures = nodes(elem_id="compare-table")
        models = nodes(elem_id="latency-models")
        gr.Markdown(f"**{text.LOSSLESS_TITLE}** {text.LOSSLESS_HELP}", elem_classes="section")
        lossless = gr.Button(text.LOSSLESS_BUTTON, elem_id="lossless", size="md")
        proof = nodes(elem_id="lossless-answer")
        create_sweep(page, request_of(page), [prompts, repeats, limit, others, *side.setup])

    button = page.actions["compare"]
    page.run_buttons += [button, lossless]
    page.form += [prompts, repeats, limit, others]
    outputs = [verdict, chart, points, figures, models]

    def draw(comparison: Comparison, recorded: bool) -> Updates:
        return {
            verdict: verdict_of(comparison, recorded),
            chart: bars(comparison),
            points: scatter(comparison),
            figures: methods_table(comparison),
            models: against_measured(comparison),
        }

    def show(ids: Ids) -> Updates:
        comparison = page.comparison(ids)
        if comparison:
            return draw(comparison, False)
        if page.sample and page.sample.comparison and not ids.measurement:
            return draw(page.sample.comparison, True)
        return {verdict: el("p", text.NO_COMPARISON, cls="muted"), chart: None, points: None, figures: None, models: None}

    page.shows.append(show)
    page.outputs += outputs

    def compare(job: Job, ids: Ids, *given: Any) -> Iterator[Updates]:
        setup, request = request_of(page)(ids, *given)

        def work() -> str:
            return page.store.put(page.engine.compare(setup, request, job.items.put, job.notify, job.should_stop))

        def on_done(comparison: str, now: Ids) -> Updates:
            key = text.RUN_ID.format(key=comparison)
            if now.plan != ids.plan:  # the page shows another plan by now, which this says nothing of
                return {page.status: done(text.COMPARED_BEFORE.format(key=key))}
            return page.show(replace(now, comparison=comparison)) | {page.status: done(text.COMPARED.format(key=key))}

        yield from page.stream(job, work, lambda _: {}, on_done)

    def check(job: Job, ids: Ids, *given: Any) -> Iterator[Updates]:
        setup, request = request_of(page)(ids, *given)

        def on_done(report: LosslessReport, _: Ids) -> Updates:
            return {proof: lossless_answer(report), page.status: done(lossless_line(report))}

        yield {proof: None}
        work = partial(page.engine.check_lossless, setup, request, job.items.put, job.notify, job.should_stop)
        yield from page.stream(job, work, lambda _: {}, on_done)

    inputs = [page.ids, prompts, repeats, limit, others, *side.setup]
    page.wire.append(lambda everything: page.on_device(button, compare, inputs, [], everything))
    page.wire.append(lambda _: page.on_device(lossless, check, inputs, [proof], []))


def request_of(page: Page) -> Callable[..., tuple[Setup, CompareRequest]]:
    """What to run, out of the fields of the tab and of the sidebar; raises `BadInput` that says what to do first."""

    def read(ids: Ids, prompts: Any, repeats: Any, limit: Any, others: bool, *settings: Any) -> tuple[Setup, CompareRequest]:
        plan = page.plan(ids)
        if plan is None:
            raise BadInput(text.NEED_PLAN)
        setup = read_setup(*settings)
        if setup.target != plan.hierarchy.target:
            raise BadInput(text.OTHER_TARGET.format(planned=plan.hierarchy.target, picked=setup.target))
        used = replace(setup, drafts=tuple(name for name in plan.candidates if name != setup.target))
        numbers = (check_whole(repeats, text.REPEATS, 1, 20), check_whole(limit, text.MAX_NEW, 1, MAX_NEW_TOKENS))
        return used, CompareRequest(plan, *numbers, bool(others), check_whole(prompts, text.COMPARE_PROMPTS, 1, 40))

    return read


def lossless_line(report: LosslessReport) -> str:
    counts = text.LOSSLESS_LINE.format(cases=report.cases, equal=report.equal, near=report.near_ties, different=report.different)
    return f"{counts} {report.environment.label()}."


def lossless_answer(report: LosslessReport) -> Node:
    lines: list[Node] = [el("p", el("b", lossless_line(report)), cls="good" if report.passed else "bad")]
    for one in report.sampling:
        words = text.SAMPLING_LINE.format(
            hierarchy=one.hierarchy,
            chi=one.chi_square,
            degrees=one.degrees_of_freedom,
            samples=one.samples,
            p=one.p_value,
            verdict=text.SAMPLING_VERDICT[one.passed],
        )
        lines.append(el("p", words, cls="small"))
    return el("div", *lines, *divergence_lines(report.divergences))


def divergence_lines(divergences: Sequence[Divergence]) -> list[Node]:
    lines: list[Node] = [el("p", one.sentence(text.METHODS.get(one.method, "")), cls="small") for one in divergences[:TOLD]]
    if len(divergences) > TOLD:
        lines.append(el("p", text.MORE.format(count=len(divergences) - TOLD), cls="small muted"))
    return lines


def verdict_of(comparison: Comparison, recorded: bool) -> Node:
    ours = [one for one in comparison.divergences if not one.method.startswith("transformers")]
    theirs = [one for one in comparison.divergences if one.method.startswith("transformers")]
    if comparison.identical:
        words, cls = text.IDENTICAL_YES, "good"
    elif comparison.identical is None:
        words, cls = text.IDENTICAL_SAMPLED, "muted"
    elif not ours:
        words, cls = text.IDENTICAL_OPEN, "muted"
    elif all(one.near_tie for one in ours):
        words, cls = text.IDENTICAL_NEAR.format(dtype=comparison.environment.dtype), "muted"
    else:
        words, cls = text.IDENTICAL_NO, "bad"
    stamp = comparison.environment
    where = " · ".join(
        (
            f"{counted(comparison.prompts, 'prompt')} × {counted(comparison.repeats, 'repeat')}",
            f"up to {comparison.max_new_tokens} tokens",
            comparison.sampling.label(),
            stamp.label(),
            text.KERNELS.get(stamp.kernels, stamp.kernels),
            f"{fmt.moment(stamp.time)} UTC",
        )
    )
    lines: list[Node] = [el("p", el("b", words), cls=cls)]
    lines += divergence_lines(ours)
    lines += [el("p", why, cls="small") for why in comparison.left_out]
    if theirs:
        lines += [el("p", text.OTHER_ARITHMETIC, cls="small muted"), *divergence_lines(theirs)]
    badge = el("span", "recorded sample", cls="pill download") if recorded else None
    return el("div", *lines, el("p", badge, " " if badge else "", where, cls="muted small"))


def methods_table(comparison: Comparison) -> Node:
    rows = [_row(method, comparison) for method in sorted(comparison.methods, key=lambda method: method.tokens_per_s.median)]
    head: list[Node] = [text.METHOD, *text.COMPARE_HEAD]
    return table(head, rows, text.COMPARE_TABLE)


def _row(method: MethodResult, comparison: Comparison) -> list[Node]:
    speed, against, ratio = method.tokens_per_s, method.times_target, comparison.speedup(method.name)
    label = el(
        "span",
        el("b", text.METHODS.get(method.name, method.name)),
        el("small", method.hierarchy.replace(",", ", "), cls="muted"),
        cls="method",
    )
    return [
        label,
        valued(fmt.significant(speed.median), f"{fmt.interval(speed.low, speed.high)}, n={speed.samples}"),
        fmt.significant(method.predicted_tokens_per_s) if method.predicted_tokens_per_s else "–",
        valued(fmt.times(ratio), f"{fmt.interval(against.low, against.high)}, n={against.samples}" if against else "") if ratio else "–",
        "–" if method.tokens_per_target_pass is None else f"{method.tokens_per_target_pass:.2f}",
        {True: "yes", False: "no", None: "not compared"}[method.identical],
        "–" if method.outside_forward_share is None else fmt.percent(method.outside_forward_share),
    ]
