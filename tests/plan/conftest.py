"""Small problems and measurements, made by hand, that the tests of planning share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hsd.measure.record import BlockGain, Measurement, Trace
from hsd.plan.calculator import typed_measurement
from hsd.plan.problem import from_measurement, widest_pass
from hsd.records import Estimate


def _name(i):
    return f"m{i}"


def _measured(costs, alphas, overhead_s=0.0):
    """Measurement out of lists: costs of m0, m1, …; `alphas` between neighbours, or a full matrix."""
    count = len(costs)
    if np.ndim(alphas) == 1:
        pairs = {(_name(i), _name(i + 1)): alphas[i] for i in range(count - 1)}
        # Pairs the test does not use are there but worthless.
        pairs |= {(_name(i), _name(j)): 0.0 for j in range(count) for i in range(j - 1)}
    else:
        pairs = {(_name(i), _name(j)): alphas[i][j] for j in range(count) for i in range(j)}
    return typed_measurement({_name(i): cost for i, cost in enumerate(costs)}, pairs, overhead_s)


@pytest.fixture
def measured():
    return _measured


@pytest.fixture
def random_measured():
    """Random costs and acceptances that grow and fall with the distance between models."""

    def make(seed, models=4, wide=False):
        random = np.random.default_rng(seed)
        costs = np.sort(random.uniform(0.2, 30, models))
        alphas = [[float(random.uniform(0.4, 0.97) ** (abs(i - j) ** 0.5)) for j in range(models)] for i in range(models)]
        if wide:
            costs = [{1: float(c), 8: float(c * random.uniform(1, 2.5))} for c in costs]
        return _measured([c if wide else float(c) for c in costs], alphas, float(random.uniform(0, 0.5)))

    return make


@pytest.fixture
def problem_of():
    def make(measurement, max_threshold=16):
        return from_measurement(measurement, widest_pass(len(measurement.models) - 1, max_threshold))

    return make


@pytest.fixture
def with_lookup():
    """Add a draft of variable length below a measurement: `gains` = {(drafted, accepted): count} at every verifier."""

    def add(measurement, call_s, gains):
        rows = tuple(BlockGain(drafted, accepted, count) for (drafted, accepted), count in gains.items())
        return replace(
            measurement,
            models=("lookup", *measurement.models),
            cost_s={"lookup": {0: Estimate(call_s, call_s, call_s, 9)}, **measurement.cost_s},
            block_gains={"lookup": dict.fromkeys(measurement.models, rows)},
        )

    return add


@pytest.fixture
def with_traces():
    """Record `accept[i, j]` (list of arrays, one per prompt) as traces of a measurement."""

    def add(measurement, accept, proposals=None):
        texts = next(iter((accept or proposals).values()))
        traces = []
        for p in range(len(texts)):
            rows, offers = {}, {}
            for (i, j), values in accept.items():
                rows.setdefault(_name(i), {})[_name(j)] = tuple(map(float, values[p]))
            for j, pairs in (proposals or {}).items():
                offers.setdefault("lookup", {})[_name(j)] = tuple(map(tuple, pairs[p]))
            traces.append(Trace(f"prompt {p}", "made up", len(texts[p]), rows, offers))
        return replace(measurement, traces=tuple(traces))

    return add


@pytest.fixture
def measurement_with_pair(measured) -> Measurement:
    return measured([0.001, 0.004, 0.020], [[0, 0.7, 0.6], [0, 0, 0.8], [0, 0, 0]])


# Milliseconds and rates as people paste them into the calculator; made up, not measured.
EXAMPLES = {
    "A third model lowers the latency": """\
model,  cost, medium, large
small,     1,    0.7,   0.6
medium,    4,       ,   0.8
large,    20,       ,
""",
    "A third model does not help": """\
model,  cost, medium, large
small,     2,    0.7,  0.65
medium,   10,       ,  0.75
large,    20,       ,
""",
    "Wide passes cost more": """\
model,  cost, cost 8, medium, large
small,     1,    1.2,    0.7,   0.6
medium,    4,      8,       ,   0.8
large,    20,     30,       ,
""",
}


@pytest.fixture(params=EXAMPLES)
def example(request):
    return EXAMPLES[request.param]


@pytest.fixture
def examples():
    """A third model lowers the latency, does not help, and wide passes cost more."""
    return tuple(EXAMPLES.values())
