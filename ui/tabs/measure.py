"""Step 2: costs and acceptance on this device, live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from hsd.errors import BadInput, HsdError
from hsd.measure.doubts import doubts
from hsd.measure.record import Measurement
from hsd.settings import MAX_PROMPT_CHARACTERS
from hsd.units import counted
from ui import format as fmt
from ui import text
from ui.engine import MeasureRequest, Setup
from ui.figures.acceptance import heatmap
from ui.figures.costs import curves
from ui.jobs import Failed, Job, explain
from ui.nodes import Node, el, nodes, sends, swatch, table, valued
from ui.page import Ids, Page, Updates
from ui.palette import slot_of
from ui.planning import Limits, make_plan
from ui.sidebar import Sidebar, read_sampling, read_setup
from ui.status import done, failure
from ui.tabs.kinds import kind_table


def create_measure(page: Page, side: Sidebar) -> None:
    with gr.Tab(text.MEASURE, id="measure", elem_id="tab-measure"):
        gr.Markdown(text.MEASURE_HELP)
        with gr.Row(elem_classes="actions"):
            thorough = gr.Checkbox(label=text.THOROUGH, value=False, scale=1, elem_id="thorough")
            again = gr.Checkbox(label=text.AGAIN, value=False, scale=1, elem_id="again")
        with gr.Accordion(text.OWN_PROMPTS, open=False):
            gr.Markdown(text.OWN_PROMPTS_HELP)
            prompts = gr.Textbox(
                "", show_label=False, lines=4, max_length=MAX_PROMPT_CHARACTERS, elem_id="own-prompts", label=text.OWN_PROMPTS
            )
            with gr.Row(elem_classes="inline-form"):
                kind = gr.Dropdown(["txt", "jsonl", "csv"], value="txt", label=text.PROMPTS_FORMAT, min_width=120)
                column = gr.Textbox("", label=text.PROMPTS_COLUMN, max_length=200, min_width=160)
                file = gr.UploadButton(text.PROMPTS_FILE, file_types=[".txt", ".jsonl", ".csv"], type="binary", size="sm", min_width=160)
        facts = nodes(elem_id="measure-facts")
        with gr.Row():
            with gr.Column(min_width=340):
                _caption(text.HEATMAP)
                heat = gr.Plot(show_label=False, elem_id="heatmap", label=text.HEATMAP)
            with gr.Column(min_width=340):
                _caption(text.COSTS)
                cost = gr.Plot(show_label=False, elem_id="costs", label=text.COSTS)
        figures = nodes(elem_id="measure-table")

    button = page.actions["measure"]
    page.run_buttons.append(button)
    page.form += [thorough, again, prompts, kind, column]
    outputs = [facts, heat, cost, figures]

    def draw(measurement: Measurement, badge: str | None = None, hint: str | None = None) -> Updates:
        updates: Updates = {
            facts: measure_facts(measurement, badge, hint),
            cost: curves(measurement),
            figures: el("div", measure_table(measurement), kind_table(measurement)),
        }
        if measurement.acceptance:
            updates[heat] = heatmap(measurement)
        return updates

    def show(ids: Ids) -> Updates:
        measurement = page.measurement(ids)
        if measurement:
            return draw(measurement, "kept", text.KEPT) if ids.kept else draw(measurement)
        if page.sample:
            return draw(page.sample.measurement, "recorded sample")
        return {facts: el("p", text.NO_MEASUREMENT, cls="muted")}

    page.shows.append(show)

    def measure(job: Job, ids: Ids, thorough: bool, again: bool, prompts: str, kind: str, column: str, *settings: Any) -> Iterator[Updates]:
        setup, sampling = read_setup(*settings[:4]), read_sampling(*settings[4:])
        own, field = (prompts or "").strip() or None, str(column or "").strip() or None
        request = MeasureRequest(sampling, bool(thorough), own, str(kind), field, bool(again))
        partial: list[Measurement] = []

        def on_partial(measurement: Measurement) -> None:
            partial[:] = [measurement]
            job.items.put(measurement)

        def work() -> Ids:
            found, kept = measured(page, job, setup, request, on_partial)
            return replace(_planned(page, found), kept=kept)

        def on_batch(items: list[Any]) -> Updates:
            return draw(items[-1], "partial", text.PARTIAL_MEASUREMENT) if items else {}

        def on_done(result: Ids, _: Ids) -> Updates:
            key = text.RUN_ID.format(key=result.measurement)
            if result.kept:
                words = text.FOUND_KEPT.format(time=fmt.moment(page.measurement(result).environment.time), key=key)
            else:
                words = f"{'Stopped; what was complete is kept' if job.stop.is_set() else 'Measured'} ({key})."
            return page.show(result) | {page.status: done(words)} | ({} if result.plan else _plan_trouble(page, result))

        def on_failed(failed: Failed, now: Ids) -> Updates:
            if not partial:
                return page.show(now)
            kept = _planned(page, partial[0])
            key = text.RUN_ID.format(key=kept.measurement)
            return page.show(kept) | {
                page.status: failure(Failed(f"{failed.message} What was complete is kept ({key}).", failed.cancelled))
            }

        yield from page.stream(job, work, on_batch, on_done, on_failed)

    @sends
    def load_prompts(data: bytes | None) -> Updates:
        try:
            return {prompts: (data or b"").decode("utf-8-sig")[:MAX_PROMPT_CHARACTERS]}
        except UnicodeDecodeError:
            return {page.status: failure(explain(BadInput(text.PROMPTS_NOT_TEXT)))}

    file.upload(load_prompts, [file], [prompts, page.status], show_progress="hidden", api_visibility="private")
    inputs = [page.ids, thorough, again, prompts, kind, column, *side.setup, *side.sampling]
    page.wire.append(lambda everything: page.on_device(button, measure, inputs, outputs, everything))
    page.outputs += outputs


def measured(
    page: Page, job: Job, setup: Setup, request: MeasureRequest, on_partial: Callable[[Measurement], None]
) -> tuple[Measurement, bool]:
    """As the engine measures; the visitor is told when the costs are not good enough to be predicted from."""
    found, kept = page.engine.measure(setup, request, job.items.put, job.notify, on_partial, job.should_stop)
    for doubt in doubts(found):
        job.notify(doubt)
    return found, kept


def _planned(page: Page, measurement: Measurement) -> Ids:
    """Keep a measurement, with its plan when there is enough to plan with; both are made where the work is done."""
    ids = page.keep(Ids(), measurement=measurement)
    try:
        return page.keep(ids, plan=make_plan(measurement, Limits()))
    except HsdError:
        return ids


def _plan_trouble(page: Page, ids: Ids) -> Updates:
    try:
        make_plan(page.measurement(ids), Limits())
    except HsdError as error:
        return {page.status: failure(explain(error))}
    return {}


def measure_facts(measurement: Measurement, badge: str | None, hint: str | None) -> Node:
    stamp = measurement.environment
    count = len(measurement.traces) or measurement.prompts.count  # a file without traces tells only how many were chosen
    line = text.SETTINGS.format(
        prompts=counted(count, "prompt"),
        name=measurement.prompts.name,
        context=measurement.context_tokens,
        sampling=measurement.sampling.label(),
        environment=stamp.label(),
        kernels=text.KERNELS.get(stamp.kernels, stamp.kernels),
        time=fmt.moment(stamp.time),
    )
    pill = el("span", badge, cls="pill download") if badge else None
    return el("p", pill, " " if badge else "", line, f" · {hint}" if hint else "", cls="muted small")


def measure_table(measurement: Measurement) -> Node:
    rows: list[list[Node]] = []
    for model in measurement.models:
        costs = measurement.cost_s.get(model, {})
        first = min(costs) if costs else None
        last = max(costs) if costs else None
        label = el("span", swatch(slot_of(model, measurement.models)), model, cls="named")
        rows.append(
            [
                label,
                _cost(measurement, model, first),
                _cost(measurement, model, last if last != first else None),
                _memory(measurement.memory_bytes.get(model)),
            ]
        )
    total = fmt.memory(sum(measurement.memory_bytes.get(model, 0) for model in measurement.models))
    note = el("p", text.MEASURE_NOTE.format(overheads=_overheads(measurement), total=total), cls="muted small")
    head: list[Node] = list(text.MEASURE_HEAD)
    return el("div", table(head, rows, text.MEASURE_TABLE), note)


def _overheads(measurement: Measurement) -> str:
    """All that a running hierarchy takes beside the passes of its models."""

    def microseconds(seconds: float) -> str:
        return fmt.significant(seconds * 1e6)

    told = text.OVERHEADS.format(target=microseconds(measurement.overhead_s), token=microseconds(measurement.token_overhead_s))
    rounds = ", ".join(f"{name} {microseconds(seconds)}" for name, seconds in measurement.round_overhead_s.items())
    return told + (f"; {text.OVERHEAD_ROUNDS.format(rounds=rounds)}" if rounds else "")


def _cost(measurement: Measurement, model: str, width: int | None) -> Node:
    if width is None:
        return "–"
    cost = measurement.cost_s[model][width]
    bounds = f"{fmt.seconds(cost.low)}–{fmt.seconds(cost.high)}, n={cost.samples}"
    return valued(fmt.seconds(cost.median), f"{bounds}, {'a call' if width == 0 else f'width {width}'}")


def _memory(size: int | None) -> str:
    return "none" if size == 0 else fmt.memory(size)


def _caption(words: str) -> None:
    gr.Markdown(words, elem_classes="caption")
