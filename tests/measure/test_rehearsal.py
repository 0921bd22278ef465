"""What a running hierarchy takes beside its passes is learned from real generations, one target round at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from recorded_models import record_replayed, stepped
from tiny_models import small_set

from hsd.measure import rehearsal as module
from hsd.measure.costs import Costs
from hsd.measure.rehearsal import Rehearsal, _split, _trimmed_mean
from hsd.models import graphs
from hsd.records import GREEDY


@pytest.fixture(scope="module")
def models():
    return small_set()


def free(models, seconds=0.0):
    """Passes and calls that take nothing, or as many seconds as told."""
    return Costs({}, {}, ({name: {width: seconds for width in (0, 1, 40)} for name in models.networks},) * 40)


def test_every_draft_gets_its_turn_and_every_round_is_seen(models):
    rehearsal = Rehearsal(models, [[1, 2, 3], [4, 5, 6, 7]], GREEDY, 30, lambda: False)
    for _ in range(40):
        rehearsal()
    assert {sample.model for sample in rehearsal.samples} == set(models.networks)
    targets = [sample for sample in rehearsal.samples if sample.model == "target"]
    assert len(targets) == len(rehearsal.loops) and all(seconds > 0 for *_, seconds in rehearsal.loops)
    assert {tokens for tokens, *_ in rehearsal.loops} >= {1}
    assert all(sample.seconds > 0 for sample in rehearsal.samples)


def test_overheads_are_what_exceeds_the_passes(models):
    rehearsal = Rehearsal(models, [[1, 2, 3]], GREEDY, 12, lambda: False)
    for _ in range(30):
        rehearsal()
    free_passes = rehearsal.overheads(free(models))
    assert all(seconds > 0 for seconds in free_passes.round_s.values())
    dear = rehearsal.overheads(free(models, 9.0))  # passes that took longer than the rounds leave nothing but the loop
    assert all(dear.round_s[name] <= free_passes.round_s[name] for name in dear.round_s) and dear.round_s["target"] == 0
    assert free_passes.target_round_s + free_passes.token_s > 0 and free_passes.rounds == len(rehearsal.loops) >= 30


def test_rounds_in_which_a_graph_was_recorded_do_not_count(models, monkeypatch):
    """A recording takes as long as a thousand passes, and every width of every hierarchy meets one."""
    record_replayed(monkeypatch, seconds=0.15)
    monkeypatch.setattr(graphs, "LEAST_BUCKET", 64)
    rehearsal = Rehearsal(stepped(models, record=True), [[1, 2, 3]], GREEDY, 12, lambda: False)
    drafts = len(rehearsal.models.networks) - 1
    for _ in range(drafts):  # as few sweeps as give each draft one turn
        rehearsal()
    assert {sample.model for sample in rehearsal.samples} == set(rehearsal.models.networks)
    assert max(sample.seconds for sample in rehearsal.samples) < 0.15
    assert max(seconds for *_, seconds in rehearsal.loops) < 0.15


def test_without_graphs_every_round_counts(models, monkeypatch):
    monkeypatch.setattr(graphs, "record", lambda *given: (_ for _ in ()).throw(RuntimeError("no graphs")))
    rehearsal = Rehearsal(stepped(models, record=True), [[1, 2, 3]], GREEDY, 12, lambda: False)
    for _ in range(20):
        rehearsal()
    assert len(rehearsal.loops) == 40, "one of the target alone and one of a draft in each sweep"


def test_every_model_has_enough_rounds_however_soon_its_passes_are_known(models):
    rehearsal = Rehearsal(models, [[1, 2, 3]], GREEDY, 12, lambda: False)
    rehearsal()
    rehearsal.fill_up()
    counts = Counter(sample.model for sample in rehearsal.samples)
    assert set(counts) == set(models.networks) and min(counts.values()) >= module.LEAST_SAMPLES
    assert {sample.sweep for sample in rehearsal.samples} == {0}


def test_texts_of_one_round_give_no_samples_and_are_not_waited_for(models):
    rehearsal = Rehearsal(models, [[1, 2, 3]], GREEDY, 1, lambda: False)
    rehearsal()
    rehearsal.fill_up()
    assert not rehearsal.samples


def test_nothing_more_is_decoded_when_stopped(models):
    stopped = False
    rehearsal = Rehearsal(models, [[1, 2, 3]], GREEDY, 12, lambda: stopped)
    rehearsal()
    stopped, before = True, len(rehearsal.samples)
    rehearsal.fill_up()
    assert len(rehearsal.samples) == before


def test_a_round_is_set_against_the_passes_of_its_own_minute(models):
    """The machine is fast in three sweeps and slow in two; against the medians every slow round would count as overhead."""
    rehearsal = Rehearsal(models, [[1, 2, 3]], GREEDY, 12, lambda: False)
    passes = (1.0, 1.0, 2.0, 1.0, 2.0)
    rehearsal.samples = [module._Sample("target", 5, seconds + 0.1, sweep) for sweep, seconds in enumerate(passes)]
    costs = Costs({}, {}, tuple({name: {1: seconds, 9: seconds} for name in models.networks} for seconds in passes))
    assert rehearsal.overheads(costs).round_s["target"] == pytest.approx(0.1)


def test_the_loop_is_split_into_rounds_tokens_and_drafts():
    random = np.random.default_rng(0)
    loops = []
    for _ in range(60):
        tokens, drafts = int(random.integers(1, 6)), int(random.integers(0, 5))
        loops.append((tokens, drafts, 1e-4 + 3e-5 * tokens + 2e-5 * drafts + (0.1 if random.random() < 0.1 else 0)))
    assert _split(loops) == pytest.approx((1e-4, 3e-5, 2e-5), rel=1e-3)  # interruptions do not count
    assert _split([(1, 0, 2e-4)] * 5) == pytest.approx((2e-4, 0, 0))
    assert _split([]) == (0, 0, 0)


def test_a_part_of_the_loop_is_never_negative():
    found = _split([(tokens, 4 - tokens, 1e-4 * (4 - tokens)) for tokens in (1, 2, 3)] * 4)
    assert min(found) >= 0


def test_interruptions_are_left_out_of_a_mean():
    assert _trimmed_mean([1.0] * 18 + [100.0, -50.0]) == pytest.approx(1.0)
    assert _trimmed_mean([]) == 0


def test_a_fault_of_the_target_is_told(models, monkeypatch):
    from hsd.errors import LevelFault
    from hsd.generate.events import EndEvent

    def broken(*args, **options):
        yield EndEvent("target_fault", "", "", (), 0.0, 0.0, "no memory")

    monkeypatch.setattr(module, "generate", broken)
    with pytest.raises(LevelFault, match="no memory"):
        Rehearsal(models, [[1, 2, 3]], GREEDY, 6, lambda: False)()
