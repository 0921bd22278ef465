"""The hierarchy graph: models from smallest (bottom) to target (top), every measured pair as an arc, the plan emphasised."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import plotly.graph_objects as go

from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from ui.figures.style import finish, full, name
from ui.palette import NEUTRAL, colour_of, transparent


def _arc(low: float, high: float, bulge: float, steps: int = 24) -> tuple[list[float], list[float]]:
    """A quadratic curve from (0, low) to (0, high) that swings `bulge` to the left."""
    ts = [step / steps for step in range(steps + 1)]
    return [-2 * bulge * t * (1 - t) for t in ts], [low + (high - low) * t for t in ts]


def graph(plan: Plan, measurement: Measurement | None, multipliers: Mapping[tuple[str, str], float]) -> go.Figure:
    """Hover over an arc for its acceptance rate; over a node for its cost and its part in the plan.

    `multipliers[draft, verifier]` of the plan's own steps stand beside their arcs.
    """
    models = plan.candidates
    height = {model: place for place, model in enumerate(models)}
    chosen = [level.model for level in plan.hierarchy.levels]
    thresholds = {level.model: level.threshold for level in plan.hierarchy.levels}
    path = set(pairwise(chosen))
    figure = go.Figure()
    labels: list[tuple[float, float, str]] = []
    rates = measurement.acceptance if measurement else {}
    pairs = sorted(((d, v) for d, row in rates.items() for v in row if d in height and v in height), key=lambda pair: pair in path)
    for draft, verifier in pairs or sorted(path):
        rate = rates.get(draft, {}).get(verifier)
        on_path = (draft, verifier) in path
        span = height[verifier] - height[draft]
        xs, ys = _arc(height[draft], height[verifier], 0.10 + 0.42 * span)
        colour = colour_of(draft, models) if on_path else transparent(NEUTRAL, 0.45)
        words = f"{full(draft)} → {full(verifier)}"
        if rate:
            words += f"<br>α = {rate.mean:.3f} ({rate.low:.3f}–{rate.high:.3f}, {rate.prompts} prompts)"
        if on_path:
            words += f"<br>in the plan: blocks of at least {thresholds[draft]} tokens"
        rounds = multipliers.get((draft, verifier)) if on_path else None
        if rounds is not None:
            words += f"<br>R = {rounds:.3f} rounds of {full(verifier)} {'a token' if verifier == models[-1] else 'a block'}"
        beside = [f"<b>α {rate.mean:.2f}</b>"] if on_path and rate else []
        beside += [f"R {rounds:.2f}"] if rounds is not None else []
        if beside:
            labels.append((xs[len(xs) // 2], ys[len(ys) // 2], "<br>".join(beside)))
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines",
            line=dict(color=colour, width=6 if on_path else 1.5),
            text=[words] * len(xs),
            hoverinfo="text",
            showlegend=False,
        )
    texts, hovers = [], []
    for model in models:
        in_plan = model in thresholds
        role = "target" if model == models[-1] else f"hands up ≥ {thresholds[model]}" if in_plan else "not in the plan"
        texts.append(f"<b>{name(model)}</b><br>{role}" if in_plan else f"{name(model)}<br>{role}")
        cost = (measurement.cost_s.get(model) or {}) if measurement else {}
        first = min(cost) if cost else None
        where = f"<br>{1e3 * cost[first].median:.3g} ms a pass at width {first}" if first else ""
        where = where or (f"<br>{1e3 * cost[first].median:.3g} ms a call" if first == 0 else "")
        hovers.append(full(model) + where)
    figure.add_scatter(
        x=[0] * len(models),
        y=list(range(len(models))),
        mode="markers",
        marker=dict(
            size=[26 if model in thresholds else 15 for model in models],
            color=[colour_of(model, models) for model in models],
            symbol=["circle" if model in thresholds else "circle-open" for model in models],
            opacity=1,
            line=dict(width=[0 if model in thresholds else 2.5 for model in models], color=[colour_of(model, models) for model in models]),
        ),
        text=hovers,
        hoverinfo="text",
        showlegend=False,
    )
    for x, y, words in labels:
        figure.add_annotation(x=x, y=y, text=words, showarrow=False, xanchor="right", align="right", xshift=-8, name="label")
    for place, words in enumerate(texts):
        figure.add_annotation(x=0, y=place, text=words, showarrow=False, xanchor="left", align="left", xshift=22, name="label")
    reach = 0.34 + 0.21 * max(1, len(models) - 1)
    finish(figure, 120 + 74 * len(models), margin=dict(l=4, r=4, t=24, b=24), hovermode="closest")
    figure.update_xaxes(visible=False, range=[-reach - 0.25, max(1.1, 1.15 * reach)])
    figure.update_yaxes(visible=False, range=[-0.5, len(models) - 0.5])
    return figure
