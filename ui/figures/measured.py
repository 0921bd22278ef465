"""Measured runs: bars by method, and predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from hsd.compare.record import Comparison
from ui import text
from ui.figures.style import finish, full
from ui.palette import DRAFTS, NEUTRAL, TARGET, transparent


def colour(method: str) -> str:
    return {"hierarchy": TARGET, "target": NEUTRAL, "best-single": DRAFTS[0]}.get(method, transparent(NEUTRAL, 0.6))


def bars(comparison: Comparison) -> go.Figure:
    """Median tokens per second with the spread over repeats; the diamond is what was predicted."""
    methods = sorted(comparison.methods, key=lambda method: method.tokens_per_s.median)
    places = list(range(len(methods)))
    medians = [method.tokens_per_s.median for method in methods]
    figure = go.Figure(
        go.Bar(
            x=medians,
            y=places,
            orientation="h",
            marker=dict(color=[colour(method.name) for method in methods]),
            error_x=dict(
                type="data",
                symmetric=False,
                array=[method.tokens_per_s.high - method.tokens_per_s.median for method in methods],
                arrayminus=[method.tokens_per_s.median - method.tokens_per_s.low for method in methods],
                color=NEUTRAL,
                thickness=1.5,
                width=5,
            ),
            customdata=[
                [full(method.hierarchy or method.name), method.tokens_per_s.low, method.tokens_per_s.high, method.tokens_per_s.samples]
                for method in methods
            ],
            hovertemplate=(
                "%{customdata[0]}<br>%{x:.3g} tokens/s (%{customdata[1]:.3g}–%{customdata[2]:.3g}, n=%{customdata[3]})<extra></extra>"
            ),
            showlegend=False,
        )
    )
    predicted = [(method.predicted_tokens_per_s, place) for place, method in enumerate(methods) if method.predicted_tokens_per_s]
    figure.add_scatter(
        x=[value for value, _ in predicted],
        y=[place for _, place in predicted],
        mode="markers",
        marker=dict(symbol="diamond-open", size=13, color=NEUTRAL, line=dict(width=2.5)),
        hovertemplate="predicted %{x:.3g} tokens/s<extra></extra>",
        showlegend=False,
    )
    right = max([method.tokens_per_s.high for method in methods] + [value for value, _ in predicted])
    for place, method in enumerate(methods):
        edge = max(method.tokens_per_s.high, method.predicted_tokens_per_s or 0)
        figure.add_annotation(
            x=edge, y=place, text=f"<b>{method.tokens_per_s.median:.3g}</b>", showarrow=False, xanchor="left", xshift=12, name="label"
        )
    finish(figure, 90 + 46 * len(methods), bargap=0.4)
    figure.update_xaxes(title_text="tokens per second", range=[0, 1.3 * right])
    figure.update_yaxes(tickvals=places, ticktext=[text.METHODS.get(method.name, full(method.name)) for method in methods], showgrid=False)
    return figure


def scatter(points: Sequence[tuple[str, float, float]]) -> go.Figure:
    """`points`: (label, predicted, measured) seconds per token. On the dashed line a prediction came true."""
    predicted = [1e3 * point[1] for point in points]
    measured = [1e3 * point[2] for point in points]
    both = predicted + measured
    low, high = 0.85 * min(both, default=0.0), 1.2 * max(both, default=1.0)
    figure = go.Figure()
    figure.add_scatter(
        x=[low, high], y=[low, high], mode="lines", line=dict(color=NEUTRAL, dash="dash", width=1.5), hoverinfo="skip", showlegend=False
    )
    figure.add_scatter(
        x=predicted,
        y=measured,
        mode="markers+text" if len(points) <= 6 else "markers",
        marker=dict(size=12, color=TARGET, symbol="circle", line=dict(width=1.5, color="#ffffff")),
        text=[f" {full(point[0])} " for point in points],
        textposition=["middle right" if x < (low + high) / 2 else "middle left" for x in predicted],
        hovertemplate="%{text}<br>predicted %{x:.3g} ms, measured %{y:.3g} ms a token<extra></extra>",
        showlegend=False,
    )
    finish(figure, 360)
    figure.update_xaxes(title_text="predicted ms per token", range=[low, high])
    figure.update_yaxes(title_text="measured ms per token", range=[low, high])
    return figure
