"""Networks that check their caches in every pass: what a level says is what it would say without a cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from hsd.models.network import Network, Proposer


class Watched:
    """Records what is fed, and compares each pass with a pass over the whole text and a fresh cache."""

    def __init__(self, network: Network, tolerance: float = 1e-3) -> None:
        self.network, self.tolerance = network, tolerance
        self.text: list[int] = []  # what the cache holds
        self.widths: list[int] = []
        self.longest = 0
        self.cache = None

    def __getattr__(self, name: str):
        return getattr(self.network, name)

    def new_cache(self, capacity: int):
        self.capacity = capacity
        self.cache = self.network.new_cache(capacity)
        self.text = []
        return self.cache

    def adopt(self, cache, other, other_cache) -> bool:
        if self.name.startswith("quantized:"):  # would start from the target's own keys and values, which are not its own
            return False
        taken = self.network.adopt(cache, getattr(other, "network", other), other_cache)
        if taken:
            self.text = list(other.text[: cache.length])
        return taken

    def forward(self, token_ids: torch.Tensor, cache, num_logits: int) -> torch.Tensor:
        assert cache is self.cache, "a run has one cache for each level"
        self.text = [*self.text[: cache.length], *token_ids.tolist()]
        logits = self.network.forward(token_ids, cache, num_logits)
        assert cache.length == len(self.text), "the cache holds what was fed, and nothing else"
        whole = self.network.forward(torch.tensor(self.text), self.network.new_cache(len(self.text)), num_logits)
        torch.testing.assert_close(logits, whole, rtol=self.tolerance, atol=self.tolerance)
        self.widths.append(len(token_ids))
        self.longest = max(self.longest, cache.length)
        return logits


def watched(networks: Mapping[str, Network | Proposer], names: Sequence[str]) -> dict[str, Network | Proposer]:
    """`networks` with those of `names` that have a cache watched; the target is one of them."""
    return {name: Watched(model) if name in names and isinstance(model, Network) else model for name, model in networks.items()}
