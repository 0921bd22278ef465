"""What the command line says of a measurement."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from hsd.__main__ import main
from hsd.measure import command
from hsd.measure.breakdown import acceptance_rates
from hsd.measure.command import describe
from hsd.measure.doubts import doubts
from hsd.measure.record import Measurement, PromptSetInfo, Trace
from hsd.records import GREEDY, Environment, Estimate, Sampling

HERE = Environment("cpu", "a processor", "float32", "2.9", "5.20", "3.11", "2026-01-01T00:00:00+00:00")


def trace(kind, value):
    return Trace(kind, kind, 2, {"small": {"target": (value, value)}}, {})


TRACES = (*(trace("chat", value) for value in (0.0, 0.25, 0.5, 0.75, 1.0)), trace("code", 0.0), trace("code", 1.0))
COSTS = {
    "lookup": {0: Estimate(2.3e-5, 2e-5, 3e-5, 30)},
    "small": {1: Estimate(0.004, 0.0039, 0.0041, 30), 2: Estimate(0.0125, 0.012, 0.013, 30)},
    "target": {1: Estimate(0.02, 0.0198, 0.0202, 30)},
}
MEASURED = Measurement(
    models=("lookup", "small", "target"),
    cost_s=COSTS,
    acceptance=acceptance_rates(TRACES),
    block_gains={},
    overhead_s=0.0,
    context_tokens=100,
    sampling=GREEDY,
    prompts=PromptSetInfo("own", "abc", 7),
    environment=HERE,
    memory_bytes={"lookup": 0, "small": 3_000_000, "target": 9_000_000},
    traces=TRACES,
)


def said(measurement):
    return describe(measurement.to_json() | {"notices": []}).splitlines()


def test_an_interval_is_given_only_over_five_prompts_or_more_and_n_always():
    chat, code = said(MEASURED)[-2:]
    assert chat.endswith("n=5)") and " to " in chat
    assert code.endswith("small 0.50 (n=2)")
    few = replace(MEASURED, acceptance=acceptance_rates(TRACES[:4]))
    assert any(line.endswith("0.375 (n=4), 8 positions") for line in said(few))
    assert any(" to " in line and line.endswith("n=7), 14 positions") for line in said(MEASURED))


def test_each_cost_and_each_memory_is_told_in_a_unit_that_shows_it():
    lines = said(MEASURED)
    assert "Milliseconds of one pass" in lines[2]
    assert lines[3:9] == [
        "  lookup             a call: 23.0 µs",
        "                     no weights of its own",
        "  small              1: 4.0, 2: 12.5",
        "                     3 MB",
        "  target             1: 20.0",
        "                     9 MB",
    ]


def at_width_one(low, high):
    return replace(MEASURED, cost_s=COSTS | {"target": {1: Estimate(0.02, low, high, 30)}})


def test_costs_that_no_prediction_can_rest_on_are_said_to_be_so():
    assert doubts(MEASURED) == doubts(at_width_one(0.0191, 0.0209)) == []  # the lookup's own ±22 % are of no weight
    [told] = doubts(at_width_one(0.0180, 0.0232))
    assert told.startswith("Costs are known to ±13 % only (a pass of target): the machine was busy") and "Measure again" in told


def test_few_prompts_are_said_to_tell_nothing_of_others():
    assert doubts(replace(MEASURED, traces=TRACES[:5])) == doubts(replace(MEASURED, traces=())) == []
    [told] = doubts(replace(MEASURED, traces=TRACES[:1]))
    assert told.startswith("Acceptance comes from 1 prompt, too few") and told.endswith("Measure with 5 prompts or more.")


@pytest.mark.parametrize(("measurement", "told"), [(MEASURED, 0), (at_width_one(0.018, 0.0232), 1)])
def test_the_command_gives_notice_of_unsteady_costs(monkeypatch, tmp_path, measurement, told):
    models = SimpleNamespace(notices={}, fallbacks=())
    monkeypatch.setattr(command, "REGISTRY", SimpleNamespace(lease=lambda *_, **__: nullcontext(models)))
    monkeypatch.setattr(command, "measure_or_find", lambda *_, **__: (measurement, False))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    notices = command.run(parser.parse_args(["--out", str(tmp_path / "m.json")]))["notices"]
    assert len(notices) == told and all("±13 %" in notice for notice in notices)


def test_every_sampling_setting_reaches_the_measurement(monkeypatch, tmp_path):
    seen = {}
    models = SimpleNamespace(notices={}, fallbacks=())
    monkeypatch.setattr(command, "REGISTRY", SimpleNamespace(lease=lambda *_, **__: nullcontext(models)))
    monkeypatch.setattr(command, "measure_or_find", lambda *_, **given: seen.update(given) or (MEASURED, False))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    wanted = Sampling(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, repetition_penalty=1.2, no_repeat_ngram_size=3, seed=8)
    words = [word for name, value in asdict(wanted).items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command.run(parser.parse_args(["--out", str(tmp_path / "m.json"), *words]))
    assert seen["sampling"] == wanted
    command.run(parser.parse_args(["--out", str(tmp_path / "m.json")]))
    assert seen["sampling"] == GREEDY


@pytest.mark.parametrize(("complete", "lost_graphs"), [(2, ()), (0, ()), (2, ("No graphs.",))])
def test_an_interrupted_measurement_leaves_the_complete_prompts_in_its_file(monkeypatch, tmp_path, capsys, complete, lost_graphs):
    """As the Stop button of the dashboard does; passes timed partly without graphs are no measurement."""

    def interrupted(*_, on_partial, **__):
        for count in range(1, complete + 1):
            on_partial(replace(MEASURED, traces=TRACES[:count]))
        raise KeyboardInterrupt

    models = SimpleNamespace(notices={}, fallbacks=(), new_fallbacks=lost_graphs)
    monkeypatch.setattr(command, "REGISTRY", SimpleNamespace(lease=lambda *_, **__: nullcontext(models)))
    monkeypatch.setattr(command, "measure_or_find", interrupted)
    out = tmp_path / "m.json"
    assert main(["measure", "--out", str(out)]) == 130
    if complete and not lost_graphs:
        assert Measurement.from_json(json.loads(out.read_text())).traces == TRACES[:2]
        assert capsys.readouterr().err == f"Stopped; what was measured on 2 prompts is kept in {out}.\n"
    else:
        assert not out.exists() and capsys.readouterr().err == "Stopped.\n"
