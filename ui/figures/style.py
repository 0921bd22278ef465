"""What all figures share: transparent, without title, of fixed height, readable in both themes and at phone width.

Text colour is left to the page's style sheet (assets/app.css), because the server does not know the visitor's theme.
Names come from outside; Plotly reads a little HTML in texts, so they are escaped here.
"""

from __future__ import annotations

import html

import plotly.graph_objects as go

from ui.palette import NEUTRAL, transparent

GRID = transparent(NEUTRAL, 0.28)
FONT = dict(family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size=13, color=NEUTRAL)
SHORT = 22  # characters of a model name on an axis


def name(model: str) -> str:
    """A model name for an axis or a legend: the last part of a hub id or path, shortened, escaped."""
    last = model.rstrip("/").rsplit("/", 1)[-1] or model
    return html.escape(last if len(last) <= SHORT else last[: SHORT - 1] + "…")


def wrapped(model: str) -> str:
    """A name broken after its separators, for a narrow column of an axis."""
    short = name(model)
    if len(short) <= 10:
        return short
    return short.replace(":", ":<br>") if ":" in short else short.replace("-", "-<br>", 1)


def full(model: str) -> str:
    """A model name for a hover text, escaped."""
    return html.escape(model)


def finish(figure: go.Figure, height: int, **layout: object) -> go.Figure:
    """Common layout; `layout` adds to it."""
    figure.update_layout(
        height=height,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font=FONT,
        margin=dict(l=8, r=12, t=12, b=8),
        hoverlabel=dict(bgcolor="#1c2333", bordercolor="#1c2333", font=dict(color="#ffffff", size=13)),
        legend=dict(orientation="h", yanchor="bottom", y=1.02, x=0, bgcolor="rgba(0,0,0,0)"),
        template="none",
        dragmode=False,
        modebar=dict(remove=["zoom", "pan", "select", "lasso", "zoomIn", "zoomOut", "autoScale", "resetScale", "toImage"]),
    )
    figure.update_layout(**layout)
    axis = dict(
        gridcolor=GRID, zeroline=False, linecolor=GRID, automargin=True, fixedrange=True, tickfont=dict(size=12), title_font=dict(size=13)
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    return figure
