"""Small random models on disk."""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + ". "


def save_model(folder: Path, *, layers: int, seed: int, context: int = 160) -> str:
    """A random Llama whose tokens are single characters."""
    backend = Tokenizer(models.WordLevel({letter: index for index, letter in enumerate(LETTERS)}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="a", eos_token="h").save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(LETTERS),
        max_position_embeddings=context,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=7,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)
