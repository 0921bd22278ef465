"""The one line that answers the question: how much faster, was it measured, is the text the same."""

from __future__ import annotations

from hsd.compare.record import Comparison
from hsd.plan.record import Plan
from ui import format as fmt
from ui import text
from ui.nodes import Node, el, swatch
from ui.palette import slot_of
from ui.runs import RunPair


def measured_speedup(comparison: Comparison) -> str | None:
    """How many times as fast as the target alone the hierarchy was, with the spread over the repeats where the comparison tells it."""
    speedup = comparison.speedup("hierarchy")
    if speedup is None:
        return None
    stacked = next(method for method in comparison.methods if method.name == "hierarchy")
    times = stacked.times_target
    if times is None:
        return text.HERO_MEDIANS.format(times=fmt.times(speedup), count=stacked.tokens_per_s.samples)
    return text.HERO_MEASURED.format(times=fmt.times(speedup), low=f"{times.low:.2f}", high=f"{times.high:.2f}", count=times.samples)


def chips(plan: Plan) -> Node:
    """The hierarchy as coloured chips, smallest model first."""
    parts: list[Node] = []
    for level in plan.hierarchy.levels:
        if parts:
            parts.append(el("span", "→", cls="muted", aria_hidden="true"))
        threshold = f" @{level.threshold}" if level.threshold else ""
        parts.append(el("span", swatch(slot_of(level.model, plan.candidates)), f"{level.model}{threshold}", cls="chip"))
    return el("div", *parts, cls="chips", aria_label="Planned hierarchy, smallest model first")


def hero(plan: Plan | None, comparison: Comparison | None, pair: RunPair | None, origin: str) -> Node:
    """`origin` is the sentence of `ui.text` that says where the plan was measured.

    Only what ran this very plan counts: a comparison or a run of another hierarchy says nothing about it.
    """
    if plan is None:
        return el("section", el("p", text.HERO_EMPTY, cls="hero-line"), cls="hero")
    planned_hierarchy = str(plan.hierarchy)
    if comparison and all(method.hierarchy != planned_hierarchy for method in comparison.methods if method.name == "hierarchy"):
        comparison = None
    if pair and pair.stacked.hierarchy != planned_hierarchy:
        pair = None
    found = measured_speedup(comparison) if comparison else None
    if found:
        measured = found
    elif pair and pair.speedup:
        measured = text.HERO_ONE_RUN.format(times=fmt.times(pair.speedup))
    else:
        measured = text.HERO_NOT_MEASURED
    planned = text.HERO_PLANNED.format(times=fmt.times(plan.predicted_speedup))
    verdict = comparison.identical if comparison else None
    if comparison is None and pair and pair.alone and pair.stacked.sampling.greedy and pair.stacked.end and pair.alone.end:
        verdict = pair.stacked.end.token_ids == pair.alone.end.token_ids
    line = [
        el("b", planned if plan.hierarchy.drafts else text.HERO_NO_DRAFT, cls="strong"),
        el("span", measured),
        el("span", text.HERO_IDENTICAL.format(verdict=text.VERDICTS[verdict]), cls={True: "good", False: "bad", None: ""}[verdict]),
    ]
    words: list[Node] = []
    for part in line:
        words += [el("span", "·", cls="dot", aria_hidden="true"), part] if words else [part]
    stamp = plan.environment
    where = f"{stamp.label()} · {plan.sampling.label()}"
    label = origin.format(environment=where, time=stamp.time[:10])
    return el("section", el("p", *words, cls="hero-line"), chips(plan), el("p", label, cls="muted small"), cls="hero")
