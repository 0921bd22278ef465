"""`python -m hsd compare`: a plan against the target alone, its best single draft and transformers' own modes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from hsd.compare.lossless import check_lossless
from hsd.compare.paper import reproduce
from hsd.compare.record import Divergence
from hsd.compare.run import METHODS, check_can_be_timed, compare
from hsd.compare.sweep import sweep
from hsd.console import check_writable, names, read_json, report_to_stderr, write_json
from hsd.errors import BadInput
from hsd.measure.hub_prompts import PRESETS, load_named
from hsd.measure.prompts import load_default
from hsd.pick.registry import REGISTRY
from hsd.plan.record import Plan
from hsd.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", type=Path, required=True, help="plan file, made by `python -m hsd plan`")
    parser.add_argument(
        "--prompts", help=f"a .txt, .jsonl or .csv file, or {' or '.join(PRESETS)} from the hub (default: some of the project's own)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--lossless", action="store_true", help="check that the output is the target's: equal texts, chi-square of sampling")
    what.add_argument("--sweep", action="store_true", help="predict and measure two dozen hierarchies on two kinds of prompts")
    what.add_argument(
        "--paper",
        action="store_true",
        help="as in the paper: check its Theorem 2.2 by simulation; target alone, best single draft and hierarchy here",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for the result as JSON")
    parser.add_argument("--methods", help=f"comma separated, of {', '.join(METHODS)} (default: all that are possible)")
    parser.add_argument("--count", type=int, metavar="N", help="prompts to use (default: 8; with --sweep 4 of each kind)")
    parser.add_argument("--hierarchies", type=int, metavar="N", help="with --sweep: how many, fewer are quicker (default: 24)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: the plan's)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run what was asked for, write it to --out, and return it."""
    for name in ("count", "hierarchies", "repeats", "max_new_tokens"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')} is {getattr(args, name)}; give at least 1.")
    methods = None if args.methods is None else names(args.methods, "--methods")
    for name in methods or ():
        if name not in METHODS:
            raise BadInput(f"“{name}” is no method; known are {', '.join(METHODS)}.")
    if args.hierarchies and not args.sweep:
        raise BadInput("--hierarchies is for --sweep; leave it out, or sweep.")
    if methods and (args.lossless or args.sweep or args.paper):
        raise BadInput("--methods is for the comparison of speeds; leave it out with --lossless, --sweep and --paper.")
    if not (args.lossless or args.sweep):
        check_can_be_timed(args.max_new_tokens)
    if args.out:
        check_writable(args.out / "comparison.json", "--out")
    count = args.count or (4 if args.sweep else 8)
    plan = Plan.from_json(read_json(args.plan, "python -m hsd plan --out"))
    prompts = load_named(args.prompts) if args.prompts else load_default()
    dtype = plan.dtype if args.dtype == "auto" else args.dtype
    drafts = plan.candidates[:-1] if args.sweep else _drafts(plan)
    with REGISTRY.lease(plan.hierarchy.target, drafts, device=args.device, dtype=dtype, report=report_to_stderr) as models:
        if models.notices:
            raise BadInput(f"Nothing was compared, as not every draft of the plan is there. {' '.join(models.notices.values())}")
        if not (args.lossless or args.sweep) and (note := plan.elsewhere(models.environment)):
            print(note, file=sys.stderr)
        if args.lossless:
            result = check_lossless(models, plan, prompts.spread(count), max_new_tokens=args.max_new_tokens, report=report_to_stderr)
        elif args.paper:
            settings = {"repeats": args.repeats, "max_new_tokens": args.max_new_tokens, "report": report_to_stderr}
            result = reproduce(models, plan, prompts.spread(count), **settings)
        elif args.sweep:
            result = sweep(
                models,
                plan,
                prompts,
                count=args.hierarchies or 24,
                prompts_per_kind=count,
                repeats=args.repeats,
                max_new_tokens=args.max_new_tokens,
                report=report_to_stderr,
            )
        else:
            result = compare(
                models,
                plan,
                prompts.spread(count),
                repeats=args.repeats,
                max_new_tokens=args.max_new_tokens,
                methods=methods,
                report=report_to_stderr,
            )
    data = result.to_json()
    if args.out:
        write_json(args.out / f"{data['kind']}.json", data)
    return data


def _drafts(plan: Plan) -> list[str]:
    """Every draft of the plan, its best single draft and its alternatives."""
    hierarchies = [plan.hierarchy, *(entry.hierarchy for entry in plan.alternatives)]
    if plan.best_single_draft is not None:
        hierarchies.append(plan.best_single_draft.hierarchy)
    return list(dict.fromkeys(level.model for hierarchy in hierarchies for level in hierarchy.drafts))


def describe(result: dict[str, Any]) -> str:
    where = f"{result['environment']['device_name']}, {result['environment']['dtype']}"
    describers = {
        "comparison": _describe_comparison,
        "lossless": _describe_lossless,
        "sweep": _describe_sweep,
        "paper": _describe_paper,
    }
    return describers[result["kind"]](result, where)


def _describe_comparison(result: dict[str, Any], where: str) -> str:
    base = next(method for method in result["methods"] if method["name"] == "target")["tokens_per_s"]["median"]
    lines = [
        f"{where}; {counted(result['prompts'], 'prompt')}, {counted(result['max_new_tokens'], 'new token')}, "
        f"{counted(result['repeats'], 'repeat')}, interleaved.",
        f"{'method':<28}{'tokens/s':>10}  {'spread':<16}{'× target':>9}  {'spread':<14}"
        f"{'predicted':>11}{'per pass':>10}{'loop':>7}  same text",
    ]
    for method in result["methods"]:
        rate = method["tokens_per_s"]
        predicted = "" if method["predicted_tokens_per_s"] is None else f"{method['predicted_tokens_per_s']:.1f}"
        per_pass = "" if method["tokens_per_target_pass"] is None else f"{method['tokens_per_target_pass']:.2f}"
        loop = "" if method["outside_forward_share"] is None else f"{method['outside_forward_share']:.1%}"
        spread = _spread(rate, 1)
        same = {True: "yes", False: "no", None: "sampled"}[method["identical"]]
        times, times_spread = _times(method, base)
        figures = f"{rate['median']:>10.1f}  {spread:<16}{times:>9}  {times_spread:<14}{predicted:>11}{per_pass:>10}{loop:>7}"
        lines.append(f"{method['name']:<28}{figures}  {same}")
        lines += [f"    {method['hierarchy']}"] if method["hierarchy"] else []
    lines += result["left_out"]
    lines += _describe_latency_models(result)
    near = sum(divergence["near_tie"] for divergence in result["divergences"])
    if result["divergences"]:
        lines.append(f"{len(result['divergences'])} texts depart from the target's, {near} of them at a near-tie of the precision.")
    return "\n".join(lines)


def _times(method: dict[str, Any], base: float) -> tuple[str, str]:
    """How many times as fast as the target alone, and the spread of that over the repeats."""
    if times := method["times_target"]:
        return f"{times['median']:.2f}", _spread(times, 2)
    return f"{method['tokens_per_s']['median'] / base:.2f}", ""


def _spread(estimate: dict[str, Any], decimals: int) -> str:
    """Nothing for one run, which has none."""
    return f"{estimate['low']:.{decimals}f} to {estimate['high']:.{decimals}f}" if estimate["samples"] > 1 else ""


def _describe_lossless(result: dict[str, Any], where: str) -> str:
    lines = [
        f"{'Lossless' if result['passed'] else 'NOT lossless'} on {where}.",
        f"Greedy: {result['cases']} cases, {result['equal']} equal, {result['near_ties']} near-ties, {result['different']} different.",
    ]
    lines += [f"  {Divergence.from_json(entry).sentence()}" for entry in result["divergences"]]
    for check in result["sampling"]:
        statistic = "infinite" if check["chi_square"] is None else f"{check['chi_square']:.1f}"
        lines.append(
            f"Sampling: {check['hierarchy']}, {check['samples']} samples, chi-square {statistic} with "
            f"{check['degrees_of_freedom']} degrees of freedom, p = {check['p_value']:.3f}."
        )
    return "\n".join(lines)


def _describe_sweep(result: dict[str, Any], where: str) -> str:
    lines = [
        f"{where}; {counted(len(result['points']), 'point')}, {counted(result['repeats'], 'repeat')}; "
        f"error median {result['median_error']:.1%}, worst {result['max_error']:.1%}.",
        *(
            f"On {kind} the hierarchy predicted best is {regret:.1%} slower than the best measured."
            for kind, regret in result["regret"].items()
        ),
        *_describe_latency_models(result),
        f"{'predicted':>10}{'measured':>10}  {'spread, ms':<16}{'error':>8}  hierarchy",
    ]
    for point in result["points"]:
        predicted, measured = point["predicted_s_per_token"] * 1e3, point["measured_s_per_token"] * 1e3
        spread = f"{point['measured']['low'] * 1e3:.2f} to {point['measured']['high'] * 1e3:.2f}"
        figures = f"{predicted:>7.2f} ms{measured:>7.2f} ms  {spread:<16}{point['error']:>+8.1%}"
        lines.append(f"{figures}  {point['hierarchy']} ({point['prompts']})")
    return "\n".join(lines)


def _describe_latency_models(result: dict[str, Any]) -> list[str]:
    """One line for each latency model: how far its predictions are off."""
    labels = {"paper": "Theorem 2.2 of the paper", "exact": "exact renewal expression", "trace": "replay of the traces"}
    return [
        f"  {labels[name]:<26}error median {error['median_error']:>6.1%}, worst {error['max_error']:>6.1%}, bias {error['bias']:>+6.1%}"
        + (" (the planner's)" if name == result["ranked_by"] else "")
        for name, error in result["latency_models"].items()
    ]


def _describe_paper(result: dict[str, Any], where: str) -> str:
    lines = [
        f"Latency per token of made-up hierarchies (seconds a pass, acceptance, thresholds), {result['tokens']:,} tokens simulated:",
        f"{'Theorem 2.2':>12}{'exact':>10}{'simulated':>11}   hierarchy",
    ]
    for case in result["cases"]:
        about = "; ".join(" ".join(f"{value:g}" for value in case[name]) for name in ("costs_s", "alphas", "thresholds"))
        lines.append(f"{case['paper']:>12.3f}{case['exact']:>10.3f}{case['simulated']:>11.3f}   {about}")
    lines += ["", "The comparison of the paper with the plan's models:"]
    return "\n".join([*lines, _describe_comparison(result["comparison"], where)])
