"""The lossless check passes what is right, and fails what is wrong: rules, texts, draft distributions."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch
from tables import PROMPT, Table, hierarchy_of, tables, target_law
from tiny_models import model_set, small_set

from hsd.compare import lossless
from hsd.compare.command import describe
from hsd.compare.lossless import check_lossless, continuation_probabilities, sampling_check
from hsd.compare.record import Divergence, LosslessReport
from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.generate import engine
from hsd.generate.collect import Generation
from hsd.generate.rule import verify_block, verify_greedily, verify_tokens
from hsd.measure.prompts import PromptSet
from hsd.models.prefill import PREFILL_CHUNK
from hsd.records import Hierarchy, Sampling

ALPHA = 0.001
SAMPLED = Sampling(temperature=1.0, top_k=3)
DRAFTS = ("early-exit:1@2,near@4", "near@3", "prompt-lookup@4", "other@2", "far@5")


def first_token_always_kept(block_ids, choices):
    accepted, next_id = verify_greedily(block_ids, choices)
    return (1, choices[1]) if len(block_ids) and not accepted else (accepted, next_id)


def check(models, plan, prompts, **options):
    return check_lossless(models, plan, prompts, max_new_tokens=24, samples=60, **options)


def test_tiny_models_pass(models, plan_of, prompts):
    found = check(models, plan_of(*DRAFTS), prompts)
    assert found.passed and (found.cases, found.equal, found.near_ties, found.different) == (12, 12, 0, 0)
    assert [one.hierarchy for one in found.sampling] == ["early-exit:1@2,near@4,target"]
    assert found.sampling[0].samples == 60 and found.sampling[0].p_value >= ALPHA
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["kind"] == "lossless" and data["passed"] is True and data["sampling"][0]["passed"] is True


def test_a_wrong_greedy_rule_fails(models, plan_of, prompts, monkeypatch):
    monkeypatch.setattr(engine, "verify_greedily", first_token_always_kept)
    found = check(models, plan_of("other@3"), prompts)
    assert not found.passed and found.different > 0 and found.near_ties == 0
    assert found.equal + found.different == found.cases == 3
    for divergence in found.divergences:
        assert divergence.method == "other@3,target" and not divergence.near_tie and divergence.logit_margin > 0


def test_one_altered_token_of_one_draft_fails(models, plan_of, prompts, monkeypatch):
    real = lossless.generate_whole

    def altered(models, hierarchy, prompt_ids, **settings):
        found = real(models, hierarchy, prompt_ids, **settings)
        if str(hierarchy) != "near@3,target" or not settings["sampling"].greedy or len(prompt_ids) != len("one two three"):
            return found
        token_ids = list(found.token_ids)
        token_ids[9] = (token_ids[9] + 1) % 64
        end = engine.EndEvent("eos", "", "", tuple(token_ids), 0.0, 0.0)
        return Generation(found.tokens, found.rounds, (), end)

    monkeypatch.setattr(lossless, "generate_whole", altered)
    found = check(models, plan_of(*DRAFTS), prompts)
    assert not found.passed and (found.equal, found.different) == (11, 1)
    (divergence,) = found.divergences
    assert (divergence.method, divergence.prompt_id, divergence.position) == ("near@3,target", "p2", 9)


def test_a_wrong_sampling_rule_fails_although_greedy_texts_are_equal(models, plan_of, prompts, monkeypatch):
    def biased(*args, **options):
        return sampling_check(*args, **options, rule=residual_replaced_by_the_full_distribution)

    monkeypatch.setattr(lossless, "sampling_check", biased)
    found = check_lossless(models, plan_of("far@2"), prompts, max_new_tokens=8, samples=200)
    assert found.different == 0 and found.sampling[0].p_value < ALPHA and not found.sampling[0].passed and not found.passed


def residual_replaced_by_the_full_distribution(block_ids, draft_probs, target_probs, generator):
    accepted, _ = verify_tokens(block_ids, draft_probs, target_probs, generator)
    return accepted, int(torch.multinomial(target_probs[accepted], 1, generator=generator))


def everything_kept(block_ids, draft_probs, target_probs, generator):
    return len(block_ids), int(torch.multinomial(target_probs[-1], 1, generator=generator))


def likeliest_token_at_the_end(block_ids, draft_probs, target_probs, generator):
    accepted, _ = verify_tokens(block_ids, draft_probs, target_probs, generator)
    return accepted, int(target_probs[accepted].argmax())


def p_value(rule, seed, samples=300, thresholds=(2,), one_hot=False):
    models = tables(4, len(thresholds), seed=seed, one_hot=one_hot)
    return sampling_check(models, hierarchy_of(thresholds), PROMPT, SAMPLED, samples=samples, rule=rule).p_value


@pytest.mark.parametrize("rule", [residual_replaced_by_the_full_distribution, everything_kept, likeliest_token_at_the_end])
def test_wrong_rules_have_tiny_p_values(rule):
    assert p_value(rule, seed=0, samples=250, thresholds=(1,)) < 1e-6


@pytest.mark.parametrize(("rule", "thresholds", "one_hot"), [
    (verify_tokens, (2,), False), (verify_tokens, (1, 2), False), (verify_tokens, (2,), True), (verify_block, (3,), False),
])  # fmt: skip
def test_the_right_rules_pass(rule, thresholds, one_hot):
    found = [p_value(rule, seed, 120, thresholds, one_hot) for seed in range(2)]
    assert min(found) > ALPHA and max(found) > 0.02


def test_p_values_of_the_right_distribution_are_uniform():
    """Also where most outcomes are rare, or one is rarer than anything that a sample of this size shows."""
    random = np.random.default_rng(0)
    for shape in ([5] * 8, [0.3] * 27, [0.05] * 27, [1000, 0.001, 1000]):
        found = []
        for _ in range(1500):
            shares = random.dirichlet(np.array(shape)) if len(shape) > 3 else np.array(shape) / sum(shape)
            exact = {(outcome,): float(share) for outcome, share in enumerate(shares)}
            counts = random.multinomial(400, shares)
            seen = Counter({(outcome,): int(count) for outcome, count in enumerate(counts) if count})
            statistic, cells = lossless._chi_square(exact, seen, 400)
            if cells > 1:
                found.append(lossless._p_value(statistic, cells - 1))
        for level in (0.5, 0.1, 0.01):
            share = np.mean(np.array(found) <= level)
            assert abs(share - level) < 4 * (level * (1 - level) / len(found)) ** 0.5 + 0.02 * (level > 0.05) + 0.004, (shape, level, share)
        assert np.mean(np.array(found) < ALPHA) < 0.005, shape


def test_a_text_that_the_target_cannot_write_is_never_by_chance():
    exact = {(0,): 0.5, (1,): 0.5}
    statistic, _ = lossless._chi_square(exact, Counter({(0,): 50, (1,): 50, (2,): 1}), 101)
    assert statistic == float("inf") and lossless._p_value(statistic, 1) == 0.0


def test_no_cell_expects_fewer_than_five_where_there_are_samples_enough():
    shares = [0.9, 0.05, 0.02, 0.01, 0.01, 0.009, 0.001]
    exact = {(outcome,): share for outcome, share in enumerate(shares)}
    assert lossless._chi_square(exact, Counter({(0,): 400}), 400)[1] == 4  # 0.9, 0.05, 0.02 + 0.01, and the four rarest
    assert lossless._chi_square(exact, Counter({(0,): 2}), 2)[1] == 1


def test_continuations_are_enumerated_exactly():
    models = tables(4, 1, seed=2)
    for sampling in (SAMPLED, Sampling(temperature=0.7, top_p=0.8)):
        found = continuation_probabilities(models.networks["target"], PROMPT, sampling, 3)
        wanted = target_law(models.networks["target"], 3, sampling)
        assert set(found) == set(wanted) and sum(found.values()) == pytest.approx(1)
        assert found == pytest.approx(wanted, abs=1e-5)


def test_a_long_prompt_is_continued_in_parts():
    target = tables(4, 1, seed=2).networks["target"]
    wanted, widths = continuation_probabilities(target, PROMPT, SAMPLED, 2), []
    passes = target.forward
    target.forward = lambda token_ids, cache, num_logits: widths.append(len(token_ids)) or passes(token_ids, cache, num_logits)
    assert continuation_probabilities(target, [0] * 1000 + list(PROMPT), SAMPLED, 2) == wanted  # it depends on two tokens only
    assert max(widths) == PREFILL_CHUNK


def test_a_text_that_ends_early_is_a_continuation_of_its_own():
    models = tables(4, 1, seed=2)
    found = continuation_probabilities(models.networks["target"], PROMPT, SAMPLED, 3, frozenset({1}))
    assert sum(found.values()) == pytest.approx(1)
    assert all(1 not in tokens[:-1] and (len(tokens) == 3 or tokens[-1] == 1) for tokens in found)
    assert min(map(len, found)) == 1


def test_a_target_that_may_end_its_text_at_once_passes():
    base = tables(4, 1, seed=2)
    models = model_set(dict(base.networks), tokenizer=base.tokenizer, eos=frozenset({1}))
    found = sampling_check(models, hierarchy_of((2,)), PROMPT, SAMPLED, samples=200)
    assert found.passed and found.outcomes > 5


def test_a_whole_check_with_an_end_token_passes(plan_of, prompts):
    models = small_set(eos=frozenset(range(0, 64, 3)))  # every third token ends the text
    assert check(models, plan_of("near@3"), prompts).passed


def test_divergences_are_told_in_sentences_that_count_from_1(models):
    near, early = Divergence("a@2,b", "p1", 0, 0.00781, True), Divergence("a@2,b", "p2", 11, float("inf"), False)
    found = LosslessReport(2, 0, 1, 1, (near, early), (), models.environment)
    told = describe(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert "a@2,b departs from the target alone on prompt p1 at token 1, where the two logits differ by 0.00781: a near-tie." in told
    assert "a@2,b departs from the target alone on prompt p2 at token 12, where one text ended." in told


def test_nothing_to_check_is_no_success(models, plan_of, prompts):
    for plan, some in ((plan_of(), prompts), (plan_of("near@3"), PromptSet("none", ()))):
        with pytest.raises(BadInput, match="nothing to check"):
            check_lossless(models, plan, some)


def test_half_a_check_proves_nothing(models, plan_of, prompts):
    told = []
    with pytest.raises(Cancelled, match="nothing is known yet"):
        check(models, plan_of("near@3"), prompts, report=told.append, should_stop=lambda: len(told) > 1)
    with pytest.raises(Cancelled, match="nothing is known yet"):
        check(
            models,
            plan_of("near@3"),
            prompts,
            report=told.append,
            should_stop=lambda: bool(told) and told[-1].phase == "sampling check" and told[-1].done > 0,
        )


def test_a_stop_is_heeded_before_every_pass(plan_of, prompts, monkeypatch):
    """Among them those that enumerate continuations and that weigh where two texts part."""
    monkeypatch.setattr(engine, "verify_greedily", first_token_always_kept)
    passes, models = [], small_set()
    target = models.networks["target"]
    own = target.forward
    monkeypatch.setattr(target, "forward", lambda *given: passes.append(given) or own(*given))

    def count(should_stop):
        passes.clear()
        check_lossless(models, plan_of("other@2"), prompts, max_new_tokens=6, samples=2, should_stop=should_stop)

    count(lambda: False)
    for moment in range(0, len(passes), 3):
        with pytest.raises(Cancelled, match="nothing is known yet"):
            count(lambda at=moment: len(passes) >= at)
        assert len(passes) == moment


def test_a_draft_that_drops_out_proves_nothing(plan_of, prompts):
    base = tables(64, 1)
    spoiled = model_set({"m0": Table("m0", torch.full((64, 64, 64), float("nan"))), "target": base.networks["target"]})
    with pytest.raises(LevelFault, match="m0 dropped out"):
        check(spoiled, plan_of("m0@2"), prompts)


def test_the_same_check_gives_the_same_figures(models):
    hierarchy = Hierarchy.parse("near@2", "target")
    first, second = (sampling_check(models, hierarchy, [1, 2, 3], SAMPLED, samples=40) for _ in range(2))
    assert first == second
