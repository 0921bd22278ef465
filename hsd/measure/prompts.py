"""Prompt sets: the project's own, or a file of the user's (txt, jsonl, csv)."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path, PurePath

from hsd.errors import BadInput
from hsd.measure.record import PromptSetInfo
from hsd.records import is_text
from hsd.settings import MAX_PROMPT_CHARACTERS

MAX_FILE_BYTES = 20_000_000
MAX_PROMPTS = 2_000
DEFAULT_NAME = "default"
DEFAULT_COLUMN = "prompt"
OWN_CATEGORY = "own"  # prompts of a file that names no category

_OWN_FILE = Path(__file__).with_name("prompts.jsonl")
_FORMATS = (".txt", ".jsonl", ".csv")


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    category: str
    prompt: str


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts in order. The hash covers categories and texts, not the file format they came in."""

    name: str
    prompts: tuple[Prompt, ...]

    def __len__(self) -> int:
        return len(self.prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    @property
    def sha256(self) -> str:
        content = [[prompt.category, prompt.prompt] for prompt in self.prompts]
        return hashlib.sha256(json.dumps(content, ensure_ascii=False).encode()).hexdigest()

    @property
    def info(self) -> PromptSetInfo:
        return PromptSetInfo(self.name, self.sha256, len(self.prompts))

    @property
    def categories(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts))

    def only(self, *categories: str) -> PromptSet:
        """The prompts of these categories; raises `BadInput` for one that is not there."""
        for category in categories:
            if category not in self.categories:
                raise BadInput(f"The prompt set {self.name} has no category “{category}”; it has {', '.join(self.categories)}.")
        return PromptSet(f"{self.name} ({', '.join(categories)})", tuple(p for p in self.prompts if p.category in categories))

    def spread(self, count: int) -> PromptSet:
        """`count` prompts that take the categories in turn, so that a small sample still covers all kinds of text."""
        if count >= len(self.prompts):
            return self
        columns = [[p for p in self.prompts if p.category == category] for category in self.categories]
        turns = (prompt for prompt in chain.from_iterable(zip_longest(*columns)) if prompt is not None)
        return PromptSet(
            f"{self.name}, {count} of {len(self.prompts)}", tuple(prompt for prompt, _ in zip(turns, range(count), strict=False))
        )


def load_default() -> PromptSet:
    """The project's own 40 prompts: summarisation, chat, question answering, code, translation, mathematics, stories, extraction."""
    rows = (json.loads(line) for line in _OWN_FILE.read_text(encoding="utf-8").splitlines())
    return PromptSet(DEFAULT_NAME, tuple(Prompt(row["id"], row["category"], row["prompt"]) for row in rows))


def load_file(source: Path | str | bytes, name: str | None = None, *, column: str | None = None) -> PromptSet:
    """Read a user's file, or its bytes with its `name`; the format is that of the name's ending.

    txt: prompts separated by blank lines, or one a line where there is no blank line. jsonl: one object or string a line.
    csv: with a header. `column` chooses the field of jsonl and csv (else `prompt`, or the only column).
    Raises `BadInput` that names the line.
    """
    if isinstance(source, bytes):
        data, name = source, name or "prompts.txt"
    else:
        path = Path(source)
        data, name = _read(path), name or path.name
    name = PurePath(name).name
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(f"{name} has {len(data) / 1e6:.0f} MB; a prompt file may have {MAX_FILE_BYTES / 1e6:.0f} MB.")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
    suffix = PurePath(name).suffix.lower()
    if suffix == ".txt":
        rows: Iterable[tuple[str, str, str]] = _text_rows(text)
    elif suffix == ".jsonl":
        rows = _jsonl_rows(text, name, column)
    elif suffix == ".csv":
        rows = _csv_rows(text, name, column)
    else:
        raise BadInput(f"{name} is not a prompt file; give one that ends in {', '.join(_FORMATS)}.")
    return PromptSet(name, tuple(checked(rows, name)))


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadInput(f"{path.name} has {path.stat().st_size / 1e6:.0f} MB; a prompt file may have {MAX_FILE_BYTES / 1e6:.0f} MB.")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error}); check the path.") from None


def checked(rows: Iterable[tuple[str, str, str]], name: str) -> Iterator[Prompt]:
    """Prompts out of untrusted rows (where, category, prompt); empty ones are skipped. Raises `BadInput` that names the row."""
    count = 0
    for where, category, prompt in rows:
        if not prompt.strip():
            continue
        if "\0" in prompt:
            raise BadInput(f"{name}, {where}: the prompt holds a NUL character; this is not a text file.")
        if not is_text(prompt):
            raise BadInput(f"{name}, {where}: the prompt holds half of a surrogate pair, which is no character; write it as UTF-8 text.")
        if len(prompt) > MAX_PROMPT_CHARACTERS:
            raise BadInput(f"{name}, {where}: the prompt has {len(prompt):,} characters, at most {MAX_PROMPT_CHARACTERS:,} are allowed.")
        count += 1
        if count > MAX_PROMPTS:
            raise BadInput(f"{name} holds more than {MAX_PROMPTS:,} prompts; give a part of it.")
        yield Prompt(f"{count}", category or OWN_CATEGORY, prompt.strip())
    if not count:
        raise BadInput(f"{name} holds no prompt; write one prompt a line.")


def _text_rows(text: str) -> Iterator[tuple[str, str, str]]:
    lines = text.strip("\n").split("\n")
    if any(not line.strip() for line in lines):
        block: list[str] = []
        for number, line in enumerate([*lines, ""], 1):
            if line.strip():
                block.append(line)
            elif block:
                yield f"line {number - len(block)}", "", "\n".join(block)
                block = []
    else:
        yield from ((f"line {number}", "", line) for number, line in enumerate(lines, 1))


def _jsonl_rows(text: str, name: str, column: str | None) -> Iterator[tuple[str, str, str]]:
    field = column or DEFAULT_COLUMN
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            raise BadInput(f"{name}, line {number}: this is not JSON; write one object such as {{“prompt”: “…”}} a line.") from None
        if isinstance(row, str):
            yield f"line {number}", "", row
            continue
        if not isinstance(row, dict) or not isinstance(row.get(field), str):
            has = f"; it has {', '.join(map(str, row))[:200]}" if isinstance(row, dict) and row else ""
            raise BadInput(f"{name}, line {number}: there is no text field “{field}”{has}. Choose the field that holds the prompts.")
        category = row.get("category")
        yield f"line {number}", category if isinstance(category, str) else "", row[field]


def _csv_rows(text: str, name: str, column: str | None) -> Iterator[tuple[str, str, str]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns = [name for name in reader.fieldnames or () if name]
        field = column or (columns[0] if len(columns) == 1 else DEFAULT_COLUMN)
        if field not in columns:
            raise BadInput(f"{name} has no column “{field}”; choose one of {', '.join(columns) or 'none (the file is empty)'}.")
        for row in reader:
            yield f"line {reader.line_num}", row.get("category") or "", row[field] or ""
    except csv.Error as error:
        raise BadInput(f"{name}, line {reader.line_num}: {error}; check the quotes of the csv file.") from None
