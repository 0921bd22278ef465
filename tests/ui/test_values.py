"""What the page sends to the browser and keeps on the server: pane, stack trace, counters, numbers, store, sample."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import DRAFTS, HOSTILE, STAMP, STORY, TARGET, ScriptedEngine, make_measurement, make_sample

from hsd.errors import BadInput
from hsd.generate.events import RoundEvent, TokenEvent
from hsd.generate.record import Run
from hsd.measure.record import Trace
from hsd.records import Estimate, Hierarchy, Sampling
from ui import format as fmt
from ui import sample, stack_trace, token_pane
from ui.counters import Counters
from ui.engine import GenerateRequest, Setup
from ui.hero import hero
from ui.nodes import decoded, el, encoded, json_html
from ui.recorder import collect
from ui.store import Store
from ui.tabs.kinds import kind_table
from ui.tabs.measure import measure_facts, measure_table, measured


def scripted_run(prompt: str = "", hierarchy: str = "prompt-lookup@3,quantized:int4@6", dtype: str = "auto"):
    request = GenerateRequest(Hierarchy.parse(hierarchy, TARGET), prompt, "", False, Sampling(), 200)
    return collect(ScriptedEngine(rate=1e6), Setup(TARGET, DRAFTS, dtype=dtype), request)


def test_a_run_carries_the_environment_that_the_engine_had():
    assert scripted_run().environment == STAMP
    assert scripted_run(dtype="bfloat16").environment == replace(STAMP, dtype="bfloat16")


def test_value_of_the_pane_is_compact_and_cumulative():
    events = [TokenEvent(i, f"t{i}", "a" if i % 2 else "b", "accepted", i, i / 100) for i in range(50)]
    whole = token_pane.encode("run", events, ("a", "b"), ("a", "b"))
    part = token_pane.encode("run", events[:20], ("a", "b"), ("a", "b"))
    assert whole.startswith(part), "Gradio sends only what was appended when the old value starts the new one"
    assert len(whole) < 40 * len(events)
    assert [json.loads(line)[4] for line in whole.splitlines()[1:]] == [f"t{i}" for i in range(50)]


@given(st.lists(st.text()))
def test_any_text_comes_back_from_the_value_of_the_pane(texts):
    events = [TokenEvent(i, text, "m", "bonus", 0, 0.0) for i, text in enumerate(texts)]
    lines = token_pane.encode("run", events, ("m",), ("m",)).split("\n")[1:-1]
    assert [json.loads(line)[4] for line in lines] == texts


@given(st.text(), st.text())
def test_any_text_comes_back_from_a_node(text, attribute):
    component = json_html()
    assert decoded(encoded({component: el("p", text, title=attribute)})[component]) == ["p", {"title": attribute}, text]


def test_a_trace_file_is_read_again_whole():
    run = scripted_run()
    data = json.loads(json.dumps(run.to_json()))
    assert Run.from_json(data) == run
    del data["prompt"], data["prompt_tokens"]  # older files hold one of them
    assert Run.from_json(data) == replace(run, prompt="")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d.update(kind="plan"), "not a trace"),
        (lambda d: d.update(schema=9), "schema 9"),
        (lambda d: d.update(reason="tired"), "tired"),
        (lambda d: d.update(prompt_tokens=-1), "prompt_tokens"),
        (lambda d: d.update(text="other"), "not that of its tokens"),
        (lambda d: d.pop("rounds"), "damaged"),
        (lambda d: d["tokens"][0].update(generated_by="nobody"), "nobody"),
        (lambda d: d["tokens"][0].update(time_s=float("nan")), "nan"),
        (lambda d: d["tokens"][0].pop("round"), "round"),
        (lambda d: d["rounds"][-1].update(accepted=99), "99 of"),
        (lambda d: d["rounds"][0].update(model="nobody"), "nobody"),
        (lambda d: d["seconds"].update(decode="x"), "damaged"),
        (lambda d: d.update(tokens=[{}] * 300_000), "more than"),
    ],
)
def test_a_spoiled_trace_file_is_refused_with_what_is_wrong(spoil, said):
    data = json.loads(json.dumps(scripted_run().to_json()))
    spoil(data)
    with pytest.raises(BadInput, match=said):
        Run.from_json(data)


def test_acceptance_is_told_by_kind_of_prompt_where_positions_were_recorded():
    measurement = make_measurement(("quantized:int4",))
    assert kind_table(measurement) is None
    traces = tuple(Trace(kind, kind, 4, {"quantized:int4": {TARGET: (value,) * 4}}, {}) for kind, value in (("chat", 0.5), ("code", 0.75)))
    told = json.dumps(kind_table(replace(measurement, traces=traces)))
    assert all(word in told for word in ("chat", "code", "0.50", "0.75", "n=1"))


def test_acceptance_by_kind_has_an_interval_only_where_five_prompts_or_more_were_measured():
    values = {"chat": (0.0, 1.0, 0.5, 0.5), "code": (0.0, 1.0, 0.5, 0.5, 0.5)}
    traces = [Trace(kind, kind, 1, {"quantized:int4": {TARGET: (rate,)}}, {}) for kind, rates in values.items() for rate in rates]
    told = json.dumps(kind_table(replace(make_measurement(("quantized:int4",)), traces=tuple(traces))), ensure_ascii=False)
    assert '"n=4"' in told and "0.10–0.90, n=5" in told and "where n is 5 or more" in told


def test_everything_beside_the_passes_is_told_with_its_unit():
    measurement = replace(make_measurement(), token_overhead_s=9.2e-6, round_overhead_s={"prompt-lookup": 54.2e-6, TARGET: 176e-6})
    told = json.dumps(measure_table(measurement), ensure_ascii=False)
    assert f"in µs: 400 per target round, 9.20 per token; per round of prompt-lookup 54.2, {TARGET} 176. All" in told
    assert "in µs: 400 per target round, 0 per token. All" in json.dumps(measure_table(make_measurement()), ensure_ascii=False)


def test_prompts_of_a_measurement_that_was_stopped_are_those_that_were_measured():
    chosen = make_measurement()
    assert chosen.prompts.count == 40
    stopped = replace(chosen, traces=tuple(Trace(name, "chat", 1, {}, {}) for name in "abc"))
    assert json.dumps(measure_facts(stopped, "partial", None), ensure_ascii=False).count('"3 prompts (') == 1


@pytest.mark.parametrize(("high", "told"), [(0.0210, 0), (0.0257, 1)])
def test_a_visitor_is_told_of_costs_that_no_prediction_can_rest_on(high, told):
    made = make_measurement()
    made = replace(made, cost_s=made.cost_s | {TARGET: {1: Estimate(0.0205, 0.0204, high, 9)}})
    page, notices = SimpleNamespace(engine=SimpleNamespace(measure=lambda *_: (made, True))), []
    job = SimpleNamespace(items=SimpleNamespace(put=None), notify=notices.append, should_stop=lambda: False)
    assert measured(page, job, None, None, None) == (made, True)
    assert len(notices) == told and all("known to ±13 % only" in notice for notice in notices)


def test_hero_counts_only_runs_of_the_very_plan():
    sample = make_sample()
    fine = json.dumps(hero(sample.plan, sample.comparison, sample.run, "x"), ensure_ascii=False)
    assert "n=5" in fine and "target: yes" in fine
    other = replace(sample.plan, hierarchy=Hierarchy.parse("prompt-lookup@1", TARGET))
    said = json.dumps(hero(other, sample.comparison, sample.run, "x"), ensure_ascii=False)
    assert "not compared yet" in said and "not checked" in said


def test_hero_gives_the_spread_of_the_ratio_and_none_where_the_comparison_does_not_tell_it():
    made = make_sample()
    stacked = next(method for method in made.comparison.methods if method.name == "hierarchy")
    times = Estimate(2.16, 2.05, 2.31, 2)
    told = [
        json.dumps(hero(made.plan, replace(made.comparison, methods=tuple(methods)), None, "x"), ensure_ascii=False)
        for methods in (
            [replace(one, times_target=times if one is stacked else None) for one in made.comparison.methods],
            [replace(one, times_target=None) for one in made.comparison.methods],
        )
    ]
    assert "measured 2.16× (2.05–2.31, n=2)" in told[0]
    assert "× (medians, n=5)" in told[1] and "–" not in told[1].split("measured")[1].split("n=5")[0]


def test_stack_trace_nests_rounds_and_knows_who_made_each_token():
    models = ("a", "b", "c")
    events = [
        RoundEvent(0, 0, "a", 2, 2, 0.1, (1, 2), ("x", "y"), None, "", None, 0),
        RoundEvent(0, 1, "b", 2, 1, 0.2, (1, 2), ("x", "y"), 3, "B", "corrected", 3),
        RoundEvent(0, 0, "a", 1, 1, 0.1, (4,), ("z",), None, "", None, 0),
        RoundEvent(0, 1, "b", 1, 1, 0.2, (4,), ("z",), 5, "D", "bonus", 2),
        RoundEvent(0, 2, "c", 4, 3, 0.9, (1, 3, 4, 5), ("x", "B", "z", "D"), 6, "C", "corrected", 5),
    ]
    (top,) = stack_trace.unfold(events, models)
    assert top["b"] == [["x", 0], ["B", 1], ["z", 0], ["D", 1]] and top["k"] == 3 and top["n"] == ["C", "corrected"]
    assert [child["b"] for child in top["c"]] == [[["x", 0], ["y", 0]], [["z", 0]]]
    assert [grandchild["n"] for child in top["c"] for grandchild in child["c"]] == [None, None]


def test_stack_trace_of_the_target_alone_and_of_a_run_with_a_level_that_dropped_out():
    alone = [RoundEvent(r, 0, "c", 0, 0, 0.1, (), (), 1, "t", "bonus", 1) for r in range(3)]
    assert [tree["c"] for tree in stack_trace.unfold(alone, ("c",))] == [[], [], []]
    events = [
        RoundEvent(0, 0, "a", 1, 1, 0.1, (1,), ("x",), None, "", None, 0),
        RoundEvent(0, 2, "c", 1, 1, 0.9, (1,), ("x",), 6, "C", "bonus", 2),
    ]
    (top,) = stack_trace.unfold(events, ("a", "b", "c"))
    assert top["c"][0]["l"] == 0 and top["b"] == [["x", 0]]


def test_counters_keep_the_identities_of_the_run():
    run = scripted_run()
    counters = Counters(run.models)
    for event in (*run.tokens, *run.rounds):
        counters.add(event)
    assert counters.tokens == sum(counters.committed.values()) == len(run.tokens)
    assert counters.target_rounds * counters.tokens_per_target_pass == pytest.approx(counters.tokens)
    assert all(counters.accepted[name] <= counters.examined[name] for name in run.models)
    assert run.text == STORY and "".join(token.text for token in run.tokens) == STORY


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (fmt.seconds(0.0000123), "12.3 µs"),
        (fmt.seconds(0.0123), "12.3 ms"),
        (fmt.seconds(1.5), "1.50 s"),
        (fmt.seconds(125), "2 min 05 s"),
        (fmt.times(2.4), "2.40×"),
        (fmt.percent(0.98), "98 %"),
        (fmt.percent(0.034), "3.4 %"),
        (fmt.memory(269_000_000), "269 MB"),
        (fmt.memory(3_000_000_000), "3.0 GB"),
        (fmt.significant(1234.5), "1\u2009234"),
        (fmt.significant(0), "0"),
        (fmt.parameters(134_515_008), "135 M"),
    ],
)
def test_numbers_have_units_and_sensible_digits(shown, wanted):
    assert shown == wanted


def test_store_is_bounded_keeps_what_is_used_and_gives_a_result_only_as_its_kind():
    store = Store(capacity=2)
    first, second = store.put("one"), store.put("two")
    assert store.get(first, str) == "one"
    third = store.put("three")
    assert store.get(second, str) is None and store.get(first, str) == "one" and store.get(third, str) == "three"
    assert store.get(first, int) is None and store.get("nonsense", str) is None and store.get(None, str) is None
    assert len({store.put(i) for i in range(100)}) == 100


def test_recorded_sample_survives_a_file_and_a_broken_file_is_no_sample(tmp_path):
    recorded = make_sample()
    file = tmp_path / "sample.json"
    sample.save(recorded, file)
    assert sample.load(file) == recorded
    file.write_text("{}")
    assert sample.load(file) is None
    assert sample.load(tmp_path / "none.json") is None


def test_recording_a_sample_measures_plans_generates_and_compares(tmp_path):
    made = sample.record(ScriptedEngine(rate=1e6, step_s=0), tmp_path / "sample.json", max_new_tokens=32)
    assert made.run.alone and made.comparison and sample.load(tmp_path / "sample.json") == made


def test_hostile_tokens_stay_data():
    run = scripted_run("hostile")
    value = token_pane.encode("r", run.tokens, run.models, run.models)
    assert [json.loads(line)[4] for line in value.splitlines()[1:]] == list(HOSTILE)


def test_counters_tell_no_rate_of_a_draft_without_weights_and_no_interval_of_few_prompts():
    measurement = make_measurement()
    few = {name: {verifier: replace(rate, prompts=3) for verifier, rate in row.items()} for name, row in measurement.acceptance.items()}
    counters = Counters(("prompt-lookup", "quantized:int4", TARGET))
    told = json.dumps(counters.show(measurement.models, measurement), ensure_ascii=False)
    assert "91 % (88" in told and "42 %" not in told, "the lookup's α is of first tokens, what a run examines is not"
    told = json.dumps(counters.show(measurement.models, replace(measurement, acceptance=few)), ensure_ascii=False)
    assert "91 %" in told and "(88" not in told
