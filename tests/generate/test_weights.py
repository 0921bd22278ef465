"""The real SmolLM2: float32 greedy text of hierarchies one to three drafts deep is what transformers generates."""

from __future__ import annotations

import os

import pytest
import torch
from decoding_checks import decode, transformers_text

from hsd.generate.prompt import encode_prompt
from hsd.models.network import Network
from hsd.pick.load import load
from hsd.pick.registry import REGISTRY
from hsd.records import Hierarchy

pytestmark = pytest.mark.weights

TARGET = "smollm2-135m"
LONG = 32
PROMPTS = [
    "Once upon a time there was a small robot who",
    "Write one sentence about the sea.",
    "def fibonacci(n):",
    "Translate to French: Good morning, how are you?",
    "What is 17 + 25? Explain step by step.",
    "Repeat after me: one two three, one two three, one two three",
    "List three fruits and three vegetables.",
    "日本の首都はどこですか？",
    "Summarise: The cat sat on the mat. The cat was happy. The mat was warm.",
    "🎉",
]
HIERARCHIES = ["prompt-lookup@4", "prompt-lookup@3,early-exit:24@2", "prompt-lookup@2,early-exit:6@1,early-exit:26@2"]
DRAFTS = ["prompt-lookup", "early-exit:6", "early-exit:24", "early-exit:26", "quantized:int8"]


@pytest.fixture(scope="module", autouse=True)
def every_core():
    """Real products are worth more than the one thread that tiny models get."""
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def models():
    with REGISTRY.lease(TARGET, DRAFTS, device="cpu", dtype="float32") as models:
        assert not models.notices
        yield models


@pytest.fixture(scope="module")
def prompts(models):
    """Chat prompts and plain ones in turn."""
    return [encode_prompt(models.tokenizer, prompt, raw=index % 2 == 0) for index, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def wanted(models, prompts):
    """By a module of transformers' own, loaded anew."""
    module = load(TARGET, device=torch.device("cpu"), dtype=torch.float32).module
    return [until_the_end(transformers_text(module, prompt, LONG, eos_token_id=sorted(models.eos_token_ids)), models) for prompt in prompts]


def until_the_end(token_ids, models):
    ends = [index for index, token_id in enumerate(token_ids) if token_id in models.eos_token_ids]
    return token_ids[: ends[0] + 1] if ends else token_ids


@pytest.mark.parametrize("drafts", HIERARCHIES)
def test_greedy_text_is_what_transformers_generates(models, prompts, wanted, drafts):
    accepted = 0
    for prompt, text in zip(prompts, wanted, strict=True):
        generation = decode(models, Hierarchy.parse(drafts, TARGET), prompt, max_new_tokens=LONG)
        assert list(generation.token_ids) == text
        accepted += sum(token.outcome == "accepted" for token in generation.tokens)
    assert accepted > 5, "drafts that are never right test little"


def test_a_quantized_copy_drafts_exactly(models, prompts, wanted):
    generation = decode(models, Hierarchy.parse("prompt-lookup@2,quantized:int8@3", TARGET), prompts[0], max_new_tokens=8)
    assert list(generation.token_ids) == wanted[0][:8]
    assert sum(token.generated_by != TARGET for token in generation.tokens) >= 4, "it is nearly the target"


def test_the_models_are_what_they_say(models):
    assert all(str(network.dtype) == "torch.float32" for network in models.networks.values() if isinstance(network, Network))
    assert models.environment.dtype == "float32"
