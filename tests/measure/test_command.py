"""What the command line says of a measurement."""

from __future__ import annotations

from dataclasses import replace

from hsd.measure.breakdown import acceptance_rates
from hsd.measure.command import describe
from hsd.measure.record import Measurement, PromptSetInfo, Trace
from hsd.records import GREEDY, Environment, Estimate

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
