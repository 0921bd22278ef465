"""Tiny random models on disk, a cache folder of the test's own, and a hub that cannot be reached."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from hsd.pick import candidates, source
from hsd.pick.registry import Registry

WORDS = ["<s>", "</s>", *(f"w{index}" for index in range(62))]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(candidates, "REGISTRY", Registry())  # nothing that other tests have loaded
    monkeypatch.setattr(source, "_last_probe", None)
    monkeypatch.setattr(source, "_probe", lambda: "https://hub.test cannot be reached (no route)")


def _tokenizer(words: Sequence[str] = WORDS, added: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token=words[0]))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=words[0], eos_token=words[1], unk_token=words[0])
    tokenizer.add_special_tokens({"additional_special_tokens": list(added)})
    return tokenizer


@pytest.fixture
def words() -> list[str]:
    return list(WORDS)


@pytest.fixture
def tiny_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    return _tokenizer


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., str]:
    """Save a random Llama of `layers` layers and its tokenizer; gives the folder."""

    def make(name: str, *, layers: int = 2, words: Sequence[str] = WORDS, added: Sequence[str] = (), rows: int | None = None) -> str:
        torch.manual_seed(len(name))
        tokenizer = _tokenizer(words, added)
        config = LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=rows or len(tokenizer),
            max_position_embeddings=128,
            bos_token_id=0,
            eos_token_id=1,
        )
        folder = tmp_path / name
        LlamaForCausalLM(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return str(folder)

    return make
