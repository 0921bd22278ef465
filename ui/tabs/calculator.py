"""The calculator on the Plan tab: a plan out of typed numbers, no model needed."""

from __future__ import annotations

from typing import Any

import gradio as gr

from hsd.plan.calculator import from_csv
from hsd.plan.record import Plan
from ui import examples, text
from ui import format as fmt
from ui.jobs import explain
from ui.nodes import Node, el, nodes, sends
from ui.page import Updates
from ui.planning import make_plan, read_limits
from ui.tabs.ranking import alternatives


def create_calculator(depth: gr.Number, threshold: gr.Number) -> None:
    """`depth` and `threshold` are the limits above, which count here too."""
    with gr.Accordion(text.CALCULATOR, open=False, elem_id="calculator-box"):
        gr.Markdown(text.CALCULATOR_HELP)
        pasted = gr.Textbox(examples.HELPS.table, lines=5, label=text.CALCULATOR_TABLE, elem_id="calculator-table", max_length=20_000)
        with gr.Row():
            calculate = gr.Button(text.CALCULATE, variant="primary", elem_id="calculate", size="sm")
            for example in (examples.HELPS, examples.HELPS_NOT):
                gr.Button(example.title, size="sm").click(
                    lambda table=example.table: table, None, pasted, show_progress="hidden", api_visibility="private"
                )
        computed = nodes(elem_id="calculator-answer")

    @sends
    def compute(table: str, depth: Any, threshold: Any) -> Updates:
        try:
            plan = make_plan(from_csv(str(table)), read_limits(depth, threshold, 0))
            return {computed: calculator_answer(plan)}
        except Exception as error:
            return {computed: el("p", explain(error).message, cls="bad", role="alert")}

    calculate.click(compute, [pasted, depth, threshold], [computed], show_progress="hidden", api_visibility="private")


def calculator_answer(plan: Plan) -> Node:
    lines = el("p", el("b", str(plan.hierarchy)), f" · {fmt.times(plan.predicted_speedup)} as fast as the target alone")
    return el("div", lines, alternatives(plan))
