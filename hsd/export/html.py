"""A report as one HTML file: no script, no outside file, every text escaped."""

from __future__ import annotations

import math
from html import escape

from hsd.export.numbers import digits
from hsd.export.parts import Bar, Bars, Report, Section, Table

# Readable in both themes; the emphasised bar differs in lightness, not in hue alone.
_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --page: #ffffff; --soft: #57606a; --line: #d0d7de; --bar: #7aa6d6; --plan: #0b4f8a; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6edf3; --page: #12161b; --soft: #a3adb8; --line: #3a424c; --bar: #3f6d9e; --plan: #8fc7ff; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
.answer { font-size: 1.1rem; border-left: 4px solid var(--plan); padding-left: 1rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption, figcaption { text-align: left; color: var(--soft); font-size: .9rem; padding-bottom: .4rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
td { min-width: 3rem; } td:first-child { min-width: 7rem; overflow-wrap: break-word; }
figure { margin: 1rem 0; }
.row { display: grid; grid-template-columns: minmax(6rem, 18rem) 1fr 12rem; gap: .75rem; align-items: center; }
.row { font-size: .85rem; margin: .15rem 0; }
.row span:first-child { overflow-wrap: anywhere; }
.row svg { width: 100%; height: 1.1rem; }
.bar { fill: var(--bar); } .plan .bar { fill: var(--plan); } .plan { font-weight: 600; }
.interval { stroke: var(--text); stroke-width: 2px; vector-effect: non-scaling-stroke; }
@media (max-width: 40rem) { .row { grid-template-columns: 1fr; gap: 0; } }
"""


def write_html(report: Report) -> str:
    """The whole file; opens anywhere, loads nothing."""
    body = "\n".join(_section(section) for section in report.sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(report.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(report.title)}</h1>
<p class="answer">{_breakable(report.answer)}</p>
{body}
</body>
</html>
"""


def _section(section: Section) -> str:
    paragraphs = "\n".join(f"<p>{escape(text)}</p>" for text in section.paragraphs)
    blocks = "\n".join(_table(block) if isinstance(block, Table) else _bars(block) for block in section.blocks)
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{paragraphs}\n{blocks}\n</section>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "\n".join("<tr>" + "".join(f"<td>{_breakable(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    inside = f"<caption>{escape(table.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>"
    return f'<div class="wide"><table>\n{inside}\n</table></div>'


def _bars(bars: Bars) -> str:
    longest = max((bar.high if bar.high is not None else bar.value for bar in bars.bars), default=0.0)
    longest = max(longest, *(bar.value for bar in bars.bars)) if bars.bars else 0.0
    rows = "\n".join(_bar(bar, longest, bars.unit) for bar in bars.bars)
    caption = f"{bars.caption}, {bars.unit}; the line is the {bars.range_name}"
    return f"<figure>\n<figcaption>{escape(caption)}</figcaption>\n{rows}\n</figure>"


def _bar(bar: Bar, longest: float, unit: str) -> str:
    def x(value: float) -> str:
        return f"{100 * value / longest:.2f}" if longest > 0 and math.isfinite(value) else "0"

    interval = ""
    if bar.low is not None and bar.high is not None:
        interval = f'<line class="interval" x1="{x(bar.low)}" x2="{x(bar.high)}" y1="5" y2="5"/>'
    said = f"{digits(bar.value)} {unit}" + (
        f" ({digits(bar.low)} to {digits(bar.high)})" if bar.low is not None and bar.high is not None else ""
    )
    return (
        f'<div class="row{" plan" if bar.emphasis else ""}"><span>{_breakable(bar.label)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{escape(said)}">'
        f'<rect class="bar" x="0" y="0" width="{x(bar.value)}" height="10"/>{interval}</svg><span>{escape(said)}</span></div>'
    )


def _breakable(text: str) -> str:
    """Escaped; a hierarchy may break after its commas."""
    return escape(text).replace(",", ",<wbr>")
