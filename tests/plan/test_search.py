"""The planner finds what brute force finds, keeps its limits, and says "no draft" when no draft pays."""

import time
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hsd.errors import BadInput
from hsd.plan.exact import exact_latency
from hsd.plan.graph import build, one_pass
from hsd.plan.planner import plan
from hsd.plan.problem import from_measurement, widest_pass
from hsd.plan.search import chains


def exhaustive(problem, max_threshold):
    """Least exact seconds per token over all chains and thresholds."""
    best = (np.inf, (), ())
    for chain in chains(problem, problem.target, None):
        limits = [range(1, problem.longest(model, max_threshold) + 1) for model in chain[:-1]]
        cases = np.array(list(product(*limits)), np.int64)
        totals = exact_latency(problem, chain, cases).total
        at = int(totals.argmin())
        best = min(best, (float(totals[at]), chain, tuple(cases[at].tolist())))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_plan_equals_brute_force_under_the_exact_expression(random_measured, problem_of, seed):
    measurement = random_measured(seed, models=4, wide=seed % 2 == 0)
    found = plan(measurement, max_threshold=8)
    seconds, _, thresholds = exhaustive(problem_of(measurement, 8), 8)
    assert found.predicted_s_per_token.exact == pytest.approx(seconds, rel=1e-9)
    assert found.hierarchy.thresholds == thresholds


@pytest.mark.parametrize("seed", range(3))
def test_plan_with_lookup_equals_brute_force(random_measured, problem_of, with_lookup, seed):
    measurement = with_lookup(random_measured(seed, models=3, wide=True), 0.05, {(0, 0): 50, (6, 6): 20, (6, 2): 20, (3, 0): 10})
    found = plan(measurement, max_threshold=8)
    assert found.predicted_s_per_token.exact == pytest.approx(exhaustive(problem_of(measurement, 8), 8)[0], rel=1e-9)


def test_refinement_matters(random_measured, problem_of):
    """The thresholds of the shortest path alone are worse in some case: without refinement the tests above would fail."""
    worse = 0
    for seed in range(20):
        measurement = random_measured(seed, models=4, wide=seed % 2 == 0)
        problem = problem_of(measurement, 8)
        path = one_pass(build(problem, 8)).path
        thresholds = np.array([[node.threshold for node in path[:-1]]], np.int64)
        unrefined = exact_latency(problem, tuple(node.model for node in path), thresholds).total[0]
        worse += unrefined > plan(measurement, max_threshold=8).predicted_s_per_token.exact * 1.0001
    assert worse > 0


def test_no_draft_wins_when_drafts_are_dear_or_useless(measured):
    found = plan(measured((15.0, 20.0), (0.5,)))
    assert str(found.hierarchy) == "m1" and found.predicted_speedup == 1
    assert found.best_single_draft is not None and found.best_single_draft.predicted_s_per_token.best > 20
    assert plan(measured((0.1, 20.0), (0.0,))).hierarchy.thresholds == ()


def test_one_draft_wins_when_a_second_does_not_help(measured):
    found = plan(measured((2.0, 10.0, 20.0), [[0, 0.7, 0.65], [0, 0, 0.75], [0, 0, 0]]))
    assert len(found.hierarchy.drafts) == 1
    assert found.alternatives[0] == found.best_single_draft


def test_alternatives_are_ranked_and_hold_no_draft_and_the_best_single(random_measured):
    found = plan(random_measured(2, models=6))
    seconds = [entry.predicted_s_per_token.best for entry in found.alternatives]
    assert seconds == sorted(seconds) and found.hierarchy == found.alternatives[0].hierarchy
    assert len({entry.hierarchy for entry in found.alternatives}) == len(found.alternatives)
    assert found.best_single_draft in found.alternatives
    alone = next(entry for entry in found.alternatives if not entry.hierarchy.drafts)
    assert found.autoregressive_s_per_token == alone.predicted_s_per_token.best


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_depth_and_threshold_limits_hold(random_measured, depth):
    found = plan(random_measured(3, models=5), max_depth=depth, max_threshold=3)
    assert all(len(entry.hierarchy.drafts) <= depth and max(entry.hierarchy.thresholds, default=1) <= 3 for entry in found.alternatives)
    assert (found.best_single_draft is None) == (depth == 0)


def test_more_freedom_never_predicts_worse(random_measured):
    measurement = random_measured(4, models=5, wide=True)
    by_depth = [plan(measurement, max_depth=depth, max_threshold=6).predicted_s_per_token.exact for depth in range(5)]
    assert by_depth == sorted(by_depth, reverse=True)


def test_memory_limit_keeps_models_out_and_is_named_when_impossible(measured):
    measurement = measured((0.5, 2.0, 20.0), [[0, 0.8, 0.7], [0, 0, 0.9], [0, 0, 0]])
    measurement = replace(measurement, memory_bytes={"m0": 1_000, "m1": 5_000, "m2": 20_000})
    assert len(plan(measurement).hierarchy.drafts) == 2
    assert plan(measurement, memory_limit_bytes=25_999).hierarchy.drafts != plan(measurement).hierarchy.drafts
    assert [level.model for level in plan(measurement, memory_limit_bytes=21_000).hierarchy.levels] == ["m0", "m2"]
    assert plan(measurement, memory_limit_bytes=20_000).best_single_draft is None
    with pytest.raises(BadInput, match=r"m2 alone needs .* raise the limit"):
        plan(measurement, memory_limit_bytes=19_999)
    with pytest.raises(BadInput, match="memory of m0 was not measured"):
        plan(replace(measurement, memory_bytes={"m2": 1}), memory_limit_bytes=10**9)


def test_lookup_stands_at_the_bottom_only_and_within_its_longest_block(random_measured, with_lookup):
    measurement = with_lookup(random_measured(5, models=3), 0.01, {(4, 4): 9, (2, 1): 1})
    for entry in plan(measurement, max_threshold=16).alternatives:
        names = [level.model for level in entry.hierarchy.levels]
        assert "lookup" not in names[1:]
        assert names[0] != "lookup" or entry.hierarchy.thresholds[0] <= 4


def test_eight_candidates_and_thresholds_to_32_are_planned_at_once(random_measured):
    """Goals: shortest path 50 ms, everything 1 s; the bounds here are wider, since a test machine may be busy."""
    measurement = random_measured(6, models=9, wide=True)
    started = time.perf_counter()
    one_pass(build(from_measurement(measurement, widest_pass(4, 32)), 32))
    shortest = time.perf_counter() - started
    started = time.perf_counter()
    plan(measurement, max_threshold=32)
    assert shortest < 0.25 and time.perf_counter() - started < 4


@pytest.mark.parametrize("gains", [{(0, 0): 9}, {(0, 0): 5, (3, 3): 5}])
def test_lookup_and_target_alone_are_enough(measured, with_lookup, gains):
    """A lookup that never offered anything is as good as no draft, and costs its calls."""
    pair = measured((1.0, 20.0), (0.5,))
    target = replace(pair, models=("m1",), cost_s={"m1": pair.cost_s["m1"]}, acceptance={})
    found = plan(with_lookup(target, 0.01, gains))
    assert found.hierarchy.thresholds == ((3,) if len(gains) > 1 else ())
    assert found.best_single_draft.predicted_s_per_token.exact == pytest.approx(20.01 / (2.5 if len(gains) > 1 else 1))
