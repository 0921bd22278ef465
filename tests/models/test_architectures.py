"""Architectures beyond the lean ones: each is exact through the engine, or refused when it is loaded, with the reason."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from decoding_checks import decode, greedy_alone
from tiny_models import model_set, perturbed

from hsd.errors import BadInput, IncompatibleModel
from hsd.models.build import build_network, derive, is_derived
from hsd.models.causal import CausalNetwork, context_limit
from hsd.records import Hierarchy, Sampling

VOCAB = 64
COMMON = dict(vocab_size=VOCAB, hidden_size=32, initializer_range=0.3, bos_token_id=0, eos_token_id=None, pad_token_id=0)
USUAL = COMMON | dict(intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=96)
HEADS = COMMON | dict(intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=96)
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
EXACT = {
    "Gemma": USUAL | dict(head_dim=8),
    "Gemma2": USUAL | dict(head_dim=8, sliding_window=4, layer_types=WINDOWS, tie_word_embeddings=False),
    "Gemma3": USUAL | dict(head_dim=8, sliding_window=4, layer_types=WINDOWS, tie_word_embeddings=False),
    "Mistral": USUAL | dict(sliding_window=4),
    "Qwen2": USUAL | dict(use_sliding_window=True, sliding_window=4, layer_types=WINDOWS),
    "Mixtral": USUAL | dict(num_local_experts=3, num_experts_per_tok=2, sliding_window=None),
    "Phi": HEADS | dict(partial_rotary_factor=0.5),
    "Phi3": USUAL,
    "GPTNeoX": HEADS,
    "GPT2": dict(
        vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=4, n_positions=96, initializer_range=0.3, bos_token_id=0, eos_token_id=None
    ),
    "OPT": COMMON
    | dict(ffn_dim=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=96, word_embed_proj_dim=32, init_std=0.3),
    "SmolLM3": USUAL,
    "Olmo2": USUAL,
    "Cohere": USUAL,
}
MAMBA = dict(mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=8)
EXPERTS = dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16)
LINEAR = dict(linear_num_value_heads=2, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
SMALL = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2)
REFUSED = {
    "Mamba": SMALL | dict(state_size=8),
    "Mamba2": SMALL | dict(state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=8),
    "RecurrentGemma": SMALL | dict(intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, lru_width=32),
    "Lfm2": USUAL | dict(layer_types=["conv", "full_attention", "conv"], conv_L_cache=3),
    "Jamba": USUAL | dict(attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4, mamba_dt_rank=4, use_mamba_kernels=False),
    "FalconH1": USUAL | MAMBA | dict(mamba_d_ssm=32, mamba_n_heads=4),
    "Bamba": USUAL | MAMBA | dict(attn_layer_indices=[1], mamba_n_heads=8, mamba_n_groups=1),
    "Qwen3Next": USUAL | EXPERTS | LINEAR | dict(head_dim=8, layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "Rwkv": SMALL | dict(context_length=64),
}
PROMPT = [11, 4, 60, 4, 11, 33, 2]
LONG = 20


def tiny(name, settings):
    torch.manual_seed(2)
    prefix = "Gemma3Text" if name == "Gemma3" else name
    config = getattr(transformers, f"{prefix}Config")(**settings)
    kind = {"GPT2": "GPT2LMHeadModel"}.get(name, f"{name}ForCausalLM")
    return getattr(transformers, kind)(config).eval()


@pytest.mark.parametrize("name", EXACT)
def test_an_attention_model_is_exact_through_the_engine(name):
    """Its own copy as a draft, early exit and quantized where they can be had; texts longer than any sliding window."""
    module = tiny(name, EXACT[name])
    wanted = greedy_alone(module, PROMPT, LONG)
    assert len(set(wanted)) > 3, "a text that repeats itself tests little"
    target = build_network("target", copy.deepcopy(module))
    networks = {"prompt-lookup": derive("prompt-lookup", target, module), "early-exit:1": derive("early-exit:1", target, module)}
    networks |= {"near": build_network("near", perturbed(module, 0.05)), "target": target}
    models = model_set(networks)
    for drafts in ("", "near@3", "early-exit:1@2,near@4", "prompt-lookup@2,early-exit:1@2,near@5"):
        assert list(decode(models, Hierarchy.parse(drafts, "target"), PROMPT, max_new_tokens=LONG).token_ids) == wanted, drafts
    sampled = decode(models, Hierarchy.parse("near@3", "target"), PROMPT, max_new_tokens=LONG, sampling=Sampling(temperature=1.0))
    assert len(sampled.token_ids) == LONG and not sampled.notices


@pytest.mark.parametrize("name", EXACT)
def test_logits_are_right_after_rollbacks_beyond_a_sliding_window(name):
    module = tiny(name, EXACT[name])
    network = build_network("target", copy.deepcopy(module))
    cache, text = network.new_cache(80), []
    random = torch.Generator().manual_seed(3)
    for width, kept in [(9, 9), (5, 10), (1, 11), (8, 13), (7, 20), (3, 20), (9, 22)]:
        new = torch.randint(VOCAB, (width,), generator=random)
        text = [*text, *new.tolist()]
        got = network.forward(new, cache, width)
        with torch.inference_mode():
            wanted = module(input_ids=torch.tensor([text]), use_cache=False).logits[0, -width:]
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)
        text = text[:kept]
        cache.crop(kept)
        assert cache.length == kept


@pytest.mark.parametrize("name", REFUSED)
def test_a_recurrent_or_hybrid_model_is_refused_with_the_reason(name):
    try:
        module = tiny(name, REFUSED[name])
    except (ImportError, AttributeError) as error:
        pytest.skip(f"this transformers cannot build it here: {error}")
    with pytest.raises(IncompatibleModel, match=r"recurrent or hybrid .* model.*state cannot be rolled back.*Choose a model"):
        build_network(name, module)


def test_an_encoder_decoder_model_is_refused():
    config = transformers.T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    with pytest.raises(IncompatibleModel, match="encoder-decoder"):
        build_network("t5", transformers.T5ForConditionalGeneration(config).eval())


def test_a_cache_that_does_not_come_back_is_refused():
    """Whatever the configuration says: a model is fed, rolled back and fed again when it is loaded."""

    class Forgetful(CausalNetwork):
        def forward(self, token_ids, cache, num_logits):
            cache.fed = getattr(cache, "fed", 0) + len(token_ids)
            return super().forward(token_ids, cache, num_logits) + (cache.fed > 6)

    from hsd.models.build import check_rollback
    from hsd.models.causal import GrowingCache

    class Counting(GrowingCache):
        __slots__ = ("fed",)

    network = Forgetful("odd", tiny("GPT2", EXACT["GPT2"]))
    network.new_cache = lambda capacity: Counting()
    with pytest.raises(IncompatibleModel, match="does not come back"):
        check_rollback(network)


def test_the_longest_context_is_what_the_configuration_promises():
    assert context_limit(tiny("GPT2", EXACT["GPT2"]).config) == 96
    assert context_limit(transformers.MambaConfig()) > 100_000


def test_a_quantized_copy_of_another_architecture_drafts_for_it():
    module = tiny("Gemma2", EXACT["Gemma2"])
    wanted = greedy_alone(module, PROMPT, LONG)
    target = build_network("target", copy.deepcopy(module))
    draft = derive("quantized:int8", target, module)
    size = sum(parameter.nbytes for parameter in module.parameters())
    assert 0 < draft.memory_bytes < size / 2, "one byte for four"
    assert draft.module.get_input_embeddings().weight.data_ptr() == module.get_input_embeddings().weight.data_ptr()
    models = model_set({"quantized:int8": draft, "target": target})
    generation = decode(models, Hierarchy.parse("quantized:int8@4", "target"), PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == wanted
    assert sum(token.outcome == "accepted" for token in generation.tokens) > LONG / 2
    assert torch.equal(module(input_ids=torch.tensor([PROMPT])).logits, module(input_ids=torch.tensor([PROMPT])).logits)


def test_an_early_exit_of_another_architecture_shares_every_weight_and_leaves_the_target_whole():
    module = tiny("Gemma3", EXACT["Gemma3"])
    target = build_network("target", copy.deepcopy(module))
    draft = derive("early-exit:2", target, module)
    own = {parameter.data_ptr() for parameter in module.parameters()}
    assert draft.memory_bytes == 0 and {parameter.data_ptr() for parameter in draft.module.parameters()} <= own
    assert len(draft.module.model.layers) == 2 and len(module.model.layers) == 3
    assert draft.module.config.num_hidden_layers == 2 and module.config.num_hidden_layers == 3


def test_unknown_drafts_are_named():
    module = tiny("GPT2", EXACT["GPT2"])
    target = build_network("target", copy.deepcopy(module))
    unknown = {
        "quantized:int3": "no draft",
        "bigrams": "no draft",
        "early-exit:0": "1 to 2",
        "early-exit:3": "1 to 2",
        "early-exit:x": "1 to 2",
    }
    for spec, said in unknown.items():
        with pytest.raises(BadInput, match=said):
            derive(spec, target, module)
    with pytest.raises(IncompatibleModel, match="no plain linear layers"):  # GPT-2 keeps them transposed
        module.lm_head = torch.nn.Identity()
        derive("quantized:int8", target, module)
    assert is_derived("quantized:int8") and is_derived("prompt-lookup") and is_derived("early-exit:3") and not is_derived("gpt2")
