"""A tipping point is where a plan made anew changes its models; one more draft brings what a plan with it predicts."""

from dataclasses import replace

import pytest

from hsd.errors import BadInput
from hsd.measure.record import Acceptance
from hsd.plan.calculator import from_csv
from hsd.plan.planner import plan
from hsd.plan.sensitivity import one_more_draft, sensitivity
from hsd.records import Estimate


def changed(measurement, point, value):
    """The measurement with the point's quantity at `value`."""
    if point.quantity == "cost":
        factor = value / point.measured
        costs = {w: Estimate(*(x * factor for x in (c.median, c.low, c.high)), 0) for w, c in measurement.cost_s[point.model].items()}
        return replace(measurement, cost_s={**measurement.cost_s, point.model: costs})
    row = {**measurement.acceptance[point.model], point.verifier: Acceptance(value, value, value, 0, 0)}
    return replace(measurement, acceptance={**measurement.acceptance, point.model: row})


def test_replanning_confirms_every_tipping_point(example):
    measurement = from_csv(example)
    found = plan(measurement)
    points = sensitivity(measurement, found)
    assert len(points) >= 4
    assert [abs(point.change) for point in points] == sorted(abs(point.change) for point in points)
    planned = tuple(level.model for level in found.hierarchy.levels)
    for point in points:
        assert models_around(measurement, point) == [planned, point.winner], point


def models_around(measurement, point):
    """Models of plans made anew shortly before and beyond the tipping point."""
    values = [point.measured + share * (point.tipping - point.measured) for share in (0.9, 1.1)]
    return [tuple(level.model for level in plan(changed(measurement, point, value)).hierarchy.levels) for value in values]


def test_a_cost_tips_without_what_rounds_take_beside_their_passes(measured):
    bare = measured((1.0, 4.0, 20.0), [[0, 0.7, 0.6], [0, 0, 0.8], [0, 0, 0]])
    measurement = replace(bare, round_overhead_s={"m0": 0.5, "m1": 2.0, "m2": 5.0})
    found = plan(measurement)
    planned = tuple(level.model for level in found.hierarchy.levels)
    points = [point for point in sensitivity(measurement, found) if point.quantity == "cost"]
    assert len(points) >= 2
    for point in points:
        assert point.measured == measurement.cost_s[point.model][1].median
        assert models_around(measurement, point) == [planned, point.winner], point


def test_random_plans_keep_their_models_before_the_tipping_point(random_measured):
    for seed in range(3):
        measurement = random_measured(seed, models=5, wide=True)
        found = plan(measurement)
        planned = [level.model for level in found.hierarchy.levels]
        for point in sensitivity(measurement, found)[:4]:
            near = point.measured + 0.8 * (point.tipping - point.measured)
            assert [level.model for level in plan(changed(measurement, point, near)).hierarchy.levels] == planned


def test_one_more_draft_equals_measuring_it(measured):
    alphas = [[0, 0.8, 0.55, 0.5], [0, 0, 0.7, 0.65], [0, 0, 0, 0.75], [0, 0, 0, 0]]
    complete = plan(measured((0.5, 2.0, 10.0, 20.0), alphas))
    without = measured((2.0, 10.0, 20.0), [row[1:] for row in alphas[1:]])  # m0, m1, m2
    benefit = one_more_draft(without, "tiny", 0.5, {"m0": 0.8, "m1": 0.55, "m2": 0.5})
    assert benefit.after.predicted_s_per_token.exact == pytest.approx(complete.predicted_s_per_token.exact)
    assert benefit.before == plan(without) and benefit.speedup > 1.05


def test_a_draft_in_the_middle_takes_smaller_ones_below_it(measured):
    base = measured((0.5, 20.0), (0.5,))
    alone = one_more_draft(base, "middle", 3.0, {"m1": 0.9})
    stacked = one_more_draft(base, "middle", 3.0, {"m1": 0.9}, {"m0": 0.8})
    assert [level.model for level in stacked.after.hierarchy.levels] == ["m0", "middle", "m1"]
    assert "m0" not in [level.model for level in alone.after.hierarchy.levels if alone.after.hierarchy.drafts[-1].model == "middle"]
    assert stacked.speedup > alone.speedup >= 1


def test_a_useless_draft_brings_nothing(measured):
    benefit = one_more_draft(measured((1.0, 20.0), (0.7,)), "poor", 5.0, {"m1": 0.1})
    assert benefit.speedup == 1 and benefit.after.hierarchy == benefit.before.hierarchy


@pytest.mark.parametrize(("arguments", "sentence"), [
    (("m0", 1.0, {"m1": 0.5}), "already among the models"),
    (("new", 1.0, {}), "at one larger model"),
    (("new", 1.0, {"m7": 0.5}), "m7 was not measured"),
    (("new", 1.0, {"m1": 1.5}), "must lie between 0 and 1"),
    (("new", -1.0, {"m1": 0.5}), "cost of new is -1"),
    (("new", 1.0, {"m0": 0.5}, {"m1": 0.5}), "m1 is not smaller than new"),
])  # fmt: skip
def test_bad_drafts_are_named(measured, arguments, sentence):
    with pytest.raises(BadInput, match=sentence):
        one_more_draft(measured((1.0, 20.0), (0.7,)), *arguments)
