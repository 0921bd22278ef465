"""Greedy text equals the target's alone: every kind of draft, every depth, every place where a text can end."""

from __future__ import annotations

import pytest
import torch
from decoding_checks import decode, greedy_alone, transformers_text
from tiny_models import CONTEXT, LETTERS, SMALL_DRAFTS, model_set, small_set

from hsd.generate.rule import verify_block
from hsd.records import Hierarchy, Sampling

PROMPTS = [[3], [11, 4, 60, 4, 11], list(range(40, 20, -1)), [5, 6, 5, 6, 5, 6, 5]]
LONG = 30

# One to four drafts, smallest first, and thresholds from the least to blocks longer than the text.
DEPTH_1 = [f"{draft}@{threshold}" for draft in SMALL_DRAFTS for threshold in (1, 2, 5, 16)]
DEPTH_2 = [
    f"{low}@{a},{high}@{b}"
    for low, high in [
        ("prompt-lookup", "near"),
        ("other", "near"),
        ("early-exit:1", "quantized:int4"),
        ("near", "other"),
        ("far", "quantized:int8"),
    ]
    for a, b in [(1, 1), (3, 6), (6, 2)]
]
DEPTH_3 = [
    f"{names[0]}@{a},{names[1]}@{b},{names[2]}@{c}"
    for names in [("prompt-lookup", "far", "near"), ("other", "early-exit:1", "quantized:int8")]
    for a, b, c in [(1, 1, 1), (2, 3, 4), (4, 3, 2), (3, 6, 12)]
]
DEPTH_4 = [
    f"prompt-lookup@{a},early-exit:1@{b},far@{c},near@{d}" for a, b, c, d in [(1, 1, 1, 1), (1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 8, 16)]
]
HIERARCHIES = ["", *DEPTH_1, *DEPTH_2, *DEPTH_3, *DEPTH_4]
PENALTIES = [
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 1},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 3},
]
SOME = ["near@3", "prompt-lookup@2", "prompt-lookup@3,near@4", "other@1,far@2,near@5", "prompt-lookup@2,early-exit:1@2,far@3,near@4"]


@pytest.fixture(scope="module")
def small():
    return small_set()


@pytest.fixture(scope="module")
def alone(small):
    """The target's own text after every prompt, by recomputation."""
    return [greedy_alone(small.modules["target"], prompt, LONG) for prompt in PROMPTS]


def test_the_reference_is_what_transformers_generates(small, alone):
    for prompt, text in zip(PROMPTS, alone, strict=True):
        assert transformers_text(small.modules["target"], prompt, LONG) == text
        assert len(set(text)) > 5, "a text that repeats one token tests nothing"


def test_the_drafts_are_wrong_and_right(small):
    """Between them the drafts reject, accept and do both, or the equality below would be cheap."""
    rates = {}
    for draft in SMALL_DRAFTS:
        run = [decode(small, Hierarchy.of((draft, 3), target="target"), prompt, max_new_tokens=LONG) for prompt in PROMPTS]
        rounds = [round_ for generation in run for round_ in generation.rounds if round_.model == "target"]
        rates[draft] = sum(round_.accepted for round_ in rounds) / sum(round_.drafted for round_ in rounds)
    assert rates["other"] < 0.1 < rates["far"] < 0.5 < rates["near"] < 1, rates


@pytest.mark.parametrize("drafts", HIERARCHIES)
def test_every_hierarchy_writes_the_targets_text(small, alone, drafts):
    hierarchy = Hierarchy.parse(drafts, "target")
    for prompt, text in zip(PROMPTS, alone, strict=True):
        assert list(decode(small, hierarchy, prompt, max_new_tokens=LONG).token_ids) == text


@pytest.mark.parametrize("drafts", SOME)
def test_every_length_ends_where_it_should(small, alone, drafts):
    hierarchy = Hierarchy.parse(drafts, "target")
    for length in range(1, hierarchy.longest_blocks[-1] + 4):
        generation = decode(small, hierarchy, PROMPTS[1], max_new_tokens=length)
        assert list(generation.token_ids) == alone[1][:length]
        assert generation.end.reason == "max_new_tokens"


