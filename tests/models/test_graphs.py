"""The step that CUDA records, run here operation by operation: equal to the ordinary pass, and rollback, buckets, slots."""

from __future__ import annotations

import copy
import gc
import itertools
import threading

import pytest
import torch
from recorded_models import record_replayed
from test_lean import ARCHITECTURES, VOCAB, reference, text, tiny

from hsd.models import graphs
from hsd.models.build import build_network, derive
from hsd.models.graphs import Steps, bucket_of

CLOSE = dict(rtol=1e-5, atol=1e-5)  # float32 sums in another order


@pytest.fixture
def small_buckets(monkeypatch):
    monkeypatch.setattr(graphs, "LEAST_BUCKET", 8)


@pytest.fixture
def recorded(monkeypatch):
    """Recording without CUDA: `Replayed` in place of graphs; gives those that were made."""
    return record_replayed(monkeypatch)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_step_gives_the_logits_of_the_ordinary_pass_at_every_width(name, small_buckets):
    """Widths 1 to 9, one after the other up to the last position, over every bucket from 8 to 64."""
    module = tiny(name)
    tokens = text(45)
    wanted = reference(module, tokens)
    network = build_network(name, copy.deepcopy(module))
    steps = Steps(network, record=False)
    cache, ordinary = steps.new_cache(45), network.new_cache(45)
    for width in range(1, 10):
        new = torch.tensor(tokens[cache.length : cache.length + width])
        for num_logits in {1, width}:
            cache.crop(len(tokens[: ordinary.length]))
            got = steps(new, cache, num_logits)
            assert got.shape == (num_logits, VOCAB)
            torch.testing.assert_close(got, wanted[cache.length - num_logits : cache.length], rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(got[-1:], network.forward(new, ordinary, width)[-1:], **CLOSE)
    assert cache.length == ordinary.length == 45
    layers, length = len(network.layers), 45
    torch.testing.assert_close(cache.keys[:layers, :, :length], ordinary.keys[:, :, :length], **CLOSE)
    torch.testing.assert_close(cache.values[:layers, :, :length], ordinary.values[:, :, :length], **CLOSE)


@pytest.mark.parametrize("name", ["llama", "qwen3, norms of queries and keys"])
@pytest.mark.parametrize("replays", [False, True])
def test_steps_are_right_after_rollbacks(name, replays, small_buckets, recorded):
    module = tiny(name)
    network = build_network(name, copy.deepcopy(module))
    steps = Steps(network, record=replays)
    random = torch.Generator().manual_seed(1)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=random))  # noqa: E731
    tokens, cache = text(5), steps.new_cache(60)
    steps(torch.tensor(tokens), cache, 1)
    for step in range(60):
        kept = draw(max(1, len(tokens) - 6), len(tokens) + 1) if len(tokens) < 55 else draw(1, 50)
        cache.crop(kept)
        new = text(draw(1, 5), seed=step)
        tokens = [*tokens[:kept], *new]
        num_logits = draw(1, len(new) + 1)
        got = steps(torch.tensor(new), cache, num_logits)
        assert cache.length == len(tokens)
        torch.testing.assert_close(got, reference(module, tokens)[-num_logits:], rtol=1e-4, atol=2e-5)
    if replays:
        assert sum(graph.replays for graph in recorded.values()) > 30
        assert not steps.problem


def test_the_widest_step_reaches_the_last_position():
    module = tiny("llama", max_position_embeddings=300)
    tokens = text(300)
    wanted = reference(module, tokens)
    network = build_network("llama", copy.deepcopy(module))
    steps = Steps(network, record=False)
    cache = steps.new_cache(10_000)
    assert cache.capacity == 300
    while cache.length < 300:
        new = tokens[cache.length : cache.length + graphs.WIDEST_RECORDED]
        got = steps(torch.tensor(new), cache, len(new))
        torch.testing.assert_close(got, wanted[cache.length - len(new) : cache.length], rtol=1e-4, atol=5e-5)


def test_a_bucket_is_the_least_power_of_two_that_holds_the_text():
    assert [bucket_of(length) for length in (1, 256, 257, 512, 513, 5000)] == [256, 256, 512, 512, 1024, 8192]


def test_a_step_is_recorded_the_second_time_its_width_and_bucket_are_met(small_buckets, recorded):
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=True)
    cache = steps.new_cache(40)
    for width in (1, 2, 1, 1, 2, 1):  # 8 tokens: the first bucket
        steps(torch.tensor(text(width)), cache, 1)
    assert {key: graph.replays for key, graph in recorded.items()} == {(1, 8): 3, (2, 8): 1}
    steps(torch.tensor(text(1)), cache, 1)  # the ninth token: another bucket
    assert set(recorded) == {(1, 8), (2, 8)}
    steps(torch.tensor(text(1)), cache, 1)
    assert recorded[1, 16].replays == 1


