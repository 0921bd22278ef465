"""The compiled loops between matrix products: right to bfloat16's rounding, and the same bits at every width."""

from __future__ import annotations

import subprocess

import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from hsd.models import kernels
from hsd.models.lean import WIDEST_TILED, LeanNetwork, lean_network, quantized_copy
from hsd.models.linear import StreamedInt8Linear

HEADS, KV_HEADS, DIM = 6, 2, 64
HALF_ULP = 2**-8  # relative rounding of bfloat16


@pytest.fixture(scope="module")
def compiled() -> kernels.Kernels:
    found = kernels.load()
    if isinstance(found, str):
        pytest.skip(found)
    return found


def rows(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).bfloat16()


def test_norm_adds_in_place_and_scales(compiled):
    x, delta, weight = rows(5, 96), rows(5, 96, seed=1), rows(96, seed=2)
    summed = (x.float() + delta.float()).bfloat16()
    wanted = F.rms_norm(summed.float(), (96,), weight.float(), 1e-5)
    out = compiled.add_norm(x, delta, weight, 1e-5)
    assert torch.equal(x, summed)
    torch.testing.assert_close(out.float(), wanted, rtol=HALF_ULP, atol=1e-6)
    torch.testing.assert_close(compiled.add_norm(x, None, weight, 1e-5), out, rtol=0, atol=0)


def test_silu_mul_over_the_whole_range(compiled):
    gate = torch.linspace(-120, 120, 4 * 77).reshape(4, 77).bfloat16()
    up = rows(4, 77)
    out = compiled.silu_mul(torch.cat([gate, up], dim=1))
    torch.testing.assert_close(out.float(), F.silu(gate.float()) * up.float(), rtol=1.5 * HALF_ULP, atol=1e-30)


@pytest.mark.parametrize("start", [0, 3, 500, 511, 1200])  # blocks of keys end at multiples of 512
@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_attention_equals_float32_attention(compiled, start, width):
    capacity = start + width + 5
    keys, values = rows(KV_HEADS, capacity, DIM, scale=3), rows(KV_HEADS, capacity, DIM, seed=1)
    cos, sin = rows(width, DIM, seed=2), rows(width, DIM, seed=3)
    qkv = rows(width, (HEADS + 2 * KV_HEADS) * DIM, seed=4)
    before = keys.clone()
    out = compiled.attend(qkv, keys, values, cos, sin, start, HEADS)
    heads = qkv.view(width, -1, DIM).float()
    rotated = (heads * cos.float()[:, None] + heads.roll(DIM // 2, -1) * sin.float()[:, None]).bfloat16()
    assert torch.equal(keys[:, start : start + width], rotated[:, HEADS : HEADS + KV_HEADS].transpose(0, 1))
    assert torch.equal(values[:, start : start + width], qkv.view(width, -1, DIM)[:, HEADS + KV_HEADS :].transpose(0, 1))
    assert torch.equal(keys[:, :start], before[:, :start]) and torch.equal(keys[:, start + width :], before[:, start + width :])
    group, stop = HEADS // KV_HEADS, start + width
    wanted = F.scaled_dot_product_attention(
        rotated[:, :HEADS].transpose(0, 1).float(),
        keys[:, :stop].repeat_interleave(group, 0).float(),
        values[:, :stop].repeat_interleave(group, 0).float(),
        attn_mask=torch.ones(width, stop, dtype=torch.bool).tril(start),
    )
    torch.testing.assert_close(out.view(width, HEADS, DIM).transpose(0, 1).float(), wanted, rtol=2 * HALF_ULP, atol=2e-3)


def test_a_nan_comes_through_every_operation(compiled):
    bad = rows(2, 96)
    bad[1, 5] = float("nan")
    assert compiled.add_norm(bad.clone(), None, rows(96), 1e-5)[1].isnan().all()
    assert compiled.silu_mul(bad)[1].isnan().any()
    qkv = rows(1, (HEADS + 2 * KV_HEADS) * DIM)
    keys, values, ones = rows(KV_HEADS, 600, DIM), rows(KV_HEADS, 600, DIM), torch.ones(1, DIM).bfloat16()
    keys[0, 30] = float("nan")
    assert compiled.attend(qkv, keys, values, ones, ones, 590, HEADS)[0, : HEADS // KV_HEADS * DIM].isnan().all()


def tiny_network(seed: int = 0) -> LeanNetwork:
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=1600,  # beyond what oneDNN leaves whole for a single row
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=256,
        max_position_embeddings=2048,
        initializer_range=0.1,
    )
    return lean_network("tiny", LlamaForCausalLM(config).to(torch.bfloat16).eval())


@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "torch"])
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_bfloat16_logits_have_the_same_bits_at_every_width(bits, with_kernels):
    """What makes greedy bfloat16 text through a hierarchy the target's own, bit for bit."""
    network = tiny_network()
    if network.dtype != torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no bfloat16 products in oneDNN")
    network = network if bits == 16 else quantized_copy("copy", network, bits)
    if not with_kernels:
        network.kernels = None
    for context in (3, 62, 300, 700):
        token_ids = torch.randint(256, (context + 20,), generator=torch.Generator().manual_seed(context))
        cache = network.new_cache(context + 20)
        network.forward(token_ids[:context], cache, 1)
        single = torch.cat([network.forward(token_ids[context + i : context + i + 1], cache, 1) for i in range(20)])
        for width in (2, 3, 4, 5, 8, 13, 20):
            cache.crop(context)
            assert torch.equal(network.forward(token_ids[context : context + width], cache, width), single[:width]), (context, width)


