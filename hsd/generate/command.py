"""`python -m hsd generate`: decode one prompt through a plan or a hierarchy written by hand."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hsd.console import add_sampling_arguments, check_writable, given_sampling, read_json, report_to_stderr, write_json
from hsd.errors import BadInput
from hsd.generate.collect import collect
from hsd.generate.engine import generate
from hsd.generate.levels import cannot_verify
from hsd.generate.prompt import check_prompt, encode_prompt
from hsd.generate.record import Run
from hsd.generate.rule import RULES
from hsd.models.build import PROPOSERS
from hsd.pick.registry import REGISTRY
from hsd.plan.record import Plan
from hsd.records import GREEDY, Hierarchy
from hsd.settings import DEFAULT_MAX_NEW_TOKENS, DEFAULT_TARGET
from hsd.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "More than one GPU: a target that does not fit on one is spread over all by itself; to shard it with tensor parallelism, "
        "start `torchrun --nproc-per-node N -m hsd generate …`: every process holds 1/N of the target and each draft whole."
    )
    parser.add_argument("--plan", type=Path, help="plan file, made by `python -m hsd plan`")
    parser.add_argument("--target", help=f"target model, without a plan (default: {DEFAULT_TARGET})")
    parser.add_argument("--hierarchy", default="", help='drafts with thresholds, smallest first: "prompt-lookup@3,quantized:int4@8"')
    parser.add_argument("--prompt", help="the prompt")
    parser.add_argument("--prompt-file", type=Path, help="a text file that holds the prompt")
    parser.add_argument("--system", help="system prompt of the chat template")
    parser.add_argument("--raw", action="store_true", help="plain completion: no chat template")
    parser.add_argument("--max-new-tokens", type=int, default=DEFAULT_MAX_NEW_TOKENS, metavar="N", help="(default: %(default)s)")
    add_sampling_arguments(parser, "the plan's, else ")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="stop once this text is generated; may be given again")
    parser.add_argument(
        "--verification",
        choices=sorted(RULES),
        default="token",
        help="rule for sampled blocks: by token, or by block (default: %(default)s)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (default: %(default)s)")
    parser.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16 (default: the plan's, else auto)")
    parser.add_argument("--trace", type=Path, help="write every token and round to this JSON file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Generate and return text, tokens, rounds and seconds."""
    plan = _plan(args)
    hierarchy = plan.hierarchy if plan else Hierarchy.parse(args.hierarchy, args.target or DEFAULT_TARGET)
    sampling = given_sampling(args, plan.sampling if plan else GREEDY)
    dtype = plan.dtype if plan and args.dtype == "auto" else args.dtype
    prompt = _prompt(args)
    _check(args, prompt, hierarchy)
    drafts = [level.model for level in hierarchy.drafts]
    with REGISTRY.lease(hierarchy.target, drafts, device=args.device, dtype=dtype, report=report_to_stderr) as models:
        if models.notices:
            raise BadInput(f"Nothing was generated, as the hierarchy is not complete. {' '.join(models.notices.values())}")
        prompt_ids = encode_prompt(models.tokenizer, prompt, raw=args.raw, system=args.system)
        events = generate(
            models,
            hierarchy,
            prompt_ids,
            sampling=sampling,
            max_new_tokens=args.max_new_tokens,
            stop=args.stop,
            rule=RULES[args.verification],
        )
        generation = collect(events)
        parts = generation.tokens, generation.rounds, generation.notices, generation.end
        trace = Run(hierarchy, prompt, len(prompt_ids), sampling, *parts, models.environment).to_json()
    if args.trace:
        write_json(args.trace, trace)
    return {
        "text": generation.end.text,
        "token_ids": list(generation.token_ids),
        "hierarchy": [asdict(level) for level in hierarchy.levels],
        "tokens": trace["tokens"],
        "rounds": trace["rounds"],
        "notices": trace["notices"],
        "reason": generation.end.reason,
        "seconds": trace["seconds"],
        "sampling": trace["sampling"],
        "environment": trace["environment"],
    }


def describe(result: dict[str, Any]) -> str:
    """The text, then one line of figures and who generated the tokens."""
    count = len(result["token_ids"])
    decode_s = result["seconds"]["decode"]
    names = [level["model"] for level in result["hierarchy"]]
    shares = ", ".join(f"{name} {sum(token['generated_by'] == name for token in result['tokens'])}" for name in names)
    notices = [notice["message"] for notice in result["notices"]]
    figures = (
        f"{counted(count, 'token')} in {decode_s:.2f} s, {count / decode_s:.1f} tokens/s "
        f"after a prompt pass of {result['seconds']['prefill']:.2f} s "
        f"({result['environment']['device_name']}, {result['environment']['dtype']}); generated by {shares}."
    )
    return "\n".join([result["text"], "", *notices, figures])


def _check(args: argparse.Namespace, prompt: str, hierarchy: Hierarchy) -> None:
    """Raise `BadInput` for what is known before anything is loaded."""
    check_prompt([{"role": "user", "content": prompt}], raw=args.raw, system=args.system)
    if args.max_new_tokens < 1:
        raise BadInput(f"--max-new-tokens is {args.max_new_tokens}; give at least 1.")
    if "" in args.stop:
        raise BadInput("An empty --stop text would end every text at once; leave it out.")
    for level in hierarchy.levels[1:]:
        if level.model in PROPOSERS:
            raise cannot_verify(level.model)
    if args.trace:
        check_writable(args.trace, "--trace")


def _plan(args: argparse.Namespace) -> Plan | None:
    if args.plan is None:
        return None
    if args.target or args.hierarchy:
        raise BadInput("Give either --plan or --target with --hierarchy, not both.")
    return Plan.from_json(read_json(args.plan, "python -m hsd plan --out"))


def _prompt(args: argparse.Namespace) -> str:
    if (args.prompt is None) == (args.prompt_file is None):
        raise BadInput("Give the prompt with --prompt TEXT or with --prompt-file FILE, one of the two.")
    if args.prompt is not None:
        return args.prompt
    try:
        return args.prompt_file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{args.prompt_file} cannot be read ({error.strerror}); check the path.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{args.prompt_file} is not UTF-8 text; save it as such.") from error
