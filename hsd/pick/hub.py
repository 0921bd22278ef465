"""Fetch a hub model in a process of its own: with progress, stoppable at once, and resumed by the next try."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hsd.errors import ModelUnavailable
from hsd.pick.subprocesses import folder_bytes, python_path, run_until_done
from hsd.records import Progress, Report, ShouldStop

SENTENCE_FOLLOWS = 3  # exit code of the fetching program when its last line is meant for the user

_FETCHER = "hsd.pick.fetch"


def fetch(hub_id: str, report: Report | None = None, should_stop: ShouldStop | None = None) -> None:
    """Bring configuration, tokenizer and safetensors weights into the hub's own cache.

    Raises `ModelUnavailable` with what the hub said, or `Cancelled`.
    """
    blobs = _blobs(hub_id)
    before = folder_bytes(blobs)
    total = 0

    def line(text: str) -> None:
        nonlocal total
        if text.startswith("total "):
            total = int(text.split()[1])

    def tick() -> None:
        if report:
            done = min(folder_bytes(blobs) - before, total)
            report(Progress("fetch model", max(0, done), total, message=f"{hub_id} from the hub"))

    code, output = run_until_done(
        [sys.executable, "-m", _FETCHER, hub_id],
        env={**os.environ, "PYTHONPATH": python_path(), "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        tick=tick,
        should_stop=should_stop or (lambda: False),
        on_line=line,
    )
    if code == 0:
        return
    said = (output.strip().splitlines() or [f"exit code {code}"])[-1]
    if code == SENTENCE_FOLLOWS:
        raise ModelUnavailable(said)
    raise ModelUnavailable(f"{hub_id} could not be fetched: “{said[:300]}”. Try again; what was fetched is kept.")


def _blobs(hub_id: str) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}" / "blobs"
