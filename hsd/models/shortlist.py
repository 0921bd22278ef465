"""A head of 4 bits that is exact where it matters: for the tokens that may be the most likely one."""

from __future__ import annotations

from typing import TypeGuard

import torch

from hsd.models.blocked import BlockedInt4Linear, BlockedLinear
from hsd.models.kernels import LargePages
from hsd.models.linear import Linear
from hsd.settings import INT4_GROUP_SIZE

_DEVIATIONS = 5.0  # of a score's rounding: the most likely token of the exact head was never further from the top in 1,000


def serves_as_shortlist(head: Linear, bits: int) -> TypeGuard[BlockedLinear]:
    """Whether a copy with `bits` bits gets such a head."""
    return bits == 4 and isinstance(head, BlockedLinear) and head.shape[1] % INT4_GROUP_SIZE == 0


class ShortlistHead:
    """Scores of the whole vocabulary from a copy of the head in 4 bits, those near the largest from the head itself.

    A head is a fifth of a small model and one token in nine changes when it is rounded to 4 bits; but a handful of rows decides.
    """

    __slots__ = ("_deviation", "_exact", "_rough")

    def __init__(self, exact: BlockedLinear, pages: LargePages | None) -> None:
        """`exact` is the head that this one shares with its target, (vocab, hidden)."""
        self._exact = exact
        self._rough = BlockedInt4Linear(exact.kernels, exact.weight, exact.bias, pages)
        # Rounding to steps of s is off by s / sqrt(12), and a sum of such errors times x by that times the length of x.
        self._deviation = _DEVIATIONS * float(self._rough.steps.square().mean().div(12).sqrt())

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rough, exact = self._rough, self._exact
        return rough.kernels.shortlist(x.contiguous(), rough.product, exact.product, self._deviation)  # (q, hidden) -> (q, vocab)

    @property
    def nbytes(self) -> int:
        return self._rough.nbytes
