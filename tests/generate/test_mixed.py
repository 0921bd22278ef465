"""Levels that differ in precision, vocabulary size or context work together; prompts are sequences of their own."""

from __future__ import annotations

import copy

import pytest
import torch
from decoding_checks import decode, greedy_alone
from tiny_models import model_set, perturbed, tiny_llama

from hsd.errors import BadInput
from hsd.generate.engine import generate_each
from hsd.generate.events import EndEvent
from hsd.generate.prompt import encode_prompt
from hsd.models.build import build_network, derive
from hsd.records import Hierarchy, Sampling

PROMPT = [11, 4, 60, 4, 11]
LONG = 24


@pytest.fixture(scope="module")
def module():
    return tiny_llama()


@pytest.mark.parametrize("dtypes", [
    (torch.bfloat16, torch.float16), (torch.float16, torch.float32), (torch.float64, torch.bfloat16),
])  # fmt: skip
@pytest.mark.parametrize("temperature", [0, 1])
def test_several_precisions_in_one_hierarchy(module, dtypes, temperature):
    low, high = (build_network(name, perturbed(module, 0.02).to(dtype)) for name, dtype in zip(("low", "high"), dtypes, strict=True))
    models = model_set({"low": low, "high": high, "target": build_network("target", copy.deepcopy(module))})
    sampling = Sampling(temperature=temperature)
    generation = decode(models, Hierarchy.parse("low@2,high@4", "target"), PROMPT, max_new_tokens=LONG, sampling=sampling)
    assert not generation.notices and (low.dtype, high.dtype) == dtypes
    assert temperature or list(generation.token_ids) == greedy_alone(module, PROMPT, LONG)
    assert sum(token.outcome == "accepted" for token in generation.tokens) > 3


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantized_copies_in_the_precision_of_the_target(module, bits, dtype):
    """In bfloat16 the text is that of the same engine with the target alone: every pass rounds alike, at any width."""
    twin = copy.deepcopy(module).to(dtype)
    target = build_network("target", copy.deepcopy(twin))
    name = f"quantized:int{bits}"
    models = model_set({"prompt-lookup": derive("prompt-lookup", target, twin), name: derive(name, target, twin), "target": target})
    alone = decode(models, Hierarchy.parse("", "target"), PROMPT, max_new_tokens=LONG)
    for drafts in (f"{name}@1", f"{name}@5", f"prompt-lookup@2,{name}@3"):
        generation = decode(models, Hierarchy.parse(drafts, "target"), PROMPT, max_new_tokens=LONG)
        assert generation.token_ids == alone.token_ids and not generation.notices
        assert any(token.generated_by == name for token in generation.tokens)


def with_rows(module, rows: int):
    """The same model with a head and an embedding of another length; added rows would win if they were not cut off."""
    twin = copy.deepcopy(module)
    twin.resize_token_embeddings(rows, mean_resizing=False)
    if rows > 64:
        with torch.no_grad():
            twin.lm_head.weight[64:] = twin.lm_head.weight[:1].abs() * torch.arange(5, 5 + rows - 64)[:, None]
    return twin


@pytest.mark.parametrize("rows", [50, 63, 72, 128])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_draft_with_another_padded_vocabulary(module, rows, temperature):
    other = build_network("other", with_rows(perturbed(module, 0.02), rows))
    middle = build_network("middle", with_rows(perturbed(module, 0.03), 80))
    models = model_set({"other": other, "middle": middle, "target": build_network("target", copy.deepcopy(module))})
    assert (other.vocab_size, middle.vocab_size) == (rows, 80)
    prompt = [token for token in PROMPT if token < rows]
    for drafts in ("other@3", "other@2,middle@3", "middle@2,other@3"):
        generation = decode(
            models, Hierarchy.parse(drafts, "target"), prompt, max_new_tokens=LONG, sampling=Sampling(temperature=temperature)
        )
        assert temperature or list(generation.token_ids) == greedy_alone(module, prompt, LONG)
        assert max(generation.token_ids) < 64
        assert [notice.model for notice in generation.notices] in ([], ["other"]) and (rows < 64 or not generation.notices)
        assert any(token.generated_by != "target" for token in generation.tokens)


def test_a_target_with_a_padded_vocabulary_writes_as_alone(module):
    """Rows without a token are the target's own affair: they count as they do when it writes alone."""
    padded = with_rows(module, 70)
    models = model_set({"near": build_network("near", perturbed(module, 0.02)), "target": build_network("target", copy.deepcopy(padded))})
    wanted = greedy_alone(padded, PROMPT, LONG)
    generation = decode(models, Hierarchy.parse("near@3", "target"), PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == wanted


def test_prompts_are_sequences_of_their_own(module):
    """One call each; the order does not matter and nothing is carried over."""
    target = build_network("target", copy.deepcopy(module))
    models = model_set({"prompt-lookup": derive("prompt-lookup", target, module), "target": target})
    hierarchy = Hierarchy.parse("prompt-lookup@4", "target")
    prompts = [PROMPT, [1], PROMPT, [9] * 40]
    texts = [decode(models, hierarchy, prompt, max_new_tokens=LONG).token_ids for prompt in prompts]
    assert texts[0] == texts[2] and len({texts[0], texts[1], texts[3]}) == 3
    back = [decode(models, hierarchy, prompt, max_new_tokens=LONG).token_ids for prompt in reversed(prompts)]
    assert back == texts[::-1]


def test_a_prompt_is_text_or_a_history(module):
    models = model_set({"target": build_network("target", copy.deepcopy(module))})
    assert encode_prompt(models.tokenizer, "abc", raw=True) == [0, 1, 2]
    with pytest.raises(BadInput, match="no chat template"):
        encode_prompt(models.tokenizer, "abc", system="z")
    with pytest.raises(BadInput, match="no characters"):
        encode_prompt(models.tokenizer, "a\ud800")
    models.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{% endfor %}{% if add_generation_prompt %}a{% endif %}"
    )
    say = lambda *turns, **options: models.tokenizer.decode(encode_prompt(models.tokenizer, list(turns), **options))  # noqa: E731
    user, answer = {"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}
    assert say(user) == "uxa" and say(user, answer, user) == "uxayuxa"
    assert say(user, system="z") == "szuxa"
    assert models.tokenizer.decode(encode_prompt(models.tokenizer, "x")) == "uxa"


@pytest.mark.parametrize("temperature", [0, 1])
def test_several_prompts_in_one_call_give_what_each_gives_alone(module, temperature):
    target = build_network("target", copy.deepcopy(module))
    models = model_set({"prompt-lookup": derive("prompt-lookup", target, module), "target": target})
    hierarchy = Hierarchy.of(("prompt-lookup", 3), target="target")
    prompts = [[5, 6, 5, 6], [7], [5, 6, 5, 6]]  # ragged, and one of them twice
    settings = {"sampling": Sampling(temperature=temperature, seed=3), "max_new_tokens": 12}
    ends = {place: event for place, event in generate_each(models, hierarchy, prompts, **settings) if isinstance(event, EndEvent)}
    alone = [decode(models, hierarchy, prompt, **settings).token_ids for prompt in prompts]
    assert [ends[place].token_ids for place in range(3)] == alone
    assert alone[0] == alone[2] != alone[1]
