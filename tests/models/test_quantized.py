"""Weight-only copies: rounded to nearest, within the bound of their step; refused where there is no kernel."""

from __future__ import annotations

import pytest
import torch

from hsd.errors import DeviceUnsupported
from hsd.models.linear import DenseLinear, Int4Linear, Int8Linear, PackedDenseLinear, dense_linear, quantized_linear
from hsd.settings import INT4_GROUP_SIZE

OUT, IN = 48, 96


def weight(dtype=torch.float32, seed=0):
    random = torch.Generator().manual_seed(seed)
    return (torch.randn(OUT, IN, generator=random) * torch.rand(OUT, 1, generator=random) + 0.1).to(dtype)


def reconstructed(linear, dtype=torch.float32):
    """The weights that a packed product multiplies with: its answer to every unit vector, (out, in)."""
    return linear(torch.eye(IN, dtype=dtype)).float().T


def test_int8_is_within_half_a_step_of_every_weight():
    w = weight()
    step = w.abs().amax(1, keepdim=True) / 127
    assert ((reconstructed(Int8Linear(w)) - w).abs() <= 0.5001 * step).all()


def test_int4_is_within_half_a_step_of_every_weight():
    w = weight()
    groups = w.reshape(OUT, -1, INT4_GROUP_SIZE)
    step = ((groups.amax(-1) - groups.amin(-1)) / 15).repeat_interleave(INT4_GROUP_SIZE, 1)
    error = (reconstructed(Int4Linear(w)) - w).abs()
    assert (error <= 0.51 * step).all()
    assert error.max() > 0.2 * step.max(), "four bits cannot be exact; something else was measured"


@pytest.mark.parametrize("bits, bound", [(8, 0.02), (4, 0.15)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_products_are_close_to_the_dense_one(bits, bound, dtype, width):
    w, bias = weight(dtype), torch.randn(OUT).to(dtype)
    x = torch.randn(width, IN, generator=torch.Generator().manual_seed(1)).to(dtype)
    dense = torch.nn.functional.linear(x.float(), w.float(), bias.float())
    got = quantized_linear(w, bias, bits)(x)
    assert got.dtype == dtype and got.shape == (width, OUT)
    assert (got.float() - dense).abs().max() < bound * dense.abs().max() + 0.02


@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_and_outliers_stay_finite(bits):
    w = torch.zeros(OUT, IN)
    w[3, 5] = 1e4
    got = quantized_linear(w, None, bits)(torch.ones(2, IN))
    assert torch.isfinite(got).all() and got[0, 3] == pytest.approx(1e4, rel=0.01)


def test_bytes_are_what_is_kept():
    w = weight()
    assert Int8Linear(w).nbytes == OUT * IN + 4 * OUT
    assert Int4Linear(w).nbytes == OUT * IN // 2 + 2 * 4 * OUT * IN // INT4_GROUP_SIZE


def test_what_has_no_kernel_is_refused_with_what_to_do():
    with pytest.raises(DeviceUnsupported, match="divisible by 32"):
        quantized_linear(torch.zeros(48, 40), None, 4)
    with pytest.raises(DeviceUnsupported, match="divisible by 16 in bfloat16"):  # torch's kernel crashes
        quantized_linear(torch.zeros(48, 40, dtype=torch.bfloat16), None, 8)
    with pytest.raises(DeviceUnsupported, match="packed CPU kernels; on meta"):
        quantized_linear(torch.zeros(48, 96, device="meta"), None, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_torch_without_onednn_keeps_plain_products(dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)  # its operations do not even exist there
    assert isinstance(dense_linear(weight(dtype)), DenseLinear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
def test_a_dense_product_is_the_plain_one_however_it_is_laid_out(dtype, biased):
    w, bias = weight(dtype), torch.randn(OUT).to(dtype) if biased else None
    linear = dense_linear(w, bias)
    assert isinstance(linear, DenseLinear | PackedDenseLinear) and torch.equal(linear.weight, w) and linear.nbytes == w.nbytes
    x = torch.randn(9, IN, generator=torch.Generator().manual_seed(2)).to(dtype)
    together = linear(x)
    plain = dense_linear(w, bias, shared=True)
    assert isinstance(plain, DenseLinear) or dtype == torch.bfloat16
    for width in range(1, 7):
        torch.testing.assert_close(plain(x[:width]), torch.nn.functional.linear(x[:width], w, bias), rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(together, torch.nn.functional.linear(x, w, bias), rtol=2e-2, atol=2e-2)
    for width in range(1, 10):
        if isinstance(linear, PackedDenseLinear):
            assert torch.equal(linear(x[:width]), together[:width]), "a row's bits must not depend on the width of the pass"
