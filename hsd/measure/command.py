"""`python -m hsd measure`: measure models and write the measurement file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hsd.console import add_sampling_arguments, check_writable, given_sampling, names, report_to_stderr, write_json
from hsd.measure.breakdown import Breakdown, acceptance_by_category, acceptance_by_position
from hsd.measure.doubts import doubts
from hsd.measure.hub_prompts import PRESETS, load_named
from hsd.measure.prompts import load_default
from hsd.measure.record import FEWEST_PROMPTS, Acceptance, Measurement
from hsd.measure.store import measure_or_find
from hsd.pick.registry import REGISTRY
from hsd.records import GREEDY, Estimate
from hsd.settings import DEFAULT_CANDIDATES, DEFAULT_TARGET
from hsd.units import byte_size, counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=DEFAULT_TARGET, help="model whose output is wanted (default: %(default)s)")
    parser.add_argument("--candidates", default=",".join(DEFAULT_CANDIDATES), help="drafts, comma separated (default: %(default)s)")
    parser.add_argument("--out", required=True, type=Path, help="measurement file to write (JSON)")
    parser.add_argument("--quick", action="store_true", help="16 prompts and fewer widths, about a minute")
    parser.add_argument("--again", action="store_true", help="measure even when a measurement of the same conditions is kept")
    parser.add_argument(
        "--prompts", help=f"a .txt, .jsonl or .csv file, or {' or '.join(PRESETS)} from the hub (default: the project's own 40)"
    )
    parser.add_argument("--column", help="field of a .jsonl or .csv file that holds the prompts (default: prompt)")
    add_sampling_arguments(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the measurement as one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, write the measurement file, and return what it holds. A `KeyboardInterrupt` leaves the complete prompts in the file."""
    sampling = given_sampling(args, GREEDY)
    drafts = names(args.candidates, "--candidates")
    prompts = load_named(args.prompts, args.column) if args.prompts else load_default()
    check_writable(args.out, "--out")
    settings = {"sampling": sampling, "thorough": not args.quick, "again": args.again, "report": report_to_stderr}
    partial: list[Measurement] = []
    with REGISTRY.lease(args.target, drafts, device=args.device, dtype=args.dtype, report=report_to_stderr) as models:
        try:
            measurement, kept = measure_or_find(models, prompts, **settings, on_partial=partial.append)
        except KeyboardInterrupt:
            if not partial or models.new_fallbacks:
                raise
            _write(partial[-1], args.out)
            count = counted(len(partial[-1].traces), "prompt")
            raise KeyboardInterrupt(f"Stopped; what was measured on {count} is kept in {args.out}.") from None
    data = _write(measurement, args.out)
    notices = [*models.notices.values(), *models.fallbacks, *doubts(measurement)]
    if kept:
        notices.append(f"Kept from {measurement.environment.time}; measure again with --again.")
    return data | {"notices": notices}


def _write(measurement: Measurement, path: Path) -> dict[str, Any]:
    """Write the measurement file; returns what it holds."""
    data = measurement.to_json() | {
        "acceptance_by_category": {kind: _json(rates) for kind, rates in acceptance_by_category(measurement.traces).items()},
        "acceptance_by_position": {str(start): _json(rates) for start, rates in acceptance_by_position(measurement.traces).items()},
    }
    write_json(path, data)
    return data


def _json(rates: Breakdown) -> dict[str, Any]:
    return {draft: {verifier: asdict(rate) for verifier, rate in row.items()} for draft, row in rates.items()}


def describe(result: dict[str, Any]) -> str:
    """The measurement as a table for people."""
    measurement = Measurement.from_json(result)
    lines = [
        *result["notices"],
        f"Measured on {measurement.environment.label()}, {measurement.sampling.label()}, "
        f"{counted(len(measurement.traces), 'prompt')}, {measurement.context_tokens} tokens of context.",
        "",
        "Milliseconds of one pass, by width, or of one call:",
    ]
    for name in measurement.models:
        lines.append(f"  {name:<18} " + ", ".join(_cost(width, cost) for width, cost in sorted(measurement.cost_s[name].items())))
        lines += [f"  {'':<18} {_memory(measurement, name)}"]
    lines += ["", _overheads(measurement), "", f"Acceptance over n prompts (95 % interval where n is {FEWEST_PROMPTS} or more):"]
    for draft, row in measurement.acceptance.items():
        for verifier, value in row.items():
            lines.append(f"  {draft:<18} at {verifier:<18} {_rate(value, 3)}, {value.positions} positions")
    lines += ["", "Acceptance at the target by kind of prompt:"]
    for kind, rates in acceptance_by_category(measurement.traces).items():
        at_target = [(draft, row[measurement.target]) for draft, row in rates.items() if measurement.target in row]
        lines.append(f"  {kind:<18} " + ", ".join(f"{draft} {_rate(rate, 2)}" for draft, rate in at_target))
    return "\n".join(lines)


def _rate(rate: Acceptance, digits: int) -> str:
    interval = f"{rate.interval[0]:.{digits}f} to {rate.interval[1]:.{digits}f}, " if rate.interval else ""
    return f"{rate.mean:.{digits}f} ({interval}n={rate.prompts})"


def _cost(width: int, cost: Estimate) -> str:
    """Milliseconds; microseconds, with their unit, where milliseconds would read as nothing."""
    of = f"{width}:" if width else "a call:"
    return f"{of} {cost.median * 1e3:.1f}" if cost.median >= 1e-4 else f"{of} {cost.median * 1e6:.1f} µs"


def _memory(measurement: Measurement, name: str) -> str:
    """Memory of a model, and its pass of one token at the other contexts."""
    size = measurement.memory_bytes.get(name)
    parts = [] if size is None else [byte_size(size) if size else "no weights of its own"]
    for context, costs in sorted(measurement.context_cost_s.get(name, {}).items()):
        parts += [f"{costs[1].median * 1e3:.1f} ms after {context} tokens"] if 1 in costs else []
    return ", ".join(parts)


def _overheads(measurement: Measurement) -> str:
    rounds = ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in measurement.round_overhead_s.items())
    around = f"{measurement.overhead_s * 1e6:.0f} a target round, {measurement.token_overhead_s * 1e6:.0f} a token"
    return f"Beside the passes, in µs: {around}" + (f"; a round of {rounds}." if rounds else ".")
