"""A plan as something to use elsewhere: a snippet for a tool, a program, or a report."""

from __future__ import annotations

from hsd.compare.record import Comparison
from hsd.errors import BadInput
from hsd.export.html import write_html
from hsd.export.kinds import KINDS
from hsd.export.markdown import write_markdown
from hsd.export.report import build_report
from hsd.export.snippet import python_snippet
from hsd.export.tools import llama_cpp_snippet, sglang_snippet, transformers_snippet, vllm_snippet
from hsd.measure.record import Measurement
from hsd.plan.record import Plan

_SNIPPETS = {
    "transformers": transformers_snippet,
    "vllm": vllm_snippet,
    "llama.cpp": llama_cpp_snippet,
    "sglang": sglang_snippet,
    "python": python_snippet,
}


def export(
    kind: str,
    plan: Plan,
    *,
    measurement: Measurement | None = None,
    comparison: Comparison | None = None,
    markdown: bool = False,
) -> str:
    """Text of the export; `measurement`, `comparison` and `markdown` are for the report alone.

    Only `python` runs the whole hierarchy; the other tools take one draft, and their snippets say so. Raises `BadInput`
    for another kind.
    """
    if kind == "report":
        report = build_report(plan, measurement, comparison)
        return write_markdown(report) if markdown else write_html(report)
    if kind not in _SNIPPETS:
        raise BadInput(f"“{kind}” is no export; give one of {', '.join(KINDS)}.")
    return _SNIPPETS[kind](plan)
