"""Attention in one call over a cache in the kernels' own order: equal to float32 attention, the same bits at every width."""

from __future__ import annotations

import ctypes
import functools

import pytest
import torch
import torch.nn.functional as F
from tensors import HALF_ULP, rows

from hsd.models.program import Call

HEADS, KV_HEADS, DIM = 6, 2, 64


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("dim", [32, 64, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (50, 1)])
def test_attention_in_one_call_equals_float32_attention(products, heads, kv_heads, dim, norm):
    for width, start in ((1, 0), (1, 127), (3, 126), (2, 300), (20, 250), (40, 0), (40, 3)):
        capacity = -(-(start + width) // 32) * 32
        keys, values = rows(kv_heads, capacity, dim, scale=2), rows(kv_heads, capacity, dim, seed=1)
        keys[:, start:] = values[:, start:] = float("nan")  # left from a block that was rolled back
        cos, sin, weight = rows(width, dim, seed=2), rows(width, dim, seed=3), rows(dim, seed=5)
        qkv = rows(width, (heads + 2 * kv_heads) * dim, seed=4)
        laid_out = keys_laid_out(keys), values_laid_out(values)
        call = functools.partial(together, products.code, heads=heads, norm=weight if norm else None)
        out = call(qkv, *laid_out, cos, sin, start)
        keys, values = keys_read(laid_out[0]), values_read(laid_out[1])
        states = qkv.view(width, -1, dim)
        if norm:
            turned = F.rms_norm(states[:, : heads + kv_heads].float(), (dim,), weight.float(), 1e-5).bfloat16()
            states = torch.cat([turned, states[:, heads + kv_heads :]], dim=1)
        rotated = (states.float() * cos.float()[:, None] + states.float().roll(dim // 2, -1) * sin.float()[:, None]).bfloat16()
        stop, group = start + width, heads // kv_heads
        torch.testing.assert_close(keys[:, start:stop], rotated[:, heads : heads + kv_heads].transpose(0, 1), rtol=2 * HALF_ULP, atol=0.02)
        assert torch.equal(values[:, start:stop], states[:, heads + kv_heads :].transpose(0, 1))
        wanted = F.scaled_dot_product_attention(
            rotated[:, :heads].transpose(0, 1).float(),
            keys[:, :stop].repeat_interleave(group, 0).float(),
            values[:, :stop].repeat_interleave(group, 0).float(),
            attn_mask=torch.ones(width, stop, dtype=torch.bool).tril(start),
        )
        torch.testing.assert_close(out.view(width, heads, dim).transpose(0, 1).float(), wanted, rtol=2 * HALF_ULP, atol=0.02)
        one = [call(qkv[i : i + 1], *laid_out, cos[i : i + 1], sin[i : i + 1], start + i) for i in range(width)]
        assert torch.equal(torch.cat(one), out), (width, start)


def keys_laid_out(keys: torch.Tensor) -> torch.Tensor:
    """(kv_heads, capacity, dim) in the order of attention.c, in the same shape."""
    return keys.unflatten(2, (-1, 2)).unflatten(1, (-1, 16)).transpose(2, 3).reshape(keys.shape)


def keys_read(laid_out: torch.Tensor) -> torch.Tensor:
    kv_heads, capacity, dim = laid_out.shape
    return laid_out.view(kv_heads, capacity // 16, dim // 2, 16, 2).transpose(2, 3).reshape(laid_out.shape)


def values_laid_out(values: torch.Tensor) -> torch.Tensor:
    return values.unflatten(1, (-1, 2)).transpose(2, 3).reshape(values.shape)


def values_read(laid_out: torch.Tensor) -> torch.Tensor:
    kv_heads, capacity, dim = laid_out.shape
    return laid_out.view(kv_heads, capacity // 2, dim, 2).transpose(2, 3).reshape(laid_out.shape)


def together(code, qkv, keys, values, cos, sin, start, *, heads, norm) -> torch.Tensor:
    kv_heads, capacity, dim = keys.shape
    out = torch.empty(len(qkv), heads * dim, dtype=torch.bfloat16)
    run, scratch_bytes = code.hsd_attention, code.hsd_attention_bytes
    run.argtypes, run.restype = [ctypes.c_void_p] * 10, None
    scratch_bytes.argtypes, scratch_bytes.restype = [ctypes.c_void_p], ctypes.c_int64
    shape = Call(len(qkv), start, capacity, heads, kv_heads, dim, 0, 0, 0, 1e-5, dim**-0.5)
    scratch = torch.empty(scratch_bytes(ctypes.addressof(shape)), dtype=torch.uint8)
    tensors = [tensor if tensor is None else tensor.data_ptr() for tensor in (qkv, keys, values, norm, norm, cos, sin, out, scratch)]
    run(*tensors, ctypes.addressof(shape))
    return out


def test_a_nan_key_comes_through_attention_in_one_call(products):
    qkv = rows(1, (HEADS + 2 * KV_HEADS) * DIM)
    keys, values, ones = rows(KV_HEADS, 608, DIM), rows(KV_HEADS, 608, DIM), torch.ones(1, DIM).bfloat16()
    keys[0, 30] = float("nan")
    out = together(products.code, qkv, keys_laid_out(keys), values_laid_out(values), ones, ones, 590, heads=HEADS, norm=None)
    assert out[0, : HEADS // KV_HEADS * DIM].isnan().all() and out[0, HEADS // KV_HEADS * DIM :].isfinite().all()
