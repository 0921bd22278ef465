"""The ranked alternatives of a plan as a table, with every latency model beside the other."""

from __future__ import annotations

from hsd.plan.record import Plan
from ui import format as fmt
from ui import text
from ui.nodes import Node, el, table, valued


def alternatives(plan: Plan) -> Node:
    rows: list[list[Node]] = []
    replayed = any(one.predicted_s_per_token.trace is not None for one in plan.alternatives)
    for place, one in enumerate(plan.alternatives):
        predicted = one.predicted_s_per_token
        times = fmt.times(plan.autoregressive_s_per_token / predicted.best)
        rows.append(
            [
                str(place + 1),
                el("b" if place == 0 else "span", fmt.drafts(one.hierarchy)),
                valued(fmt.milliseconds(predicted.best), fmt.interval(1e3 * predicted.low, 1e3 * predicted.high)),
                el("b", times) if place == 0 else times,
                *((fmt.milliseconds(predicted.trace) if predicted.trace is not None else "–",) if replayed else ()),
                fmt.milliseconds(predicted.exact),
                fmt.milliseconds(predicted.paper),
            ]
        )
    models = (text.LATENCY_MODELS["trace"], text.LATENCY_MODELS["exact"], text.LATENCY_MODELS["paper"])
    head: list[Node] = ["#", text.DRAFTS_BELOW, text.PREDICTED_A_TOKEN, text.SPEEDUP, *(models if replayed else models[1:])]
    return table(head, rows, text.ALTERNATIVES)
