"""The lean forward pass computes what transformers computes, keeps nothing twice, and rolls back by a number."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_models import tiny_llama
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from hsd.models.build import build_network, derive
from hsd.models.causal import CausalNetwork
from hsd.models.fuse import lean_network, supports_lean
from hsd.models.lean import LeanNetwork
from hsd.models.linear import DenseLinear, PackedDenseLinear

VOCAB = 70
SIZE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    initializer_range=0.3,
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
ARCHITECTURES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "llama, every head its own keys": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 4}),
    "llama, one head of keys": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
    "llama, attention bias": (LlamaForCausalLM, LlamaConfig, {"attention_bias": True}),
    "llama, wider heads": (LlamaForCausalLM, LlamaConfig, {"head_dim": 16}),
    "llama 3 rope": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3_ROPE}),
    "llama, linear rope": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}},
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "qwen2, bias": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3, norms of queries and keys": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
}
CASES = [(name, tied) for name in ARCHITECTURES for tied in (False, True)]


def tiny(name: str, tied: bool = False, **changes):
    torch.manual_seed(4)
    kind, config, settings = ARCHITECTURES[name]
    module = kind(config(**SIZE | settings | {"tie_word_embeddings": tied} | changes)).eval()
    with torch.no_grad():  # norms and biases are ones and zeros at first, which would hide a swap
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
    return module


@torch.inference_mode()
def reference(module, token_ids):
    return module(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]


def text(length, seed=0):
    return torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("name, tied", CASES)
def test_logits_are_those_of_transformers_at_every_width(name, tied):
    module = tiny(name, tied)
    tokens = text(45)
    wanted = reference(module, tokens)  # before the weights are fused
    network = build_network(name, copy.deepcopy(module))
    assert isinstance(network, LeanNetwork)
    cache = network.new_cache(45)
    start = 0
    for width in range(1, 10):
        got = network.forward(torch.tensor(tokens[start : start + width]), cache, width)
        start += width
        torch.testing.assert_close(got, wanted[start - width : start], rtol=1e-4, atol=2e-5)
    assert cache.length == start == 45


@pytest.mark.parametrize("name, tied", CASES)
def test_logits_are_right_after_rollbacks(name, tied):
    module = tiny(name, tied)
    network = build_network(name, copy.deepcopy(module))
    random = torch.Generator().manual_seed(1)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=random))  # noqa: E731
    tokens, cache = text(5), network.new_cache(60)
    network.forward(torch.tensor(tokens), cache, 1)
    for step in range(25):
        kept = draw(max(1, len(tokens) - 6), len(tokens) + 1)
        cache.crop(kept)
        new = text(draw(1, 10), seed=step)[: 60 - kept]
        tokens = [*tokens[:kept], *new]
        num_logits = draw(1, len(new) + 1)
        got = network.forward(torch.tensor(new), cache, num_logits)
        assert cache.length == len(tokens) and got.shape == (num_logits, VOCAB)
        torch.testing.assert_close(got, reference(module, tokens)[-num_logits:], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_as_far_from_float32_as_transformers_is(name, dtype):
    module = tiny(name)
    tokens = text(20)
    exact = reference(module, tokens)
    rounded = reference(module.to(dtype), tokens).float()
    network = build_network(name, copy.deepcopy(module))
    got = network.forward(torch.tensor(tokens), network.new_cache(20), 20).float()
    assert network.dtype == dtype
    assert (got - exact).abs().max() < 2 * (rounded - exact).abs().max()


@pytest.mark.parametrize("change", [
    {"hidden_act": "gelu"},
    {"mlp_bias": True},
    {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}},
])  # fmt: skip
def test_what_the_lean_pass_does_not_compute_is_left_to_transformers(change):
    module = tiny("llama", **change)
    tokens = text(12)
    network = build_network("llama", copy.deepcopy(module))
    assert isinstance(network, CausalNetwork) and not supports_lean(module)
    got = network.forward(torch.tensor(tokens), network.new_cache(12), 12)
    torch.testing.assert_close(got, reference(module, tokens), rtol=1e-4, atol=2e-5)


def test_a_sliding_window_is_left_to_transformers():
    assert not supports_lean(tiny("mistral", sliding_window=4))
    assert not supports_lean(tiny("qwen2, bias", use_sliding_window=True, sliding_window=4, max_window_layers=1))


def test_a_lean_pass_that_differs_from_the_model_is_refused(monkeypatch):
    """What is loaded is compared with transformers once; here the lean pass is made wrong."""
    from hsd.errors import IncompatibleModel
    from hsd.models import build

    def wrong(name, module):
        network = lean_network(name, copy.deepcopy(module))
        network.final_norm = network.final_norm * 1.5
        return network

    monkeypatch.setattr(build, "lean_network", wrong)
    with pytest.raises(IncompatibleModel, match="disagree"):
        build_network("llama", tiny("llama"))


def test_fusing_keeps_nothing_twice():
    """Where no kernel packs weights the module's projections become views of the fused ones, and its own forward goes on working."""
    module = tiny("qwen2, bias", tied=True).to(torch.float64)
    before = reference(module, text(9))
    network = build_network("model", module)
    own = {tensor.untyped_storage().data_ptr() for tensor in module.parameters()}
    held = [linear for layer in network.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    held += [network.head]
    assert all(linear.weight.untyped_storage().data_ptr() in own for linear in held)
    assert (
        {network.embed.keywords["weight"].data_ptr()}
        == {network.head.weight.data_ptr()}
        == {module.get_input_embeddings().weight.data_ptr()}
    )
    size = sum(tensor.untyped_storage().nbytes() for tensor in {t.untyped_storage().data_ptr(): t for t in module.parameters()}.values())
    assert size == sum(tensor.nbytes for tensor in module.parameters())
    torch.testing.assert_close(reference(module, text(9)), before)
    twice = build_network("again", module)  # a model that was dropped and is taken up once more
    torch.testing.assert_close(twice.forward(torch.tensor(text(9)), twice.new_cache(9), 9), before, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_packed_weights_are_the_only_ones(tied):
    """A weight packed for a kernel is kept in that form alone, and a float32 head tied to the embedding stays plain."""
    module = tiny("llama", tied=tied)
    size = sum(tensor.nbytes for tensor in module.parameters())
    norms = sum(tensor.nbytes for name, tensor in module.named_parameters() if "norm" in name)
    network = build_network("model", module)
    if torch.backends.mkldnn.is_available():
        assert isinstance(network.head, DenseLinear if tied else PackedDenseLinear)
        assert not any(part.weight.numel() for part in module.model.layers.modules() if isinstance(part, torch.nn.Linear))
    assert network.memory_bytes == size - norms


def test_early_exit_shares_every_weight_and_computes_the_first_layers():
    module = tiny("qwen3, norms of queries and keys")
    network = build_network("target", copy.deepcopy(module))
    draft = derive("early-exit:2", network, module)
    assert draft.memory_bytes == 0
    assert [layer is other for layer, other in zip(draft.layers, network.layers, strict=False)] == [True, True]
    assert draft.embed is network.embed and draft.head is network.head and draft.cos is network.cos
    got = draft.forward(torch.tensor(text(9)), draft.new_cache(9), 9)
    module.model.layers = module.model.layers[:2]
    torch.testing.assert_close(got, reference(module, text(9)), rtol=1e-4, atol=2e-5)


def test_a_draft_made_from_the_target_takes_over_its_prompt():
    module = tiny("llama")
    network = build_network("target", copy.deepcopy(module))
    draft, other = derive("early-exit:1", network, module), build_network("other", tiny_llama(vocab=VOCAB))
    cache, taken = network.new_cache(30), draft.new_cache(30)
    network.forward(torch.tensor(text(12)), cache, 1)
    assert not other.adopt(other.new_cache(30), network, cache)
    assert draft.adopt(taken, network, cache) and taken.length == 12
    own = draft.new_cache(30)
    draft.forward(torch.tensor(text(12)), own, 1)
    follow = torch.tensor([3, 4, 5])
    torch.testing.assert_close(draft.forward(follow, taken, 3), draft.forward(follow, own, 3), rtol=1e-4, atol=2e-5)
    draft.forward(follow, taken, 3)
    torch.testing.assert_close(network.forward(follow, cache, 3), reference(module, [*text(12), 3, 4, 5])[-3:], rtol=1e-4, atol=2e-5)


def test_a_text_longer_than_the_cache_is_bad_input():
    from hsd.errors import BadInput

    network = build_network("model", tiny("llama"))
    cache = network.new_cache(5)
    with pytest.raises(BadInput, match="holds 5 tokens"):
        network.forward(torch.tensor(text(6)), cache, 1)
    assert network.new_cache(1000).capacity == network.max_context == 64
