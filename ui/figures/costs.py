"""Seconds of one forward pass over the number of new tokens."""

from __future__ import annotations

import plotly.graph_objects as go

from hsd.measure.record import Measurement
from ui.figures.style import finish, full, name
from ui.palette import colour_of

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")


def curves(measurement: Measurement) -> go.Figure:
    """One line a model with its 95 % interval, in milliseconds; a proposer (width 0) is a dotted level line."""
    figure = go.Figure()
    widths = sorted({width for costs in measurement.cost_s.values() for width in costs if width > 0}) or [1]
    for index, model in enumerate(measurement.models):
        costs = measurement.cost_s.get(model, {})
        if not costs:
            continue
        colour = colour_of(model, measurement.models)
        points = sorted(costs.items())
        if [width for width, _ in points] == [0]:
            call = points[0][1]
            points = [(widths[0], call), (widths[-1], call)]
        ms = [1e3 * cost.median for _, cost in points]
        figure.add_scatter(
            x=[width for width, _ in points],
            y=ms,
            error_y=dict(
                type="data",
                symmetric=False,
                array=[1e3 * cost.high - m for (_, cost), m in zip(points, ms, strict=True)],
                arrayminus=[m - 1e3 * cost.low for (_, cost), m in zip(points, ms, strict=True)],
                thickness=1.5,
                width=4,
            ),
            mode="lines+markers",
            name=name(model),
            line=dict(color=colour, width=2.5, dash="dot" if 0 in costs else "solid"),
            marker=dict(symbol=SYMBOLS[index % len(SYMBOLS)], size=8, color=colour),
            hovertemplate=f"{full(model)}<br>%{{x}} new tokens: %{{y:.3g}} ms<extra></extra>",
        )
    finish(figure, 360)
    figure.update_xaxes(title_text="new tokens in one pass (width)", tickvals=_apart(widths), showgrid=False)
    figure.update_yaxes(title_text="ms per pass", rangemode="tozero")
    return figure


def _apart(widths: list[int]) -> list[int]:
    """The widths to write on the axis: those that stand far enough from the one before for a phone's screen."""
    kept: list[int] = []
    for width in widths:
        if not kept or width - kept[-1] >= (widths[-1] - widths[0]) / 14:
            kept.append(width)
    return kept
