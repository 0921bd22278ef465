"""What a visitor changes about a plan, and what the browser sends: sliders, number fields, names."""

import json
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scripted import DRAFTS, STAMP, TARGET, make_measurement, make_sample

from hsd.compare.record import Divergence
from hsd.errors import BadInput
from hsd.records import Hierarchy
from ui import format as fmt
from ui import live, text
from ui.engine import CompareRequest, Setup
from ui.planning import Limits, check_whole, make_plan, sliders, what_if
from ui.sidebar import added, read_sampling, read_setup, selected
from ui.tabs.compare import verdict_of
from ui.tabs.plan import what_if_answer


@pytest.mark.parametrize(("dtype", "told"), [("bfloat16", 1), ("float32", 0)])
def test_comparing_a_plan_of_another_device_or_dtype_says_so(monkeypatch, dtype, told):
    notices = []
    models = SimpleNamespace(environment=replace(STAMP, dtype=dtype))
    monkeypatch.setattr(live, "_models", lambda *_: nullcontext(models))
    monkeypatch.setitem(sys.modules, "hsd.compare.run", SimpleNamespace(compare=lambda *_, **__: "compared"))  # without torch
    request = CompareRequest(make_sample().plan, 1, 8, False)
    setup = Setup(TARGET, DRAFTS, dtype=dtype)
    assert live.LiveEngine().compare(setup, request, lambda _: None, notices.append, lambda: False) == "compared"
    assert len(notices) == told and all("float32 and runs on" in notice for notice in notices)


@pytest.mark.parametrize(
    ("near", "said"),
    [
        ((), text.IDENTICAL_OPEN),
        ((True, True), text.IDENTICAL_NEAR.format(dtype="float32")),
        ((True, False), text.IDENTICAL_NO),
    ],
)
def test_the_verdict_on_texts_that_differ_says_what_is_known(near, said):
    divergences = tuple(Divergence("hierarchy", "p", 1, 0.1, near_tie) for near_tie in near)
    theirs = Divergence("transformers", "p", 1, 0.1, False)
    comparison = replace(make_sample().comparison, identical=False, divergences=(*divergences, theirs))
    assert said in str(verdict_of(comparison, recorded=False))


def test_what_if_changes_the_plan_and_ignores_what_is_no_slider():
    measurement = make_measurement()
    plan = make_plan(measurement, Limits())
    known = {one["id"] for one in sliders(measurement, plan)}
    same = what_if(measurement, plan, {"evil": 1, "c:nobody": 3, "a:0:1": "text", next(iter(known)): True}, Limits())
    assert not same.changed and same.best.hierarchy == plan.hierarchy
    dear = {f"c:{name}": 1e9 for name in DRAFTS}
    worse = what_if(measurement, plan, dear, Limits())
    assert worse.changed and worse.best.predicted_speedup < plan.predicted_speedup
    rates = {one["id"]: 0 for one in sliders(measurement, plan) if one["id"].startswith("a:")}
    assert all("quantized" not in level.model for level in what_if(measurement, plan, rates, Limits()).best.hierarchy.drafts)


def test_what_if_tells_a_change_against_the_plan_of_the_same_ranking():
    measurement = make_measurement()
    exact = make_plan(measurement, Limits())
    other = Hierarchy.parse(f"prompt-lookup@1,{exact.hierarchy.drafts[-1].model}@2", TARGET)
    plan = replace(exact, hierarchy=other, ranked_by="trace")  # as replayed traces may rank

    def asked(values):
        found = what_if(measurement, plan, values, Limits())
        return found, json.dumps(what_if_answer(plan, found))

    untouched, words = asked({})
    assert untouched.best == exact and exact.hierarchy != other
    assert "The plan" not in words and f"replayed traces rank {fmt.drafts(plan.hierarchy)} first" in words
    lookup = next(one for one in sliders(measurement, plan) if one["id"] == "c:prompt-lookup")
    nudged, words = asked({"c:prompt-lookup": lookup["base"] + lookup["step"]})
    assert nudged.changed and text.WHAT_IF_SAME in words
    _, words = asked({f"c:{name}": 1e9 for name in measurement.models[:-1]})
    assert text.WHAT_IF_OTHER.format(plan=fmt.drafts(exact.hierarchy)) in words


def test_what_if_is_quick_enough_for_a_slider():
    measurement = make_measurement()
    plan = make_plan(measurement, Limits())
    started = time.perf_counter()
    for step in range(5):
        what_if(measurement, plan, {"a:2:4": 0.5 + step / 20}, Limits())
    assert (time.perf_counter() - started) / 5 < 0.2


@pytest.mark.parametrize("value", ["", "three", "0", "-1", "2.5", "99", None, "1e3", "³"])
def test_numbers_that_are_none_are_named(value):
    with pytest.raises(BadInput, match="Repeats"):
        check_whole(value, "Repeats", 1, 20)


def test_numbers_of_a_number_field_are_taken():
    assert check_whole(3, "x", 1, 20) == check_whole(3.0, "x", 1, 20) == check_whole(" 3 ", "x", 1, 20) == 3


def test_what_the_browser_sends_is_checked():
    odd = [None, 3, "text", "{", '{"selected": "x"}', '{"selected": [1, null, {"a": 1}]}', '{"added": {"x": 1}}', {"selected": ["x"]}]
    for value in odd:
        assert all(isinstance(name, str) for name in (*selected(value), *added(value)))
    assert len(selected(json.dumps({"selected": ["m"] * 10_000 + [str(i) for i in range(10_000)]}))) <= 64
    for target in ("", "  ", None, "x" * 400):
        with pytest.raises(BadInput):
            read_setup(target, None, "auto", "auto")
    with pytest.raises(BadInput):
        read_setup("m", None, "auto", "float128")
    for sampling in ((None, 0, 1, 0), (-1, 0, 1, 0), (0, 0, 0, 0), ("0", 0, 1, 0), (1, 2.5, 1, 0), (1, 0, 1, 0.5), (1, 0, 1, 1e300)):
        with pytest.raises(BadInput):
            read_sampling(*sampling)
