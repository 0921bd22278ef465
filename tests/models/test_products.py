"""Matrix products on this project's own kernels: right to rounding, the same bits for any number of rows, nothing lost in blocks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tensors import HALF_ULP, rows

from hsd.models import kernels
from hsd.models.blocked import BlockedInt4Linear, BlockedInt8Linear, BlockedLinear, blocked, pages_for

SHAPES = [(64, 64), (96, 192), (33, 96), (7, 32), (130, 1536)]  # (outputs, inputs), whole blocks and rests
ROWS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 64, 100]


@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_product_is_right_and_the_same_for_any_number_of_rows(products, shape, with_bias, placed):
    outputs, inputs = shape
    x, weight = rows(max(ROWS), inputs), rows(outputs, inputs, seed=1)
    bias = rows(outputs, seed=2) if with_bias else None
    linear = BlockedLinear(products, weight, bias, pages_for([(weight.shape, 16)]) if placed else None)
    single = torch.cat([linear(x[i : i + 1]) for i in range(max(ROWS))])
    wanted = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    torch.testing.assert_close(single.float(), wanted, rtol=HALF_ULP, atol=2e-3 * inputs**0.5)
    for count in ROWS:
        assert torch.equal(linear(x[:count]), single[:count]), count


@pytest.mark.parametrize("shape", SHAPES)
def test_a_blocked_weight_gives_back_its_rows(products, shape):
    weight = rows(*shape)
    linear = BlockedLinear(products, weight, None, None)
    assert torch.equal(linear.weight, weight)
    picked = torch.tensor([0, shape[0] - 1, shape[0] // 2, 0])
    assert torch.equal(linear.rows(picked), weight[picked])


def in_groups(x: torch.Tensor, group: int) -> torch.Tensor:
    return x.float().view(len(x), -1, group)


def rounded(x: torch.Tensor, group: int) -> torch.Tensor:
    """What x rounded to int8 in groups stands for."""
    scales = in_groups(x, group).abs().amax(-1, keepdim=True) / 127
    return ((in_groups(x, group) / scales).round() * scales).view_as(x)


def weight_of(linear: BlockedInt8Linear | BlockedInt4Linear, weight: torch.Tensor) -> torch.Tensor:
    """What the rounded weight stands for, computed apart from its layout."""
    if linear.bits == 8:
        scales = weight.float().abs().amax(-1, keepdim=True) / 127
        return (weight.float() / scales).round() * scales
    groups = in_groups(weight, 32)
    least = groups.amin(-1, keepdim=True)
    scales = ((groups.amax(-1, keepdim=True) - least) / 15).half().float()
    least = least.half().float()
    return (((groups - least) / scales).round().clamp(0, 15) * scales + least).view_as(weight)


@pytest.mark.parametrize(("bits", "within"), [(8, 0.02), (4, 0.15)])
@pytest.mark.parametrize("shape", [(64, 64), (33, 192), (96, 1536), (40, 96)])
def test_a_rounded_product_is_what_its_codes_say(products, bits, within, shape):
    outputs, inputs = shape
    x, weight, bias = rows(13, inputs), rows(outputs, inputs, seed=1), rows(outputs, seed=2)
    linear = blocked(weight, bias, bits, None)
    assert linear.bits == bits and linear.shape == (outputs, inputs)
    out = linear(x)
    size = F.linear(x.float(), weight.float()).pow(2).mean().sqrt()
    exact = F.linear(x.float(), weight.float(), bias.float())
    assert (out.float() - exact).pow(2).mean().sqrt() < within * size
    # Against the very codes it multiplies only bfloat16's rounding is left, and a code that falls on a half.
    said = F.linear(rounded(x, linear.product.group), weight_of(linear, weight), bias.float())
    assert (out.float() - said).pow(2).mean().sqrt() < 0.003 * size
    single = torch.cat([linear(x[i : i + 1]) for i in range(13)])
    for count in (1, 3, 4, 6, 8, 13):
        assert torch.equal(linear(x[:count]), single[:count]), count


@pytest.mark.parametrize("bits", [8, 4])
def test_a_rounded_product_lets_a_nan_through_and_takes_a_row_of_zeros(products, bits):
    linear = blocked(rows(32, 192, seed=1), None, bits, None)
    x = rows(4, 192)
    x[0] = 0
    x[2, 100] = float("nan")
    x[3, 7] = float("inf")
    out = linear(x)
    assert torch.equal(out[0], torch.zeros(32).bfloat16())
    assert out[1].isfinite().all() and out[2].isnan().all() and not out[3].isfinite().any()


def test_widths_that_do_not_fill_a_group_are_left_to_others(products):
    assert blocked(rows(32, 48), None, 4, None) is None and blocked(rows(32, 24), None, 8, None) is None
    assert blocked(rows(32, 48).float(), None, 8, None) is None


def test_weights_are_placed_whole_and_apart():
    pages = kernels.LargePages(4 * (1000 + 64))
    tensors = [rows(count, seed=count) for count in (7, 500, 300)]
    placed = [pages.place(tensor) for tensor in tensors]
    assert all(torch.equal(a, b) for a, b in zip(placed, tensors, strict=True))
    assert len({tensor.untyped_storage().data_ptr() for tensor in placed}) == 1
    assert placed[0].data_ptr() % (1 << 21) == 0 and all(tensor.data_ptr() % 64 == 0 for tensor in placed)
