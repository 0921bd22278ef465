"""Puts the page together: hero, action bar, status, sidebar, and the six steps of the data path as tabs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from pydantic import BaseModel
from starlette.middleware import Middleware

from ui import palette, text
from ui.actions import create_actions
from ui.early import EarlyScript
from ui.engine import Engine
from ui.nodes import decoded, encoded, nodes, sends
from ui.page import Ids, Page, Updates
from ui.reload import fill_in, keep_over_reloads
from ui.sample import Sample
from ui.sidebar import create_sidebar
from ui.status import done, notices, status
from ui.tabs.compare import create_compare
from ui.tabs.export import MAX_UPLOAD, create_export
from ui.tabs.generate import create_generate
from ui.tabs.measure import create_measure
from ui.tabs.pick import create_pick
from ui.tabs.plan import create_plan

ASSETS = Path(__file__).parent.parent / "assets"
QUEUE_LOOK_S = 0.02  # Gradio looks into its queue a thousand times a second, which takes a twentieth of a core all the time,
PROGRESS_LOOK_S = 1.0  # and a hundred times for progress of a kind (`gr.Progress`) that this page does not use
SCRIPTS = ("nodes.js", "token_pane.js", "stack.js", "controls.js")


def build(engine: Engine, sample: Sample | None = None) -> gr.Blocks:
    """The whole page over `engine`; nothing is loaded or measured before a visitor asks for it."""
    page = Page(engine, sample)
    with gr.Blocks(title=text.TITLE, analytics_enabled=False, fill_width=True) as demo:
        page.ids = gr.State(Ids())
        side = create_sidebar()
        page.form += [*side.setup, *side.sampling]
        page.hero = nodes(page.hero_of(Ids()), elem_id="hero")
        with gr.Column(elem_id="bar"):
            page.actions, page.stop = create_actions()
            page.status = nodes(status("idle", text.READY), elem_id="status")
        page.ticket = gr.Textbox("", visible=False, max_length=64)
        page.notices = nodes(elem_id="notices")
        with gr.Tabs(elem_id="steps", selected="pick", overflow_behavior="wrap"):
            create_pick(page, side)
            create_measure(page, side)
            create_plan(page)
            create_generate(page, side)
            create_compare(page, side)
            create_export(page)

        for connect in page.wire:
            connect(page.outputs)
        for component, value in encoded(page.show(Ids())).items():
            _preset(component, value)

        @sends
        def stop(request: gr.Request, shown: Any) -> Updates:
            stopped = page.jobs.stop(request.session_hash)
            if stopped == "waiting":
                return {page.status: done(text.STOPPED_BEFORE_START)} | page.busy(False)
            if stopped:
                return {page.status: status("running", text.STOPPING)}
            match decoded(shown):
                case ["div", {"data-state": "done" | "error"}, *_]:  # the result of a run that has just ended stays readable
                    return {page.notices: notices([text.NOTHING_TO_STOP])}
            return {page.status: status("idle", text.NOTHING_TO_STOP)}

        outputs = [page.notices, page.status, *page.run_buttons]
        page.stop.click(stop, [page.status], outputs, queue=False, show_progress="hidden", api_visibility="private")
        arrive, inputs, outputs = page.load
        fill_in(page, demo).then(arrive, inputs, outputs, show_progress="hidden", api_visibility="private")
        demo.load(None, None, None, js="() => { window.hsd.arrive(); }")
        keep_over_reloads(page, demo)
    demo.queue(default_concurrency_limit=16, max_size=256)
    demo._queue.sleep_when_free = QUEUE_LOOK_S
    demo._queue.progress_update_sleep_when_free = PROGRESS_LOOK_S
    return demo


def _preset(component: Any, value: Any) -> None:
    """Give a component what it shows before any visitor arrives, so that the first paint is already true."""
    if isinstance(component, gr.State):
        return
    shown = component.postprocess(value)
    component.value = shown.model_dump() if isinstance(shown, BaseModel) else shown


def theme() -> gr.themes.Base:
    """Gradio's Soft theme with every text at a contrast of at least 4.5:1 in both themes (tests/ui measures it)."""
    fonts = ["system-ui", "Segoe UI", "Roboto", "sans-serif"]
    base = gr.themes.Soft(primary_hue="indigo", neutral_hue="slate", radius_size="md", spacing_size="sm", font=fonts)
    return base.set(
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_text_color="*neutral_700",
        block_label_text_color_dark="*neutral_200",
        block_title_background_fill="transparent",
        block_title_background_fill_dark="transparent",
        block_title_text_color="*neutral_700",
        block_title_text_color_dark="*neutral_200",
        block_title_padding="0",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_500",
        button_cancel_background_fill="#b3261e",
        button_cancel_background_fill_hover="#8c1d18",
        button_cancel_background_fill_dark="#b3261e",
        button_cancel_background_fill_hover_dark="#8c1d18",
        button_cancel_text_color="#ffffff",
        button_cancel_text_color_dark="#ffffff",
        block_background_fill_dark="*neutral_900",
        input_background_fill_dark="*neutral_800",
        input_border_color="*neutral_300",
        input_border_color_dark="*neutral_600",
        input_border_width="1px",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
    )


def launch_options() -> dict[str, Any]:
    """What Gradio takes at launch: looks, scripts, and everything switched off that the page does not need."""
    scripts = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    early = (ASSETS / "early.js").read_text(encoding="utf-8")
    return {
        "app_kwargs": {"middleware": [Middleware(EarlyScript, script=early)]},
        "theme": theme(),
        "css": palette.css_variables() + (ASSETS / "app.css").read_text(encoding="utf-8"),
        "head": f"<script>\n{scripts}\n</script>",
        "ssr_mode": False,
        "enable_monitoring": False,
        "allowed_paths": [],
        "max_file_size": MAX_UPLOAD,
        "footer_links": [],
        "show_error": False,
        "run_history": False,
        "mcp_server": False,
    }
