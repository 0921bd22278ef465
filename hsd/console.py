"""The command line's common parts: progress on stderr, JSON files, options that several verbs share."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hsd import ranks
from hsd.errors import BadInput
from hsd.records import Progress, Sampling
from hsd.settings import make_writable


def report_to_stderr(progress: Progress) -> None:
    """One line that rewrites itself on a terminal, one line a step elsewhere. Of several processes the first speaks."""
    if ranks.index():
        return
    left = f", about {progress.seconds_left:.0f} s left" if progress.seconds_left else ""
    line = f"{progress.phase} {progress.done}/{progress.total}{left}  {progress.message}"
    end = "\r" if sys.stderr.isatty() and progress.done < progress.total else "\n"
    print(f"{line:<100}", end=end, file=sys.stderr, flush=True)


def read_json(path: Path, made_by: str) -> Any:
    """The JSON in `path`, or `BadInput` that says why it cannot be read and which command makes it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give the file that `{made_by}` wrote.") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); give the file that `{made_by}` wrote.") from error


def check_writable(path: Path, option: str) -> None:
    """Raise `BadInput` that names `option` when no file can be written at `path`; ask before the work whose result goes there."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        make_writable(path.parent)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another {option}.") from error


def write_text(path: Path, content: str) -> None:
    """Write a whole file or nothing: a killed process leaves the old one as it was. Of several processes the first writes."""
    if ranks.index():
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as part:
            part.write(content)
        os.replace(part.name, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another path.") from error


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def names(words: str, option: str) -> list[str]:
    """The names of a comma-separated list. Raises `BadInput` for one without any."""
    found = [name.strip() for name in words.split(",") if name.strip()]
    if not found:
        raise BadInput(f"{option} names nothing; give names separated by commas, or leave it out.")
    return found


def add_sampling_arguments(parser: argparse.ArgumentParser, first: str = "") -> None:
    """An option for each of the `Sampling` settings; `first` says in the help where else they come from."""
    parser.add_argument("--temperature", type=float, metavar="t", help=f"0 is greedy (default: {first}0)")
    parser.add_argument("--top-k", type=int, metavar="k", help=f"0 is off (default: {first}0)")
    parser.add_argument("--top-p", type=float, metavar="p", help=f"1 is off (default: {first}1)")
    parser.add_argument("--min-p", type=float, metavar="p", help=f"0 is off (default: {first}0)")
    parser.add_argument("--repetition-penalty", type=float, metavar="r", help=f"1 is off (default: {first}1)")
    parser.add_argument("--no-repeat-ngram-size", type=int, metavar="n", help=f"0 is off (default: {first}0)")
    parser.add_argument("--seed", type=int, metavar="s", help=f"same seed, same text (default: {first}0)")


def given_sampling(args: argparse.Namespace, otherwise: Sampling) -> Sampling:
    """The settings given on the command line, those of `otherwise` for the rest. Raises `BadInput` for one out of range."""
    given = {field.name: getattr(args, field.name) for field in fields(Sampling) if getattr(args, field.name) is not None}
    return replace(otherwise, **given)
