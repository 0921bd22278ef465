"""`python -m hsd pick|measure|plan|generate|compare|export`: the data path on the command line."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import IO, NoReturn

from hsd import ranks
from hsd.errors import BadInput, DeviceUnsupported, HsdError, IncompatibleModel

VERBS = {
    "pick": "list the models that can serve here, with memory and reasons",
    "measure": "measure forward costs and acceptance rates on this device",
    "plan": "find the hierarchy with the lowest predicted latency",
    "generate": "decode a prompt through a hierarchy",
    "compare": "measure a plan against the target alone and transformers' own modes",
    "export": "turn a plan into a snippet for another tool, or a report",
}


SHARDED_VERBS = ("generate",)  # measuring decides by its own clock when to end, so that processes would part


class _Parser(argparse.ArgumentParser):
    """A mistake is answered with one sentence; the whole usage is what `--help` is for. Of several processes the first
    speaks."""

    def _print_message(self, message: str, file: IO[str] | None = None) -> None:
        if not ranks.index():
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message[0].upper()}{message[1:]}; see `{self.prog} --help`.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; 2 with one sentence on stderr for a user's mistake; 141 when the reader of a pipe went away."""
    try:
        try:
            return _main(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `… | head` has seen enough; the interpreter must not try to flush again
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return 141


def _main(argv: Sequence[str]) -> int:
    parser = _Parser(prog="python -m hsd", description="Hierarchical speculative decoding: measured, planned and shown.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(VERBS))
    named = next((word for word in argv if word in VERBS), None)
    commands = {}
    for verb, summary in VERBS.items():
        subparser = verbs.add_parser(verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
        if verb == named:  # only this verb's module is imported: `--help` stays quick
            commands[verb] = importlib.import_module(f"hsd.{verb}.command")
            commands[verb].add_arguments(subparser)
    args = parser.parse_args(argv)
    command = commands[args.verb]
    try:
        if ranks.count() > 1 and args.verb not in SHARDED_VERBS:
            raise BadInput(f"`{args.verb}` runs in one process; under torchrun only {', '.join(SHARDED_VERBS)} does.")
        result = command.run(args)
    except HsdError as error:
        # What every process meets alike, the first says; what one alone meets, it must say itself.
        if not ranks.index() or not isinstance(error, BadInput | IncompatibleModel | DeviceUnsupported):
            print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print(str(stopped) or "Stopped.", file=sys.stderr)
        return 130
    finally:
        ranks.leave()
    if ranks.index():
        return 0
    print(json.dumps(result, ensure_ascii=False) if args.json else command.describe(result))
    return 0


if __name__ == "__main__":
    ranks.exit(main())
