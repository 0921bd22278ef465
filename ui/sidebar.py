"""Target, device, candidates, sampling: what every step uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.records import Sampling
from hsd.settings import DEFAULT_CANDIDATES, DEFAULT_TARGET
from ui import format as fmt
from ui import text
from ui.engine import CandidateRow, MemoryRow, Setup
from ui.nodes import Node, decoded, el, json_html, nodes
from ui.palette import slot_of

DTYPES = ("auto", "float32", "bfloat16", "float16")
MAX_CANDIDATES = 64


@dataclass(frozen=True, slots=True)
class Sidebar:
    target: gr.Dropdown
    device: gr.Dropdown
    dtype: gr.Dropdown
    picker: gr.HTML
    memory: gr.HTML
    temperature: gr.Number
    top_k: gr.Number
    top_p: gr.Number
    seed: gr.Number

    @property
    def setup(self) -> list[Any]:
        """Inputs that `read_setup` takes, in order."""
        return [self.target, self.picker, self.device, self.dtype]

    @property
    def sampling(self) -> list[Any]:
        """Inputs that `read_sampling` takes, in order."""
        return [self.temperature, self.top_k, self.top_p, self.seed]


def create_sidebar() -> Sidebar:
    with gr.Sidebar(elem_id="sidebar", width=330):
        gr.HTML(value="", html_template=f'<h1 class="brand">{text.TITLE}</h1>', js_on_load=None)
        target = gr.Dropdown(
            [DEFAULT_TARGET], value=DEFAULT_TARGET, allow_custom_value=True, label=text.TARGET, info=text.TARGET_INFO, elem_id="target"
        )
        gr.HTML(
            value="",
            html_template=f'<div class="side-head" id="candidates-label">{text.CANDIDATES}</div>'
            f'<p class="muted small">{text.CANDIDATES_INFO}</p>',
            js_on_load=None,
        )
        picker = json_html(
            {
                "rows": [],
                "selected": list(DEFAULT_CANDIDATES),
                "added": [],
                "unusable": text.UNUSABLE,
                "waiting": text.CANDIDATES_WAITING,
                "for": [DEFAULT_TARGET, "auto", "auto"],
            },
            html_template='<div class="hsd-slot picker" role="group" aria-labelledby="candidates-label"></div>',
            js_on_load="window.hsd.picker(element, props, trigger, watch); /* 'change' */",
            elem_id="candidates",
        )
        memory = nodes(elem_id="memory")
        device = gr.Dropdown([(text.DEVICE_AUTO, "auto")], value="auto", label=text.DEVICE, elem_id="device")
        with gr.Accordion(text.SAMPLING, open=False, elem_id="sampling"):
            # Bounds are checked by the handlers: Gradio's own check ends an event without a word in the status line.
            temperature = gr.Number(0, label=text.TEMPERATURE, step=0.1, elem_id="temperature")
            top_k = gr.Number(0, label=text.TOP_K)
            top_p = gr.Number(1, label=text.TOP_P, step=0.05)
            seed = gr.Number(0, label=text.SEED)
            dtype = gr.Dropdown(list(DTYPES), value="auto", label=text.DTYPE)
    return Sidebar(target, device, dtype, picker, memory, temperature, top_k, top_p, seed)


def selected(picker: Any) -> tuple[str, ...]:
    """Names ticked in the browser, checked: the value comes from outside."""
    picker = decoded(picker)
    names = picker.get("selected", []) if isinstance(picker, dict) else []
    return tuple(dict.fromkeys(str(name)[:300] for name in names[:MAX_CANDIDATES])) if isinstance(names, list) else ()


def added(picker: Any) -> tuple[str, ...]:
    """Names that the visitor added to the list."""
    picker = decoded(picker)
    names = picker.get("added", []) if isinstance(picker, dict) else []
    return tuple(dict.fromkeys(str(name)[:300] for name in names[:MAX_CANDIDATES])) if isinstance(names, list) else ()


def read_setup(target: Any, picker: Any, device: Any, dtype: Any) -> Setup:
    name = str(target or "").strip()
    if not name or len(name) > 300:
        raise BadInput("Choose a target model: a name from the list, a hub id, or a folder on the server.")
    if dtype not in DTYPES:
        raise BadInput(f"The precision is “{str(dtype)[:40]}”; choose one of {', '.join(DTYPES)}.")
    return Setup(name, selected(picker), str(device or "auto")[:40], str(dtype))


def read_sampling(temperature: Any, top_k: Any, top_p: Any, seed: Any) -> Sampling:
    for label, value in ((text.TEMPERATURE, temperature), (text.TOP_K, top_k), (text.TOP_P, top_p), (text.SEED, seed)):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadInput(f"“{label}” is empty or not a number.")
    for label, value in ((text.TOP_K, top_k), (text.SEED, seed)):
        if value != round(value):
            raise BadInput(f"“{label}” is {value}; give a whole number.")
    return Sampling(temperature=float(temperature), top_k=int(top_k), top_p=float(top_p), seed=int(seed))


def listed_for(picker: Any) -> Any:
    """Target, device and precision that the candidates in the browser are listed for."""
    picker = decoded(picker)
    return picker.get("for") if isinstance(picker, dict) else None


def picker_value(rows: Sequence[CandidateRow], ticked: Sequence[str], more: Sequence[str], setup: Setup) -> dict[str, Any]:
    """What `assets/controls.js` draws: every candidate, the unusable ones disabled and folded away with their reasons."""
    models = (*(row.name for row in rows), setup.target)
    shown = [
        {
            "name": row.name,
            "status": row.status,
            "reason": row.reason,
            "slot": slot_of(row.name, models),
            "facts": " · ".join((text.CANDIDATE_KINDS.get(row.kind, row.kind), *_size(row))),
        }
        for row in rows
    ]
    usable = {row.name for row in rows if row.status != "unusable"}
    return {
        "rows": shown,
        "selected": [name for name in ticked if name in usable],
        "added": list(more),
        "unusable": text.UNUSABLE,
        "for": [setup.target, setup.device, setup.dtype],
    }


def _size(row: CandidateRow) -> tuple[str, ...]:
    size = (fmt.parameters(row.parameters) + " parameters",) if row.parameters else ()
    return (*size, memory_of(row)) if row.memory_bytes else (*size, "no weights of its own")


def memory_of(row: CandidateRow) -> str:
    """What the draft adds; of a copy that is not made yet only an estimate is known, and measuring tells its real size."""
    return f"about {fmt.memory(row.memory_bytes)}" if row.kind == "derived" else fmt.memory(row.memory_bytes)


def memory_fit(row: MemoryRow) -> Node:
    """Needed against free memory, as a bar and in words."""
    share = min(100.0, 100 * row.needed_bytes / row.usable_bytes) if row.usable_bytes else 100.0
    bar = el("div", el("div", cls="bar-done" + ("" if row.fits else " over"), data_width=f"{share:.1f}"), cls="bar", aria_hidden="true")
    words = el("p", row.sentence, cls="small muted" if row.fits else "small bad", title=text.MEMORY_FIT)
    return el("div", el("div", text.MEMORY, cls="side-head"), bar, words, cls="memory")