def test_passes_are_counted_until_they_are_replayed(small_buckets, recorded):
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=True)
    cache, counts = steps.new_cache(40), []
    for width in (1, 2, 1, 1, 2, 1):
        steps(torch.tensor(text(width)), cache, 1)
        counts.append(steps.num_slow)
    assert counts == [1, 2, 3, 3, 4, 4]
    steps.problem = "No graphs."  # from here on every pass is as slow as the next
    steps(torch.tensor(text(1)), cache, 1)
    assert steps.num_slow == 4


def test_every_pass_up_to_a_width_and_a_length_is_recorded_beforehand(small_buckets, recorded):
    """The text of 27 tokens ends within the bucket of 32, in which no position after the last is met."""
    network = build_network("llama", tiny("llama", max_position_embeddings=27))
    steps = Steps(network, record=True)
    for _ in steps.prepare(1000, 3):
        pass
    assert set(recorded) == {(width, bucket) for width in (1, 2, 3) for bucket in (8, 16, 32)}
    slow, cache = steps.num_slow, steps.new_cache(20)
    wanted = reference(tiny("llama", max_position_embeddings=27), text(20))
    for start in range(0, 20, 2):
        got = steps(torch.tensor(text(20)[start : start + 2]), cache, 2)
        torch.testing.assert_close(got, wanted[start : start + 2], rtol=1e-4, atol=2e-5)
    assert steps.num_slow == slow and len(recorded) == 9


def test_logits_outlive_the_next_step(small_buckets, recorded):
    """A replay overwrites its own output; what was given out stays."""
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=True)
    cache = steps.new_cache(30)
    given = [steps(torch.tensor([token]), cache, 1) for token in (1, 2, 3, 4, 5)]
    kept = [logits.clone() for logits in given]
    steps(torch.tensor([6]), cache, 1)
    assert all(torch.equal(now, then) for now, then in zip(given, kept, strict=True))
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(given, 2))


def test_a_later_generation_takes_over_the_graphs_and_nothing_of_the_text(small_buckets, recorded):
    module = tiny("llama")
    network = build_network("llama", copy.deepcopy(module))
    steps = Steps(network, record=True)
    cache = steps.new_cache(30)
    slot = cache.slot
    for token in text(12):
        steps(torch.tensor([token]), cache, 1)
    cache.slot.values[:, :, 12:] = float("nan")  # a masked NaN would still spoil a sum
    other = steps.new_cache(30)
    assert other.slot is not slot, "two generations at once share nothing"
    del cache
    gc.collect()
    again = steps.new_cache(20)
    assert again.slot is slot and again.length == 0 and again.capacity == 20 and slot.graphs
    tokens = text(12, seed=9)
    for token in tokens:
        got = steps(torch.tensor([token]), again, 1)
    torch.testing.assert_close(got, reference(module, tokens)[-1:], rtol=1e-4, atol=2e-5)
    recorded_before = len(recorded)
    assert recorded_before == len(slot.graphs)


def test_a_cache_may_be_collected_while_another_is_opened(small_buckets, monkeypatch):
    """Its slot goes back on the thread that collects, wherever that is."""
    steps = Steps(network := build_network("llama", tiny("llama")), record=False)
    one, other = steps.new_cache(10), steps.new_cache(10)
    slots = {id(one.slot), id(other.slot)}
    del one  # idle, so that its capacity is asked for
    other.values = other  # a cycle: only the collector finds it
    del other

    class Collecting(int):
        def __ge__(self, wanted):
            gc.collect()
            return int(self) >= wanted

    monkeypatch.setattr(graphs.Slot, "capacity", property(lambda slot: Collecting(slot.keys.shape[2])))
    opened = []
    gc.disable()
    try:
        opening = threading.Thread(target=lambda: opened.append(steps.new_cache(10)), daemon=True)
        opening.start()
        opening.join(20)
    finally:
        gc.enable()
    assert not opening.is_alive(), "it waits for itself"
    assert id(opened[0].slot) in slots and network.name


def test_a_slot_that_is_too_small_is_given_up_and_one_is_kept(small_buckets):
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=False)
    caches = [steps.new_cache(10), steps.new_cache(10)]
    assert caches[0].slot.capacity == 16
    caches.clear()
    gc.collect()
    large = steps.new_cache(40)
    assert large.slot.capacity == 64
    discarded = large.slot
    large.discard()  # the level dropped out: its memory is needed
    del large
    assert steps.new_cache(10).slot is not discarded


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted when stream is capturing"), torch.OutOfMemoryError("full")])
def test_a_step_that_cannot_be_recorded_runs_on_and_says_so(error, small_buckets, monkeypatch):
    def record(*args):
        raise error

    monkeypatch.setattr(graphs, "record", record)
    module = tiny("llama")
    tokens = text(12)
    wanted = reference(module, tokens)
    network = build_network("llama", copy.deepcopy(module))
    steps = Steps(network, record=True)
    cache = steps.new_cache(30)
    for position, token in enumerate(tokens):
        got = steps(torch.tensor([token]), cache, 1)
        torch.testing.assert_close(got, wanted[position : position + 1], rtol=1e-4, atol=2e-5)
    assert "llama" in steps.problem and "HSD_CUDA_GRAPHS=0" in steps.problem
    assert ("too little memory" in steps.problem) == isinstance(error, torch.OutOfMemoryError)


