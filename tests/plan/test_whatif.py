"""Changing a number changes that number only, and the prediction accordingly."""

import numpy as np
import pytest

from hsd.errors import BadInput
from hsd.plan.planner import Predictor, plan, predict
from hsd.plan.whatif import what_if
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
