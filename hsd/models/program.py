"""A lean network's layers as one call into the compiled kernels, when all its products are streamed ones."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from hsd.models.kernels import Kernels
from hsd.models.linear import Linear, StreamedInt8Linear, StreamedLinear

if TYPE_CHECKING:
    from hsd.models.lean import Layer, Shape, StaticCache

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Product(ctypes.Structure):
    _fields_ = (("weight", _POINTER), ("scales", _POINTER), ("bias", _POINTER), ("inputs", _COUNT), ("outputs", _COUNT), ("group", _COUNT))


class _Layer(ctypes.Structure):
    _fields_ = (
        ("input_norm", _POINTER),
        ("post_norm", _POINTER),
        ("qkv", _Product),
        ("out", _Product),
        ("gate_up", _Product),
        ("down", _Product),
    )


class _Shape(ctypes.Structure):
    _counts = ("width", "start", "capacity", "heads", "kv_heads", "dim", "hidden", "inner", "num_layers")
    _fields_ = (*((name, _COUNT) for name in _counts), ("eps", _FLOAT), ("scale", _FLOAT))


class Program:
    """Addresses of every weight of the layers, gathered once. The network that owns the weights outlives it."""

    def __init__(self, kernels: Kernels, layers: Sequence[Layer], final_norm: torch.Tensor, shape: Shape) -> None:
        self._run = kernels.library.hsd_layers
        self._run.argtypes, self._run.restype = [_POINTER] * 10, None
        self._layers = (_Layer * len(layers))(*(_layer(layer) for layer in layers))
        self._final_norm = final_norm
        self._shape = shape
        self._inner = self._layers[0].down.inputs
        row = (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
        most_inputs = max(shape.hidden, shape.heads * shape.head_dim, self._inner)
        self._scratch_per_row = 2 * (2 * shape.hidden + row + 3 * self._inner) + most_inputs + 4 * (most_inputs // 64 + 1)

    def __call__(self, x: torch.Tensor, cache: StaticCache, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Embedded tokens x (q, hidden), overwritten, after `cache.length` cached ones; cos and sin (q, head_dim) of their
        positions. Writes keys and values and returns the normed output (q, hidden)."""
        width = x.shape[0]
        out = torch.empty_like(x)
        scratch = torch.empty(width * self._scratch_per_row, dtype=torch.uint8)
        s = self._shape
        counts = (width, cache.length, cache.keys.shape[2], s.heads, s.kv_heads, s.head_dim, s.hidden, self._inner, len(self._layers))
        call = _Shape(*counts, s.eps, s.head_dim**-0.5)
        tensors = (self._final_norm, cache.keys, cache.values, cos, sin, out, scratch)
        self._run(x.data_ptr(), ctypes.addressof(self._layers), *(tensor.data_ptr() for tensor in tensors), ctypes.addressof(call))
        return out


def program_for(kernels: Kernels, layers: Sequence[Layer], final_norm: torch.Tensor, shape: Shape) -> Program | None:
    """The program of these layers, or `None` when one of their products is not a streamed one."""
    products = [linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    streamed = all(isinstance(linear, StreamedLinear | StreamedInt8Linear) for linear in products)
    return Program(kernels, layers, final_norm, shape) if streamed and layers else None


def _layer(layer: Layer) -> _Layer:
    norms = layer.input_norm.data_ptr(), layer.post_norm.data_ptr()
    return _Layer(*norms, *(_product(linear) for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)))


def _product(linear: Linear) -> _Product:
    bias = None if linear.bias is None else linear.bias.data_ptr()
    if isinstance(linear, StreamedInt8Linear):
        return _Product(linear.codes.data_ptr(), linear.scales.data_ptr(), bias, *linear.codes.shape[::-1], linear.group)
    return _Product(linear.weight.data_ptr(), None, bias, *linear.weight.shape[::-1], 0)
