"""Step 1: every model that could take part, with status, memory and reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from hsd.errors import BadInput
from ui import format as fmt
from ui import text
from ui.engine import CandidateRow
from ui.jobs import explain, shortened
from ui.nodes import Node, el, nodes, sends, swatch, table
from ui.page import Page, Updates
from ui.palette import slot_of
from ui.sidebar import MAX_CANDIDATES, Sidebar, added, listed_for, memory_fit, memory_of, picker_value, read_setup, selected
from ui.status import done, failure


def create_pick(page: Page, side: Sidebar) -> None:
    with gr.Tab(text.PICK, id="pick", elem_id="tab-pick"):
        gr.Markdown(text.PICK_HELP)
        models = nodes(elem_id="candidate-table")
        with gr.Row(elem_classes="inline-form"):
            name = gr.Textbox(label=text.ADD_MODEL, placeholder=text.ADD_EXAMPLE, scale=4, elem_id="add-name")
            add = gr.Button(text.ADD_BUTTON, scale=1, elem_id="add")

    shown = [side.picker, side.memory, models, page.status]

    def look(target: Any, picker: Any, device: Any, dtype: Any, extra: str = "") -> Updates:
        """Every candidate for these settings, `extra` is a name to add; for other settings than before, what every target has is ticked."""
        try:
            setup = read_setup(target, picker, device, dtype)
            more = tuple(dict.fromkeys((*added(picker), *([extra] if extra else []))))[-MAX_CANDIDATES:]
            rows = page.engine.candidates(setup.target, more, setup.device, setup.dtype)
            ticked = list(dict.fromkeys((*selected(picker), *([extra] if extra else []))))
            if listed_for(picker) != [setup.target, setup.device, setup.dtype]:
                ticked += [row.name for row in rows if row.kind != "model" and row.status == "ready" and row.name not in ticked]
            usable = {row.name for row in rows if row.status != "unusable"}
            ticked = [name for name in ticked if name in usable]
            fit = memory_fit(page.engine.memory(replace(setup, drafts=tuple(ticked))))
        except Exception as error:
            return {page.status: failure(explain(error))}
        updates: Updates = {
            side.picker: picker_value(rows, ticked, more, setup),
            side.memory: fit,
            models: candidate_table(rows, setup.target),
        }
        return updates | {page.status: said_of(extra, rows, setup.target)} if extra else updates

    @sends
    def arrive(target: Any, picker: Any, device: Any, dtype: Any) -> Updates:
        try:
            targets = [row.name for row in page.engine.targets()]
            devices = [(text.DEVICE_AUTO, "auto"), *((row.label, row.name) for row in page.engine.devices())]
        except Exception as error:
            return {page.status: failure(explain(error))}
        lists = {side.target: gr.Dropdown(choices=targets), side.device: gr.Dropdown(choices=devices)}
        return lists | look(target, picker, device, dtype)

    @sends
    def tick(target: Any, picker: Any, device: Any, dtype: Any) -> Updates:
        updates = look(target, picker, device, dtype)
        updates.pop(side.picker, None)  # the browser already shows what it ticked
        return updates

    @sends
    def fit(target: Any, picker: Any, device: Any, dtype: Any) -> Updates:
        """The memory again: a run has loaded what was still to load."""
        try:
            return {side.memory: memory_fit(page.engine.memory(read_setup(target, picker, device, dtype)))}
        except Exception as error:
            return {page.status: failure(explain(error))}

    @sends
    def add_model(name: str, target: Any, picker: Any, device: Any, dtype: Any) -> Updates:
        wanted = str(name or "").strip()[:300]
        if not wanted:
            return {page.status: failure(explain(BadInput(text.ADD_EMPTY)))}
        return look(target, picker, device, dtype, extra=wanted)

    quiet = dict(show_progress="hidden", api_visibility="private")
    page.load = (arrive, side.setup, [side.target, side.device, *shown])
    page.after_run = (fit, side.setup, [side.memory, page.status])
    for part in (side.target, side.device, side.dtype):
        part.change(sends(look), side.setup, shown, **quiet)
    side.picker.change(tick, side.setup, [side.memory, models, page.status], trigger_mode="always_last", **quiet)
    gr.on([add.click, name.submit], add_model, [name, *side.setup], shown, **quiet)


def said_of(name: str, rows: Sequence[CandidateRow], target: str) -> Node:
    """The status line for a model that was just added: where it cannot serve, an error with the reason."""
    reason = next((row.reason for row in rows if row.name == name and row.status == "unusable"), None)
    if name == target:
        return failure(explain(BadInput(text.ADDED_TARGET.format(name=name))))
    if reason is not None:
        named = reason.lstrip("“").startswith(name)
        return failure(explain(BadInput(reason if named else text.ADDED_UNUSABLE.format(name=name, reason=reason))))
    return done(shortened(text.ADDED.format(name=name)))


def candidate_table(rows: Sequence[CandidateRow], target: str) -> Node:
    """The usable drafts with what they cost; below, folded, those that are not, each with its reason."""
    names = (*(row.name for row in rows), target)
    usable: list[list[Node]] = []
    unusable: list[list[Node]] = []
    for row in rows:
        if row.status == "unusable":
            unusable.append([el("b", row.name), el("div", row.reason, cls="reason"), row.description])
            continue
        label = el("span", swatch(slot_of(row.name, names)), el("b", row.name), cls="named")
        state = el("span", text.STATUS.get(row.status, row.status), cls=f"pill {row.status}")
        size = fmt.parameters(row.parameters) if row.parameters else "–"
        words = el("div", el("div", row.description), el("small", row.reason, cls="muted") if row.reason else "")
        usable.append([label, state, size, memory_of(row) if row.memory_bytes else "none", words])
    head: list[Node] = ["Draft", "Status", "Parameters", "Memory it adds", "What it is"]
    parts = [table(head, usable, text.PICK_CAPTION, empty=text.NO_USABLE)]
    if unusable:
        why = table(["Model", "Why not", "What it is"], unusable, text.UNUSABLE)
        parts.append(el("details", el("summary", f"{len(unusable)} {text.UNUSABLE}", cls="small muted"), why, cls="folded"))
    return el("div", *parts)
