"""`python -m hsd pick`: which models can serve here, and why others cannot."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from hsd.console import names
from hsd.pick.candidates import list_candidates, list_targets, memory_fit
from hsd.pick.device import choose_device, choose_dtype, environment
from hsd.settings import DEFAULT_TARGET
from hsd.units import byte_size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", default=DEFAULT_TARGET, metavar="M", help="target model (default: %(default)s)")
    parser.add_argument("--candidates", default="", metavar="a,b", help="drafts of your own to check, separated by commas")
    parser.add_argument("--targets", action="store_true", help="list the curated target models instead of drafts")
    parser.add_argument("--all", action="store_true", help="list the unusable ones too, each with its reason")
    parser.add_argument("--device", default="auto", help="auto, cpu, mps, cuda or cuda:<number> (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Status, memory and reason of every model. Raises `HsdError` for a target or device that cannot be used."""
    where = choose_device(args.device)
    stamp = asdict(environment(where, choose_dtype(args.dtype, where)))
    if args.targets:
        found = list_targets(device=args.device, dtype=args.dtype)
        return {"kind": "targets", "environment": stamp, "all": args.all, "models": [asdict(model) for model in found]}
    named = names(args.candidates, "--candidates") if args.candidates else []
    found = list_candidates(args.target, named, device=args.device, dtype=args.dtype)
    fit = memory_fit(
        args.target, [c.name for c in found if c.name in named and c.status != "unusable"], device=args.device, dtype=args.dtype
    )
    return {
        "kind": "candidates",
        "all": args.all,
        "named": named,
        "target": args.target,
        "environment": stamp,
        "memory": asdict(fit),
        "models": [asdict(model) for model in found],
    }


def describe(result: dict[str, Any]) -> str:
    """A table for people."""
    stamp = result["environment"]
    title = "Targets" if result["kind"] == "targets" else f"Drafts for {result['target']}"
    lines = [f"{title} on {stamp['device_name']}, {stamp['dtype']}:"]
    named = result.get("named", ())
    shown = [model for model in result["models"] if result["all"] or model["status"] != "unusable" or model["name"] in named]
    width = max((len(model["name"]) for model in shown), default=0)
    for model in shown:
        memory = byte_size(model["memory_bytes"]) if model["memory_bytes"] else "-"
        lines.append(f"  {model['name']:<{width}}  {model['status']:<8}  {memory:>8}  {model['reason'] or model['description']}")
    if hidden := len(result["models"]) - len(shown):
        lines.append(f"  {hidden} more cannot serve here; list them and why with --all.")
    if "memory" in result:
        lines.append(f"Memory of the target and the drafts you named: {result['memory']['sentence']}")
    return "\n".join(lines)