def test_kernels_and_torch_agree_to_rounding(compiled):
    network = tiny_network()
    assert network.kernels is not None
    token_ids = torch.randint(256, (40,))
    with_kernels = network.forward(token_ids, network.new_cache(40), 40).float()
    network.kernels = None
    in_torch = network.forward(token_ids, network.new_cache(40), 40).float()
    assert (with_kernels - in_torch).abs().max() < 0.05 * in_torch.abs().max()
    assert WIDEST_TILED >= 40, "a wider pass would not have used the kernels"


@pytest.fixture
def unloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("HSD_HOME", str(tmp_path))
    kernels.load.cache_clear()
    yield tmp_path
    kernels.load.cache_clear()


def test_without_a_compiler_torch_serves_and_the_reason_is_given(unloaded, monkeypatch):
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    assert "C compiler" in kernels.load()
    assert kernels.label(torch.device("cpu"), torch.bfloat16) == "torch"
    network = tiny_network()
    assert network.kernels is None
    network.forward(torch.tensor([1, 2, 3]), network.new_cache(8), 1)


def test_a_compiler_that_fails_leaves_nothing_and_is_named(unloaded, monkeypatch):
    def fail(command, check, **options):
        if check:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(kernels.subprocess, "run", fail)
    assert "could not compile" in kernels.load()
    assert not list(unloaded.rglob("*.so"))


def test_compiled_once_and_found_again(unloaded, compiled, monkeypatch):
    assert isinstance(kernels.load(), kernels.Kernels)
    kernels.load.cache_clear()
    monkeypatch.setattr(kernels.subprocess, "run", lambda *given, **options: pytest.fail("compiled again"))
    assert isinstance(kernels.load(), kernels.Kernels)


@pytest.fixture(scope="module")
def products(compiled) -> kernels.Kernels:
    if not compiled.has_products:
        pytest.skip("this processor has no AVX-512 BF16 and VNNI")
    return compiled


SHAPES = [(64, 64), (96, 192), (33, 100), (7, 31), (130, 1536)]  # (outputs, inputs), whole vectors and rests


