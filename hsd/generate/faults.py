"""What went wrong in a level, as a sentence for whoever watches the run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from hsd.errors import HsdError, LevelFault


def explain(model: str, error: BaseException) -> str:
    """One line: what happened to `model`, and what to do where something can be done."""
    if isinstance(error, HsdError):
        return str(error)
    if ran_out_of_memory(error):
        return f"{model} ran out of memory; choose fewer or smaller models, or a shorter text."
    return f"{model} failed in its forward pass ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no detail'})."


def ran_out_of_memory(error: BaseException) -> bool:
    """On a CPU torch says so by a plain `RuntimeError`."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in text or "can't allocate memory" in text


@contextlib.contextmanager
def as_level_fault(model: str) -> Iterator[None]:
    """What torch raises inside is raised as a `LevelFault` that says what happened to `model`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        raise LevelFault(explain(model, error)) from error
