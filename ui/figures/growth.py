"""How the time of planning grows, measured, beside the growth of the paper's bound."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from hsd.plan.growth import Growth
from ui.figures.style import finish
from ui.palette import DRAFTS, NEUTRAL, TARGET


def growth(points: Sequence[Growth]) -> go.Figure:
    """Log-log over T̄·K, of which the bound O(T̄⁴K⁴ log T̄K) is a function; the bound is scaled to the general solver's first point."""
    ordered = sorted(points, key=lambda point: (_size(point), point.models))
    general = [point for point in ordered if point.bellman_ford_s is not None]
    figure = go.Figure()
    if general:
        scale = general[0].bellman_ford_s / general[0].paper_operations
        bound = {_size(point): 1e3 * scale * point.paper_operations for point in ordered}
        figure.add_scatter(
            x=list(bound),
            y=list(bound.values()),
            mode="lines",
            name="T̄⁴K⁴ log T̄K, scaled",
            line=dict(color=NEUTRAL, dash="dash", width=2),
            hoverinfo="skip",
        )
    series = (
        ("general solver (Bellman–Ford)", general, [point.bellman_ford_s for point in general], DRAFTS[0], "diamond"),
        ("this planner's one pass", ordered, [point.one_pass_s for point in ordered], TARGET, "circle"),
        ("building the graph", ordered, [point.build_s for point in ordered], DRAFTS[3], "square"),
    )
    for label, kept, seconds, colour, symbol in series:
        figure.add_scatter(
            x=[_size(point) for point in kept],
            y=[1e3 * value for value in seconds],
            mode="markers",
            name=label,
            marker=dict(color=colour, size=10, symbol=symbol),
            text=[f"{point.models} models, thresholds up to {point.max_threshold}, {point.edges:,} edges" for point in kept],
            hovertemplate="%{text}<br>%{y:.3g} ms<extra></extra>",
        )
    finish(figure, 380)
    figure.update_xaxes(
        title_text="largest threshold × drafts (T̄·K)",
        type="log",
        tickvals=sorted({_size(point) for point in ordered if _is_power_of_two(_size(point))}),
        showgrid=False,
    )
    figure.update_yaxes(title_text="ms", type="log", dtick=1, exponentformat="none")
    return figure


def _size(point: Growth) -> int:
    return point.max_threshold * (point.models - 1)


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0
