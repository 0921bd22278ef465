"""Every bad input is named in a sentence that says what to do; nothing is guessed."""

import re
from dataclasses import replace

import pytest

from hsd.errors import BadInput
from hsd.measure.record import Acceptance, BlockGain
from hsd.plan.planner import plan, predict
from hsd.records import Environment, Estimate, Hierarchy


def rate(mean, low=None, high=None):
    return Acceptance(mean, mean if low is None else low, mean if high is None else high, 1, 1)


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan"), float("inf")])
def test_acceptance_outside_its_range(measurement_with_pair, value):
    rows = {**measurement_with_pair.acceptance, "m1": {"m2": rate(value, 0.1, 0.2)}}
    with pytest.raises(BadInput, match=r"acceptance of m1 at m2 is .* must lie between 0 and 1"):
        plan(replace(measurement_with_pair, acceptance=rows))


def test_impossible_interval_of_an_acceptance(measurement_with_pair):
    rows = {**measurement_with_pair.acceptance, "m1": {"m2": rate(0.5, 0.6, 0.4)}}
    with pytest.raises(BadInput, match="interval of the acceptance of m1 at m2"):
        plan(replace(measurement_with_pair, acceptance=rows))


def test_pair_that_was_not_measured(measurement_with_pair):
    rows = {"m0": {"m1": rate(0.5)}, "m1": {"m2": rate(0.5)}}
    lacking = replace(measurement_with_pair, acceptance=rows)
    with pytest.raises(BadInput, match=r"acceptance of m0 at m2 was not measured.*leave m0 out"):
        plan(lacking)
    with pytest.raises(BadInput, match="acceptance of m0 at m2 was not measured"):
        predict(lacking, Hierarchy.parse("m0@3", "m2"))
    assert predict(lacking, Hierarchy.parse("m0@3,m1@4", "m2")).predicted_s_per_token.exact > 0  # needs only what is there


@pytest.mark.parametrize("value", [-0.001, float("nan"), float("inf")])
def test_impossible_cost(measurement_with_pair, value):
    costs = {**measurement_with_pair.cost_s, "m1": {1: Estimate(value, value, value, 3)}}
    with pytest.raises(BadInput, match=r"cost of m1 at width 1 is .*number of seconds"):
        plan(replace(measurement_with_pair, cost_s=costs))


def test_missing_costs(measurement_with_pair):
    costs = dict(measurement_with_pair.cost_s)
    del costs["m1"]
    with pytest.raises(BadInput, match="No cost was measured for m1"):
        plan(replace(measurement_with_pair, cost_s=costs))
    costs["m1"] = {4: Estimate(1, 1, 1, 3)}
    with pytest.raises(BadInput, match="cost of m1 for a pass of one token was not measured"):
        plan(replace(measurement_with_pair, cost_s=costs))
    costs["m1"] = {1: Estimate(1, 2, 1, 3)}
    with pytest.raises(BadInput, match="interval of the cost of m1"):
        plan(replace(measurement_with_pair, cost_s=costs))


def test_target_that_costs_nothing_but_drafts_may(measured):
    with pytest.raises(BadInput, match="cost of m1 is 0"):
        plan(measured((1.0, 0.0), (0.5,)))
    assert plan(measured((0.0, 1.0), (0.5,))).predicted_speedup == pytest.approx(2.0, rel=1e-4)


def test_single_model(measurement_with_pair):
    with pytest.raises(BadInput, match="m2 is the only model; a plan needs a target and at least one draft"):
        plan(replace(measurement_with_pair, models=("m2",)))
    with pytest.raises(BadInput, match="names no model"):
        plan(replace(measurement_with_pair, models=()))


def test_negative_overhead(measurement_with_pair):
    with pytest.raises(BadInput, match="overhead per target round is -1"):
        plan(replace(measurement_with_pair, overhead_s=-1.0))


@pytest.mark.parametrize(("drafts", "sentence"), [
    ("m9@3", "m9 was not measured; measured are m0, m1, m2"),
    ("m1@3,m0@4", "m1 stands below m0, but it was measured as the larger one"),
    ("m0@300", "above 256"),
])  # fmt: skip
def test_hierarchies_that_cannot_be_predicted(measurement_with_pair, drafts, sentence):
    with pytest.raises(BadInput, match=sentence):
        predict(measurement_with_pair, Hierarchy.parse(drafts, "m2"))


