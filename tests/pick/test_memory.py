"""Memory is known before any weight is loaded."""

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

from hsd.pick import memory
from hsd.pick.catalogue import CATALOGUE, vocabulary_of_size
from hsd.pick.facts import facts_of
from hsd.pick.memory import derived_bytes, skeleton
from hsd.units import byte_size


def test_the_footprint_is_what_the_loaded_model_takes(make_model):
    folder = make_model("model")
    module = LlamaForCausalLM.from_pretrained(folder)
    size = facts_of(folder).footprint(torch.float32)
    assert size.parameters == module.num_parameters()
    assert size.weight_bytes == sum(p.nbytes for p in module.parameters())
    cache = module(torch.arange(10)[None], use_cache=True).past_key_values
    assert size.cache_bytes_per_token * 10 == sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert size.total_bytes == size.weight_bytes + size.cache_bytes and size.cache_bytes == size.cache_bytes_per_token * 128
    assert CATALOGUE[0].footprint(torch.bfloat16).context_tokens == 2048 < CATALOGUE[0].max_context


def test_tied_weights_count_once_and_older_configurations_are_read():
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100}
    tied = memory.footprint(skeleton(LlamaConfig(**shape, tie_word_embeddings=True)), torch.bfloat16)
    free = memory.footprint(skeleton(LlamaConfig(**shape, tie_word_embeddings=False)), torch.bfloat16)
    assert free.parameters - tied.parameters == 100 * 32
    gpt2 = memory.footprint(skeleton(GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=50)), torch.float32)
    assert gpt2.cache_bytes_per_token == 2 * 3 * 32 * 4


def test_the_catalogue_of_the_default_agrees_with_its_configuration():
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        tie_word_embeddings=True,
    )
    assert CATALOGUE[0].footprint(torch.bfloat16) == memory.footprint(skeleton(config), torch.bfloat16)


def test_catalogue_names_are_distinct_and_families_know_their_vocabulary():
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
    for family in ("SmolLM2", "Qwen2.5", "Qwen3", "Llama 3", "Gemma 3", "Pythia", "OPT", "LayerSkip"):
        assert any(entry.family == family for entry in CATALOGUE)
    assert all(vocabulary_of_size(size) == entry.vocabulary for entry in CATALOGUE for size in entry.vocabulary.sizes)
    assert all(entry.early_exits for entry in CATALOGUE if entry.family == "LayerSkip")


def test_derived_drafts_add_only_what_is_packed():
    target = memory.Footprint(1000, 2000, 8)
    assert [derived_bytes(spec, target) for spec in ("quantized:int8", "quantized:int4", "early-exit:3", "prompt-lookup")] == [
        1000,
        718,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({"memory.max": "1000", "memory.current": "700", "memory.stat": "anon 500\ninactive_file 200"}, 500),
        ({"memory.max": "max", "memory.current": "700", "memory.stat": ""}, memory._NO_LIMIT),
        ({"memory.max": "100", "memory.current": "700", "memory.stat": ""}, 0),
        ({}, memory._NO_LIMIT),
    ],
)
def test_a_container_limit_bounds_the_free_memory(tmp_path, files, free):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert memory._container_free_bytes(tmp_path) == free


def test_sizes_are_written_with_sensible_digits():
    sizes = (0, 4_000, 269_000_000, 1_300_000_000, 14_000_000_000)
    assert [*map(byte_size, sizes)] == ["0 MB", "4 kB", "269 MB", "1.3 GB", "14 GB"]
