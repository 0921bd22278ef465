"""Page content as data: a tree of elements that `assets/nodes.js` builds with createElement and textContent.

Gradio 6 compiles the value of `gr.HTML` with Handlebars and then evaluates it as a JavaScript template literal, so text from
a model, a visitor or an error must never reach a template. Here the template is constant and the value is this tree.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import gradio as gr

Node = list[Any] | str

SLOT = '<div class="hsd-slot"></div>'


def el(tag: str, *children: Node | None, **attributes: Any) -> Node:
    """`el("span", "text", cls="x")`; `cls` is the class, an underscore in a name becomes a hyphen, `None` is left out."""
    named = {("class" if key == "cls" else key.rstrip("_").replace("_", "-")): value for key, value in attributes.items()}
    kept = {key: str(value) for key, value in named.items() if value is not None and value is not False}
    return [tag, kept, *(child for child in children if child is not None)]


def row(*cells: Node, head: bool = False, **attributes: Any) -> Node:
    return el("tr", *(el("th" if head else "td", cell, scope="col" if head else None) for cell in cells), **attributes)


def table(head: list[Node], rows: list[list[Node]], caption: str, empty: str = "") -> Node:
    """A table that scrolls sideways inside itself on a narrow screen; the caption is for screen readers."""
    body = [row(*cells) for cells in rows] or [el("tr", el("td", empty, colspan=len(head)))]
    wide = "wide" if len(head) >= 4 else None
    inner = el("table", el("caption", caption, cls="sr"), el("thead", row(*head, head=True)), el("tbody", *body), cls=wide)
    return el("div", inner, cls="scroll", tabindex="0", role="region", aria_label=caption)


def valued(value: str, detail: str) -> Node:
    """A number with its interval or count below it, for a cell of a table; neither breaks inside."""
    return el("span", el("span", value), el("small", detail, cls="muted"), cls="valued")


def swatch(slot: int) -> Node:
    return el("span", cls=f"swatch m{slot}", aria_hidden="true")


def json_html(value: Any = None, **options: Any) -> gr.HTML:
    """A `gr.HTML` whose value is data, sent to the browser as one JSON text (see `encoded`)."""
    shown = None if value is None else json.dumps(value, ensure_ascii=False)
    return gr.HTML(value=shown, elem_classes=["hsd-block", *options.pop("elem_classes", ())], **options)


def nodes(value: Node | None = None, **options: Any) -> gr.HTML:
    """A component that shows a `Node`; without one it takes no room."""
    return json_html(
        value,
        html_template=SLOT,
        js_on_load="window.hsd.nodes(element, props, watch);",
        apply_default_css=False,
        elem_classes=["hsd-nodes"],
        **options,
    )


def encoded(updates: dict[Any, Any]) -> dict[Any, Any]:
    """Updates with the data of every `json_html` as JSON text.

    While a handler yields, Gradio sends differences between values and patches them in the browser in place; in a nested
    value that has gone wrong ("Cannot set properties of undefined"), a text is replaced or appended to as a whole.
    """
    return {
        component: json.dumps(value, ensure_ascii=False) if isinstance(component, gr.HTML) and isinstance(value, list | dict) else value
        for component, value in updates.items()
    }


def decoded(value: Any) -> Any:
    """What a `json_html` hands back, as data; `None` when it is not JSON. Whoever uses it checks what is in it."""
    try:
        return json.loads(value) if isinstance(value, str) else None
    except ValueError:
        return None


def sends(handler: Callable[..., dict[Any, Any]]) -> Callable[..., dict[Any, Any]]:
    """Marks an event handler whose updates may hold `Node`s and other data."""

    @functools.wraps(handler)
    def wrapped(*arguments: Any) -> dict[Any, Any]:
        return encoded(handler(*arguments))

    return wrapped
