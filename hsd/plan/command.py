"""`python -m hsd plan`: from a measurement file to a plan file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hsd.console import read_json, write_json
from hsd.errors import BadInput
from hsd.measure.doubts import doubts
from hsd.measure.record import Measurement
from hsd.plan.growth import fitted_exponents, measure_growth
from hsd.plan.planner import plan
from hsd.plan.record import Plan
from hsd.settings import MAX_DEPTH, MAX_THRESHOLD, MOST_GB


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measurement", type=Path, nargs="?", metavar="F", help="measurement file of `python -m hsd measure --out F`")
    parser.add_argument("--out", type=Path, metavar="P", help="plan file to write")
    parser.add_argument("--growth", action="store_true", help="instead: time planning itself on made-up problems of growing size")
    parser.add_argument("--max-depth", type=int, default=MAX_DEPTH, metavar="n", help="most drafts below the target (default: %(default)s)")
    parser.add_argument("--max-threshold", type=int, default=MAX_THRESHOLD, metavar="n", help="largest threshold (default: %(default)s)")
    parser.add_argument("--memory-limit", type=float, metavar="GB", help="most memory of all models together, in GB (10⁹ bytes)")
    parser.add_argument("--json", action="store_true", help="print the plan as one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Plan, write the plan file, and return what it holds; or how the time of planning grows."""
    if args.growth:
        if args.measurement is not None or args.out is not None:
            raise BadInput("--growth times planning on made-up problems; it takes no measurement file and no --out.")
        points = measure_growth()
        return {"kind": "growth", "points": [asdict(point) for point in points], "exponents": fitted_exponents(points)}
    if args.measurement is None:
        raise BadInput("Give a measurement file; `python -m hsd measure --out F` makes one.")
    if args.out is None:
        raise BadInput("Say with --out P where the plan file goes.")
    limit = None
    if args.memory_limit is not None:
        if not 0 < args.memory_limit < MOST_GB:
            raise BadInput(f"The memory limit is {args.memory_limit}; give a number of GB above 0 and below {MOST_GB:,}.")
        limit = int(args.memory_limit * 1e9)
    measurement = Measurement.from_json(read_json(args.measurement, "python -m hsd measure --out"))
    found = plan(
        measurement,
        max_depth=args.max_depth,
        max_threshold=args.max_threshold,
        memory_limit_bytes=limit,
    )
    result = found.to_json()
    write_json(args.out, result)
    return result | {"notices": doubts(measurement)}


def describe(result: dict[str, Any]) -> str:
    """The plan for people, some lines of text."""
    if result["kind"] == "growth":
        return _describe_growth(result)
    found = Plan.from_json(result)
    predicted = found.predicted_s_per_token
    context = f", {found.context_tokens} tokens of context" if found.environment.measured else ""
    lines = [
        f"Plan: {found.hierarchy}",
        f"Predicted {_ms(predicted.best)} a token ({_ms(predicted.low)} to {_ms(predicted.high)}), "
        f"{found.predicted_speedup:.2f} times as fast as {found.hierarchy.target} alone ({_ms(found.autoregressive_s_per_token)}).",
        f"{found.origin}{context}. Ranked by the {'recorded traces' if found.ranked_by == 'trace' else 'exact expression'}.",
        *result["notices"],
        "",
        f"{'predicted':>12}{'exact':>12}{'paper':>12}   hierarchy",
    ]
    for entry in found.alternatives:
        figures = entry.predicted_s_per_token
        lines.append(f"{_ms(figures.best):>12}{_ms(figures.exact):>12}{_ms(figures.paper):>12}   {entry.hierarchy}")
    return "\n".join(lines)


def _describe_growth(result: dict[str, Any]) -> str:
    lines = [f"{'models':>7}{'T̄':>5}{'edges':>8}{'graph':>12}{'one pass':>12}{'Bellman–Ford':>14}"]
    for point in result["points"]:
        general = "" if point["bellman_ford_s"] is None else _ms(point["bellman_ford_s"])
        figures = f"{_ms(point['build_s']):>12}{_ms(point['one_pass_s']):>12}{general:>14}"
        lines.append(f"{point['models']:>7}{point['max_threshold']:>5}{point['edges']:>8}{figures}")
    powers = ", ".join(f"{name.replace('_', ' ')} {power:.2f}" for name, power in result["exponents"].items())
    return "\n".join([*lines, f"Fitted powers of T̄·K: {powers}; the bound is the paper's T̄⁴K⁴ log T̄K."])


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
