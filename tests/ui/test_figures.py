"""Figures as data: what is drawn, from which numbers; how they look is tested in the browser."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from scripted import DRAFTS, TARGET, ScriptedEngine, make_comparison, make_measurement

from hsd.compare.record import Divergence
from hsd.plan.growth import measure_growth
from ui import format as fmt
from ui import palette, text
from ui.engine import CompareRequest
from ui.figures import acceptance, costs, growth, hierarchy, latency, measured, path, style
from ui.planning import Limits, make_plan, multipliers, shortest_path
from ui.tabs.compare import divergence_lines
from ui.tabs.predictions import against_measured


@pytest.fixture(scope="module")
def measurement():
    return make_measurement()


@pytest.fixture(scope="module")
def plan(measurement):
    return make_plan(measurement, Limits())


@pytest.fixture(scope="module")
def every_figure(measurement, plan):
    comparison = make_comparison(plan)
    return {
        "heatmap": acceptance.heatmap(measurement),
        "costs": costs.curves(measurement),
        "graph": hierarchy.graph(plan, measurement, multipliers(shortest_path(measurement, Limits())[0], plan)),
        "graph of a plan alone": hierarchy.graph(plan, None, {}),
        "latency": latency.bars(plan),
        "stacked": latency.stacked(plan.alternatives, plan.candidates),
        "path": path.layers(*shortest_path(measurement, Limits())),
        "compare": measured.bars(comparison),
        "scatter": measured.scatter(comparison),
    }


def test_figures_are_transparent_of_fixed_height_and_without_title(every_figure):
    for name, figure in every_figure.items():
        assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)", name
        assert figure.layout.height >= 150 and figure.layout.title.text is None, name


def test_figures_use_only_what_the_bundled_plotly_draws(every_figure):
    known = {"heatmap", "scatter", "bar"}
    assert {trace.type for figure in every_figure.values() for trace in figure.data} <= known


def test_heat_map_has_a_cell_for_every_measured_pair_with_its_interval(measurement):
    figure = acceptance.heatmap(measurement)
    pairs = [rate for row in measurement.acceptance.values() for rate in row.values()]
    assert sum(value is not None for row in figure.data[0].z for value in row) == len(pairs) == len(figure.layout.annotations)
    rate = measurement.acceptance["quantized:int4"][TARGET]
    assert any(f"{rate.mean:.2f}" in a.text and f"±{(rate.high - rate.low) / 2:.2f}" in a.text for a in figure.layout.annotations)
    assert f"({rate.low:.3f}–{rate.high:.3f})" in str(figure.data[0].customdata)


@pytest.mark.parametrize("value", [step / 40 for step in range(41)])
def test_numbers_on_a_heat_map_cell_are_readable(value):
    assert palette.contrast(acceptance.ink(value), acceptance.shade(value)) >= 4.5


def test_cost_curves_carry_median_and_interval_in_milliseconds(measurement):
    figure = costs.curves(measurement)
    target = next(trace for trace in figure.data if trace.name == TARGET)
    cost = measurement.cost_s[TARGET][8]
    place = list(target.x).index(8)
    assert target.y[place] == pytest.approx(1e3 * cost.median)
    assert target.error_y.array[place] == pytest.approx(1e3 * (cost.high - cost.median))
    assert len({trace.marker.symbol for trace in figure.data}) == len(figure.data), "lines differ by more than colour"


def test_widths_on_the_axis_of_the_cost_curve_do_not_run_together_on_a_phone(measurement):
    costs_s = {model: {width: rows[max(rows)] for width in (*range(1, 10), 12, 17, 25)} for model, rows in measurement.cost_s.items()}
    ticks = costs.curves(replace(measurement, cost_s=costs_s)).layout.xaxis.tickvals
    assert ticks[0] == 1 and ticks[-1] == 25 and all(b - a >= 24 / 14 for a, b in pairwise(ticks))


def test_hierarchy_graph_emphasises_the_plan(measurement, plan):
    figure = hierarchy.graph(plan, measurement, {})
    widths = [trace.line.width for trace in figure.data if trace.mode == "lines"]
    assert widths.count(6) == len(plan.hierarchy.drafts)
    assert len(widths) == sum(len(row) for row in measurement.acceptance.values())
    words = " ".join(annotation.text for annotation in figure.layout.annotations)
    assert all(f"hands up ≥ {level.threshold}" in words for level in plan.hierarchy.drafts)


def test_latency_bars_show_the_ranking_and_always_the_target_alone(plan):
    figure = latency.bars(plan)
    assert figure.data[0].x[0] == pytest.approx(1e3 * plan.predicted_s_per_token.best)
    assert figure.layout.yaxis.ticktext[-1] == "target alone"
    colours = dict(zip((str(one.hierarchy) for one in latency.shown_alternatives(plan)), figure.data[0].marker.color, strict=True))
    assert colours[str(plan.hierarchy)] == palette.NEUTRAL and colours[TARGET] == palette.TARGET
    assert len(set(colours.values())) == 3


def test_stacked_parts_sum_to_the_prediction(plan):
    figure = latency.stacked(plan.alternatives, plan.candidates)
    total = sum(trace.x[0] for trace in figure.data)
    assert total == pytest.approx(1e3 * plan.predicted_s_per_token.best, rel=1e-6)


def test_what_is_no_round_is_named_so(plan):
    (rest,) = (trace for trace in latency.stacked(plan.alternatives, plan.candidates).data if "outside" in trace.name)
    assert rest.name == "outside of rounds" and "outside of rounds: " in rest.hovertemplate and "Outside rounds" in text.COMPARE_HEAD


def test_shortest_path_figure_draws_the_path_of_the_solution(measurement):
    graph, solution = shortest_path(measurement, Limits())
    figure = path.layers(graph, solution)
    assert sum(trace.mode == "lines" and trace.line.width == 5 for trace in figure.data) == len(solution.path) - 1


def test_compare_bars_carry_spread_and_prediction(plan):
    comparison = make_comparison(plan)
    figure = measured.bars(comparison)
    best = max(comparison.methods, key=lambda method: method.tokens_per_s.median)
    assert max(figure.data[0].x) == best.tokens_per_s.median
    assert len(figure.data[1].x) == sum(method.predicted_tokens_per_s is not None for method in comparison.methods)


def test_the_measured_number_stands_with_the_name_of_its_bar_and_not_beside_the_prediction(plan):
    comparison = make_comparison(plan)
    figure = measured.bars(comparison)
    told = dict(zip(figure.data[0].x, figure.layout.yaxis.ticktext, strict=True))
    assert all(f"measured <b>{fmt.significant(median)}</b>" in words for median, words in told.items())
    assert not figure.layout.annotations


def test_only_the_target_alone_has_a_model_s_colour_in_a_comparison(plan):
    comparison = make_comparison(plan)
    coloured = {name: measured.colour(name) for name in (method.name for method in comparison.methods)}
    assert coloured.pop("target") == palette.TARGET
    assert coloured["hierarchy"] == palette.NEUTRAL and len(coloured) > 2
    assert not set(coloured.values()) & set(palette.SOLIDS)


def test_arcs_of_the_plan_carry_acceptance_and_multiplier(measurement, plan):
    problem, _ = shortest_path(measurement, Limits())
    found = multipliers(problem, plan)
    assert len(found) == len(plan.hierarchy.drafts)
    words = " ".join(annotation.text for annotation in hierarchy.graph(plan, measurement, found).layout.annotations)
    assert all(f"R {value:.2f}" in words for value in found.values())


def test_latency_models_stand_beside_what_was_measured(plan):
    comparison = make_comparison(plan)
    told = json.dumps(against_measured(comparison), ensure_ascii=False)
    measured_s = 1 / next(m.tokens_per_s.median for m in comparison.methods if m.name == "hierarchy")
    error = plan.predicted_s_per_token.paper / measured_s - 1
    assert fmt.milliseconds(measured_s) in told and f"{'+' if error >= 0 else '−'}{fmt.percent(abs(error))}" in told
    unpredicted = tuple(replace(method, predicted_by_model={}) for method in comparison.methods)
    assert against_measured(replace(comparison, methods=unpredicted)) is None


def test_places_where_texts_depart_are_told_as_in_a_report():
    found = [Divergence("hierarchy", "p1", 11, 0.002, True), Divergence("x@2,y", "p2", 0, float("inf"), False)]
    near, early = map(json.dumps, divergence_lines(found))
    assert "planned hierarchy departs from the target alone on prompt p1 at token 12, where the two logits differ by 0.002: a near" in near
    assert "x@2,y departs from the target alone on prompt p2 at token 1, where one text ended." in early


def test_sweep_figure_draws_every_point_with_both_intervals(plan):
    engine, request = ScriptedEngine(), CompareRequest(plan, 3, 64, True)
    found = engine.sweep(None, request, None, None, None)
    figure = measured.swept(found)
    drawn = [trace for trace in figure.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in drawn) == len(found.points)
    point = found.points[0]
    assert drawn[0].error_x.array[0] == pytest.approx(1e3 * (point.predicted_high - point.predicted_s_per_token))
    assert drawn[0].error_y.array[0] == pytest.approx(1e3 * (point.measured_s_per_token.high - point.measured_s_per_token.median))


def test_growth_figure_holds_measured_times_and_the_bound():
    points = measure_growth((3, 5), (4, 8), repeats=1)
    figure = growth.growth(points)
    assert [len(trace.x) for trace in figure.data if trace.mode == "markers"] == [4, 4, 4]
    assert sum(trace.mode == "lines" for trace in figure.data) == 1


def test_names_from_outside_are_text_in_figures():
    odd = '<a href="javascript:alert(1)">x</a>&lt;'
    assert "<" not in style.name(odd) and "<" not in style.full(odd)
    assert style.name("HuggingFaceTB/SmolLM2-135M-Instruct") == "SmolLM2-135M-Instruct"
    assert len(style.name("x" * 80)) <= style.SHORT


def test_a_measurement_without_drafts_and_one_with_holes_are_drawn():
    costs.curves(make_measurement(drafts=()))
    some = make_measurement(drafts=DRAFTS[:1])
    assert acceptance.heatmap(some).data[0].z
