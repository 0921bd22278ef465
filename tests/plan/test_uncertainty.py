"""Intervals of a prediction cover what they should, and grow with the spread of the measurement."""

from dataclasses import replace

import numpy as np
import pytest

from hsd.measure.record import Acceptance
from hsd.plan.planner import predict
from hsd.records import Estimate, Hierarchy

PAIR = Hierarchy.parse("m0@4", "m1")


def blurred(measurement, rate=0.0, cost=0.0):
    acceptance = {
        d: {v: replace(a, low=a.mean - rate, high=a.mean + rate) for v, a in row.items()} for d, row in measurement.acceptance.items()
    }
    costs = {
        m: {w: Estimate(c.median, c.median * (1 - cost), c.median * (1 + cost), 9) for w, c in row.items()}
        for m, row in measurement.cost_s.items()
    }
    return replace(measurement, acceptance=acceptance, cost_s=costs)


def width(measurement, hierarchy=PAIR):
    prediction = predict(measurement, hierarchy).predicted_s_per_token
    assert prediction.low <= prediction.best <= prediction.high
    return prediction.high - prediction.low


def test_no_spread_no_interval(measured):
    assert width(measured((1.0, 20.0), (0.7,))) == pytest.approx(0, abs=1e-12)


def test_acceptance_interval_is_carried_over(measured):
    """The ends of α's 95 % interval give the ends of the prediction's."""
    prediction = predict(blurred(measured((1.0, 20.0), (0.7,)), rate=0.05), PAIR).predicted_s_per_token
    ends = [predict(measured((1.0, 20.0), (rate,)), PAIR).predicted_s_per_token.exact for rate in (0.75, 0.65)]
    assert [prediction.low, prediction.high] == pytest.approx(ends, rel=0.02)


def test_cost_interval_is_carried_over(measured):
    """Two independent costs: seconds 4·1·r and 20·r with 10 % each."""
    measurement = measured((1.0, 20.0), (0.7,))
    exact = predict(measurement, PAIR)
    shares = list(exact.seconds_by_model.values())
    expected = 2 * 0.1 * np.hypot(*shares)
    assert width(blurred(measurement, cost=0.1)) == pytest.approx(expected, rel=0.15)


def test_replay_resamples_prompts(measured, with_traces):
    """Interval over prompts against that of independent experiments with as many prompts."""
    random = np.random.default_rng(0)

    def experiment(prompts):
        rates = random.uniform(0.4, 0.95, prompts)
        return with_traces(measured((1.0, 20.0), (0.7,)), {(0, 1): [random.random(200) < rate for rate in rates]})

    truth = [predict(experiment(12), PAIR).predicted_s_per_token.best for _ in range(60)]
    widths = [width(experiment(12)) for _ in range(20)]
    assert np.mean(widths) == pytest.approx(2 * 1.96 * np.std(truth), rel=0.3)
    assert width(experiment(100)) < 0.6 * np.mean(widths)


@pytest.mark.parametrize("prompts", [5, 16])
def test_the_interval_covers_what_more_prompts_would_give(measured, with_traces, prompts):
    """In about 95 of 100 measurements, from the fewest prompts on; the plain percentiles cover 80 at five."""
    random = np.random.default_rng(0)

    def experiment(count):
        return with_traces(measured((1.0, 20.0), (0.7,)), {(0, 1): [random.random(60) < rate for rate in random.beta(6, 4, count)]})

    truth = predict(experiment(2000), PAIR).predicted_s_per_token.best
    predictions = [predict(experiment(prompts), PAIR).predicted_s_per_token for _ in range(200)]
    assert 0.90 <= np.mean([one.low <= truth <= one.high for one in predictions]) <= 0.98


def test_few_prompts_leave_the_spread_of_the_costs_alone(measured, with_traces):
    """Resampling two prompts gives the two themselves every other time: no interval at all, rather than one that looks like one."""
    few = with_traces(measured((1.0, 20.0), (0.7,)), {(0, 1): [np.ones(50), np.zeros(50)]})
    assert width(few) == pytest.approx(0, abs=1e-12)
    assert width(blurred(few, cost=0.1)) > 1


def test_lookup_blocks_are_resampled(measured, with_lookup):
    base = measured((4.0, 20.0), (0.8,))
    few, many = (with_lookup(base, 0.1, {(0, 0): 4 * n, (4, 4): 5 * n, (4, 1): n}) for n in (3, 300))
    hierarchy = Hierarchy.parse("lookup@4,m0@6", "m1")
    assert width(few, hierarchy) > 5 * width(many, hierarchy) > 0


def test_prediction_is_reproducible(measured):
    measurement = replace(measured((1.0, 20.0), (0.7,)), acceptance={"m0": {"m1": Acceptance(0.7, 0.6, 0.8, 9, 9)}})
    assert predict(measurement, PAIR) == predict(measurement, PAIR)
