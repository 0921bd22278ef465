"""Random bfloat16 values for the kernels."""

from __future__ import annotations

import torch

HALF_ULP = 2**-8  # relative rounding of bfloat16


def rows(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).bfloat16()
