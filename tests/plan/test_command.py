"""`python -m hsd plan`: files in, files out, mistakes in one sentence."""

import argparse
import json

import pytest

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.command import add_arguments, describe, run
from hsd.plan.planner import plan
from hsd.plan.record import Plan


def arguments(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


@pytest.fixture
def measurement_file(tmp_path, measurement_with_pair, with_lookup):
    path = tmp_path / "measurement.json"
    path.write_text(json.dumps(with_lookup(measurement_with_pair, 0.0001, {(4, 4): 3, (0, 0): 7}).to_json()))
    return path


def test_plan_file_is_the_plan_of_the_measurement_file(measurement_file, tmp_path):
    result = run(arguments(measurement_file, "--out", tmp_path / "plan.json", "--max-depth", 2, "--max-threshold", 5))
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written | {"notices": []} == json.loads(json.dumps(result))
    measurement = Measurement.from_json(json.loads(measurement_file.read_text()))
    assert Plan.from_json(written) == plan(measurement, max_depth=2, max_threshold=5)


def test_description_names_plan_device_settings_and_alternatives(measurement_file, tmp_path):
    result = run(arguments(measurement_file, "--out", tmp_path / "plan.json"))
    assert "Predicted from numbers typed in." in describe(result)
    text = describe(result | {"environment": result["environment"] | {"device": "cpu", "device_name": "Apple M4"}})
    assert f"Plan: {Plan.from_json(result).hierarchy}" in text
    assert "Apple M4" in text and "greedy" in text and "exact expression" in text
    assert text.count("ms") > 6 and "m2" in text.splitlines()[-1]


def test_costs_that_are_hardly_known_are_said_with_the_plan(measurement_file, tmp_path):
    data = json.loads(measurement_file.read_text())
    for cost in data["cost_s"][data["models"][-1]].values():
        cost["low"], cost["high"] = 0.8 * cost["median"], 1.2 * cost["median"]
    measurement_file.write_text(json.dumps(data))
    result = run(arguments(measurement_file, "--out", tmp_path / "plan.json"))
    assert "known to ±20 % only" in describe(result) and "notices" not in json.loads((tmp_path / "plan.json").read_text())


def test_mistakes_are_named(measurement_file, tmp_path):
    out = tmp_path / "plan.json"
    damaged = tmp_path / "damaged.json"
    for content, sentence in [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "not a measurement file"),
        (b"\xff\xfe\x00", "is not JSON"),
    ]:
        if content is not None:
            damaged.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(BadInput, match=sentence):
            run(arguments(damaged, "--out", out))
    with pytest.raises(BadInput, match="memory limit is -1"):
        run(arguments(measurement_file, "--out", out, "--memory-limit", -1))
    with pytest.raises(BadInput, match="memory limit is inf"):
        run(arguments(measurement_file, "--out", out, "--memory-limit", "inf"))
    with pytest.raises(BadInput, match="memory of lookup was not measured"):
        run(arguments(measurement_file, "--out", out, "--memory-limit", 4))
    with pytest.raises(BadInput, match="cannot be written"):
        run(arguments(measurement_file, "--out", damaged / "plan.json"))
    assert not out.exists()


def test_growth_needs_no_measurement(monkeypatch):
    from hsd.plan import command, growth

    monkeypatch.setattr(command, "measure_growth", lambda: growth.measure_growth(models=(3, 5), thresholds=(4, 8), repeats=1))
    result = json.loads(json.dumps(run(arguments("--growth"))))
    assert len(result["points"]) == 4 and set(result["exponents"]) == {"build", "one_pass", "bellman_ford", "bound"}
    assert "Fitted powers" in describe(result)
    with pytest.raises(BadInput, match="measurement file"):
        run(arguments())
