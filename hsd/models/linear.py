"""Matrix products of a lean network: dense ones, and weight-only quantized ones on torch's packed CPU kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from hsd.errors import DeviceUnsupported
from hsd.settings import INT4_GROUP_SIZE

_LEAST_ROWS = 4  # of a packed product
_SLOW_ROWS = range(2, 5)  # in float32 on a CPU, plain products of so few rows take up to twice as long as one of five
_INT8_MULTIPLE = 16  # inputs: others crash torch's bfloat16 kernel
HEAD_BITS = 8  # the fewest that a quantized head keeps, but for one that is exact where it matters (shortlist.py)

Linear = Callable[[torch.Tensor], torch.Tensor]


class DenseLinear:
    """`x @ weight.T + bias` in the model's own dtype."""

    __slots__ = ("bias", "slow_rows", "weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.slow_rows = _SLOW_ROWS if weight.device.type == "cpu" and weight.dtype == torch.float32 else range(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        if rows in self.slow_rows:
            return F.linear(F.pad(x, (0, 0, 0, self.slow_rows.stop - rows)), self.weight, self.bias)[:rows]
        return F.linear(x, self.weight, self.bias)  # (q, in) -> (q, out)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class PackedDenseLinear:
    """As `DenseLinear`, with the weight laid out once for oneDNN's kernels: two to three times as fast at a few tokens' width.

    Fewer than four rows are filled up: oneDNN has better kernels for four than for one, and it would split a single
    row of a long input between threads, whose sums then depend on how many rows a pass has.
    """

    __slots__ = ("bias", "packed")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, 1)
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.shape[0]
        if rows < _LEAST_ROWS:
            x = F.pad(x, (0, 0, 0, _LEAST_ROWS - rows))
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")[:rows]  # (q, in) -> (q, out)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight (out, in), unpacked: a copy."""
        return self.packed.to_dense()

    @property
    def nbytes(self) -> int:
        return self.packed.numel() * self.packed.element_size()


def dense_linear(weight: torch.Tensor, bias: torch.Tensor | None = None, shared: bool = False) -> DenseLinear | PackedDenseLinear:
    """The faster of the two forms for this device and dtype. A float32 weight that is `shared` with an embedding stays plain: its
    copy would be large and gain less."""
    packs = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # elsewhere torch may lack these operations
    if packs and weight.dtype == torch.bfloat16:
        packs = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    elif packs:
        packs = weight.dtype == torch.float32 and not shared
    return PackedDenseLinear(weight, bias) if packs else DenseLinear(weight, bias)


class Int8Linear:
    """Symmetric int8 weights, one scale per output channel, rounded to nearest (RTN)."""

    __slots__ = ("bias", "scales", "weight")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        scales = weight.float().abs().amax(dim=1).clamp(min=1e-8) / 127  # (out,)
        self.weight = (weight.float() / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
        self.scales = scales.to(weight.dtype)
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = torch._weight_int8pack_mm(x, self.weight, self.scales)  # (q, in) -> (q, out)
        return y if self.bias is None else y + self.bias

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + self.scales.nbytes


class Int4Linear:
    """Asymmetric int4 weights, a scale and a zero point per group of inputs, rounded to nearest (RTN)."""

    __slots__ = ("bias", "out_features", "packed", "scales_and_zeros")

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        out_features, in_features = weight.shape
        groups = weight.float().reshape(out_features, in_features // INT4_GROUP_SIZE, INT4_GROUP_SIZE)
        low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
        scales = ((high - low) / 15).clamp(min=1e-8)
        zeros = low + 8 * scales  # the kernel computes (code - 8) * scale + zero
        codes = ((groups - low) / scales).round().clamp(0, 15).to(torch.int32).reshape(out_features, in_features)
        pairs = torch.cat([scales, zeros], dim=-1)  # (out, groups, 2)
        self.packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.scales_and_zeros = pairs.transpose(0, 1).contiguous().to(weight.dtype)  # (groups, out, 2)
        self.out_features = out_features
        self.bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = torch._weight_int4pack_mm_for_cpu(x.contiguous(), self.packed, INT4_GROUP_SIZE, self.scales_and_zeros)
        return y if self.bias is None else y + self.bias

    @property
    def nbytes(self) -> int:
        return self.packed.nbytes + self.scales_and_zeros.nbytes


def quantized_linear(weight: torch.Tensor, bias: torch.Tensor | None, bits: int) -> Linear:
    """A weight-only copy of `weight` (out, in) with 8 or 4 bits; `DeviceUnsupported` where torch has no kernel."""
    kind = {8: Int8Linear, 4: Int4Linear}[bits]
    if weight.device.type != "cpu":
        raise DeviceUnsupported(
            f"Weight-only int{bits} copies run on torch's packed CPU kernels; on {weight.device.type} choose a smaller model "
            "or early-exit instead."
        )
    if bits == 8 and weight.dtype == torch.bfloat16 and weight.shape[1] % _INT8_MULTIPLE:
        raise DeviceUnsupported(
            f"int8 needs input widths divisible by {_INT8_MULTIPLE} in bfloat16; this model has {tuple(weight.shape)}. Use float32."
        )
    if bits == 4 and (weight.shape[1] % INT4_GROUP_SIZE or weight.shape[0] % 16):
        raise DeviceUnsupported(
            f"int4 needs input widths divisible by {INT4_GROUP_SIZE} and output widths divisible by 16; this model has "
            f"{tuple(weight.shape)}. Use quantized:int8."
        )
    try:
        return kind(weight, bias)
    except (RuntimeError, AttributeError) as error:
        raise DeviceUnsupported(
            f"This build of torch has no packed int{bits} kernel for {weight.dtype} on this processor ({error})."
        ) from error
