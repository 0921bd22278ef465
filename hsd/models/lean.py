"""A lean forward pass for Llama-like models: fused projections, preallocated caches, grouped attention.

transformers' eager forward spends about as long on small operations as on matrix products when a pass is a few
tokens wide. Here each layer is some fifteen operations, keys and values are written in place, rollback is a
counter, and keys are never repeated for grouped queries. Weights are taken over from the module and kept once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from hsd.errors import BadInput
from hsd.models import kernels
from hsd.models.graphs import WIDEST_RECORDED, SlotCache, steps_for
from hsd.models.kernels import CACHE_LINE, Kernels, LargePages
from hsd.models.layer import Layer, Shape, after_attention, heads_of
from hsd.models.linear import Linear
from hsd.models.network import Cache, Network
from hsd.models.program import program_for

# In bfloat16 on a CPU every product below gives a token the same bits whatever the width of its pass, if attention is
# computed in tiles of one shape: a fixed number of query tokens over a padded number of keys. Greedy text through a
# hierarchy is then the target's own, bit for bit, and not only up to near-ties.
TILE = 4  # query tokens
KEY_BLOCK = 32  # keys
WIDEST_TILED = 64  # a prompt's passes are wider and the same for every hierarchy


class StaticCache:
    """Keys and values of every layer in one block of memory; the length is a number.

    Compiled attention orders them within blocks of `KEY_BLOCK` tokens in its own way (attention.c).
    """

    __slots__ = ("capacity", "keys", "length", "values")

    def __init__(self, num_layers: int, shape: Shape, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        size = (num_layers, shape.kv_heads, _round_up(capacity), shape.head_dim)
        if device.type == "cpu":
            pages = LargePages(2 * math.prod(size) * dtype.itemsize + CACHE_LINE)
            self.keys, self.values = pages.zeros(size, dtype), pages.zeros(size, dtype)
        else:
            self.keys, self.values = (torch.zeros(size, dtype=dtype, device=device) for _ in range(2))
        self.capacity = capacity
        self.length = 0

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)


class LeanNetwork:
    """Behind the `Network` protocol; built from a transformers module, or derived from another lean network."""

    def __init__(
        self,
        name: str,
        layers: list[Layer],
        embed: Callable[[torch.Tensor], torch.Tensor],  # (q,) int64 -> (q, hidden)
        vocab_size: int,
        final_norm: torch.Tensor,
        head: Linear,
        shape: Shape,
        rotary: tuple[torch.Tensor, torch.Tensor],
        memory_bytes: int,
        parent: LeanNetwork | None = None,  # the network this one was made from
    ) -> None:
        self.name = name
        self.parent = parent
        self.layers = layers
        self.embed = embed
        self.final_norm = final_norm
        self.head = head
        self.shape = shape
        self.cos, self.sin = rotary  # (max_context, head_dim); sin is negated in its first half
        self.memory_bytes = memory_bytes
        self.vocab_size = vocab_size
        self.max_context = self.cos.shape[0]
        self.device, self.dtype = final_norm.device, final_norm.dtype
        self.program = program_for(layers, final_norm, shape)
        self.kernels = _kernels_for(self)
        self.steps = steps_for(self)

    def new_cache(self, capacity: int) -> StaticCache | SlotCache:
        if self.steps is not None:
            return self.steps.new_cache(capacity)
        return StaticCache(len(self.layers), self.shape, min(capacity, self.max_context), self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, cache: StaticCache, num_logits: int) -> torch.Tensor:
        """(q,) int64 -> logits (num_logits, vocab) of the last `num_logits` tokens, in the model's dtype."""
        start = cache.length
        width = token_ids.shape[0]
        stop = start + width
        if stop > cache.capacity:
            raise BadInput(f"{self.name} holds {cache.capacity} tokens, the text needs {stop}.")
        if self.steps is not None and width <= WIDEST_RECORDED:
            return self.steps(token_ids, cache, num_logits)
        x = self.embed(token_ids.to(self.device))  # (q, hidden)
        if self.program is not None:
            x = self.program(x, cache, self.cos[start:stop], self.sin[start:stop])
        elif self.kernels is not None and width <= WIDEST_TILED:
            x = self._layers_in_kernels(self.kernels, x, cache, start)
        else:
            x = self._layers_in_torch(x, cache, start)
        cache.length = stop
        return self.head(x[width - num_logits :])

    def _layers_in_kernels(self, compiled: Kernels, x: torch.Tensor, cache: StaticCache, start: int) -> torch.Tensor:
        """All layers and the final norm, (q, hidden) -> (q, hidden); between the products run compiled loops."""
        eps, heads = self.shape.eps, self.shape.heads
        cos, sin = self.cos[start : start + x.shape[0]], self.sin[start : start + x.shape[0]]
        delta = None
        for index, layer in enumerate(self.layers):
            h = compiled.add_norm(x, delta, layer.input_norm, eps)
            attended = compiled.attend(layer.qkv(h), cache.keys[index], cache.values[index], cos, sin, start, heads)
            h = compiled.add_norm(x, layer.out(attended), layer.post_norm, eps)
            delta = layer.down(compiled.silu_mul(layer.gate_up(h)))
        return compiled.add_norm(x, delta, self.final_norm, eps)

    def _layers_in_torch(self, x: torch.Tensor, cache: StaticCache, start: int) -> torch.Tensor:
        """The same in torch's own operations: any device and dtype, and the wide passes of a prompt."""
        shape, width = self.shape, x.shape[0]
        stop = start + width
        cos, sin = self.cos[start:stop, None], self.sin[start:stop, None]  # (q, 1, head_dim)
        tile = TILE if width <= WIDEST_TILED else width
        mask = _causal_mask(width, start, tile, shape.heads // shape.kv_heads, x.dtype, x.device)
        for index, layer in enumerate(self.layers):
            queries, cache.keys[index, :, start:stop], cache.values[index, :, start:stop] = (
                part.transpose(0, 1) for part in heads_of(layer, x, shape, cos, sin)
            )
            x = after_attention(layer, x, self._attend(queries, cache.keys[index], cache.values[index], mask), shape)
        return F.rms_norm(x, (shape.hidden,), self.final_norm, shape.eps)

    def adopt(self, cache: StaticCache, other: Network, other_cache: Cache) -> bool:
        """A draft made from the target may start from the target's own keys and values: any draft is lossless."""
        if other is not self.parent or (self.program is None) != (other.program is None):  # another order within blocks
            return False
        num_layers, blocks = len(self.layers), _round_up(other_cache.length)
        cache.keys[:, :, :blocks] = other_cache.keys[:num_layers, :, :blocks]
        cache.values[:, :, :blocks] = other_cache.values[:num_layers, :, :blocks]
        cache.length = other_cache.length
        return True

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention of queries (heads, q, head_dim) over keys and values (kv_heads, capacity, head_dim): (q, heads * head_dim)."""
        shape, width = self.shape, queries.shape[1]
        # Queries that share a key-value head become rows of one product, a tile of tokens at a time.
        group = shape.heads // shape.kv_heads
        tiles, _, rows, padded = mask.shape
        queries = F.pad(queries, (0, 0, 0, tiles * rows // group - width))
        queries = queries.view(shape.kv_heads, group, tiles, rows // group, shape.head_dim).permute(2, 0, 3, 1, 4)
        queries = queries.reshape(tiles, shape.kv_heads, rows, shape.head_dim)
        attended = F.scaled_dot_product_attention(
            queries, keys[None, :, :padded].expand(tiles, -1, -1, -1), values[None, :, :padded].expand(tiles, -1, -1, -1), attn_mask=mask
        )
        attended = attended.view(tiles, shape.kv_heads, rows // group, group, shape.head_dim).transpose(1, 2)
        return attended.reshape(tiles * rows // group, shape.heads * shape.head_dim)[:width]


def _kernels_for(network: LeanNetwork) -> Kernels | None:
    fits = all(layer.q_norm is None for layer in network.layers) and network.shape.head_dim <= kernels.MAX_HEAD_DIM
    found = kernels.load() if fits and kernels.applicable(network.device, network.dtype) else None
    return found if isinstance(found, Kernels) else None


def _causal_mask(width: int, start: int, tile: int, group: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Additive mask (tiles, 1, tile * group, padded keys): a new token sees the cache and the new tokens up to itself."""
    padded = _round_up(start + width)
    tokens = -(-width // tile) * tile
    future = torch.ones(tokens, padded, dtype=torch.bool, device=device).triu(start + 1)
    mask = torch.zeros(tokens, padded, dtype=dtype, device=device).masked_fill_(future, float("-inf"))
    return mask.repeat_interleave(group, dim=0).view(tokens // tile, 1, tile * group, padded)


def _round_up(length: int) -> int:
    return -(-length // KEY_BLOCK) * KEY_BLOCK
