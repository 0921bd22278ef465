"""`python -m hsd export`: write a plan as a snippet or a report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hsd.console import read_json, write_text
from hsd.errors import BadInput
from hsd.export.comparison import read_comparison
from hsd.export.exporter import export
from hsd.export.kinds import KINDS
from hsd.measure.record import Measurement
from hsd.plan.record import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=Path, metavar="P", help="plan file, made by `python -m hsd plan --out P`")
    parser.add_argument("--to", required=True, choices=KINDS, help="what to write; only `python` runs a hierarchy of several drafts")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file to write; a report ending in .md is Markdown, else HTML"
    )
    parser.add_argument("--measurement", type=Path, metavar="F", help="measurement file to include in the report")
    parser.add_argument("--comparison", type=Path, metavar="C", help="comparison file to include in the report")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Write the file. Raises `BadInput` for a file that cannot be read, written or used."""
    if args.to != "report" and (args.measurement or args.comparison):
        raise BadInput("--measurement and --comparison are for `--to report`; leave them out, or export a report.")
    plan = Plan.from_json(read_json(args.plan, "python -m hsd plan --out P"))
    measurement = Measurement.from_json(read_json(args.measurement, "python -m hsd measure --out F")) if args.measurement else None
    comparison = read_comparison(read_json(args.comparison, "python -m hsd compare --out DIR")) if args.comparison else None
    text = export(args.to, plan, measurement=measurement, comparison=comparison, markdown=args.out.suffix.lower() == ".md")
    write_text(args.out, text)
    return {"kind": "export", "to": args.to, "out": str(args.out), "characters": len(text), "hierarchy": str(plan.hierarchy)}


def describe(result: dict[str, Any]) -> str:
    return f"Wrote {result['out']} ({result['to']}, {result['characters']:,} characters) for {result['hierarchy']}."
