"""From the host's numbers to a device's tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def upload(token_ids: Sequence[int], device: torch.device) -> torch.Tensor:
    """`token_ids` as int64 (n,) on `device`. On CUDA the copy is queued behind the work under way; nothing waits for it."""
    if device.type == "cuda":
        return torch.tensor(token_ids, dtype=torch.long, pin_memory=True).to(device, non_blocking=True)
    return torch.tensor(token_ids, dtype=torch.long, device=device)