class Empty:
    """A graph whose operations went to another device's stream: they ran at once, and a replay does nothing."""

    def replay(self):
        pass


@pytest.mark.parametrize("name", ["llama", "qwen3, norms of queries and keys"])
def test_a_graph_that_does_not_give_the_numbers_of_its_step_is_not_used(name, small_buckets, monkeypatch):
    def record(network, slot, width, bucket):
        return Empty(), graphs.static_step(network, slot.token_ids[:width], slot.start, slot.keys, slot.values, bucket)

    monkeypatch.setattr(graphs, "record", record)
    module = tiny(name)
    tokens = text(12)
    wanted = reference(module, tokens)
    steps = Steps(network := build_network(name, copy.deepcopy(module)), record=True)
    cache = steps.new_cache(30)
    for position, token in enumerate(tokens):
        got = steps(torch.tensor([token]), cache, 1)
        torch.testing.assert_close(got, wanted[position : position + 1], rtol=1e-4, atol=2e-5)
    assert network.name in steps.problem and "other numbers" in steps.problem and not cache.slot.graphs


@pytest.mark.parametrize(("off", "fits"), [(0.0, True), (0.01, True), (0.2, False), (float("nan"), False)])
def test_a_replay_may_differ_by_rounding_only(off, fits):
    wanted = torch.tensor([[3.0, -10.0, 1.0]])

    class Graph:
        def replay(self):
            logits.copy_(wanted + off * 10)

    logits = wanted.clone()
    assert graphs.replays(Graph(), logits, wanted) is fits


def test_logits_that_are_no_numbers_are_no_reason_to_do_without_graphs(small_buckets, recorded):
    """The run that met them ends with its own error."""
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=True)
    cache = steps.new_cache(30)
    spoilt = network.final_norm.clone()
    network.final_norm.fill_(float("inf"))
    for token in (1, 2):
        steps(torch.tensor([token]), cache, 1)
    network.final_norm.copy_(spoilt)
    assert not recorded and not steps.problem
    for token in (3, 4):
        steps(torch.tensor([token]), cache, 1)
    assert recorded[1, 8].replays == 2 and not steps.problem


def test_after_one_slot_lost_its_graphs_no_other_replays_its_own(small_buckets, recorded):
    network = build_network("llama", tiny("llama"))
    steps = Steps(network, record=True)
    cache = steps.new_cache(30)
    for token in (1, 2):
        steps(torch.tensor([token]), cache, 1)
    steps.problem = "No graphs."
    steps(torch.tensor([3]), cache, 1)
    assert recorded[1, 8].replays == 1


def test_a_step_is_recorded_on_its_networks_own_device_and_the_stream_of_its_slot(monkeypatch):
    """The current device is the first GPU whatever the network's is, and torch would record there."""
    entered, asked = [], {}

    class Entered:
        def __init__(self, what):
            self.what = what

        def __enter__(self):
            entered.append(self.what)

        def __exit__(self, *error):
            pass

    def graph(made, **options):
        asked.update(options)
        return Entered("graph")

    fakes = {"CUDAGraph": object, "device": lambda device: Entered(device), "stream": lambda stream: Entered(stream), "graph": graph}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    network = build_network("llama", tiny("llama"))
    slot = graphs.Slot(network, 10)
    slot.pool, slot.stream = "its pool", "its stream"
    graphs.record(network, slot, 1, 16)
    assert entered == [network.device, "its stream", "graph"]
    assert asked == {"pool": "its pool", "stream": "its stream", "capture_error_mode": "thread_local"}


def test_without_cuda_nothing_is_recorded_by_itself():
    assert graphs.steps_for(build_network("llama", tiny("llama"))) is None


def test_a_draft_made_from_the_target_takes_over_its_keys_and_values(small_buckets):
    module = tiny("llama")
    network = build_network("llama", copy.deepcopy(module))
    draft = derive("early-exit:2", network, module)
    own, theirs = Steps(network, record=False), Steps(draft, record=False)
    cache, taken = own.new_cache(30), theirs.new_cache(30)
    own(torch.tensor(text(12)), cache, 1)
    assert draft.adopt(taken, network, cache) and taken.length == 12
    follow = torch.tensor([3, 4, 5])
    fresh = draft.new_cache(30)
    draft.forward(torch.tensor(text(12)), fresh, 1)
    torch.testing.assert_close(theirs(follow, taken, 3), draft.forward(follow, fresh, 3), **CLOSE)
