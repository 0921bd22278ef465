"""The tests of distribution can fail: each wrong implementation that was found in public code is caught by them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tables import chi_square_p, distance, exact_law, tables, target_law
from test_sampling import ALPHA, SAMPLES, sample

from hsd.generate import engine
from hsd.generate.rule import verify_block, verify_tokens
from hsd.records import Sampling

SETTINGS = Sampling(temperature=1.4)
THRESHOLDS = (1, 1)


def residual_replaced_by_the_full_distribution(block_ids, draft_probs, target_probs, generator):
    accepted, _ = verify_tokens(block_ids, draft_probs, target_probs, generator)
    return accepted, int(torch.multinomial(target_probs[accepted], 1, generator=generator))


def draft_probs_from_raw_logits(block_ids, draft_probs, target_probs, generator):
    """The tokens were drawn at the temperature, the rule takes them for drawn at temperature 1."""
    raw = draft_probs**SETTINGS.temperature
    return verify_tokens(block_ids, raw / raw.sum(-1, keepdim=True), target_probs, generator)


def bonus_from_the_last_draft_row(block_ids, draft_probs, target_probs, generator):
    """No pass over the last token: the token after a fully accepted block is drawn where that block's last one was."""
    accepted, next_id = verify_tokens(block_ids, draft_probs, target_probs, generator)
    if 0 < accepted == len(block_ids):
        next_id = int(torch.multinomial(target_probs[accepted - 1], 1, generator=generator))
    return accepted, next_id


def bonus_forgotten(block_ids, draft_probs, target_probs, generator):
    """A fully accepted block hands up no more than itself: distributed rightly, but a token short."""
    accepted, next_id = verify_tokens(block_ids, draft_probs, target_probs, generator)
    return (accepted - 1, int(block_ids[-1])) if 0 < accepted == len(block_ids) else (accepted, next_id)


def acceptance_without_a_ratio(block_ids, draft_probs, target_probs, generator):
    """A token is kept with the verifier's probability alone."""
    return verify_tokens(block_ids, torch.ones_like(draft_probs), target_probs, generator)


def block_rule_with_the_residual_of_the_token_rule(block_ids, draft_probs, target_probs, generator):
    """Block verification scales the residual by the joint probability of the prefix."""
    accepted, _ = verify_block(block_ids, draft_probs, target_probs, generator)
    row = target_probs[accepted]
    if accepted < len(block_ids):
        residual = (row - draft_probs[accepted]).clamp(min=0)
        row = residual if residual.sum() > 0 else row
    return accepted, int(torch.multinomial(row, 1, generator=generator))


BIASED = [
    residual_replaced_by_the_full_distribution,
    draft_probs_from_raw_logits,
    bonus_from_the_last_draft_row,
    acceptance_without_a_ratio,
]


def residual_handed_up(monkeypatch):
    """A corrected token goes up with the residual it was drawn from, not with the level's full distribution."""
    verify, residuals = engine._Run._verify, {}

    def remembering(self, level, start):
        below = list(self.text.probs[start:])
        outcome = verify(self, level, start)
        accepted = len(self.text) - start - 1
        if level is not self.target and outcome == "corrected":
            residual = (self.text.probs[-1] - below[accepted]).clamp(min=0)
            self.text.probs[-1] = residuals.setdefault(residual.numpy().tobytes(), residual / residual.sum())
        return outcome

    monkeypatch.setattr(engine._Run, "_verify", remembering)


def truncation_by_own_probability(monkeypatch):
    """A draft drops its last token, after it was sampled, because it was not sure of it."""
    draft = engine._Run._draft

    def truncating(self, level, start):
        draft(self, level, start)
        if level.index == 0 and len(self.text) > start and self.text.probs[-1][self.text.token_ids[-1]] < 0.4:
            self.text.truncate(len(self.text) - 1)
            level.rollback(len(self.text))

    monkeypatch.setattr(engine._Run, "_draft", truncating)


def greedy_draft_with_its_softmax(monkeypatch):
    """The smallest draft takes its likeliest token and hands up its softmax, as if the token had been drawn from it."""
    verify = engine._Run._verify

    def greedy(self, level, start):
        if level.index > 0:
            return verify(self, level, start)
        rule, self.rule = self.rule, lambda block, draft, target, generator: (0, int(target[0].argmax()))
        try:
            return verify(self, level, start)
        finally:
            self.rule = rule

    monkeypatch.setattr(engine._Run, "_verify", greedy)


