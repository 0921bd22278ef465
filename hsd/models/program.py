"""A lean network's layers as one call into the compiled kernels, when all its products are this project's own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hsd.models.blocked import Blocked
from hsd.models.kernels import MAX_HEAD_DIM, Product
from hsd.models.layer import Layer, Shape

if TYPE_CHECKING:
    from hsd.models.lean import StaticCache

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Layer(ctypes.Structure):
    _norms = ("input_norm", "post_norm", "q_norm", "k_norm")
    _products = ("qkv", "out", "gate_up", "down")
    _fields_ = (*((name, _POINTER) for name in _norms), *((name, Product) for name in _products))


class Call(ctypes.Structure):
    """`shape` in bf16.h: one pass of a network over one cache."""

    _counts = ("width", "start", "capacity", "heads", "kv_heads", "dim", "hidden", "inner", "num_layers")
    _fields_ = (*((name, _COUNT) for name in _counts), ("eps", _FLOAT), ("scale", _FLOAT))


class Program:
    """Addresses of every weight of the layers, gathered once. The network that owns the weights outlives it."""

    def __init__(self, layers: Sequence[Layer], final_norm: torch.Tensor, shape: Shape) -> None:
        code = layers[0].qkv.kernels.code
        self._run, self._scratch_bytes = code.hsd_layers, code.hsd_layers_bytes
        self._run.argtypes, self._run.restype = [_POINTER] * 10, None
        self._scratch_bytes.argtypes, self._scratch_bytes.restype = [_POINTER], _COUNT
        self._layers = (_Layer * len(layers))(*map(_layer, layers))
        self._final_norm = final_norm
        self._shape = shape
        self._inner = self._layers[0].down.inputs

    def __call__(self, x: torch.Tensor, cache: StaticCache, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Embedded tokens x (q, hidden) after `cache.length` cached ones; cos and sin (q, head_dim) of their
        positions. Writes keys and values and returns the normed output (q, hidden)."""
        s = self._shape
        counts = (x.shape[0], cache.length, cache.keys.shape[2], s.heads, s.kv_heads, s.head_dim, s.hidden, self._inner, len(self._layers))
        call = Call(*counts, s.eps, s.head_dim**-0.5)
        out = torch.empty_like(x)
        scratch = torch.empty(self._scratch_bytes(ctypes.addressof(call)), dtype=torch.uint8)
        tensors = (self._final_norm, cache.keys, cache.values, cos, sin, out, scratch)
        self._run(x.data_ptr(), ctypes.addressof(self._layers), *(tensor.data_ptr() for tensor in tensors), ctypes.addressof(call))
        return out


def program_for(layers: Sequence[Layer], final_norm: torch.Tensor, shape: Shape) -> Program | None:
    """The program of these layers, or `None` when one of their products is another's, or heads do not fill vectors."""
    products = [linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    own = bool(products) and all(isinstance(linear, Blocked) for linear in products)
    return Program(layers, final_norm, shape) if own and shape.head_dim % 32 == 0 and shape.head_dim <= MAX_HEAD_DIM else None


def _layer(layer: Layer) -> _Layer:
    norms = (getattr(layer, name) for name in _Layer._norms)
    addresses = [None if norm is None else norm.data_ptr() for norm in norms]
    return _Layer(*addresses, *(getattr(layer, name).product for name in _Layer._products))
