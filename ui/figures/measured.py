"""Measured runs: bars by method, and predicted against measured."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from hsd.compare.record import Comparison, MethodResult, Sweep
from ui import format as fmt
from ui import text
from ui.figures.style import finish, full
from ui.palette import DRAFTS, NEUTRAL, TARGET, transparent


def colour(method: str) -> str:
    """The target alone has the target's colour; what joins several models has none of theirs, and the planned hierarchy stands out."""
    return {"target": TARGET, "hierarchy": NEUTRAL, "best-single": transparent(NEUTRAL, 0.45)}.get(method, transparent(NEUTRAL, 0.15))


def _edge(method: str) -> str:
    return TARGET if method == "target" else NEUTRAL


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
            marker=dict(
                color=[colour(method.name) for method in methods],
                line=dict(color=[_edge(method.name) for method in methods], width=1.5),
            ),
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
    finish(figure, 90 + 46 * len(methods), bargap=0.4)
    figure.update_xaxes(title_text="tokens per second", range=[0, 1.06 * right])
    figure.update_yaxes(tickvals=places, ticktext=[_named(method) for method in methods], showgrid=False)
    return figure


def _named(method: MethodResult) -> str:
    """Name and measured number together: beside a bar's end the number would stand next to the prediction's diamond."""
    return f"{text.METHODS.get(method.name, full(method.name))}<br>measured <b>{fmt.significant(method.tokens_per_s.median)}</b>"


SYMBOLS = ("circle", "diamond", "square", "triangle-up")


def scatter(comparison: Comparison) -> go.Figure:
    """Predicted against measured seconds per token, a mark a method with its spread. On the dashed line a prediction came true."""
    figure = go.Figure()
    known = [method for method in comparison.methods if method.predicted_tokens_per_s and method.tokens_per_s.low > 0]
    _diagonal(
        figure,
        [1e3 / method.predicted_tokens_per_s for method in known],
        [1e3 / speed for method in known for speed in (method.tokens_per_s.low, method.tokens_per_s.high)],
    )
    for place, method in enumerate(known):
        speed, label = method.tokens_per_s, text.METHODS.get(method.name, full(method.name))
        measured = 1e3 / speed.median
        figure.add_scatter(
            x=[1e3 / method.predicted_tokens_per_s],
            y=[measured],
            error_y=dict(
                type="data", symmetric=False, array=[1e3 / speed.low - measured], arrayminus=[measured - 1e3 / speed.high], thickness=1.5
            ),
            mode="markers",
            name=label,
            marker=dict(
                size=13, color=colour(method.name), symbol=SYMBOLS[place % len(SYMBOLS)], line=dict(color=_edge(method.name), width=1.5)
            ),
            text=[full(method.hierarchy)],
            hovertemplate=f"{label}<br>%{{text}}<br>predicted %{{x:.3g}} ms, measured %{{y:.3g}} ms a token<extra></extra>",
        )
    return figure


def swept(sweep: Sweep) -> go.Figure:
    """Every hierarchy of a sweep: predicted with its 95 % interval against measured with its spread, by kind of prompts."""
    figure = go.Figure()
    points = sweep.points
    _diagonal(
        figure,
        [1e3 * value for point in points for value in (point.predicted_low, point.predicted_high, point.predicted_s_per_token)],
        [1e3 * value for point in points for value in (point.measured_s_per_token.low, point.measured_s_per_token.high)],
        height=480,
    )
    for place, kind in enumerate(dict.fromkeys(point.prompts for point in points)):
        kept = [point for point in points if point.prompts == kind]
        figure.add_scatter(
            x=[1e3 * point.predicted_s_per_token for point in kept],
            y=[1e3 * point.measured_s_per_token.median for point in kept],
            error_x=_reach([(point.predicted_low, point.predicted_s_per_token, point.predicted_high) for point in kept]),
            error_y=_reach(
                [(one.low, one.median, one.high) for one in (point.measured_s_per_token for point in kept)],
            ),
            mode="markers",
            name=full(kind),
            marker=dict(size=9, color=(TARGET, *DRAFTS)[place % (1 + len(DRAFTS))], symbol=SYMBOLS[place % len(SYMBOLS)]),
            text=[f"{full(point.hierarchy)}<br>error {100 * point.error:+.0f} %" for point in kept],
            hovertemplate="%{text}<br>predicted %{x:.3g} ms, measured %{y:.3g} ms a token<extra></extra>",
        )
    return figure


def _reach(bounds: Sequence[tuple[float, float, float]]) -> dict[str, object]:
    """Error bars in milliseconds from (low, middle, high) in seconds."""
    above, below = [1e3 * max(0.0, high - at) for _, at, high in bounds], [1e3 * max(0.0, at - low) for low, at, _ in bounds]
    return dict(type="data", symmetric=False, array=above, arrayminus=below, thickness=1, width=3)


def _diagonal(figure: go.Figure, predicted: Sequence[float], measured: Sequence[float], height: int = 380) -> None:
    """Axes of one scale around all values, and the line on which a prediction came true."""
    both = [*predicted, *measured]
    low, high = 0.9 * min(both, default=0.0), 1.1 * max(both, default=1.0)
    figure.add_scatter(
        x=[low, high], y=[low, high], mode="lines", line=dict(color=NEUTRAL, dash="dash", width=1.5), hoverinfo="skip", showlegend=False
    )
    finish(figure, height, hovermode="closest")
    figure.update_xaxes(title_text="predicted ms per token", range=[low, high])
    figure.update_yaxes(title_text="measured ms per token", range=[low, high])
