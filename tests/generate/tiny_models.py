"""Tiny random models, a tokenizer of single characters, and sets of them as the engine takes them."""

from __future__ import annotations

import copy
import string
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hsd.models.build import build_network, derive, is_derived
from hsd.models.network import Network, Proposer
from hsd.pick.model_set import ModelSet
from hsd.records import Environment

LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + ". "  # 64 tokens, one character each
EOS = 7  # the letter h
CONTEXT = 96
SMALL_DRAFTS = ("prompt-lookup", "early-exit:1", "quantized:int4", "quantized:int8", "other", "far", "near")


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """Token i is the i-th of `LETTERS`, so texts and tokens are the same thing."""
    backend = Tokenizer(models.WordLevel({letter: index for index, letter in enumerate(LETTERS)}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="a")


def byte_tokenizer(vocab_size: int = 400) -> PreTrainedTokenizerFast:
    """A byte-level BPE as GPT-2 and Qwen have it: tokens may end in the middle of a character."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    corpus = [
        "the quick brown fox jumps over the lazy dog\n\n",
        "    return x + 1\n",
        "héllo wörld",
        "日本語の文字",
        "漢字と仮名",
        "👩‍👩‍👧 🎉🎉",
    ] * 4
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def tiny_llama(
    seed: int = 0, *, layers: int = 2, vocab: int = len(LETTERS), context: int = CONTEXT, spread: float = 0.3
) -> LlamaForCausalLM:
    """Two layers of width 32; weights are spread widely enough that the text varies and argmaxes are no near-ties."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocab,
        max_position_embeddings=context,
        initializer_range=spread,
        bos_token_id=0,
        eos_token_id=EOS,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def perturbed(module: PreTrainedModel, amount: float, seed: int = 5) -> PreTrainedModel:
    """A copy whose weights are off by `amount` of their spread: a draft with intermediate acceptance."""
    twin = copy.deepcopy(module)
    noise = torch.Generator().manual_seed(seed)
    for parameter in twin.parameters():
        if parameter.dim() == 2:
            parameter += amount * parameter.std() * torch.randn(parameter.shape, generator=noise)
    return twin


@dataclass(frozen=True)
class TinySet(ModelSet):
    """A model set that keeps transformers' modules beside the networks over them, as references."""

    modules: Mapping[str, PreTrainedModel]


def model_set(
    networks: Mapping[str, Network | Proposer],
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    modules: Mapping[str, PreTrainedModel] | None = None,
    eos: frozenset[int] = frozenset(),
) -> TinySet:
    """What a lease would give; the target is the last of `networks`."""
    return TinySet(
        modules=dict(modules or {}),
        target=list(networks)[-1],
        networks=MappingProxyType(dict(networks)),
        own_weights=tuple(name for name in networks if not is_derived(name)),
        tokenizer=tokenizer or letter_tokenizer(),
        environment=Environment("cpu", "", "float32", "", "", "", ""),
        notices=MappingProxyType({}),
        eos_token_ids=eos,
        memory_bytes=MappingProxyType({}),
    )


def small_set(*, eos: frozenset[int] = frozenset(), context: int = CONTEXT) -> TinySet:
    """A tiny target with a draft of every kind: `SMALL_DRAFTS`, from never to nearly always right."""
    module = tiny_llama(context=context)
    modules = {
        "other": tiny_llama(99, layers=1, context=context),
        "far": perturbed(module, 0.1),
        "near": perturbed(module, 0.03),
        "target": module,
    }
    target = build_network("target", copy.deepcopy(module))
    derived = {name: derive(name, target, module) for name in SMALL_DRAFTS if name not in modules}
    built = {name: build_network(name, copy.deepcopy(draft)) for name, draft in modules.items() if name != "target"}
    return model_set(derived | built | {"target": target}, modules=modules, eos=eos)
