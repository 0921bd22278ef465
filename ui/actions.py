"""The action bar: the main actions in one place on every tab, above the status line; each also opens its own step."""

from __future__ import annotations

import gradio as gr

from ui import text

ACTIONS = {"measure": text.MEASURE_BUTTON, "plan": text.PLAN_BUTTON, "generate": text.GENERATE_BUTTON, "compare": text.COMPARE_BUTTON}


def create_actions() -> tuple[dict[str, gr.Button], gr.Button]:
    """The buttons by the id of their step, and Stop, which can be pressed at any time."""
    with gr.Row(elem_id="actions"):
        buttons = {step: gr.Button(label, variant="primary", elem_id=step, min_width=84) for step, label in ACTIONS.items()}
        stop = gr.Button(text.STOP_BUTTON, variant="stop", elem_id="stop", min_width=84)
    for step, button in buttons.items():
        button.click(None, None, None, js=f"() => {{ window.hsd.step('{step}'); }}", api_visibility="private")
    return buttons, stop
