"""A page that is loaded anew in the same browser tab shows the results that it showed before.

The browser keeps their ids (ui/store.py), which come with the hero line, in its session storage (assets/nodes.js); each tab has
its own, so two tabs do not mix.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gradio as gr

from ui import text
from ui.nodes import decoded, sends
from ui.page import RESULTS, Ids, Page, Updates, status


def keep_over_reloads(page: Page, demo: gr.Blocks) -> None:
    back = gr.Textbox("", visible=False, max_length=400)

    @sends
    def again(kept: Any) -> Updates:
        ids = read_ids(page, kept)
        if ids == Ids():
            return {page.status: gr.skip()}
        return page.show(ids) | {page.status: status("idle", text.BACK)}

    quiet = dict(queue=False, show_progress="hidden", api_visibility="private")
    # Two steps, so that a first visit costs nothing: what stays empty does not change.
    demo.load(None, None, [back], js="() => window.hsd.kept()")
    back.change(again, [back], [page.ids, page.hero, page.status, *page.outputs], **quiet)


def read_ids(page: Page, kept: Any) -> Ids:
    """Those of a browser's ids whose results are still here. It may send anything."""
    data = decoded(kept)
    if not isinstance(data, dict):
        return Ids()
    found = {name: key for name, kind in RESULTS.items() if isinstance(key := data.get(name), str) and page.store.get(key, kind)}
    flags = [field.name for field in fields(Ids) if field.name not in RESULTS]
    return Ids(**found, **{name: data.get(name) is True for name in flags if found})
