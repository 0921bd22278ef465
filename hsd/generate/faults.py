"""What went wrong in a level, as a sentence for whoever watches the run."""

from __future__ import annotations

import torch

from hsd.errors import HsdError


def explain(model: str, error: BaseException) -> str:
    """One line: what happened to `model`, and what to do where something can be done."""
    if isinstance(error, HsdError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return f"{model} ran out of memory; choose fewer or smaller models, or a shorter text."
    return f"{model} failed in its forward pass ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no detail'})."
