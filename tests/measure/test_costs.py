"""Costs are the seconds of a pass, by model and width, timed in turns until they are known."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from hsd.measure import costs
from hsd.measure.costs import Clock, measure_costs
from hsd.models import prefill
from hsd.records import GREEDY, Sampling

CONTEXT = 12
TOKENS = [index % 7 for index in range(CONTEXT + 40)]


class FakeTime:
    """A clock that only moves when a network computes."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


class FakeCache:
    def __init__(self, capacity: int) -> None:
        self.capacity, self.length, self.crops = capacity, 0, []

    def crop(self, length: int) -> None:
        self.crops.append(length)
        self.length = length


class FakeNetwork:
    """A pass takes `seconds(width)` of the fake clock; what was asked for is written down."""

    vocab_size, max_context, device, dtype, memory_bytes = 8, 1000, torch.device("cpu"), torch.float32, 0

    def __init__(self, name, clock, seconds, log):
        self.name, self.clock, self.seconds, self.log = name, clock, seconds, log

    def new_cache(self, capacity):
        return FakeCache(capacity)

    def forward(self, token_ids, cache, num_logits):
        width = len(token_ids)
        self.log.append((self.name, cache.length, width, num_logits, token_ids.tolist()))
        cache.length += width
        assert cache.length <= cache.capacity
        self.clock.now += self.seconds(width)
        return torch.zeros(num_logits, self.vocab_size)

    def adopt(self, cache, other, other_cache):
        return False


class FakeProposer:
    name = "prompt-lookup"

    def __init__(self, clock, seconds):
        self.clock, self.call_s, self.texts = clock, seconds, []

    def fresh(self):
        twin = FakeProposer(self.clock, self.call_s)
        twin.texts = self.texts
        return twin

    def propose(self, token_ids, count):
        self.texts.append(list(token_ids))
        self.clock.now += self.call_s(len(token_ids))
        return []


@pytest.fixture
def clock(monkeypatch):
    fake = FakeTime()
    monkeypatch.setattr(costs, "time", fake)
    return fake


def run(networks, **options):
    """Costs after passes of other models, at the mean context."""
    return all_costs(networks, **options).by_width


def all_costs(networks, *, widths=(1, 4), budget_s=1e9, sampling=GREEDY, should_stop=lambda: False, reports=None, **more):
    return measure_costs(
        networks,
        TOKENS,
        context_tokens=CONTEXT,
        widths=widths,
        sampling=sampling,
        budget_s=budget_s,
        report=(reports if reports is not None else []).append,
        should_stop=should_stop,
        **more,
    )


def test_each_model_has_the_seconds_of_each_width(clock):
    log = []
    networks = {
        "small": FakeNetwork("small", clock, lambda width: 0.001 * width, log),
        "target": FakeNetwork("target", clock, lambda width: 0.02 + 0.003 * width, log),
    }
    found = run(networks, widths=(1, 4, 9))
    assert {name: sorted(row) for name, row in found.items()} == {"small": [1, 4, 9], "target": [1, 4, 9]}
    for name, network in networks.items():
        for width, estimate in found[name].items():
            assert estimate.median == pytest.approx(network.seconds(width))
            assert estimate.low == pytest.approx(estimate.high)


def test_every_pass_begins_after_the_same_warm_context(clock):
    log = []
    run({"target": FakeNetwork("target", clock, lambda width: 0.01, log)}, widths=(1, 4))
    warm_up, timed = log[:2], log[2:]
    assert warm_up[0][1:3] == (0, CONTEXT) and warm_up[1][1:3] == (CONTEXT, 4)
    assert {start for _, start, *_ in timed} == {CONTEXT}
    assert all(num_logits == width for _, _, width, num_logits, _ in timed)  # a round needs every row
    assert all(token_ids == TOKENS[CONTEXT : CONTEXT + width] for _, _, width, _, token_ids in timed)


def test_warm_up_passes_are_not_counted(clock):
    log = []
    slow_at_first = lambda width: 0.01 if len(log) > 2 else 9.0  # noqa: E731
    found = run({"target": FakeNetwork("target", clock, slow_at_first, log)}, widths=(1,))
    assert found["target"][1].high == pytest.approx(0.01)


