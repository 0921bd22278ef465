"""Matrix products on this project's own kernels: weights in blocks of 32 outputs that stream from large pages (`products.c`)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F

from hsd.models import kernels
from hsd.models.kernels import CACHE_LINE, Kernels, LargePages, Product
from hsd.settings import INT4_GROUP_SIZE

BLOCK = 32  # outputs
_GROUPS = (64, 32, 16)  # inputs that share a scale of x beside int8 weights, the first that divides them


def streaming_kernels(device: torch.device, dtype: torch.dtype) -> Kernels | None:
    """The compiled products, where they serve."""
    found = kernels.load() if kernels.applicable(device, dtype) else None
    return found if isinstance(found, Kernels) and found.has_products else None


class _Product:
    """What the three kinds share: tensors, and where they lie for the kernels."""

    bits: int
    __slots__ = ("bias", "blocks", "kernels", "product", "scales")

    def __init__(
        self, kernels: Kernels, shape: torch.Size, blocks: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None, group: int
    ) -> None:
        self.kernels, self.blocks, self.scales, self.bias = kernels, blocks, scales, bias
        self.product = Product.of(blocks, scales, bias, shape[1], shape[0], self.bits, group)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernels.linear(x, self.product)  # (q, in) -> (q, out)

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)"""
        return self.product.outputs, self.product.inputs

    @property
    def nbytes(self) -> int:
        return self.blocks.nbytes + (0 if self.scales is None else self.scales.nbytes)


class BlockedLinear(_Product):
    """`x @ weight.T + bias` in bfloat16."""

    bits = 16
    __slots__ = ()

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        blocks = _placed(pages, _in_blocks(weight, 2))  # (blocks, in / 2, 32, 2)
        super().__init__(kernels, weight.shape, blocks, None, bias, group=0)

    @property
    def weight(self) -> torch.Tensor:
        """The plain weight (out, in): a copy."""
        outputs, inputs = self.shape
        return self.blocks.transpose(1, 2).reshape(-1, inputs)[:outputs]

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows of the plain weight, (q,) int64 -> (q, in): an embedding tied to the head."""
        return self.kernels.rows(indices, self.product)


class BlockedInt8Linear(_Product):
    """int8 weights, one scale per output (RTN), times x rounded to int8 in groups: int8 products throughout.

    The rounding of x is the draft's own affair, like that of its weights: any draft is lossless.
    """

    bits = 8
    __slots__ = ()

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        scales = weight.float().abs().amax(dim=1).clamp(min=1e-8) / 127  # (out,)
        codes = (weight.float() / scales[:, None]).round().clamp(-127, 127) + 128
        blocks = _placed(pages, _in_blocks(codes.to(torch.uint8), 4))  # (blocks, in / 4, 32, 4)
        group = next(group for group in _GROUPS if weight.shape[1] % group == 0)
        super().__init__(kernels, weight.shape, blocks, F.pad(scales, (0, -len(scales) % BLOCK)), bias, group)


class BlockedInt4Linear(_Product):
    """int4 weights, a scale and a minimum per group of inputs (RTN), times x rounded to int8 in the same groups."""

    bits = 4
    __slots__ = ()

    def __init__(self, kernels: Kernels, weight: torch.Tensor, bias: torch.Tensor | None, pages: LargePages | None) -> None:
        blocks = _placed(pages, _int4_blocks(weight))  # (blocks, groups, 640) bytes, scales among them
        super().__init__(kernels, weight.shape, blocks, None, bias, INT4_GROUP_SIZE)

    @property
    def steps(self) -> torch.Tensor:
        """Distances between neighbouring codes (blocks, groups, 32), float32."""
        return self.blocks[..., 512:576].contiguous().view(torch.float16).float()


Blocked = BlockedLinear | BlockedInt8Linear | BlockedInt4Linear
_KINDS: dict[int, type[Blocked]] = {16: BlockedLinear, 8: BlockedInt8Linear, 4: BlockedInt4Linear}
_MULTIPLES = {16: 2, 8: 16, 4: INT4_GROUP_SIZE}  # of the inputs
_BYTES = {16: 2.0, 8: 1.0, 4: 640 / (BLOCK * INT4_GROUP_SIZE)}  # of a weight


def blocked(weight: torch.Tensor, bias: torch.Tensor | None, bits: int, pages: LargePages | None) -> Blocked | None:
    """The product with `weight` (out, in), in `bits` bits; `None` where these kernels do not serve."""
    compiled = streaming_kernels(weight.device, weight.dtype)
    if compiled is None or weight.shape[1] % _MULTIPLES[bits]:
        return None
    return _KINDS[bits](compiled, weight, bias, pages)


def pages_for(sizes: Iterable[tuple[tuple[int, int], int]]) -> LargePages:
    """Room for weights of these sizes: ((out, in), bits)."""
    rounded_up = ((-(-outputs // BLOCK) * BLOCK * inputs, bits) for (outputs, inputs), bits in sizes)
    return LargePages(sum(int(count * _BYTES[bits]) + CACHE_LINE for count, bits in rounded_up))


def _placed(pages: LargePages | None, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous() if pages is None else pages.place(tensor)


def _in_blocks(weight: torch.Tensor, together: int) -> torch.Tensor:
    """(out, in) -> (blocks, in / together, 32, together), with rows of zeros to fill the last block."""
    weight = F.pad(weight, (0, 0, 0, -weight.shape[0] % BLOCK))
    return weight.view(-1, BLOCK, weight.shape[1] // together, together).transpose(1, 2)


def _int4_blocks(weight: torch.Tensor) -> torch.Tensor:
    """(out, in) -> (blocks, groups, 640) bytes: codes, scales and minima as `products.c` wants them."""
    outputs, inputs = weight.shape
    weight = F.pad(weight.float(), (0, 0, 0, -outputs % BLOCK))
    groups = weight.view(-1, BLOCK, inputs // INT4_GROUP_SIZE, INT4_GROUP_SIZE).transpose(1, 2)  # (blocks, groups, 32, 32)
    least, most = groups.amin(-1), groups.amax(-1)
    scales = ((most - least) / 15).clamp(min=1e-6).half()
    least = least.half()
    codes = ((groups - least.float()[..., None]) / scales.float()[..., None]).round().clamp(0, 15).to(torch.uint8)
    low, high = codes.unflatten(-1, (4, 2, 4)).unbind(-2)  # (blocks, groups, 32, 4, 4): of eight inputs the first and the last four
    packed = (low | high << 4).transpose(2, 3).flatten(2)  # (blocks, groups, 512)
    return torch.cat([packed, scales.view(torch.uint8), least.view(torch.uint8)], dim=-1)
