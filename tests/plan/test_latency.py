"""Both expressions against the table of design §4 and against a simulation of the algorithm that shares no code with them."""

import random

import numpy as np
import pytest

from hsd.plan.exact import exact_latency
from hsd.plan.paper import paper_latency
from hsd.plan.planner import predict
from hsd.records import Hierarchy

TABLE = [
    ((1, 4, 20), (0.7, 0.8), (3, 6), 10.0432, 9.5353),
    ((1, 4, 20), (0.7, 0.8), (4, 4), 10.4712, 9.4519),
    ((1, 4, 20), (0.7, 0.8), (2, 8), 10.1747, 9.9484),
    ((0.3, 2, 8, 30), (0.6, 0.75, 0.85), (3, 6, 12), 16.9260, 16.1512),
    ((0.3, 2, 8, 30), (0.6, 0.75, 0.85), (3, 3, 3), 15.6372, 12.8426),
]


def one_case(thresholds):
    return np.array([thresholds], np.int64)


def simulate(costs, alphas, thresholds, tokens, overhead=0.0, lookup=None, seed=0):
    """Seconds per token of the algorithm of design §2, token by token, with independent acceptances.

    `costs[i](width)`; `lookup` = (call seconds, {(drafted, accepted): count}) replaces level 0 and its acceptance.
    """
    draw = random.Random(seed)
    offers = None
    if lookup:
        offers = draw.choices(list(lookup[1]), weights=list(lookup[1].values()), k=tokens * 4)

    def draft(level):
        if level == 0:
            if offers:
                drafted, accepted = offers.pop()
                return min(drafted, thresholds[0]), lookup[0], min(accepted, thresholds[0])
            return thresholds[0], thresholds[0] * costs[0](1), None
        held, seconds = 0, 0.0
        while held < thresholds[level]:
            gained, spent = verify(level)
            held, seconds = held + gained, seconds + spent
        return held, seconds, None

    def verify(level):
        block, seconds, accepted = draft(level - 1)
        if accepted is None:
            accepted = 0
            while accepted < block and draw.random() < alphas[level - 1]:
                accepted += 1
        return accepted + 1, seconds + costs[level](block + 1)

    done, total = 0, 0.0
    while done < tokens:
        gained, spent = verify(len(costs) - 1)
        done, total = done + gained, total + spent + overhead
    return total / done


@pytest.mark.parametrize(("costs", "alphas", "thresholds", "paper", "exact"), TABLE)
def test_table_of_the_design(measured, problem_of, costs, alphas, thresholds, paper, exact):
    problem = problem_of(measured(costs, alphas))
    chain = tuple(range(len(costs)))
    assert round(paper_latency(problem, chain, thresholds), 4) == paper
    assert round(float(exact_latency(problem, chain, one_case(thresholds)).total[0]), 4) == exact


@pytest.mark.parametrize(("costs", "alphas", "thresholds", "paper", "exact"), TABLE)
def test_simulation_agrees_with_exact_and_not_with_paper(costs, alphas, thresholds, paper, exact):
    simulated = simulate([lambda width, c=c: c for c in costs], alphas, thresholds, 100_000)
    assert simulated == pytest.approx(exact, rel=0.01)
    assert abs(simulated - paper) > 0.02 * exact  # the test would notice if both were the same


def test_exact_knows_width_dependent_costs_and_overhead(measured, problem_of):
    slopes = [({1: 1.0, 17: 2.0}), ({1: 4.0, 17: 12.0}), ({1: 20.0, 17: 60.0})]
    problem = problem_of(measured(slopes, (0.7, 0.8), overhead_s=0.5))
    functions = [lambda w, s=s: s[1] + (s[17] - s[1]) / 16 * (w - 1) for s in slopes]
    latency = exact_latency(problem, (0, 1, 2), one_case((3, 6)))
    assert latency.total[0] == pytest.approx(simulate(functions, (0.7, 0.8), (3, 6), 100_000, overhead=0.5), rel=0.01)
    assert latency.total[0] == pytest.approx(latency.by_level[0].sum() + latency.overhead[0])


@pytest.mark.parametrize("thresholds", [(1, 2), (3, 5), (8, 8)])
def test_prompt_lookup_below_two_models(measured, problem_of, with_lookup, thresholds):
    gains = {(0, 0): 40, (3, 1): 20, (6, 6): 25, (6, 0): 15}
    measurement = with_lookup(measured((4.0, 20.0), (0.8,)), 0.1, gains)
    latency = exact_latency(problem_of(measurement), (0, 1, 2), one_case(thresholds))
    simulated = simulate([None, lambda w: 4.0, lambda w: 20.0], (None, 0.8), thresholds, 60_000, lookup=(0.1, gains))
    assert latency.total[0] == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("threshold", [1, 4, 11])
def test_one_draft_is_the_formula_of_leviathan(measured, problem_of, alpha, threshold):
    """(c_draft·γ + c_target)·(1−α)/(1−α^{γ+1}), Leviathan et al. 2023, theorem 3.8."""
    problem = problem_of(measured((1.5, 20.0), (alpha,)))
    expected = (1.5 * threshold + 20) * (1 - alpha) / (1 - alpha ** (threshold + 1))
    assert paper_latency(problem, (0, 1), (threshold,)) == pytest.approx(expected)
    assert exact_latency(problem, (0, 1), one_case((threshold,))).total[0] == pytest.approx(expected)


def test_target_alone_costs_one_pass_and_the_overhead(measured):
    alone = predict(measured((1.0, 20.0), (0.5,), 0.25), Hierarchy.parse("", "m1"))
    assert alone.predicted_s_per_token.exact == 20.25
    assert alone.predicted_s_per_token.paper == 20
    assert alone.seconds_by_model == {"m1": 20} and alone.overhead_s_per_token == 0.25


def test_many_cases_at_once_equal_one_at_a_time(random_measured, problem_of):
    problem = problem_of(random_measured(3, wide=True))
    cases = np.array([(a, b, c) for a in (1, 4) for b in (1, 5, 9) for c in (2, 7)], np.int64)
    together = exact_latency(problem, (0, 1, 2, 3), cases).total
    assert together == pytest.approx([exact_latency(problem, (0, 1, 2, 3), case[None]).total[0] for case in cases])


@pytest.mark.parametrize("seed", range(5))
def test_better_acceptance_or_cheaper_target_never_costs_time_with_one_draft(random_measured, problem_of, seed):
    problem = problem_of(random_measured(seed))
    rates = np.linspace(0, 1, 21)[:, None]
    totals = exact_latency(problem, (1, 3), np.full((21, 1), 5, np.int64), rates).total
    assert (np.diff(totals) <= 1e-12).all()


def test_seconds_by_model_sum_to_the_prediction(random_measured):
    entry = predict(random_measured(1, wide=True), Hierarchy.parse("m0@3,m2@5", "m3"))
    assert sum(entry.seconds_by_model.values()) + entry.overhead_s_per_token == pytest.approx(entry.predicted_s_per_token.exact)
    assert list(entry.seconds_by_model) == ["m0", "m2", "m3"]
