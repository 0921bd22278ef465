"""The plan file survives its round trip, has the form of design §6, and damage is named."""

import json

import pytest

from hsd.errors import BadInput, HsdError
from hsd.plan.planner import plan
from hsd.plan.record import Plan


@pytest.fixture
def found(measurement_with_pair):
    return plan(measurement_with_pair)


def test_round_trip_through_json_text(found):
    assert Plan.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_form_of_the_file(found):
    data = found.to_json()
    assert data["schema"] == 1 and data["kind"] == "plan"
    assert data["hierarchy"] == [{"model": "m0", "threshold": 2}, {"model": "m1", "threshold": 4}, {"model": "m2"}]
    assert {"paper", "exact", "low", "high", "trace"} == set(data["predicted_s_per_token"])
    assert data["alternatives"][0]["hierarchy"] == data["hierarchy"]
    assert data["best_single_draft"]["hierarchy"][-1] == {"model": "m2"}
    assert data["sampling"]["temperature"] == 0 and data["environment"]["device_name"] == "typed numbers"


def test_speed_up_uses_the_figure_that_ranked(found):
    assert found.predicted_speedup == pytest.approx(found.autoregressive_s_per_token / found.predicted_s_per_token.best)


DAMAGES = {
    "not an object": lambda d: [],
    "another kind": lambda d: {**d, "kind": "measurement"},
    "another schema": lambda d: {**d, "schema": 2},
    "no hierarchy": lambda d: {k: v for k, v in d.items() if k != "hierarchy"},
    "hierarchy of text": lambda d: {**d, "hierarchy": "m0@3"},
    "empty hierarchy": lambda d: {**d, "hierarchy": []},
    "threshold zero": lambda d: {**d, "hierarchy": [{"model": "m0", "threshold": 0}, {"model": "m2"}]},
    "threshold of text": lambda d: {**d, "hierarchy": [{"model": "m0", "threshold": "3"}, {"model": "m2"}]},
    "threshold true": lambda d: {**d, "hierarchy": [{"model": "m0", "threshold": True}, {"model": "m2"}]},
    "no threshold": lambda d: {**d, "hierarchy": [{"model": "m0"}, {"model": "m2"}]},
    "threshold of the target": lambda d: {**d, "hierarchy": [{"model": "m2", "threshold": 3}]},
    "unknown model": lambda d: {**d, "hierarchy": [{"model": "other"}]},
    "negative time": lambda d: {**d, "autoregressive_s_per_token": -1},
    "time of text": lambda d: {**d, "predicted_s_per_token": {**d["predicted_s_per_token"], "exact": "fast"}},
    "infinite time": lambda d: {**d, "predicted_s_per_token": {**d["predicted_s_per_token"], "low": float("inf")}},
    "no time at all": lambda d: {**d, "predicted_s_per_token": dict.fromkeys(d["predicted_s_per_token"], 0)},
    "no alternatives": lambda d: {**d, "alternatives": []},
    "damaged alternative": lambda d: {**d, "alternatives": [3]},
    "no models": lambda d: {**d, "candidates": [1]},
    "unknown ranking": lambda d: {**d, "ranked_by": "feeling"},
    "no environment": lambda d: {**d, "environment": None},
    "damaged sampling": lambda d: {**d, "sampling": {**d["sampling"], "top_p": 7}},
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(found, damage):
    with pytest.raises(BadInput) as error:
        Plan.from_json(DAMAGES[damage](found.to_json()))
    assert isinstance(error.value, HsdError) and str(error.value).endswith((".", ")")) and len(str(error.value)) > 20
