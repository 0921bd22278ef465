"""Sampled text is distributed as the target's alone: by exact enumeration, and by counting real samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from decoding_checks import decode
from tables import PROMPT, chi_square_p, distance, exact_law, hierarchy_of, processed, tables, target_law
from tiny_models import letter_tokenizer, model_set, small_set

from hsd.errors import BadInput
from hsd.generate.collect import collect
from hsd.generate.engine import generate
from hsd.generate.rule import draw_by_parts, draw_by_race, verify_block, verify_tokens
from hsd.generate.sampling import Transforms, choose, probabilities
from hsd.records import Sampling

RULES = {"token": verify_tokens, "block": verify_block}
ALPHA = 1e-4
SAMPLES = 1200  # test_wrong_rules counts as many: at this size each wrong rule there has a p value below 1e-13
PLAIN = Sampling(temperature=1.0)
SETTINGS = {
    "temperature": Sampling(temperature=0.6),
    "hot": Sampling(temperature=1.7),
    "top-k": Sampling(temperature=1.0, top_k=2),
    "top-p": Sampling(temperature=0.9, top_p=0.7),
    "min-p": Sampling(temperature=1.0, min_p=0.25),
    "all three": Sampling(temperature=0.8, top_k=3, top_p=0.9, min_p=0.1),
    "repetition penalty": Sampling(temperature=1.0, repetition_penalty=1.6),
    "no repeated pair": Sampling(temperature=1.0, no_repeat_ngram_size=2),
}
IMPOSSIBLE = [
    *({"temperature": value} for value in (-1, float("nan"), 11)),
    *({"top_k": value} for value in (-1, 1.5)),
    *({"top_p": value} for value in (0, 1.1)),
    *({"min_p": value} for value in (1, -0.1)),
    {"repetition_penalty": 0},
    {"no_repeat_ngram_size": -2},
    {"seed": 2**63},
]
# Vocabulary, and thresholds of one to four drafts.
SHAPES = [(5, (1,)), (4, (2,)), (2, (4,)), (3, (1, 1)), (3, (2, 1)), (2, (1, 3)), (2, (1, 1, 1)), (2, (1, 1, 2)), (2, (1, 1, 1, 1))]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("vocab, thresholds", SHAPES)
def test_the_exact_distribution_is_the_targets_own(rule, vocab, thresholds):
    models = tables(vocab, len(thresholds), seed=vocab)
    found, mean = exact_law(models, thresholds, PLAIN, RULES[rule])
    wanted = target_law(models.networks["target"], 3, PLAIN)
    assert len(wanted) == vocab**3
    assert distance(found, wanted) < 1e-5
    assert mean > 1.05


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("vocab, thresholds", [(4, (2,)), (3, (1, 2))])
def test_the_exact_distribution_holds_under_every_setting(rule, name, vocab, thresholds):
    models = tables(vocab, len(thresholds), seed=1)
    found, _ = exact_law(models, thresholds, SETTINGS[name], RULES[rule])
    assert distance(found, target_law(models.networks["target"], 3, SETTINGS[name])) < 1e-5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("vocab, thresholds", [(4, (1,)), (4, (4,)), (3, (2, 1)), (3, (3, 1, 1)), (2, (2, 1, 1, 1))])
def test_deterministic_drafts_leave_the_distribution_alone(rule, vocab, thresholds):
    """A draft without a distribution, which also proposes fewer tokens than asked, or none."""
    models = tables(vocab, len(thresholds), seed=2, one_hot=True)
    found, _ = exact_law(models, thresholds, PLAIN, RULES[rule])
    assert distance(found, target_law(models.networks["target"], 3, PLAIN)) < 1e-5


@pytest.mark.parametrize("rule", RULES)
def test_padded_vocabularies_leave_the_distribution_alone(rule):
    """Rows of a draft beyond the target's vocabulary stand for no token and take no share of the probability."""
    models = tables(3, 2, seed=3, padded=(2, 5))
    found, _ = exact_law(models, (1, 2), PLAIN, RULES[rule])
    assert distance(found, target_law(models.networks["target"], 3, PLAIN)) < 1e-5


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("vocab, thresholds", [(6, (3,)), (5, (2, 4)), (4, (1, 2, 3)), (4, (1, 1, 2, 1))])
def test_counted_samples_are_distributed_as_the_targets_own(rule, vocab, thresholds):
    """The same through torch's own random numbers, over whole texts, several rounds long."""
    models = tables(vocab, len(thresholds), seed=4)
    seen = Counter(sample(models, thresholds, PLAIN, seed, RULES[rule]) for seed in range(SAMPLES))
    assert chi_square_p(seen, target_law(models.networks["target"], 3, PLAIN)) > ALPHA


def sample(models, thresholds, sampling, seed, rule, length=3):
    events = generate(models, hierarchy_of(thresholds), PROMPT, sampling=replace(sampling, seed=seed), max_new_tokens=length, rule=rule)
    return collect(events).token_ids


