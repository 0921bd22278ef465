"""The compiled loops between matrix products: right to bfloat16's rounding, and the same bits at every width."""

from __future__ import annotations

import math
import platform
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tensors import HALF_ULP, rows
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from hsd.measure.store import SOURCES
from hsd.models import kernels
from hsd.models.fuse import early_exit_copy, lean_network, quantized_copy
from hsd.models.lean import LeanNetwork

HEADS, KV_HEADS, DIM = 6, 2, 64


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


@pytest.mark.parametrize("count", [1, 5, 1024, 1025, 49152])  # parts of 1024
def test_maxima_are_the_first_of_the_largest(compiled, count):
    scores = rows(7, count + 3, scale=0.02)[:, :count]  # of a wider row, as with a vocabulary that is cut
    scores[1] = scores[1] - 5  # all negative
    scores[2] = 0.25  # all equal
    scores[3, count - 1] = float("inf")
    scores[4] = float("-inf")
    scores[5, count // 2], scores[5, count // 3] = float("inf"), float("nan")
    scores[6, count // 2 :] = float("nan")
    values, places = compiled.maxima(scores)
    assert places == [*scores[:5].argmax(-1).tolist(), count // 3, count // 2]
    assert values[:5] == scores[:5].amax(-1).tolist() and all(map(math.isnan, values[5:]))
    negative_nan = torch.tensor([[0x3F80, 0xFFC1 - 0x10000]], dtype=torch.int16).view(torch.bfloat16)
    assert compiled.maxima(negative_nan)[1] == [1]


def tiny_network(kind: str = "llama", head_dim: int = 32, inner: int = 1600) -> LeanNetwork:
    torch.manual_seed(0)
    config_type, module_type = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    config = config_type(
        hidden_size=128,
        intermediate_size=inner,  # beyond what oneDNN leaves whole for a single row
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        vocab_size=256,
        max_position_embeddings=2048,
        initializer_range=0.1,
    )
    return lean_network("tiny", module_type(config).to(torch.bfloat16).eval())


@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "torch"])
@pytest.mark.parametrize("bits", [16, 8, 4])
def test_bfloat16_logits_have_the_same_bits_at_every_width(bits, with_kernels):
    """What makes greedy bfloat16 text through a hierarchy the target's own, bit for bit."""
    network = tiny_network()
    if (not with_kernels or network.program is None) and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this processor has no bfloat16 products in oneDNN")
    network = network if bits == 16 else quantized_copy("copy", network, bits)
    if not with_kernels:
        network.kernels = network.program = None
    for context in (3, 62, 300, 700):
        token_ids = torch.randint(256, (context + 20,), generator=torch.Generator().manual_seed(context))
        cache = network.new_cache(context + 20)
        network.forward(token_ids[:context], cache, 1)
        single = torch.cat([network.forward(token_ids[context + i : context + i + 1], cache, 1) for i in range(20)])
        for width in (2, 3, 4, 5, 8, 13, 20):
            cache.crop(context)
            assert torch.equal(network.forward(token_ids[context : context + width], cache, width), single[:width]), (context, width)


def test_bits_do_not_depend_on_the_number_of_threads(products):
    network = tiny_network()
    token_ids = torch.randint(256, (160,), generator=torch.Generator().manual_seed(0))
    passes = token_ids.split([150, 1, 2, 7])  # shared between threads, and computed by each for itself

    def logits() -> torch.Tensor:
        cache = network.new_cache(160)
        return torch.cat([network.forward(some, cache, 1) for some in passes])

    before, by_threads = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            by_threads.append(logits())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(by_threads[0], by_threads[1]) and torch.equal(by_threads[0], by_threads[2])


# A head of 16 does not fill vectors: single operations instead of one call. Gates of 1616 share a block with the others.
@pytest.mark.parametrize(("head_dim", "inner"), [(16, 1600), (32, 1600), (32, 1616)])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_kernels_and_torch_agree_to_rounding(compiled, kind, head_dim, inner):
    network = tiny_network(kind, head_dim, inner)
    assert (network.program is not None) == (compiled.has_products and head_dim == 32)
    assert (network.kernels is not None) == (kind == "llama")
    token_ids = torch.randint(256, (200,), generator=torch.Generator().manual_seed(0))
    passes = (token_ids[:30], token_ids[30:31], token_ids[31:])  # narrow, one token, as wide as a prompt

    def logits() -> torch.Tensor:
        cache = network.new_cache(200)
        return torch.cat([network.forward(some, cache, len(some)) for some in passes]).float()

    with_kernels = logits()
    network.kernels = network.program = None
    in_torch = logits()
    assert (with_kernels - in_torch).abs().max() < 0.05 * in_torch.abs().max()


def test_a_draft_takes_the_cache_over_where_both_order_it_alike(products):
    network = tiny_network()
    draft = early_exit_copy("early-exit:1", network, 1)
    token_ids = torch.randint(256, (60,), generator=torch.Generator().manual_seed(0))
    cache, own, taken = network.new_cache(100), draft.new_cache(100), draft.new_cache(100)
    network.forward(token_ids[:47], cache, 1)  # within a block of 16 keys, and between the two of a pair
    draft.forward(token_ids[:47], own, 1)
    assert draft.adopt(taken, network, cache) and taken.length == 47
    assert torch.equal(draft.forward(token_ids[47:], taken, 13), draft.forward(token_ids[47:], own, 13))
    draft.program = None
    assert not draft.adopt(draft.new_cache(100), network, cache)


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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="vectors of other processors")
@pytest.mark.parametrize("vectors", ["avx512f avx512bw avx512vl avx512dq avx512vnni avx512bf16 fma f16c", "avx2 fma f16c", "sse2"])
def test_the_sources_compile_for_vectors_that_this_processor_may_lack(compiled, vectors):
    compiler = next(filter(None, map(shutil.which, kernels._COMPILERS)))
    flags = ["-Wall", "-Werror", "-Wno-unknown-pragmas", "-fsyntax-only", *(f"-m{name}" for name in vectors.split())]
    found = subprocess.run([compiler, *flags, *map(str, kernels._SOURCES)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_what_the_compiler_reads_ships_with_the_package_and_counts_for_kept_measurements():
    folder = Path(kernels.__file__).parent
    sources = {path.name for path in folder.iterdir() if path.suffix in (".c", ".h")}
    assert sources == {path.name for path in (*kernels._SOURCES, *kernels._HEADERS)}
    settings = tomllib.loads((folder.parent.parent / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["hsd.models"]
    assert all(any(fnmatch(name, glob) for glob in globs) for name in sources)
    assert all(any(fnmatch(name, glob) for glob in SOURCES) for name in sources)
