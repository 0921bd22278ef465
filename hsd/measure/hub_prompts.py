"""Prompts from well-known hub data sets: a page of rows from the hub's dataset viewer, no library for data sets needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from hsd.errors import BadInput, ModelUnavailable
from hsd.measure.prompts import PromptSet, checked, load_file

ROWS = 60  # asked for; the viewer gives at most 100
MAX_BYTES = 5_000_000
MAX_SECONDS = 30.0
LONGEST_TEXT = 6_000  # characters; longer articles are left out, so that most models have room for them
_VIEWER = "https://datasets-server.huggingface.co/rows"


@dataclass(frozen=True, slots=True)
class Preset:
    dataset: str
    config: str
    split: str
    column: str
    instruction: str
    category: str


PRESETS = {
    "cnn_dailymail": Preset(
        "abisee/cnn_dailymail", "3.0.0", "test", "article", "Summarise this article in three sentences:", "summarisation"
    ),
    "xsum": Preset("EdinburghNLP/xsum", "default", "test", "document", "Summarise this article in one sentence:", "summarisation"),
}

Get = Callable[[str], bytes]


def load_preset(name: str, *, count: int = 40, get: Get | None = None) -> PromptSet:
    """The first `count` articles of a named data set that are short enough, each below an instruction.

    `get` fetches a URL (default: over the network, at most 5 MB and 30 s). Raises `BadInput` for a name that is no preset and
    `ModelUnavailable`, which says what to do, where the hub cannot be reached or answers with something else than rows.
    """
    preset = PRESETS.get(name)
    if preset is None:
        raise BadInput(f"“{name}” is no data set known here; known are {', '.join(PRESETS)}.")
    where = {"dataset": preset.dataset, "config": preset.config, "split": preset.split, "offset": 0, "length": ROWS}
    data = (get or fetch)(f"{_VIEWER}?{urlencode(where)}")
    try:
        rows = json.loads(data)["rows"]
        texts = list(_texts(rows, preset.column))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelUnavailable(
            f"The hub's answer about {preset.dataset} holds no rows ({type(error).__name__}); try again, or give a file of prompts."
        ) from error
    prompts = ((f"row {number}", preset.category, f"{preset.instruction}\n\n{text}") for number, text in texts[:count])
    return PromptSet(name, tuple(checked(prompts, name)))


def _texts(rows: Any, column: str) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(rows):
        text = row["row"][column]
        if not isinstance(text, str):
            raise TypeError(f"{column} is no text")
        if column not in row.get("truncated_cells", ()) and 0 < len(text.strip()) <= LONGEST_TEXT:
            yield number, text.strip()


def fetch(url: str) -> bytes:
    """The body at `url`; raises `ModelUnavailable` when it cannot be had, is too large or takes too long."""
    otherwise = "give a file of prompts with --prompts FILE instead, or use the project's own"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelUnavailable(f"HF_HUB_OFFLINE is set, so the hub is not asked for a data set; {otherwise}.")
    headers = {"Accept": "application/json", "User-Agent": "hsd"}
    ends = time.monotonic() + MAX_SECONDS
    body = bytearray()
    try:
        with urlopen(Request(url, headers=headers), timeout=MAX_SECONDS / 2) as answer:
            while chunk := answer.read1(65_536):
                body += chunk
                if len(body) > MAX_BYTES:
                    raise ModelUnavailable(f"The hub sent more than {MAX_BYTES / 1e6:.0f} MB; {otherwise}.")
                if time.monotonic() > ends:
                    raise ModelUnavailable(f"The hub took longer than {MAX_SECONDS:.0f} s; try again later, or {otherwise}.")
    except HTTPError as error:
        raise ModelUnavailable(f"The hub answered with status {error.code}; try again later, or {otherwise}.") from error
    except (OSError, HTTPException) as error:
        reason = str(getattr(error, "reason", "") or error)[:200]
        raise ModelUnavailable(f"The hub cannot be reached ({reason}); {otherwise}.") from error
    return bytes(body)


def load_named(source: str, column: str | None = None) -> PromptSet:
    """Prompts as the command line names them: a preset, or a file."""
    return load_preset(source) if source in PRESETS else load_file(source, column=column)
