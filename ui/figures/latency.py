"""Predicted time per token: ranked alternatives with intervals, and what each model contributes."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from hsd.plan.record import Alternative, Plan
from hsd.records import Hierarchy
from ui import format as fmt
from ui.figures.style import finish, full, name
from ui.palette import NEUTRAL, TARGET, colour_of, transparent

SHOWN = 8


def short(hierarchy: Hierarchy) -> str:
    """A hierarchy on an axis: its drafts, one a line, or “target alone”."""
    return "<br>".join(f"{name(level.model)}@{level.threshold}" for level in hierarchy.drafts) or "target alone"


def shown_alternatives(plan: Plan) -> tuple[Alternative, ...]:
    """The best ones, and always the target alone."""
    best = plan.alternatives[:SHOWN]
    alone = tuple(other for other in plan.alternatives[SHOWN:] if not other.hierarchy.drafts)
    return best + alone


def _hover(one: Alternative) -> str:
    predicted = one.predicted_s_per_token
    figures = [("replayed traces", predicted.trace), ("exact expression", predicted.exact), ("paper's Theorem 2.2", predicted.paper)]
    return full(str(one.hierarchy)) + "".join(f"<br>{label}: {1e3 * value:.3g} ms a token" for label, value in figures if value is not None)


def _colour(one: Alternative, *, first: bool) -> str:
    """As in a comparison: the target alone has its own colour, a hierarchy that of no model, and the plan stands out."""
    return TARGET if not one.hierarchy.drafts else NEUTRAL if first else transparent(NEUTRAL, 0.45)


def bars(plan: Plan) -> go.Figure:
    """One bar an alternative, the plan first; the dashed line is the target alone."""
    shown = shown_alternatives(plan)
    places = list(range(len(shown)))
    exact = [1e3 * one.predicted_s_per_token.best for one in shown]
    figure = go.Figure(
        go.Bar(
            x=exact,
            y=places,
            orientation="h",
            marker=dict(color=[_colour(one, first=one is shown[0]) for one in shown]),
            error_x=dict(
                type="data",
                symmetric=False,
                array=[max(0.0, 1e3 * one.predicted_s_per_token.high - ms) for one, ms in zip(shown, exact, strict=True)],
                arrayminus=[max(0.0, ms - 1e3 * one.predicted_s_per_token.low) for one, ms in zip(shown, exact, strict=True)],
                color=NEUTRAL,
                thickness=1.5,
                width=5,
            ),
            customdata=[_hover(one) for one in shown],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    alone = 1e3 * plan.autoregressive_s_per_token
    figure.add_vline(x=alone, line=dict(color=NEUTRAL, dash="dash", width=1.5))
    longest = max([alone, *(1e3 * one.predicted_s_per_token.high for one in shown)])
    for place, ms in enumerate(exact):  # in a column of their own, clear of intervals and of the dashed line
        words = f"<b>{fmt.significant(ms)}</b> · {fmt.times(alone / ms)}"
        figure.add_annotation(x=1.03 * longest, y=place, text=words, showarrow=False, xanchor="left", name="label")
    tall = 70 + sum(20 + 17 * max(1, len(one.hierarchy.drafts)) for one in shown)
    finish(figure, tall, bargap=0.35)
    figure.update_xaxes(title_text="predicted ms per token", range=[0, 1.85 * longest])
    figure.update_yaxes(tickvals=places, ticktext=[short(one.hierarchy) for one in shown], autorange="reversed", showgrid=False)
    return figure


def stacked(alternatives: Sequence[Alternative], models: Sequence[str], limit: int = 5) -> go.Figure:
    """Milliseconds of one token by model, for the best alternatives and the target alone."""
    shown = list(alternatives[:limit])
    shown += [one for one in alternatives[limit:] if not one.hierarchy.drafts]
    figure = go.Figure()
    labels = [short(one.hierarchy) for one in shown]
    for model in [*models, *sorted({m for one in shown for m in one.seconds_by_model} - set(models))]:
        parts = [1e3 * one.seconds_by_model.get(model, 0.0) for one in shown]
        if any(parts):
            figure.add_bar(
                x=parts,
                y=list(range(len(shown))),
                orientation="h",
                name=name(model),
                marker=dict(color=colour_of(model, models) if model in models else NEUTRAL),
                hovertemplate=f"{full(model)}: %{{x:.3g}} ms a token<extra></extra>",
            )
    if any(one.overhead_s_per_token for one in shown):
        figure.add_bar(
            x=[1e3 * one.overhead_s_per_token for one in shown],
            y=list(range(len(shown))),
            orientation="h",
            name="outside of rounds",
            marker=dict(color=transparent(NEUTRAL, 0.6)),
            hovertemplate="outside of rounds: %{x:.3g} ms a token<extra></extra>",
        )
    finish(figure, 110 + sum(20 + 17 * max(1, len(one.hierarchy.drafts)) for one in shown), barmode="stack", bargap=0.35)
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(title_text="predicted ms per token", rangemode="tozero")
    figure.update_yaxes(tickvals=list(range(len(shown))), ticktext=labels, autorange="reversed", showgrid=False)
    return figure