@pytest.mark.parametrize("rows_of_x", [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_product_is_right_and_the_same_for_any_number_of_rows(products, rows_of_x, shape, with_bias):
    outputs, inputs = shape
    x, weight = rows(rows_of_x, inputs), rows(outputs, inputs, seed=1)
    bias = rows(outputs, seed=2) if with_bias else None
    out = products.linear(x, weight, bias)
    wanted = F.linear(x.float(), weight.float(), None if bias is None else bias.float())
    torch.testing.assert_close(out.float(), wanted, rtol=HALF_ULP, atol=2e-3 * inputs**0.5)
    single = torch.cat([products.linear(x[i : i + 1].contiguous(), weight, bias) for i in range(rows_of_x)])
    assert torch.equal(out, single)


@pytest.mark.parametrize("rows_of_x", [1, 3, 4, 6, 8, 13])
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 64), (33, 192), (96, 1536)])
def test_the_int8_product_is_within_its_rounding(products, rows_of_x, outputs, inputs):
    x, weight, bias = rows(rows_of_x, inputs), rows(outputs, inputs, seed=1), rows(outputs, seed=2)
    linear = StreamedInt8Linear(products, weight, bias)
    out = linear(x)
    wanted = F.linear(x.float(), weight.float(), bias.float())
    assert (out.float() - wanted).pow(2).mean().sqrt() < 0.02 * wanted.pow(2).mean().sqrt()
    # Against the very codes it multiplies only bfloat16's rounding is left, and a code that falls on a half.
    groups = x.float().view(rows_of_x, -1, linear.group)
    scales = groups.abs().amax(-1, keepdim=True) / 127
    rounded = (torch.trunc(groups / scales + 0.5 * groups.sign()) * scales).view(rows_of_x, inputs)
    codes = (linear.codes.float() - 128) * linear.scales[:, None]
    exact = F.linear(rounded, codes, bias.float())
    assert (out.float() - exact).pow(2).mean().sqrt() < 0.003 * exact.pow(2).mean().sqrt()
    single = torch.cat([linear(x[i : i + 1].contiguous()) for i in range(rows_of_x)])
    assert torch.equal(out, single)


def test_the_int8_product_lets_a_nan_through_and_takes_a_row_of_zeros(products):
    linear = StreamedInt8Linear(products, rows(32, 192, seed=1))
    x = rows(3, 192)
    x[0] = 0
    x[2, 100] = float("nan")
    out = linear(x)
    assert torch.equal(out[0], torch.zeros(32).bfloat16())
    assert out[1].isfinite().all() and out[2].isnan().all()


def test_weights_are_placed_whole_and_apart():
    pages = kernels.LargePages(4 * (1000 + 64))
    tensors = [rows(count, seed=count) for count in (7, 500, 300)]
    placed = [pages.place(tensor) for tensor in tensors]
    assert all(torch.equal(a, b) for a, b in zip(placed, tensors, strict=True))
    assert len({tensor.untyped_storage().data_ptr() for tensor in placed}) == 1
    assert placed[0].data_ptr() % (1 << 21) == 0 and all(tensor.data_ptr() % 64 == 0 for tensor in placed)


@pytest.mark.parametrize("bits", [16, 8])
def test_the_whole_pass_in_one_call_gives_the_bits_of_the_single_operations(products, bits):
    network = tiny_network()
    network = network if bits == 16 else quantized_copy("copy", network, bits)
    program = network.program
    assert program is not None
    token_ids = torch.randint(256, (30,), generator=torch.Generator().manual_seed(1))
    outputs, caches = [], []
    for one_call in (True, False):
        network.program = program if one_call else None
        cache = network.new_cache(40)
        outputs.append([network.forward(token_ids[:20], cache, 20), network.forward(token_ids[20:], cache, 3)])
        caches.append(cache)
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
    assert torch.equal(caches[0].keys, caches[1].keys) and torch.equal(caches[0].values, caches[1].values)
