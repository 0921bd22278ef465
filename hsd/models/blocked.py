"""Matrix products on this project's own kernels: weights in blocks of 32 outputs that stream from large pages (`products.c`)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from hsd.models import kernels
from hsd.models.kernels import CACHE_LINE, Kernels, LargePages
from hsd.settings import INT4_GROUP_SIZE

_BLOCK = 32  # outputs
_GROUPS = (64, 32, 16)  # inputs that share a scale of x beside int8 weights, the first that divides them


def streaming_kernels(device: torch.device, dtype: torch.dtype) -> Kernels | None:
    """The compiled products, where they serve."""
    found = kernels.load() if kernels.applicable(device, dtype) else None
    return found if isinstance(found, Kernels) and found.has_products else None


class BlockedLinear:
    """`x @ weight.T + bias` in bfloat16."""

    bits = 16
    __slots__ = ("bias", "blocks", "kernels", "outputs")

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        self.kernels, self.bias, self.outputs = kernels, bias, weight.shape[0]
        self.blocks = _placed(pages, _in_blocks(weight, 2))  # (blocks, in / 2, 32, 2)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernels.linear(x, self.blocks, self.bias, self.outputs)  # (q, in) -> (q, out)

    @property
    def inputs(self) -> int:
        return 2 * self.blocks.shape[1]

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight (out, in): a copy."""
        return self.blocks.transpose(1, 2).reshape(-1, self.inputs)[: self.outputs]

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows of the plain weight, (q,) int64 -> (q, in): an embedding tied to the head."""
        return self.blocks[indices // _BLOCK, :, indices % _BLOCK].flatten(1)

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes


class BlockedInt8Linear:
    """int8 weights, one scale per output (RTN), times x rounded to int8 in groups: int8 products throughout.

    The rounding of x is the draft's own affair, like that of its weights: any draft is lossless.
    """

    bits = 8
    __slots__ = ("bias", "blocks", "group", "kernels", "outputs", "scales")

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        self.kernels, self.bias, self.outputs = kernels, bias, weight.shape[0]
        scales = weight.float().abs().amax(dim=1).clamp(min=1e-8) / 127  # (out,)
        codes = (weight.float() / scales[:, None]).round().clamp(-127, 127) + 128
        self.blocks = _placed(pages, _in_blocks(codes.to(torch.uint8), 4))  # (blocks, in / 4, 32, 4)
        self.scales = F.pad(scales, (0, -self.outputs % _BLOCK))
        self.group = next(group for group in _GROUPS if weight.shape[1] % group == 0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernels.linear_int8(x, self.blocks, self.scales, self.bias, self.outputs, self.group)  # (q, in) -> (q, out)

    @property
    def inputs(self) -> int:
        return 4 * self.blocks.shape[1]

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes + self.scales.nbytes


class BlockedInt4Linear:
    """int4 weights, a scale and a minimum per group of inputs (RTN), times x rounded to int8 in the same groups."""

    bits = 4
    __slots__ = ("bias", "blocks", "kernels", "outputs")

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        self.kernels, self.bias, self.outputs = kernels, bias, weight.shape[0]
        self.blocks = _placed(pages, _int4_blocks(weight))  # (blocks, groups, 640) bytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernels.linear_int4(x, self.blocks, self.bias, self.outputs)  # (q, in) -> (q, out)

    @property
    def inputs(self) -> int:
        return INT4_GROUP_SIZE * self.blocks.shape[1]

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes


Blocked = BlockedLinear | BlockedInt8Linear | BlockedInt4Linear
_KINDS: dict[int, type[Blocked]] = {16: BlockedLinear, 8: BlockedInt8Linear, 4: BlockedInt4Linear}
_MULTIPLES = {16: 2, 8: 16, 4: INT4_GROUP_SIZE}  # of the inputs
_BYTES = {16: 2.0, 8: 1.0, 4: 640 / (_BLOCK * INT4_GROUP_SIZE)}  # of a weight


def blocked(weight: torch.Tensor, bias: torch.Tensor | None, bits: int, pages: LargePages | None) -> Blocked | None:
    """The product with `weight` (out, in), in `bits` bits; `None` where these kernels do not serve."""
    compiled = streaming_kernels(weight.device, weight.dtype)
    if compiled is None or weight.shape[1] % _MULTIPLES[bits]:
        return None
    return _KINDS[bits](compiled, weight, bias, pages)


def pages_for(shapes: list[torch.Size], bits: int) -> LargePages:
    """Room for weights of these shapes (out, in)."""
    return LargePages(sum(int((-(-outputs // _BLOCK) * _BLOCK * inputs) * _BYTES[bits]) + CACHE_LINE for outputs, inputs in shapes))


def _placed(pages: LargePages | None, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous() if pages is None else pages.place(tensor)


def _in_blocks(weight: torch.Tensor, together: int) -> torch.Tensor:
    """(out, in) -> (blocks, in / together, 32, together), with rows of zeros to fill the last block."""
    weight = F.pad(weight, (0, 0, 0, -weight.shape[0] % _BLOCK))
    return weight.view(-1, _BLOCK, weight.shape[1] // together, together).transpose(1, 2)


def _int4_blocks(weight: torch.Tensor) -> torch.Tensor:
    """(out, in) -> (blocks, groups, 640) bytes: codes, scales and minima as `hsd_linear_int4` wants them."""
    outputs, inputs = weight.shape
    weight = F.pad(weight.float(), (0, 0, 0, -outputs % _BLOCK))
    groups = weight.view(-1, _BLOCK, inputs // INT4_GROUP_SIZE, INT4_GROUP_SIZE).transpose(1, 2)  # (blocks, groups, 32, 32)
    least, most = groups.amin(-1), groups.amax(-1)
    scales = ((most - least) / 15).clamp(min=1e-6).half()
    least = least.half()
    codes = ((groups - least.float()[..., None]) / scales.float()[..., None]).round().clamp(0, 15).to(torch.uint8)
    low, high = codes.unflatten(-1, (4, 2, 4)).unbind(-2)  # (blocks, groups, 32, 4, 4): of eight inputs the first and the last four
    packed = (low | high << 4).transpose(2, 3).flatten(2)  # (blocks, groups, 512)
    return torch.cat([packed, scales.view(torch.uint8), least.view(torch.uint8)], dim=-1)
