"""A sweep predicts many hierarchies from a measurement of its own and then runs each of them."""

from __future__ import annotations

import json
import statistics

import pytest

from hsd.compare import sweep as module
from hsd.compare.record import Sweep, SweepPoint
from hsd.compare.sweep import sweep
from hsd.errors import Cancelled
from hsd.measure import costs
from hsd.measure import run as measure_run
from hsd.measure.prompts import Prompt, PromptSet
from hsd.measure.run import Effort
from hsd.models.network import Network
from hsd.pick.model_set import ModelSet
from hsd.records import GREEDY, Environment, Estimate, Hierarchy

DRAFTS = ("prompt-lookup", "early-exit:1", "far", "near")


@pytest.fixture(autouse=True)
def small_effort(monkeypatch):
    monkeypatch.setattr(measure_run, "QUICK", Effort(prompts=2, max_new_tokens=8, cost_budget_s=0.0, widths=(1, 2, 5, 13)))


@pytest.fixture(scope="module")
def four(models) -> ModelSet:
    from tiny_models import model_set

    return model_set({name: models.networks[name] for name in (*DRAFTS, "target")}, modules=models.modules)


@pytest.fixture(scope="module")
def kinds():
    rows = [("summarisation", "abc abc abc"), ("chat", "one two three"), ("code", "zyx"), ("chat", "the same the same")]
    return PromptSet("own", tuple(Prompt(f"p{number}", kind, text) for number, (kind, text) in enumerate(rows)))


def run(models, plan, prompts, **options):
    return sweep(models, plan, prompts, repeats=1, max_new_tokens=4, prompts_per_kind=1, **options)


def test_four_drafts_give_at_least_twenty_points_of_each_kind(four, plan_of, kinds):
    plan = plan_of("prompt-lookup@3,near@5")
    found = run(four, plan, kinds)
    for kind in ("summarisation", "chat"):
        points = [point for point in found.points if point.prompts == kind]
        names = [point.hierarchy for point in points]
        assert len(points) == len(set(names)) == 24 and names[:2] == ["prompt-lookup@3,near@5,target", "target"]
        hierarchies = [Hierarchy.parse(name.rpartition(",")[0], "target") for name in names]
        assert {len(hierarchy.drafts) for hierarchy in hierarchies} >= {0, 1, 2, 3}
        assert all(isinstance(four.networks[level.model], Network) for hierarchy in hierarchies for level in hierarchy.levels[1:])
    assert len(found.points) == 48
    for point in found.points:
        assert 0 < point.predicted_low <= point.predicted_s_per_token <= point.predicted_high
        assert point.measured_s_per_token.median > 0 and point.measured_s_per_token.samples == 1
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["kind"] == "sweep" and len(data["points"]) == 48
    for entry, point in zip(data["points"], found.points, strict=True):
        assert entry["hierarchy"] == point.hierarchy and entry["predicted_s_per_token"] == point.predicted_s_per_token
        assert entry["measured_s_per_token"] == point.measured_s_per_token.median
    errors = [abs(entry["predicted_s_per_token"] / entry["measured_s_per_token"] - 1) for entry in data["points"]]
    assert data["median_error"] == pytest.approx(statistics.median(errors)) and data["max_error"] == pytest.approx(max(errors))
    assert set(data["regret"]) == {"summarisation", "chat"} and min(data["regret"].values()) >= 0


def test_prompts_without_those_kinds_are_one_kind(four, plan_of):
    prompts = PromptSet("mine.txt", (Prompt("1", "own", "abc abc"), Prompt("2", "own", "xyz")))
    found = run(four, plan_of("near@3"), prompts, count=5)
    assert {point.prompts for point in found.points} == {"mine.txt"} and len(found.points) == 5


def test_the_points_reach_from_the_fastest_to_the_slowest(four, plan_of, kinds, monkeypatch):
    every = {}
    real = module.Predictor.predict

    def noting(self, hierarchy):
        found = real(self, hierarchy)
        every.setdefault(str(hierarchy), found.predicted_s_per_token.best)  # predicted again once all were run
        return found

    monkeypatch.setattr(module.Predictor, "predict", noting)
    found = run(four, plan_of("near@3"), kinds.only("chat"), count=8)
    names = [point.hierarchy for point in found.points]
    chosen = [every[name] for name in names]
    grid = sorted(seconds for name, seconds in every.items() if name not in ("target", "near@3,target"))
    assert grid[0] in chosen and grid[-1] in chosen and len(set(names)) == 8


