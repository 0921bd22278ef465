"""The layered shortest-path graph of the plan, for those who want to see the reduction (paper section 4)."""

from __future__ import annotations

from itertools import pairwise

import plotly.graph_objects as go

from hsd.plan.graph import Graph, Node, Solution
from ui.figures.style import finish, full, wrapped
from ui.palette import NEUTRAL, colour_of, transparent

MAX_EDGES = 1200  # drawn beside the path, so that the browser stays quick


def layers(graph: Graph, solution: Solution) -> go.Figure:
    """Columns are models, rows block sizes; the shortest path is thick. Of very many edges those of dearest nodes are left out."""
    models = graph.problem.models
    path = list(pairwise(solution.path))
    on_path = set(path)
    others, chosen = [], []
    for edge in graph.edges():
        (chosen if (edge.draft, edge.verifier) in on_path else others).append(edge)
    others.sort(key=lambda edge: edge.multiplier * (solution.values[edge.draft] + edge.pass_s) / edge.verifier.threshold)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for edge in others[:MAX_EDGES]:
        xs += [edge.draft.model, edge.verifier.model, None]
        ys += [edge.draft.threshold, edge.verifier.threshold, None]
    figure = go.Figure()
    figure.add_scatter(x=xs, y=ys, mode="lines", line=dict(color=transparent(NEUTRAL, 0.16), width=1), hoverinfo="skip", showlegend=False)
    for edge in chosen:
        low, high = edge.draft, edge.verifier
        names = f"{full(models[low.model])} → {full(models[high.model])}"
        words = f"{names}<br>multiplier R = {edge.multiplier:.3f}<br>{1e3 * edge.pass_s:.3g} ms a pass"
        figure.add_scatter(
            x=[low.model, (low.model + high.model) / 2, high.model],
            y=[low.threshold, (low.threshold + high.threshold) / 2 + 0.7 * (high.model - low.model - 1), high.threshold],
            mode="lines",  # bent where it passes columns, so that it does not seem to visit their nodes
            line=dict(color=colour_of(models[low.model], models), width=5, shape="spline"),
            text=[words] * 3,
            hoverinfo="text",
            showlegend=False,
        )
    nodes = [node for node in graph.nodes() if solution.values[node] < float("inf")]
    figure.add_scatter(
        x=[node.model for node in nodes],
        y=[node.threshold for node in nodes],
        mode="markers",
        marker=dict(
            size=[15 if node in solution.path else 8 for node in nodes],
            color=[colour_of(models[node.model], models) for node in nodes],
            opacity=1,
        ),
        text=[_hover(node, models, solution) for node in nodes],
        hoverinfo="text",
        showlegend=False,
    )
    finish(figure, 420, hovermode="closest")
    figure.update_xaxes(tickvals=list(range(len(models))), ticktext=[wrapped(model) for model in models], tickangle=0, showgrid=False)
    figure.update_yaxes(title_text="block size T (tokens)", showgrid=False)
    return figure


def _hover(node: Node, models: tuple[str, ...], solution: Solution) -> str:
    return f"{full(models[node.model])}, blocks of {node.threshold}<br>at best {1e3 * solution.values[node]:.3g} ms a block"
