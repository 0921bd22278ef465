"""A page that is loaded anew in the same browser tab shows what it showed before: what was filled in, results, and a run that goes on.

The browser keeps the fields of the form, the ids of the results (ui/store.py), which come with the hero line, and the ticket of the run
(ui/jobs.py), which comes with the status line, in its session storage (assets/nodes.js); each tab has its own, so two tabs do not mix.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from typing import Any

import gradio as gr

from ui import text
from ui.nodes import decoded, sends
from ui.page import RESULTS, Ids, Page, Updates
from ui.status import status


def keep_over_reloads(page: Page, demo: gr.Blocks) -> None:
    back = gr.Textbox("", visible=False, max_length=500)

    @sends
    def again(kept: Any, request: gr.Request) -> Updates:
        data = decoded(kept)
        ids = read_ids(page, data)
        updates: Updates = {page.status: gr.skip()}
        if ids != Ids():
            updates = {part: shown for part, shown in page.show(ids).items() if part not in page.form}  # which the browser has filled in
            updates[page.status] = status("idle", text.BACK)
        job = page.jobs.move(str(data.get("ticket")), request.session_hash) if isinstance(data, dict) else None
        if job is not None:
            updates |= page.busy(True) | {page.status: status("running", text.STILL_RUNNING), job.back: job.ticket}
        return updates

    quiet = dict(queue=False, show_progress="hidden", api_visibility="private")
    # Two steps, so that a first visit costs nothing: what stays empty does not change.
    demo.load(None, None, [back], js="() => window.hsd.kept()")
    goes_on = [page.ids, page.hero, page.status, *page.outputs, *page.run_buttons, *page.backs]
    back.change(again, [back], goes_on, **quiet)
    gr.on([part.change for part in page.form], None, page.form, None, js=f"(...now) => {{ window.hsd.keepForm('{_name(page)}', now); }}")


def fill_in(page: Page, demo: gr.Blocks) -> gr.events.Dependency:
    """The fields of the form as they were before the page was loaded anew; other events may follow."""
    return demo.load(None, page.form, page.form, js=f"(...now) => window.hsd.form('{_name(page)}', now)")


def _name(page: Page) -> str:
    """Changes with the fields of the form."""
    return hashlib.sha256(repr([(type(part).__name__, part.label) for part in page.form]).encode()).hexdigest()[:12]


def read_ids(page: Page, data: Any) -> Ids:
    """Those of a browser's ids whose results are still here. It may send anything."""
    if not isinstance(data, dict):
        return Ids()
    found = {name: key for name, kind in RESULTS.items() if isinstance(key := data.get(name), str) and page.store.get(key, kind)}
    flags = [field.name for field in fields(Ids) if field.name not in RESULTS]
    return Ids(**found, **{name: data.get(name) is True for name in flags if found})
