"""Step 6: take results along, load them again, fetch a run by its id. Files are made here and never named by a visitor."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.export.kinds import SUFFIXES
from hsd.generate.record import Run
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from ui import text
from ui.jobs import explain
from ui.nodes import el, nodes, sends
from ui.page import RESULTS, Ids, Page, Updates
from ui.planning import Limits, make_plan
from ui.runs import RunPair
from ui.status import done, failure

MAX_UPLOAD = "20mb"
KEPT = 32  # files of the latest exports: more than are on their way to browsers at once


def create_export(page: Page) -> None:
    folder = Path(tempfile.mkdtemp(prefix="hsd-downloads-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with gr.Tab(text.EXPORT, id="export", elem_id="tab-export"):
        gr.Markdown(text.EXPORT_HELP)
        with gr.Row(elem_classes="inline-form"):
            kind = gr.Dropdown(
                [(label, name) for name, label in text.KINDS.items()], value="plan", label=text.EXPORT_KIND, elem_id="export-kind"
            )
            button = gr.Button(text.EXPORT_BUTTON, variant="primary", elem_id="export", scale=0, min_width=120)
            download = gr.DownloadButton(text.DOWNLOAD, interactive=False, elem_id="download", scale=0, min_width=140)
        preview = nodes(elem_id="export-preview")
        upload = gr.UploadButton(text.LOAD_FILE, file_types=[".json"], type="binary", elem_id="load-file", size="md")
        with gr.Row(elem_classes="inline-form"):
            key = gr.Textbox("", label=text.FETCH, info=text.FETCH_INFO, elem_id="fetch-id", scale=4)
            fetch = gr.Button(text.FETCH_BUTTON, elem_id="fetch", scale=1)

    @sends
    def export(ids: Ids, kind: str) -> Updates:
        try:
            content = content_of(page, ids, kind)
            file = _write(folder, kind, content)
        except Exception as error:
            return {page.status: failure(explain(error)), preview: None, download: gr.DownloadButton(value=None, interactive=False)}
        shown = content if len(content) <= 20_000 else content[:20_000] + "\n…"
        block = el("pre", el("code", shown), cls="preview", tabindex="0", aria_label=text.EXPORT_PREVIEW)
        said = done(text.EXPORTED.format(kind=text.KINDS[kind]))
        return {preview: block, download: gr.DownloadButton(value=str(file), interactive=True), page.status: said}

    @sends
    def load(ids: Ids, data: bytes | None) -> Updates:
        try:
            new, what = read_upload(page, ids, data)
        except Exception as error:
            return {page.status: failure(explain(error))}
        return page.show(new) | {page.status: done(text.LOADED[what])}

    @sends
    def fetch_again(ids: Ids, key: str) -> Updates:
        try:
            wanted = str(key or "").strip()[:64]
            new, what = read_key(page, ids, wanted)
            return page.show(new) | {page.status: done(text.FETCHED.format(kind=what, key=wanted))}
        except Exception as error:
            return {page.status: failure(explain(error))}

    quiet = dict(show_progress="hidden", api_visibility="private")
    button.click(export, [page.ids, kind], [preview, download, page.status], **quiet)

    def wire(everything: list[Any]) -> None:
        outputs = [page.ids, page.hero, page.status, *everything]
        upload.upload(load, [page.ids, upload], outputs, **quiet)
        gr.on([fetch.click, key.submit], fetch_again, [page.ids, key], outputs, **quiet)

    page.wire.append(wire)


def content_of(page: Page, ids: Ids, kind: str) -> str:
    """Text of an export; raises `BadInput` that says what to do first."""
    if kind not in text.KINDS:
        raise BadInput("Choose what to export from the list.")
    results = {"measurement": page.measurement(ids), "plan": page.plan(ids), "trace": page.run(ids), "comparison": page.comparison(ids)}
    needed = kind if kind in results else "plan"
    found = results[needed]
    if found is None:
        raise BadInput(text.NOTHING_TO_EXPORT.format(kind=needed, how=text.HOW[needed]))
    if kind in results:
        record = found.stacked if isinstance(found, RunPair) else found
        return json.dumps(record.to_json(), ensure_ascii=False, indent=1)
    return page.engine.export(kind, results["plan"], results["measurement"], results["comparison"])


def read_upload(page: Page, ids: Ids, data: bytes | None) -> tuple[Ids, str]:
    """A measurement, plan or trace out of uploaded bytes; nothing else of the file is used, its name neither."""
    try:
        record = json.loads((data or b"").decode("utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError):
        raise BadInput(text.LOAD_NOT_JSON) from None
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind == "measurement":
        measurement = Measurement.from_json(record)
        return _with_plan(page, page.keep(Ids(loaded=True), measurement=measurement), measurement), kind
    if kind == "plan":
        return page.keep(Ids(loaded=True), plan=Plan.from_json(record)), kind
    if kind == "trace":
        return page.keep(ids, run=RunPair(Run.from_json(record))), kind
    raise BadInput(text.LOAD_COMPARISON if kind == "comparison" else text.LOAD_UNKNOWN)


def read_key(page: Page, ids: Ids, key: str) -> tuple[Ids, str]:
    """The result that is kept under `key`; what stood on the page before may be of other models than a measurement or plan."""
    for name, kind in RESULTS.items():
        found = page.store.get(key, kind)
        if isinstance(found, Measurement):
            return _with_plan(page, Ids(measurement=key), found), name
        if found is not None:
            return replace(Ids() if name == "plan" else ids, **{name: key}), name
    raise BadInput(text.FETCH_UNKNOWN)


def _with_plan(page: Page, ids: Ids, measurement: Measurement) -> Ids:
    try:
        return page.keep(ids, plan=make_plan(measurement, Limits()))
    except BadInput:
        return ids


def _write(folder: Path, kind: str, content: str) -> Path:
    """A file under a name made here, in a folder of its own so that the browser saves it under a plain name."""
    place = Path(tempfile.mkdtemp(prefix=f"{time.time_ns()}-", dir=folder))
    file = place / f"hsd-{kind.replace('.', '')}{SUFFIXES.get(kind, '.md' if kind == 'report-markdown' else '.json')}"
    file.write_text(content, encoding="utf-8")
    for old in sorted(folder.iterdir())[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return file
