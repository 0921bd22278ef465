"""What a level of a hierarchy is made of: shared weights, and a cache of its own for each generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch


class Cache(Protocol):
    """Keys and values of the tokens fed so far; rollback is `crop`."""

    @property
    def length(self) -> int: ...

    def crop(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""


@runtime_checkable
class Network(Protocol):
    """Weights of one causal language model; holds no state between calls, so sessions share it."""

    name: str
    vocab_size: int
    max_context: int
    device: torch.device
    dtype: torch.dtype
    memory_bytes: int  # bytes this network adds to what it shares with others

    def new_cache(self, capacity: int) -> Cache:
        """An empty cache for at most `capacity` tokens."""

    def forward(self, token_ids: torch.Tensor, cache: Cache, num_logits: int) -> torch.Tensor:
        """Feed `token_ids` (q,) int64 after `cache.length` tokens; logits (num_logits, vocab) of the last ones."""

    def adopt(self, cache: Cache, other: Network, other_cache: Cache) -> bool:
        """Take over the keys and values of another network's cache where they serve; whether that was possible."""


@runtime_checkable
class Proposer(Protocol):
    """A draft without weights: its distribution is one-hot on what it proposes (design §2)."""

    name: str

    def fresh(self) -> Proposer:
        """A copy without the memory of any text, for one generation."""

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        """At most `count` likely next tokens after `token_ids`, possibly none. `token_ids` go on from those of the last call, less what was
        rolled back. They are the run's own list, as a copy would take as long as a proposal: to alter it would alter the text."""

    def rollback(self, length: int) -> None:
        """Forget everything after the first `length` tokens."""
