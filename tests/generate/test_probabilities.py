"""The probability that a token event tells is the target's own, after the sampling transforms, whoever generated the token."""

from __future__ import annotations

import pytest
import torch
from decoding_checks import decode
from tiny_models import small_set

from hsd.generate.rule import verify_block, verify_tokens
from hsd.generate.sampling import Transforms
from hsd.records import GREEDY, Hierarchy, Sampling

PROMPT = [11, 4, 60, 4, 11]


@pytest.fixture(scope="module")
def small():
    return small_set()


@torch.inference_mode()
def expected(small, sampling: Sampling, text: list[int]) -> list[float]:
    """One pass of the transformers module over the whole text; at temperature 0 the plain softmax."""
    logits = small.modules["target"](torch.tensor([text])).logits[0].float()
    found = []
    for place in range(len(PROMPT), len(text)):
        scores = Transforms(sampling).scores(logits[place - 1 : place], text[:place])
        found.append(float(scores[0].softmax(-1)[text[place]]))
    return found


@pytest.mark.parametrize("rule", [verify_tokens, verify_block])
@pytest.mark.parametrize("hierarchy", ["", "prompt-lookup@3", "prompt-lookup@2,early-exit:1@2,near@4"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8, top_k=20, top_p=0.9, seed=3)])
def test_every_token_tells_its_probability_at_the_target(small, sampling, hierarchy, rule):
    models = Hierarchy.parse(hierarchy, "target")
    generation = decode(small, models, PROMPT, sampling=sampling, max_new_tokens=24, rule=rule, probabilities=True)
    told = [token.probability for token in generation.tokens]
    assert told == pytest.approx(expected(small, sampling, [*PROMPT, *generation.token_ids]), abs=1e-4)


def test_nothing_is_computed_unasked(small):
    generation = decode(small, Hierarchy.parse("prompt-lookup@3", "target"), PROMPT, max_new_tokens=8)
    assert {token.probability for token in generation.tokens} == {None}