def test_other_target(measurement_with_pair):
    with pytest.raises(BadInput, match="measurement's target is m2, not m1"):
        predict(measurement_with_pair, Hierarchy.parse("m0@3", "m1"))


def test_prompt_lookup_above_the_bottom(measurement_with_pair, with_lookup):
    measurement = with_lookup(measurement_with_pair, 0.001, {(3, 2): 5})
    moved = replace(measurement, models=("m0", "lookup", "m1", "m2"))
    with pytest.raises(BadInput, match="lookup has no weights and cannot verify"):
        predict(moved, Hierarchy.parse("m0@3,lookup@3", "m2"))
    with pytest.raises(BadInput, match="lookup has no weights and cannot be the target"):
        plan(replace(measurement, models=("m0", "lookup")))


def test_impossible_blocks_of_prompt_lookup(measurement_with_pair, with_lookup):
    for gain in (BlockGain(2, 3, 1), BlockGain(-1, -1, 1), BlockGain(2, 1, -4), BlockGain(10**9, 0, 9)):
        measurement = with_lookup(measurement_with_pair, 0.001, {(3, 2): 5})
        rows = {"lookup": {**measurement.block_gains["lookup"], "m1": (BlockGain(1, 1, 9), gain)}}
        with pytest.raises(BadInput, match="block of lookup at m1"):
            plan(replace(measurement, block_gains=rows))
    with pytest.raises(BadInput, match="acceptance of lookup at m0 was not measured"):
        plan(replace(measurement, block_gains={"lookup": {"m2": (BlockGain(1, 1, 9),)}}))


@pytest.mark.parametrize("settings", [{"max_depth": -1}, {"max_depth": 1.5}, {"max_threshold": 0}, {"max_threshold": 10**6}])
def test_impossible_limits(measurement_with_pair, settings):
    with pytest.raises(BadInput, match=r"The maximum (depth|threshold) is"):
        plan(measurement_with_pair, **settings)


def test_too_many_models_are_refused_rather_than_planned_for_an_hour(random_measured):
    with pytest.raises(BadInput, match="30 models make more than 10000 hierarchies"):
        plan(random_measured(0, models=30))


def test_impossible_records(measurement_with_pair, with_traces):
    traced = with_traces(measurement_with_pair, {(0, 1): [[1, 2.0]], (0, 2): [[1, 1]], (1, 2): [[1, 1]]})
    with pytest.raises(BadInput, match="recorded acceptance of m0 at m1 lies outside"):
        plan(traced)


@pytest.mark.parametrize("pair", [(2, 3), (-1, -1), (10**9, 0)])
def test_impossible_recorded_blocks(measurement_with_pair, with_lookup, with_traces, pair):
    measurement = with_lookup(measurement_with_pair, 0.001, {(3, 2): 5})
    traced = with_traces(measurement, {(0, 1): [[1]], (0, 2): [[1]], (1, 2): [[1]]}, {j: [[pair]] for j in range(3)})
    with pytest.raises(BadInput, match="recorded block of lookup at m0"):
        plan(traced)


def test_plan_from_another_device_is_named(measurement_with_pair):
    here = Environment("cpu", "AMD EPYC, 2 threads", "bfloat16", "", "", "", "")
    found = plan(replace(measurement_with_pair, environment=replace(here, device_name="Apple M4")))
    assert re.search(r"measured on Apple M4 .* runs on AMD EPYC, 2 threads · bfloat16", found.elsewhere(here))
    assert found.elsewhere(replace(found.environment, dtype="float16"))
    assert found.elsewhere(replace(found.environment, time="later")) is None


def test_a_plan_of_numbers_typed_in_promises_nothing_of_any_device(measurement_with_pair):
    found = plan(measurement_with_pair)
    assert found.elsewhere(found.environment).startswith("Predicted from numbers typed in, the plan says nothing of this run.")
    assert found.dtype == "auto", "a run of it takes what the device likes"
