"""Acceptance at the target by kind of prompt (Measure tab); only a measurement with its recorded positions has it."""

from __future__ import annotations

from hsd.measure.breakdown import acceptance_by_category
from hsd.measure.record import FEWEST_PROMPTS, Acceptance, Measurement
from ui import text
from ui.nodes import Node, el, swatch, table, valued
from ui.palette import slot_of


def kind_table(measurement: Measurement) -> Node | None:
    """A row a kind of prompt, a column a draft (kinds are many, and a page is narrow); None when there is nothing to tell apart."""
    kinds = acceptance_by_category(measurement.traces)
    if len(kinds) < 2:
        return None
    drafts = measurement.models[:-1]
    rows: list[list[Node]] = []
    for kind, breakdown in kinds.items():
        rates = [breakdown.get(draft, {}).get(measurement.target) for draft in drafts]
        cells = [_rate(one) if one else "–" for one in rates]
        rows.append([el("span", kind, cls="named"), *cells])
    head = [el("span", swatch(slot_of(draft, measurement.models)), draft, cls="named") for draft in drafts]
    caption = text.BY_KIND.format(target=measurement.target, fewest=FEWEST_PROMPTS)
    return el("div", el("p", caption, cls="caption-line"), table([text.KIND, *head], rows, caption))


def _rate(rate: Acceptance) -> Node:
    interval = f"{rate.interval[0]:.2f}–{rate.interval[1]:.2f}, " if rate.interval else ""
    return valued(f"{rate.mean:.2f}", f"{interval}n={rate.prompts}")