@pytest.mark.parametrize("drafts", ["", *SOME])
def test_an_end_token_ends_the_text_wherever_it_falls_in_a_block(small, alone, drafts):
    hierarchy = Hierarchy.parse(drafts, "target")
    for prompt, text in zip(PROMPTS, alone, strict=True):
        for eos in dict.fromkeys(text[:12]):
            ending = model_set(small.networks, eos=frozenset({eos, 63 if 63 not in text else eos}))
            generation = decode(ending, hierarchy, prompt, max_new_tokens=LONG)
            assert list(generation.token_ids) == text[: text.index(eos) + 1]
            assert generation.end.reason == "eos"
            assert generation.end.text == "".join(LETTERS[token] for token in text[: text.index(eos)])


@pytest.mark.parametrize("drafts", ["", *SOME])
def test_a_stop_string_ends_the_text_wherever_it_falls_in_a_block(small, alone, drafts):
    hierarchy = Hierarchy.parse(drafts, "target")
    for prompt, text in zip(PROMPTS[1:3], alone[1:3], strict=True):
        written = "".join(LETTERS[token] for token in text)
        for start in range(0, 12):
            for size in (1, 3):
                stop = written[start : start + size]
                generation = decode(small, hierarchy, prompt, max_new_tokens=LONG, stop=["never this", stop])
                assert generation.end.text == written[: written.index(stop) + size]
                assert generation.end.reason == "stop_string"


def test_the_prompts_own_text_completes_no_stop_string(small, alone):
    prompt, text = PROMPTS[1], alone[1]
    stop = LETTERS[prompt[-1]] + LETTERS[text[0]]
    written = "".join(LETTERS[token] for token in text)
    assert decode(small, Hierarchy.parse("near@3", "target"), prompt, max_new_tokens=8, stop=[stop]).end.text == written[:8]


@pytest.mark.parametrize("drafts", ["", *SOME, "near@16", "prompt-lookup@16,far@16,near@16"])
@pytest.mark.parametrize("room", [1, 2, 3, 7, 20])
def test_a_full_context_ends_the_text(small, drafts, room):
    prompt = [(i * 7) % 64 for i in range(CONTEXT - room)]
    wanted = greedy_alone(small.modules["target"], prompt, room)
    generation = decode(small, Hierarchy.parse(drafts, "target"), prompt, max_new_tokens=room + 30)
    assert (list(generation.token_ids), generation.end.reason) == (wanted, "context_full")


@pytest.mark.parametrize("settings", PENALTIES)
@pytest.mark.parametrize("drafts", ["", *SOME])
def test_penalties_give_what_transformers_gives_with_them(small, settings, drafts):
    for prompt in PROMPTS:
        wanted = transformers_text(small.modules["target"], prompt, 24, **settings)
        generation = decode(small, Hierarchy.parse(drafts, "target"), prompt, max_new_tokens=24, sampling=Sampling(**settings))
        assert list(generation.token_ids) == wanted


def test_the_rule_of_sampling_does_not_matter_for_greedy_text(small, alone):
    for drafts in SOME:
        generation = decode(small, Hierarchy.parse(drafts, "target"), PROMPTS[2], max_new_tokens=LONG, rule=verify_block)
        assert list(generation.token_ids) == alone[2]


def test_a_target_alone_may_be_any_of_the_models(small):
    """A level is exact for its own model, so each draft as a target writes its own text."""
    for name in ("near", "far"):
        models = model_set({draft: small.networks[draft] for draft in ("other", "target")} | {name: small.networks[name]})
        wanted = greedy_alone(small.modules[name], PROMPTS[1], 20)
        assert list(decode(models, Hierarchy.parse("other@2,target@3", name), PROMPTS[1], max_new_tokens=20).token_ids) == wanted


def test_greedy_text_needs_no_random_numbers(small):
    state = torch.get_rng_state()
    decode(small, Hierarchy.parse(SOME[-1], "target"), PROMPTS[0], max_new_tokens=12)
    assert torch.equal(state, torch.get_rng_state())