def test_passes_that_are_recorded_are_met_at_every_width_before_they_count(clock):
    """The second pass of a width records a CUDA graph, which takes a hundred times as long as to replay it."""
    log = []
    meetings = Counter()

    def seconds(width):
        meetings[width] += 1
        return 0.001 if meetings[width] > 2 else 9.0

    network = FakeNetwork("target", clock, seconds, log)
    network.steps = object()
    found = run({"target": network}, widths=(1, 4))
    assert found["target"][1].high == found["target"][4].high == pytest.approx(0.001)


def test_models_take_turns_at_every_width(clock):
    log = []
    networks = {name: FakeNetwork(name, clock, lambda width: 0.01, log) for name in ("a", "b", "target")}
    run(networks, widths=(1, 4))
    timed = [(name, width) for name, _, width, *_ in log[6:]]
    sweep = [(name, width) for width in (1, 4) for name in (*"aaaabbbb", "target")]
    assert timed == sweep * (len(timed) // 18)


def test_a_draft_costs_what_its_passes_in_a_row_cost(clock):
    """After the first of them a part of its weights is still in the processor's cache; the target comes after other models."""
    log = []
    cold = lambda width: 0.006 if log[-1][0] in [last for last, *_ in log[-2:-1]] else 0.01  # noqa: E731
    found = run({name: FakeNetwork(name, clock, cold, log) for name in ("a", "target")}, widths=(1, 4))
    assert found["a"][1].median == pytest.approx((0.01 + 3 * 0.006) / 4)
    assert found["target"][4].median == pytest.approx(0.01)


def test_other_contexts_are_timed_at_the_fewer_widths(clock):
    log = []
    network = FakeNetwork("target", clock, lambda width: 0.01 + 0.001 * log[-1][1], log)
    found = all_costs({"target": network}, widths=(1, 2, 4), contexts=(5, CONTEXT, 30), context_widths=(1, 4))
    assert {context: sorted(row) for context, row in found.by_context["target"].items()} == {5: [1, 4], 30: [1, 4]}
    assert found.by_context["target"][30][4].median == pytest.approx(0.04)
    assert found.by_width["target"][2].median == pytest.approx(0.01 + 0.001 * CONTEXT)


def test_a_hierarchy_runs_on_between_the_sweeps(clock):
    calls, log = [], []
    found = all_costs({"target": FakeNetwork("target", clock, lambda width: 0.01, log)}, between=lambda: calls.append(len(log)))
    assert len(calls) == found.by_width["target"][1].samples


def test_a_drift_of_the_machine_falls_on_all_models_alike(clock):
    log = []
    drifting = lambda width: 0.01 * (1 + len(log) / 20)  # noqa: E731
    networks = {name: FakeNetwork(name, clock, drifting, log) for name in ("a", "target")}
    found = run(networks, widths=(1,), budget_s=5.0)
    assert found["a"][1].median == pytest.approx(found["target"][1].median, rel=0.03)
    assert found["a"][1].high > 1.1 * found["a"][1].low


def test_it_ends_once_every_cost_is_known_to_two_percent(clock):
    log, reports = [], []
    run({"target": FakeNetwork("target", clock, lambda width: 0.01, log)}, widths=(1, 4), reports=reports)
    assert len(log) == 2 + 2 * 7  # seven samples at least, even of a clock without noise
    assert (reports[-1].done, reports[-1].total) == (2, 2)
    assert reports[-1].message == "2 of 2 costs known to 2%, 7 samples each"


def test_one_noisy_cost_keeps_all_going_until_the_budget_ends(clock):
    log = []
    noisy = lambda width: 0.01 if width == 1 else (0.01, 0.02)[len(log) % 4 // 2]  # noqa: E731
    found = run({"target": FakeNetwork("target", clock, noisy, log)}, widths=(1, 4), budget_s=3.0)
    assert found["target"][1].samples == found["target"][4].samples > 50
    assert 3.0 <= clock.now - 100.0 < 3.2
    assert found["target"][4].low == pytest.approx(0.01) and found["target"][4].high == pytest.approx(0.02)


def test_a_budget_of_nothing_still_times_everything_once(clock):
    found = run({"target": FakeNetwork("target", clock, lambda width: 0.01, [])}, widths=(1, 4), budget_s=0.0)
    assert {width: estimate.samples for width, estimate in found["target"].items()} == {1: 1, 4: 1}


def test_a_proposer_has_the_cost_of_a_call_at_width_0(clock):
    proposer = FakeProposer(clock, lambda length: 0.5 if length == len(TOKENS) - 8 else 0.002)  # the first call builds the index
    found = run({"prompt-lookup": proposer, "target": FakeNetwork("target", clock, lambda width: 0.01, [])})
    assert sorted(found["prompt-lookup"]) == [0]
    assert found["prompt-lookup"][0].high == pytest.approx(0.002)
    assert found["prompt-lookup"][0].samples == 8 * 7
    assert proposer.texts[:9] == [TOKENS[:end] for end in range(len(TOKENS) - 8, len(TOKENS) + 1)]


def test_stopping_keeps_what_is_there(clock):
    log = []
    network = FakeNetwork("target", clock, lambda width: 0.01 * len(log), log)
    found = run({"target": network}, widths=(1, 4), should_stop=lambda: len(log) >= 2 + 3 * 2)
    assert {width: estimate.samples for width, estimate in found["target"].items()} == {1: 3, 4: 3}
    found = run({"target": network}, widths=(1, 4), should_stop=lambda: len(log) % 8 == 5)
    assert {width: estimate.samples for width, estimate in found["target"].items()} == {1: 2, 4: 1}, "not only between sweeps"
    assert run({"target": network}, should_stop=lambda: True) == {"target": {}}


@pytest.mark.parametrize("recorded", [False, True])
def test_a_stop_is_heeded_before_every_pass_of_the_warm_up(clock, monkeypatch, recorded):
    """A long prompt and every width three times may take minutes."""
    monkeypatch.setattr(prefill, "PREFILL_CHUNK", 5)
    log = []
    network = FakeNetwork("target", clock, lambda width: 0.01, log)
    if recorded:
        network.steps = object()
    for moment in range(3 + (2 * 3 if recorded else 1)):
        log.clear()
        assert run({"target": network}, widths=(1, 4), should_stop=lambda at=moment: len(log) >= at) == {"target": {}}
        assert len(log) == moment


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8, top_k=5)], ids=lambda sampling: sampling.label())
def test_the_choice_of_tokens_is_part_of_the_cost(clock, monkeypatch, sampling):
    """A round pays for the transforms and the argmax or softmax too."""
    for name in ("choose", "probabilities"):
        real = getattr(costs, name)

        def timed(scores, model, real=real):
            clock.now += 0.005 * scores.shape[0]
            return real(scores, model)

        monkeypatch.setattr(costs, name, timed)
    found = run({"target": FakeNetwork("target", clock, lambda width: 0.01, [])}, widths=(1, 4), sampling=sampling)
    assert found["target"][1].median == pytest.approx(0.015)
    assert found["target"][4].median == pytest.approx(0.030)


def test_progress_names_what_is_known_and_the_time_left(clock):
    reports, log = [], []
    noisy = lambda width: (0.01, 0.02)[len(log) % 2]  # noqa: E731
    run({"target": FakeNetwork("target", clock, noisy, log)}, widths=(1,), budget_s=1.0, reports=reports)
    assert {progress.phase for progress in reports} == {"cost"}
    left = [progress.seconds_left for progress in reports]
    assert left == sorted(left, reverse=True) and left[-1] == 0.0


def test_the_clock_measures_seconds():
    clock = Clock(torch.device("cpu"))
    first = clock.seconds()
    assert 0 <= first < 0.5 and clock.seconds() >= first


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_the_clock_waits_for_the_device():
    device = torch.device("cuda")
    matrix = torch.randn(4096, 4096, device=device)
    matrix @ matrix
    clock = Clock(device)
    for _ in range(20):
        matrix @ matrix
    assert clock.seconds() > 20 * 2 * 4096**3 / 2e15  # no device multiplies faster than that
