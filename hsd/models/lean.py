"""A lean forward pass for Llama-like models: fused projections, preallocated caches, grouped attention.

transformers' eager forward spends about as long on small operations as on matrix products when a pass is a few
tokens wide. Here each layer is some fifteen operations, keys and values are written in place, rollback is a
counter, and keys are never repeated for grouped queries. The module's own weights are used, without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from hsd.errors import BadInput
from hsd.models import kernels
from hsd.models.causal import context_limit
from hsd.models.kernels import CACHE_LINE, Kernels, LargePages
from hsd.models.linear import (
    WIDEST_STREAMED,
    DenseLinear,
    Linear,
    PackedDenseLinear,
    StreamedLinear,
    dense_linear,
    quantized_linear,
    streaming_kernels,
)
from hsd.models.network import Cache, Network
from hsd.models.program import program_for

# In bfloat16 on a CPU every product below gives a token the same bits whatever the width of its pass, if attention is
# computed in tiles of one shape: a fixed number of query tokens over a padded number of keys. Greedy text through a
# hierarchy is then the target's own, bit for bit, and not only up to near-ties.
TILE = 4  # query tokens
KEY_BLOCK = 32  # keys
WIDEST_TILED = WIDEST_STREAMED  # a prompt's passes are wider and the same for every hierarchy

LEAN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE_TYPES = ("default", "llama3", "linear")  # others change with the length of the text


@dataclass(frozen=True, slots=True)
class Layer:
    input_norm: torch.Tensor  # (hidden,)
    qkv: Linear  # hidden -> (heads + 2 kv_heads) * head_dim
    q_norm: torch.Tensor | None  # (head_dim,), Qwen3
    k_norm: torch.Tensor | None
    out: Linear  # heads * head_dim -> hidden
    post_norm: torch.Tensor  # (hidden,)
    gate_up: Linear  # hidden -> 2 * intermediate
    down: Linear  # intermediate -> hidden


@dataclass(frozen=True, slots=True)
class Shape:
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    eps: float


class StaticCache:
    """Keys and values of every layer in one block of memory; the length is a number."""

    __slots__ = ("capacity", "keys", "length", "values")

    def __init__(self, num_layers: int, shape: Shape, capacity: int, dtype: torch.dtype, device: torch.device) -> None:
        size = (num_layers, shape.kv_heads, _round_up(capacity), shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
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
        embedding: torch.Tensor,
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
        self.embedding = embedding  # (vocab, hidden)
        self.final_norm = final_norm
        self.head = head
        self.shape = shape
        self.cos, self.sin = rotary  # (max_context, head_dim); sin is negated in its first half
        self.memory_bytes = memory_bytes
        self.vocab_size = embedding.shape[0]
        self.max_context = self.cos.shape[0]
        self.device, self.dtype = embedding.device, embedding.dtype
        self.kernels = _kernels_for(self)
        self.program = None if self.kernels is None else program_for(self.kernels, layers, final_norm, shape)

    def new_cache(self, capacity: int) -> StaticCache:
        return StaticCache(len(self.layers), self.shape, min(capacity, self.max_context), self.dtype, self.device)

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, cache: StaticCache, num_logits: int) -> torch.Tensor:
        """(q,) int64 -> logits (num_logits, vocab) of the last `num_logits` tokens, in the model's dtype."""
        start = cache.length
        width = token_ids.shape[0]
        stop = start + width
        if stop > cache.capacity:
            raise BadInput(f"{self.name} holds {cache.capacity} tokens, the text needs {stop}.")
        x = F.embedding(token_ids.to(self.device), self.embedding)  # (q, hidden)
        if self.kernels is not None and width <= WIDEST_TILED:
            x = self._layers_in_kernels(self.kernels, x, cache, start)
        else:
            x = self._layers_in_torch(x, cache, start)
        cache.length = stop
        return self.head(x[width - num_logits :])

    def _layers_in_kernels(self, compiled: Kernels, x: torch.Tensor, cache: StaticCache, start: int) -> torch.Tensor:
        """All layers and the final norm, (q, hidden) -> (q, hidden); between the products run compiled loops."""
        eps, heads = self.shape.eps, self.shape.heads
        cos, sin = self.cos[start : start + x.shape[0]], self.sin[start : start + x.shape[0]]
        if self.program is not None:
            return self.program(x, cache, cos, sin)
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
        cos, sin = self.cos[start : start + width, None], self.sin[start : start + width, None]  # (q, 1, head_dim)
        tile = TILE if width <= WIDEST_TILED else width
        mask = _causal_mask(width, start, tile, shape.heads // shape.kv_heads, x.dtype, x.device)
        for index, layer in enumerate(self.layers):
            h = F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.eps)
            attended = self._attend(layer, layer.qkv(h), cache.keys[index], cache.values[index], start, cos, sin, mask)
            x = x + layer.out(attended)
            h = F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.eps)
            gate, up = layer.gate_up(h).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return F.rms_norm(x, (shape.hidden,), self.final_norm, shape.eps)

    def adopt(self, cache: StaticCache, other: Network, other_cache: Cache) -> bool:
        """A draft made from the target may start from the target's own keys and values: any draft is lossless."""
        if other is not self.parent:
            return False
        num_layers, length = len(self.layers), other_cache.length
        cache.keys[:, :, :length] = other_cache.keys[:num_layers, :, :length]
        cache.values[:, :, :length] = other_cache.values[:num_layers, :, :length]
        cache.length = length
        return True

    def _attend(
        self,
        layer: Layer,
        qkv: torch.Tensor,  # (q, (heads + 2 kv_heads) * head_dim)
        keys: torch.Tensor,  # (kv_heads, capacity, head_dim)
        values: torch.Tensor,
        start: int,
        cos: torch.Tensor,
        sin: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attention of the new tokens over the cache, (q, heads * head_dim)."""
        shape, width = self.shape, qkv.shape[0]
        stop = start + width
        qkv = qkv.view(width, shape.heads + 2 * shape.kv_heads, shape.head_dim)
        rotated = qkv[:, : shape.heads + shape.kv_heads]
        if layer.q_norm is not None:
            queries = F.rms_norm(rotated[:, : shape.heads], (shape.head_dim,), layer.q_norm, shape.eps)
            rotated = torch.cat([queries, F.rms_norm(rotated[:, shape.heads :], (shape.head_dim,), layer.k_norm, shape.eps)], dim=1)
        rotated = torch.addcmul(rotated * cos, rotated.roll(shape.head_dim // 2, -1), sin)
        keys[:, start:stop] = rotated[:, shape.heads :].transpose(0, 1)
        values[:, start:stop] = qkv[:, shape.heads + shape.kv_heads :].transpose(0, 1)
        # Queries that share a key-value head become rows of one product, a tile of tokens at a time.
        group = shape.heads // shape.kv_heads
        tiles, _, rows, padded = mask.shape
        queries = rotated[:, : shape.heads].unflatten(1, (shape.kv_heads, group))  # (q, kv_heads, group, head_dim)
        if width < tiles * rows // group:
            queries = F.pad(queries, (0, 0, 0, 0, 0, 0, 0, tiles * rows // group - width))
        queries = queries.view(tiles, rows // group, shape.kv_heads, group, shape.head_dim).transpose(1, 2)
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


def supports_lean(module: PreTrainedModel) -> bool:
    """Whether this architecture and configuration is what `LeanNetwork` computes."""
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in LEAN_TYPES
        and type(module).__name__.endswith("ForCausalLM")
        and getattr(config, "hidden_act", "") == "silu"
        and rope.get("rope_type", "default") in _ROPE_TYPES
        and not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and not getattr(config, "mlp_bias", False)
        and all(type(layer.self_attn.q_proj) is torch.nn.Linear for layer in module.model.layers)
    )


def lean_network(name: str, module: PreTrainedModel) -> LeanNetwork:
    """Take over the weights of `module`, its projections fused; nothing is kept twice.

    Where the fused weights are packed for a kernel, the module's own are given up and it can compute no more
    (`is_spent`); elsewhere they become views of the fused ones.
    """
    model, config = module.model, module.config
    first = model.layers[0].self_attn
    pages = _pages_for(module)
    shape = Shape(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=first.head_dim,
        hidden=config.hidden_size,
        eps=config.rms_norm_eps,
    )
    layers = []
    for block in model.layers:
        attention, mlp = block.self_attn, block.mlp
        layers.append(
            Layer(
                input_norm=block.input_layernorm.weight.detach(),
                qkv=_fuse(pages, attention.q_proj, attention.k_proj, attention.v_proj),
                q_norm=attention.q_norm.weight.detach() if hasattr(attention, "q_norm") else None,
                k_norm=attention.k_norm.weight.detach() if hasattr(attention, "k_norm") else None,
                out=_fuse(pages, attention.o_proj),
                post_norm=block.post_attention_layernorm.weight.detach(),
                gate_up=_fuse(pages, mlp.gate_proj, mlp.up_proj),
                down=_fuse(pages, mlp.down_proj),
            )
        )
    tied = module.lm_head.weight is model.embed_tokens.weight
    head = _fuse(pages, module.lm_head)
    if tied and pages is not None:
        model.embed_tokens.weight = module.lm_head.weight
    embedding = model.embed_tokens.weight.detach()
    products = [head, *(linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down))]
    shares_embedding = not isinstance(head, PackedDenseLinear) and head.weight.data_ptr() == embedding.data_ptr()
    memory_bytes = sum(product.nbytes for product in products) + (0 if shares_embedding else embedding.nbytes)
    return LeanNetwork(
        name,
        layers,
        embedding=embedding,
        final_norm=model.norm.weight.detach(),
        head=head,
        shape=shape,
        rotary=_rotary_tables(module),
        memory_bytes=memory_bytes,
    )


def quantized_copy(name: str, network: LeanNetwork, bits: int) -> LeanNetwork:
    """A weight-only copy of `network` with `bits` bits that shares its embedding, norms and rotary tables."""
    quantize = lambda linear: quantized_linear(linear.weight, linear.bias, bits)  # noqa: E731
    layers = [
        replace(layer, qkv=quantize(layer.qkv), out=quantize(layer.out), gate_up=quantize(layer.gate_up), down=quantize(layer.down))
        for layer in network.layers
    ]
    head = quantize(network.head)
    size = head.nbytes + sum(linear.nbytes for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down))
    rotary = (network.cos, network.sin)
    return LeanNetwork(name, layers, network.embedding, network.final_norm, head, network.shape, rotary, memory_bytes=size, parent=network)


def early_exit_copy(name: str, network: LeanNetwork, num_layers: int) -> LeanNetwork:
    """The first `num_layers` layers with the final norm and head; shares every weight."""
    rotary = (network.cos, network.sin)
    layers = network.layers[:num_layers]
    return LeanNetwork(
        name, layers, network.embedding, network.final_norm, network.head, network.shape, rotary, memory_bytes=0, parent=network
    )


def is_spent(module: PreTrainedModel) -> bool:
    """Whether a lean network took the module's weights away."""
    return any(parameter.numel() == 0 for parameter in module.parameters())


def _pages_for(module: PreTrainedModel) -> LargePages | None:
    """Room for every linear weight of the module, where this project's own products serve."""
    weight = module.lm_head.weight
    if streaming_kernels(weight.device, weight.dtype) is None:
        return None
    linears = [part for part in module.modules() if isinstance(part, torch.nn.Linear)]
    return LargePages(sum(linear.weight.nbytes + 2 * CACHE_LINE for linear in linears))


@torch.no_grad()
def _fuse(pages: LargePages | None, *linears: torch.nn.Linear) -> DenseLinear | PackedDenseLinear | StreamedLinear:
    """One product instead of several of the same input; the linears' own weights become views of it, or are given up."""
    weight = linears[0].weight.detach() if len(linears) == 1 else torch.cat([linear.weight.detach() for linear in linears])
    bias = None if linears[0].bias is None else torch.cat([linear.bias.detach() for linear in linears])
    product: DenseLinear | PackedDenseLinear | StreamedLinear
    if pages is not None:
        weight = pages.place(weight)
        product = StreamedLinear(streaming_kernels(weight.device, weight.dtype), weight, bias)
    else:
        product = dense_linear(weight, bias)
    if isinstance(product, PackedDenseLinear):
        for linear in linears:
            # A new parameter, so that an embedding tied to the old one keeps it.
            linear.weight = torch.nn.Parameter(weight.new_empty(0), requires_grad=False)
    elif pages is not None or len(linears) > 1:
        sizes = [linear.weight.shape[0] for linear in linears]
        for linear, rows in zip(linears, weight.split(sizes), strict=True):
            linear.weight = torch.nn.Parameter(rows, requires_grad=False)
        for linear, entries in zip(linears, () if bias is None else bias.split(sizes), strict=bias is not None):
            linear.bias = torch.nn.Parameter(entries, requires_grad=False)
    return product


@torch.inference_mode()
def _rotary_tables(module: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (max_context, head_dim) from the module's own rotary embedding."""
    limit = context_limit(module.config)
    weight = module.model.embed_tokens.weight
    positions = torch.arange(limit, device=weight.device)[None]
    cos, sin = module.model.rotary_emb(weight[:1, None], positions)  # (1, limit, head_dim)
    cos, sin = cos[0].clone(), sin[0].clone()
    sin[:, : sin.shape[1] // 2].neg_()
    return cos, sin
