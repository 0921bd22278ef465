"""Changing a number changes that number only, and the prediction accordingly."""

import numpy as np
import pytest

from hsd.errors import BadInput
from hsd.plan.planner import Predictor, plan, predict
from hsd.plan.whatif import what_if, without_agreements
from hsd.records import Hierarchy


def test_nothing_changed_is_the_measurement(measurement_with_pair):
    assert what_if(measurement_with_pair) == measurement_with_pair


def test_cost_factor_scales_the_share_of_the_model(measurement_with_pair):
    hierarchy = Hierarchy.parse("m0@3,m1@6", "m2")
    before = predict(measurement_with_pair, hierarchy).seconds_by_model
    after = predict(what_if(measurement_with_pair, {"m1": 2.5}), hierarchy).seconds_by_model
    assert after == pytest.approx({**before, "m1": 2.5 * before["m1"]})


def test_changed_acceptance_leaves_the_traces_behind(measured, with_traces):
    random = np.random.default_rng(0)
    measurement = with_traces(measured((1.0, 20.0), (0.7,)), {(0, 1): [random.random(80) < 0.7]})
    assert plan(what_if(measurement, {"m0": 0.5})).ranked_by == "trace"
    changed = plan(what_if(measurement, acceptance={("m0", "m1"): 0.9}))
    assert changed.ranked_by == "exact" and changed.predicted_s_per_token.exact < plan(measurement).predicted_s_per_token.exact


def test_lookup_keeps_its_recorded_rounds_without_agreements(measured, with_lookup, with_traces):
    offers = [(4, 4), (3, 3), (2, 2), (1, 1), (0, 0)] * 10
    measurement = with_lookup(measured((4.0, 20.0), (0.8,)), 0.1, {pair: 10 for pair in offers[:5]})
    measurement = with_traces(measurement, {(0, 1): [[1.0] * 50]}, {j: [offers] for j in range(2)})
    hierarchy = Hierarchy.parse("lookup@4,m0@4", "m1")
    before, after = (predict(m, hierarchy).predicted_s_per_token for m in (measurement, without_agreements(measurement)))
    assert after.trace is None and before.trace is not None
    assert after.exact == before.exact


@pytest.mark.parametrize(("costs", "rates", "sentence"), [
    ({"m9": 1.0}, {}, "m9 was not measured"),
    ({"m0": -1.0}, {}, "cost of m0 times -1"),
    ({}, {("m0", "m9"): 0.5}, "cannot be changed"),
    ({}, {("m0", "m1"): 1.5}, "must lie between 0 and 1"),
])  # fmt: skip
def test_bad_changes_are_named(measurement_with_pair, costs, rates, sentence):
    with pytest.raises(BadInput, match=sentence):
        what_if(measurement_with_pair, costs, rates)


def test_a_prepared_predictor_predicts_like_predict(measurement_with_pair):
    predictor = Predictor.prepare(measurement_with_pair, 8)
    for drafts in ("", "m1@2", "m0@20,m1@30"):  # the last needs wider passes than prepared for
        hierarchy = Hierarchy.parse(drafts, "m2")
        assert predictor.predict(hierarchy) == predict(measurement_with_pair, hierarchy)