@pytest.mark.parametrize("rule", RULES)
def test_fifty_thousand_samples_of_the_rule_alone(rule):
    """Blocks of three over a vocabulary of eight, completed to four tokens by the target."""
    samples, size, vocab = 50_000, 3, 8
    models = tables(vocab, 1, seed=5)
    draft, target = (models.networks[name].logits.softmax(-1) for name in ("m0", "target"))
    random = torch.Generator().manual_seed(6)
    text = torch.tensor(PROMPT).repeat(samples, 1)
    for _ in range(size):
        text = torch.cat([text, torch.multinomial(draft[text[:, -2], text[:, -1]], 1, generator=random)], dim=1)
    draft_probs, target_probs = draft[text[:, :-2], text[:, 1:-1]], target[text[:, :-1], text[:, 1:]]
    texts = []
    for row, *block in zip(text.tolist(), text[:, 2:], draft_probs, target_probs, strict=True):
        accepted, next_id = RULES[rule](*block, random)
        texts.append([*row[: 2 + accepted], next_id])
    seen = Counter()
    by_length = {length: torch.tensor([t for t in texts if len(t) == length]) for length in range(3, 3 + size + 1)}
    for length, group in by_length.items():
        for _ in range(6 - length):
            group = torch.cat([group, torch.multinomial(target[group[:, -2], group[:, -1]], 1, generator=random)], dim=1)
        seen.update(tuple(t[2:6]) for t in group.tolist())
    assert sum(seen.values()) == samples
    assert chi_square_p(seen, target_law(models.networks["target"], 4, PLAIN)) > ALPHA


def test_the_chi_square_test_sees_a_small_difference():
    models = tables(4, 1, seed=7)
    wanted = target_law(models.networks["target"], 3, PLAIN)
    other = target_law(models.networks["target"], 3, Sampling(temperature=1.15))
    exact = {text: round(20_000 * share) for text, share in wanted.items()}
    assert chi_square_p(exact, wanted) > 0.99
    assert chi_square_p({text: round(20_000 * share) for text, share in other.items()}, wanted) < ALPHA
    assert chi_square_p({(9, 9, 9): 1}, wanted) == 0


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_mean_what_they_say(name):
    """The transforms, for rows of drafted tokens at once, against their definitions written down independently."""
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(8)) * 2
    context = [3, 4, 5, 3, 4, 11, 0, 4]
    got = probabilities(Transforms(SETTINGS[name]).scores(logits, context), "m")
    for row, end in enumerate(range(len(context) - 2, len(context) + 1)):
        torch.testing.assert_close(got[row].double(), processed(logits[row], context[:end], SETTINGS[name]), atol=1e-6, rtol=1e-5)


def test_same_seed_same_text_other_seed_other_text():
    models = small_set()
    hierarchy = hierarchy_of(()).parse("prompt-lookup@2,far@2,near@4", "target")
    runs = [decode(models, hierarchy, [1, 2, 3], sampling=Sampling(temperature=1.0, seed=seed), max_new_tokens=20) for seed in (1, 1, 2)]
    assert runs[0].token_ids == runs[1].token_ids != runs[2].token_ids
    torch.manual_seed(5)  # and the seed is the run's own, not the process's
    assert (
        decode(models, hierarchy, [1, 2, 3], sampling=Sampling(temperature=1.0, seed=1), max_new_tokens=20).token_ids == runs[0].token_ids
    )


def test_a_temperature_near_zero_is_nearly_greedy():
    models = small_set()
    hierarchy = hierarchy_of(()).parse("far@2,near@4", "target")
    greedy = decode(models, hierarchy, [1, 2, 3], max_new_tokens=20)
    assert decode(models, hierarchy, [1, 2, 3], sampling=Sampling(temperature=0.001), max_new_tokens=20).token_ids == greedy.token_ids


@pytest.mark.parametrize("settings", IMPOSSIBLE)
def test_impossible_settings_are_refused_by_name(settings):
    with pytest.raises(BadInput, match=next(iter(settings))):
        Sampling(**settings)


def test_unknown_settings_are_refused_by_name():
    with pytest.raises(TypeError, match="frequency_penalty"):
        Sampling(frequency_penalty=1.0)


def test_no_number_of_double_precision_is_needed():
    """Apple's GPUs know none."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class NoDoubles(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for value in result if isinstance(result, tuple | list) else [result]:
                assert not isinstance(value, torch.Tensor) or value.dtype != torch.float64, func
            return result

    models = tables(4, 2, seed=9)
    for sampling in (Sampling(), SETTINGS["all three"], SETTINGS["repetition penalty"]):
        for rule in RULES.values():
            with NoDoubles():
                collect(generate(models, hierarchy_of((2, 3)), PROMPT, sampling=sampling, max_new_tokens=12, rule=rule))


def test_an_argmax_survives_a_large_vocabulary():
    """Token ids travel to the host together with the maxima, as one kind of number: none may be rounded."""
    scores = torch.zeros(2, 300_001)
    scores[0, 300_000], scores[1, 262_147] = 1.0, 2.0
    assert choose(scores, "m") == [300_000, 262_147]


def test_a_tokenizer_is_no_part_of_the_distribution():
    models = tables(4, 1, seed=10)
    shown = model_set(models.networks, tokenizer=letter_tokenizer())
    for seed in range(5):
        assert sample(models, (2,), PLAIN, seed, verify_tokens) == sample(shown, (2,), PLAIN, seed, verify_tokens)


@pytest.mark.parametrize("draw", [draw_by_parts, draw_by_race])
def test_a_draw_is_in_proportion_to_the_weights(draw):
    """Over several parts of the vocabulary, with weights of zero at its ends and over a whole part, and a sum that is not 1."""
    random, count = torch.Generator().manual_seed(2), 20_000
    weights = torch.zeros(900)
    places = [1, 100, 255, 256, 300, 511, 800, 898]
    weights[places] = torch.tensor([0.02, 0.3, 0.5, 0.1, 0.7, 0.05, 1.1, 0.4])
    drawn = Counter((int(draw(weights, random)),) for _ in range(count))
    assert chi_square_p(drawn, {(place,): float(weights[place] / weights.sum()) for place in places}) > 1e-3
    assert {int(draw(torch.tensor([0.0, 1e-30, 0.0]), random)) for _ in range(50)} == {1}