SPOILED = [residual_handed_up, truncation_by_own_probability, greedy_draft_with_its_softmax]


@pytest.fixture
def models():
    return tables(3, 2, seed=1, spread=1.5)


def exact_error(models, rule):
    found, _ = exact_law(models, THRESHOLDS, SETTINGS, rule)
    return distance(found, target_law(models.networks["target"], 3, SETTINGS))


def counted_p(models, rule):
    seen = Counter(sample(models, THRESHOLDS, SETTINGS, seed, rule) for seed in range(SAMPLES))
    return chi_square_p(seen, target_law(models.networks["target"], 3, SETTINGS))


@pytest.mark.parametrize("rule", [verify_tokens, verify_block], ids=lambda rule: rule.__name__)
def test_the_right_rules_pass(models, rule):
    assert exact_error(models, rule) < 1e-5
    assert counted_p(models, rule) > ALPHA


@pytest.mark.parametrize("rule", BIASED, ids=lambda rule: rule.__name__)
def test_a_wrong_rule_fails_the_exact_test_and_the_counting_one(models, rule):
    assert exact_error(models, rule) > 0.01
    assert counted_p(models, rule) < ALPHA


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_a_wrong_engine_fails_the_exact_test_and_the_counting_one(models, spoil, monkeypatch):
    spoil(monkeypatch)
    assert exact_error(models, verify_tokens) > 0.01
    assert counted_p(models, verify_tokens) < ALPHA


def test_the_residual_of_the_token_rule_fails_under_block_verification():
    models = tables(4, 1, seed=1)
    wanted = target_law(models.networks["target"], 3, Sampling(temperature=1.0))
    right, wrong = (
        exact_law(models, (3,), Sampling(temperature=1.0), rule)[0]
        for rule in (verify_block, block_rule_with_the_residual_of_the_token_rule)
    )
    assert distance(right, wanted) < 1e-5 < 1e-3 < distance(wrong, wanted)


def expected_gain(models, threshold):
    """Tokens of a round of one draft, by the definition of acceptance: 1 + sum over j of the chance to keep j tokens."""
    draft, target = (models.networks[name].logits.div(SETTINGS.temperature).softmax(-1).double() for name in ("m0", "target"))
    states, gain = {(0, 1): 1.0}, 1.0
    for _ in range(threshold):
        kept = {}
        for (earlier, last), share in states.items():
            both = torch.minimum(draft[earlier, last], target[earlier, last])
            gain += share * float(both.sum())
            for token_id, probability in enumerate(both.tolist()):
                kept[last, token_id] = kept.get((last, token_id), 0.0) + share * probability
        states = kept
    return gain


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_forgotten_bonus_fails_the_test_of_gain(threshold):
    """It biases nothing, so the distribution cannot show it; the mean number of tokens of a round does."""
    models = tables(3, 1, seed=1)
    wanted = expected_gain(models, threshold)
    assert exact_law(models, (threshold,), SETTINGS, verify_tokens)[1] == pytest.approx(wanted, abs=1e-4)
    assert exact_law(models, (threshold,), SETTINGS, bonus_forgotten)[1] < wanted - 0.05


@pytest.mark.parametrize("vocab, thresholds", [(4, (2,)), (3, (3,)), (2, (4,)), (3, (1, 2)), (2, (1, 1, 2))])
def test_block_verification_gains_at_least_as_many_tokens_a_round(vocab, thresholds):
    """Sun et al. 2024, theorem 2: exactly, on several tables; and strictly more on some."""
    gains = []
    for seed in range(3):
        models = tables(vocab, len(thresholds), seed=seed)
        token, block = (exact_law(models, thresholds, Sampling(temperature=1.0), rule)[1] for rule in (verify_tokens, verify_block))
        gains.append(block - token)
    assert min(gains) > -1e-5
    assert len(thresholds) > 1 or max(gains) > 1e-3


def test_a_block_of_one_token_gains_the_same_under_both_rules():
    models = tables(4, 1, seed=2)
    token, block = (exact_law(models, (1,), Sampling(temperature=1.0), rule)[1] for rule in (verify_tokens, verify_block))
    assert token == pytest.approx(block, abs=1e-5)
