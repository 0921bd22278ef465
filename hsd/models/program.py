"""A lean network's layers as one call into the compiled kernels, when all its products are this project's own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hsd.models.blocked import Blocked
from hsd.models.kernels import MAX_HEAD_DIM, Product, rounded_bytes

if TYPE_CHECKING:
    from hsd.models import lean

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
_TOKENS, _CHUNK = 16, 128  # as in attention.c
_LEAST_GROUP = 16  # inputs with one scale of x


class _Layer(ctypes.Structure):
    _norms = ("input_norm", "post_norm", "q_norm", "k_norm")
    _products = ("qkv", "out", "gate_up", "down")
    _fields_ = (*((name, _POINTER) for name in _norms), *((name, Product) for name in _products))


class Shape(ctypes.Structure):
    _counts = ("width", "start", "capacity", "heads", "kv_heads", "dim", "hidden", "inner", "num_layers")
    _fields_ = (*((name, _COUNT) for name in _counts), ("eps", _FLOAT), ("scale", _FLOAT))


class Program:
    """Addresses of every weight of the layers, gathered once. The network that owns the weights outlives it."""

    def __init__(self, layers: Sequence[lean.Layer], final_norm: torch.Tensor, shape: lean.Shape) -> None:
        self._run = layers[0].qkv.kernels.library.hsd_layers
        self._run.argtypes, self._run.restype = [_POINTER] * 10, None
        self._layers = (_Layer * len(layers))(*map(_layer, layers))
        self._final_norm = final_norm
        self._shape = shape
        self._inner = self._layers[0].down.inputs

    def __call__(self, x: torch.Tensor, cache: lean.StaticCache, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Embedded tokens x (q, hidden), overwritten, after `cache.length` cached ones; cos and sin (q, head_dim) of their
        positions. Writes keys and values and returns the normed output (q, hidden)."""
        width, capacity = x.shape[0], cache.keys.shape[2]
        out = torch.empty_like(x)
        scratch = torch.empty(self._scratch_bytes(width, capacity), dtype=torch.uint8)
        s = self._shape
        counts = (width, cache.length, capacity, s.heads, s.kv_heads, s.head_dim, s.hidden, self._inner, len(self._layers))
        call = Shape(*counts, s.eps, s.head_dim**-0.5)
        tensors = (self._final_norm, cache.keys, cache.values, cos, sin, out, scratch)
        self._run(x.data_ptr(), ctypes.addressof(self._layers), *(tensor.data_ptr() for tensor in tensors), ctypes.addressof(call))
        return out

    def _scratch_bytes(self, width: int, capacity: int) -> int:
        s = self._shape
        between = 2 * width * (2 * s.hidden + (2 * s.heads + 2 * s.kv_heads) * s.head_dim + 3 * self._inner)
        products = rounded_bytes(width, max(s.hidden, s.heads * s.head_dim, self._inner), _LEAST_GROUP)
        attention = min(width, _TOKENS) * s.heads * (2 * s.head_dim + -(-capacity // _CHUNK) * (4 * s.head_dim + 8))
        return between + max(products, attention)


def program_for(layers: Sequence[lean.Layer], final_norm: torch.Tensor, shape: lean.Shape) -> Program | None:
    """The program of these layers, or `None` when one of their products is another's or heads do not fill vectors."""
    products = [linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    own = bool(products) and all(isinstance(linear, Blocked) for linear in products)
    return Program(layers, final_norm, shape) if own and shape.head_dim % 32 == 0 and shape.head_dim <= MAX_HEAD_DIM else None


def _layer(layer: lean.Layer) -> _Layer:
    norms = (getattr(layer, name) for name in _Layer._norms)
    addresses = [None if norm is None else norm.data_ptr() for norm in norms]
    return _Layer(*addresses, *(getattr(layer, name).product for name in _Layer._products))
