"""Heat map of acceptance rates between every draft and every larger model."""

from __future__ import annotations

from itertools import pairwise

import plotly.graph_objects as go

from hsd.measure.record import Acceptance, Measurement
from ui.figures.style import finish, full, wrapped
from ui.palette import contrast

# Dark blue to light yellow: lightness rises evenly, so it reads without colour too.
SCALE = ((0.0, "#20386b"), (0.35, "#41658f"), (0.7, "#8fae8c"), (1.0, "#f6e27f"))


def shade(value: float) -> str:
    """The colour of the scale at `value` in 0..1."""
    for (low, first), (high, second) in pairwise(SCALE):
        if value <= high:
            share = (value - low) / (high - low)
            channels = [(int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5)]
            return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in channels)
    return SCALE[-1][1]


def ink(value: float) -> str:
    """Black or white, whichever is easier to read on that cell."""
    return max(("#000000", "#ffffff"), key=lambda colour: contrast(colour, shade(value)))


def _hover(draft: str, verifier: str, cell: Acceptance) -> str:
    interval = f" ({cell.low:.3f}–{cell.high:.3f})" if cell.interval else ""
    where = f"{cell.positions} positions in {cell.prompts} prompts"
    return f"{full(draft)} at {full(verifier)}<br>α = {cell.mean:.3f}{interval}<br>{where}"


def heatmap(measurement: Measurement) -> go.Figure:
    """Rows are drafts, columns the models that verify them; each cell carries its mean and half its 95 % interval,
    which is given in full on hover; the number of prompts where they are too few for one."""
    drafts = [model for model in measurement.models if measurement.acceptance.get(model)]
    verifiers = [model for model in measurement.models if any(model in measurement.acceptance[draft] for draft in drafts)]
    cells = [[measurement.acceptance[draft].get(verifier) for verifier in verifiers] for draft in drafts]
    hover = [
        [_hover(draft, verifier, cell) if cell else "not a pair" for verifier, cell in zip(verifiers, row, strict=True)]
        for draft, row in zip(drafts, cells, strict=True)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=[[cell.mean if cell else None for cell in row] for row in cells],
            x=list(range(len(verifiers))),
            y=list(range(len(drafts))),
            zmin=0,
            zmax=1,
            colorscale=[list(stop) for stop in SCALE],
            customdata=hover,
            hovertemplate="%{customdata}<extra></extra>",
            xgap=3,
            ygap=3,
            hoverongaps=False,
            showscale=False,
        )
    )
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            if cell:
                interval = cell.interval
                spread = f"±{(interval[1] - interval[0]) / 2:.2f}" if interval else f"n={cell.prompts}" if cell.prompts else ""
                text = f"<b>{cell.mean:.2f}</b><br>{spread}"
                figure.add_annotation(x=x, y=y, text=text, showarrow=False, font=dict(color=ink(cell.mean), size=12), name="cell")
    finish(figure, 110 + 58 * max(1, len(drafts)))
    figure.update_xaxes(
        tickvals=list(range(len(verifiers))),
        ticktext=[wrapped(model) for model in verifiers],
        autotickangles=[0, -50, -90],  # the first at which names do not overlap
        tickfont_size=11,
        showgrid=False,
        side="bottom",
    )
    figure.update_yaxes(
        tickvals=list(range(len(drafts))), ticktext=[wrapped(model) for model in drafts], showgrid=False, autorange="reversed"
    )
    return figure
