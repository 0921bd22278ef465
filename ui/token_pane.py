"""The coloured text: a compact cumulative value for `assets/token_pane.js`, one short line a token.

While a run goes on the value is its first line only, and the browser pulls the others (ui/watched.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from hsd.generate.events import TokenEvent
from ui import nodes, palette

OUTCOMES = {"accepted": 0, "corrected": 1, "bonus": 2}
TAIL = 3  # in place of an outcome: bytes of a character that never became complete, no token of its own


def header(run: str, models: Sequence[str], palette_models: Sequence[str], live: bool = False) -> str:
    """First line: the run, its models (smallest first) and their colour slots, and whether its tokens are there to be pulled."""
    slots = [palette.slot_of(name, palette_models) for name in models]
    return json.dumps({"run": run, "models": list(models), "slots": slots} | ({"live": True} if live else {})) + "\n"


def line(event: TokenEvent, models: Sequence[str], tail: str = "") -> str:
    """One token, or the `tail` that it leaves at the end of the text."""
    level = models.index(event.generated_by) if event.generated_by in models else len(models) - 1
    record = [level, TAIL if tail else OUTCOMES[event.outcome], event.round, round(event.time_s * 1000, 1), tail or event.text]
    if event.probability is not None:
        record.append(float(f"{event.probability:.3g}"))
    return json.dumps(record) + "\n"


def encode(run: str, tokens: Sequence[TokenEvent], models: Sequence[str], palette_models: Sequence[str]) -> str:
    return header(run, models, palette_models) + "".join(line(event, models) for event in tokens)


def pane(elem_id: str, label: str, empty: str, more: Callable[..., Any]) -> gr.HTML:
    """The pane; the element with id `elem_id` (it ends with `-pane`) holds exactly the generated text and nothing else.

    `more` is what the browser calls for new tokens (ui/watched.py).
    """
    return gr.HTML(
        value="",
        html_template=f'<div class="hsd-slot tokens" id="{elem_id}" role="region" tabindex="0" aria-label="{label}" '
        f'data-empty="{empty}"></div>',
        js_on_load="window.hsd.tokens(element, props, watch, server);",
        server_functions=[more],
        elem_id=f"{elem_id}-box",
        elem_classes=["hsd-block"],
    )


def clock(elem_id: str) -> gr.HTML:
    """Count, seconds and rate under a pane; the browser fills it, live and in a replay."""
    return gr.HTML(value="", html_template=f'<div class="clock" id="{elem_id}-clock"></div>', js_on_load=None)


def legend(models: Sequence[str], palette_models: Sequence[str], cues: tuple[str, str]) -> nodes.Node:
    """Colours by model, and the two cues that do not depend on colour."""
    entries = [
        nodes.el("li", nodes.swatch(palette.slot_of(name, palette_models)), nodes.el("span", name), cls="legend-item")
        for name in reversed(list(models))
    ]
    marks = [
        nodes.el("li", nodes.el("span", "Aa", cls=f"tk plainmark {kind}", aria_hidden="true"), nodes.el("span", cue), cls="legend-item")
        for kind, cue in zip(("corrected", "bonus"), cues, strict=True)
    ]
    return nodes.el("ul", *entries, *marks, cls="legend", aria_label="Legend")