def test_every_hierarchy_is_run_in_every_repeat(four, plan_of, kinds, monkeypatch):
    runs = []
    real = module.generate_whole

    def noting(models, hierarchy, prompt_ids, **settings):
        runs.append(str(hierarchy))
        return real(models, hierarchy, prompt_ids, **settings)

    monkeypatch.setattr(module, "generate_whole", noting)
    found = sweep(four, plan_of("near@3"), kinds.only("chat"), count=4, prompts_per_kind=2, repeats=3, max_new_tokens=2)
    assert runs == [point.hierarchy for point in found.points] * 6  # three repeats of two prompts, in turns
    assert {point.measured_s_per_token.samples for point in found.points} == {3}


def test_passes_are_timed_while_the_hierarchies_run(four, plan_of, kinds, monkeypatch):
    """Predictions rest on passes timed between the runs, so that a drift of the machine falls on both."""
    order = []
    real_run, real_pass = module.generate_whole, costs._time_pass
    monkeypatch.setattr(module, "generate_whole", lambda *args, **options: order.append("run") or real_run(*args, **options))
    monkeypatch.setattr(costs, "_time_pass", lambda *args: order.append("pass") or real_pass(*args))
    found = run(four, plan_of("near@3"), kinds.only("chat"), count=13)
    first_run = order.index("run")
    between = "".join("r" if step == "run" else "p" for step in order[first_run:])
    stretches = [len(part) for part in between.split("p") if part]
    assert stretches == [1] * 13 and len(found.points) == 13


def test_the_hierarchy_planned_for_these_prompts_is_among_them(four, plan_of, kinds, monkeypatch):
    planned = []
    real = module.plan_with
    monkeypatch.setattr(module, "plan_with", lambda *args: planned.append(real(*args)) or planned[-1])
    found = run(four, plan_of("near@3"), kinds.only("chat"), count=6)
    assert str(planned[0].hierarchy) in [point.hierarchy for point in found.points]


def test_each_latency_model_has_its_error():
    def point(paper, exact, trace, measured):
        return SweepPoint("h", "chat", trace, trace, trace, paper, exact, Estimate(measured, measured, measured, 3), trace)

    found = Sweep((point(1.2, 1.1, 1.0, 1.0), point(2.6, 2.2, 1.9, 2.0)), 3, 64, GREEDY, Environment("cpu", "", "", "", "", "", ""))
    errors = found.to_json()["latency_models"]
    assert errors["paper"] == pytest.approx({"median_error": 0.25, "max_error": 0.3, "bias": 0.25})
    assert errors["exact"] == pytest.approx({"median_error": 0.1, "max_error": 0.1, "bias": 0.1})
    assert errors["trace"] == pytest.approx({"median_error": 0.025, "max_error": 0.05, "bias": -0.025})


def test_stopping_leaves_nothing_half_known(four, plan_of, kinds):
    told = []
    with pytest.raises(Cancelled):
        run(four, plan_of("near@3"), kinds, report=told.append, should_stop=lambda: bool(told) and told[-1].phase == "sweep")
    with pytest.raises(Cancelled):
        run(four, plan_of("near@3"), kinds, should_stop=lambda: True)


def test_errors_and_regret_are_relative_to_what_was_measured():
    def point(kind, predicted, measured):
        return SweepPoint("h", kind, predicted, predicted, predicted, predicted, predicted, Estimate(measured, measured, measured, 3))

    points = (point("chat", 0.9, 1.0), point("chat", 0.8, 2.0), point("code", 1.5, 1.2))
    found = Sweep(points, 3, 64, GREEDY, Environment("cpu", "", "", "", "", "", ""))
    assert found.errors == pytest.approx([0.1, 0.25, 0.6]) and found.median_error == pytest.approx(0.25)
    assert found.to_json()["max_error"] == pytest.approx(0.6)
    assert found.regret == pytest.approx({"chat": 1.0, "code": 0.0})  # predicted best took 2.0, the best takes 1.0
