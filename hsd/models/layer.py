"""One layer of a Llama-like model in torch's own operations: what the passes on every device share."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from hsd.models.linear import Linear


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


def heads_of(
    layer: Layer, x: torch.Tensor, shape: Shape, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of x (q, hidden): queries (q, heads, head_dim), keys and values (q, kv_heads, head_dim), the first two at their positions.

    cos and sin (q, 1, head_dim); sin is negated in its first half.
    """
    qkv = layer.qkv(F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.eps))
    qkv = qkv.view(x.shape[0], shape.heads + 2 * shape.kv_heads, shape.head_dim)
    rotated, values = qkv.split((shape.heads + shape.kv_heads, shape.kv_heads), dim=1)
    if layer.q_norm is not None:
        queries = F.rms_norm(rotated[:, : shape.heads], (shape.head_dim,), layer.q_norm, shape.eps)
        rotated = torch.cat([queries, F.rms_norm(rotated[:, shape.heads :], (shape.head_dim,), layer.k_norm, shape.eps)], dim=1)
    rotated = torch.addcmul(rotated * cos, rotated.roll(shape.head_dim // 2, -1), sin)
    return rotated[:, : shape.heads], rotated[:, shape.heads :], values


def after_attention(layer: Layer, x: torch.Tensor, attended: torch.Tensor, shape: Shape) -> torch.Tensor:
    """x (q, hidden) plus what attention (q, heads * head_dim) and the feed-forward part add."""
    x = x + layer.out(attended)
    gate, up = layer.gate_up(F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.eps)).chunk(2, dim=-1)
    return x + layer.down(F.silu(gate) * up)
