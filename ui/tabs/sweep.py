"""The sweep on the Compare tab: many hierarchies, predicted and then measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gradio as gr

from hsd.compare.record import Sweep
from hsd.units import counted
from ui import format as fmt
from ui import text
from ui.engine import CompareRequest, Setup
from ui.figures.measured import swept
from ui.jobs import Failed, Job
from ui.nodes import Node, el, nodes
from ui.page import Ids, Page, Updates
from ui.status import done
from ui.tabs.predictions import sweep_errors


def create_sweep(page: Page, request_of: Callable[..., tuple[Setup, CompareRequest]], inputs: list[Any]) -> None:
    """`request_of(ids, *values of inputs)` says what to run; `inputs` are the fields of the tab and of the sidebar."""
    gr.Markdown(f"**{text.SWEEP_TITLE}** {text.SWEEP_HELP}", elem_classes="section")
    button = gr.Button(text.SWEEP_BUTTON, elem_id="sweep", size="md")
    answer = nodes(elem_id="sweep-answer")
    picture = gr.Plot(show_label=False, elem_id="sweep-plot", label=text.SWEEP_PLOT, visible=False)
    page.run_buttons.append(button)

    def run_sweep(job: Job, ids: Ids, *given: Any) -> Iterator[Updates]:
        setup, request = request_of(ids, *given)

        def on_done(found: Sweep, _: Ids) -> Updates:
            return {answer: sweep_answer(found), picture: gr.Plot(swept(found), visible=True), page.status: done(sweep_line(found))}

        def on_failed(failed: Failed, _: Ids) -> Updates:  # the measurement within the sweep would tell of itself
            return {page.status: done(text.SWEEP_STOPPED)} if failed.cancelled else {}

        yield {answer: None}
        work = partial(page.engine.sweep, setup, request, job.items.put, job.notify, job.should_stop)
        yield from page.stream(job, work, lambda _: {}, on_done, on_failed)

    page.wire.append(lambda _: page.on_device(button, run_sweep, [page.ids, *inputs], [answer], [picture]))


def sweep_answer(found: Sweep) -> Node:
    stamp = found.environment
    where = " · ".join((counted(found.repeats, "repeat"), found.sampling.label(), stamp.label(), f"{fmt.moment(stamp.time)} UTC"))
    caption = el("p", text.SWEEP_PLOT, cls="caption-line")
    return el("div", el("p", sweep_line(found)), el("p", where, cls="muted small"), sweep_errors(found), caption)


def sweep_line(found: Sweep) -> str:
    regrets = [text.REGRET.format(regret=fmt.percent(max(0.0, regret)), prompts=prompts) for prompts, regret in found.regret.items()]
    return text.SWEEP_LINE.format(
        count=len(found.points), median=fmt.percent(found.median_error), largest=fmt.percent(max(found.errors)), regrets=" ".join(regrets)
    )
