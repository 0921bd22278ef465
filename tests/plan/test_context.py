"""A pass costs what it costs at the context where it is made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hsd.plan.context import segments
from hsd.plan.exact import exact_latency
from hsd.plan.planner import predict
from hsd.plan.trace import load, replay
from hsd.records import Estimate, Hierarchy


def at(seconds):
    return Estimate(seconds, seconds, seconds, 9)


@pytest.fixture
def growing(measured, with_traces):
    """Target 10 s at 500 tokens and 0.01 s more a token; draft 1 s and 0.001; one short and one long text."""

    def make(prompt_tokens=(100, 900), tokens=(40, 40)):
        measurement = with_traces(measured([{1: 1.0, 9: 1.0}, {1: 10.0, 9: 18.0}], [0.8]), {(0, 1): [np.ones(n) for n in tokens]})
        traces = tuple(replace(trace, prompt_tokens=n) for trace, n in zip(measurement.traces, prompt_tokens, strict=True))
        return replace(
            measurement,
            traces=traces,
            context_tokens=500,
            context_cost_s={
                "m0": {100: {1: at(0.6)}, 1000: {1: at(1.5)}},
                "m1": {100: {1: at(6.0), 9: at(14.0)}, 1000: {1: at(15.0), 9: at(23.0)}},
            },
        )

    return make


def test_places_lie_between_the_measured_contexts():
    below, share = segments((100, 500, 1000), np.array([0, 100, 300, 500, 750, 1000, 4000]))
    assert below.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert share == pytest.approx([0, 0, 0.5, 0, 0.5, 1, 1])
    assert segments((7,), np.array([0, 7, 9]))[0].tolist() == [0, 0, 0]


def test_each_text_is_charged_at_its_own_context(growing, problem_of):
    measurement = growing()
    problem = problem_of(measurement)
    positions = load(measurement, problem)
    alone = replay(positions, problem, (1,), ()).seconds[:, 0]
    assert alone == pytest.approx([sum(10 + 0.01 * (start + t - 500) for t in range(40)) for start in (100, 900)])
    seconds = replay(positions, problem, (0, 1), (3,)).seconds  # all is accepted: rounds of four tokens
    assert seconds[:, 1] == pytest.approx([sum(13 + 0.01 * (start + t - 500) for t in range(0, 40, 4)) for start in (100, 900)])
    assert seconds[0, 0] < 0.5 * seconds[1, 0]


def test_the_exact_expression_takes_the_mean_over_the_texts(growing, problem_of):
    for prompts, mean in (((100, 100), 119.5), ((900, 900), 919.5), ((100, 900), 519.5)):
        problem = problem_of(growing(prompts))
        assert exact_latency(problem, (1,), np.zeros((1, 0), np.int64)).total[0] == pytest.approx(10 + 0.01 * (mean - 500))


def test_texts_that_do_not_tell_their_context_cost_the_mean(growing, problem_of):
    measurement = growing()
    silent = replace(measurement, traces=tuple(replace(trace, prompt_tokens=None) for trace in measurement.traces))
    assert problem_of(silent).context_s is None
    assert problem_of(silent).cost_s[1, 1] == 10.0


def test_overheads_of_rounds_and_tokens_are_added(growing):
    measurement, hierarchy = growing((500, 500)), Hierarchy.parse("m0@3", "m1")
    before = predict(measurement, hierarchy).predicted_s_per_token
    dearer = replace(measurement, overhead_s=0.8, token_overhead_s=0.03, round_overhead_s={"m0": 0.1, "m1": 0.4})
    after = predict(dearer, hierarchy).predicted_s_per_token
    assert after.trace - before.trace == pytest.approx(0.8 / 4 + 0.03 + 3 * 0.1 / 4 + 0.4 / 4)
    assert after.exact > before.exact and after.low <= after.best <= after.high
