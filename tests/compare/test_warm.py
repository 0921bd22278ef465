"""Graphs are recorded before a comparison times anything."""

from __future__ import annotations

import pytest
from decoding_checks import decode
from recorded_models import record_replayed, stepped

from hsd.compare import run
from hsd.compare.run import compare
from hsd.compare.warm import record_passes, widest_passes
from hsd.errors import LevelFault
from hsd.models import graphs
from hsd.records import Hierarchy

NEVER = lambda: False  # noqa: E731
HIERARCHIES = [Hierarchy.parse(drafts, "target") for drafts in ("", "near@3", "prompt-lookup@3,near@4", "early-exit:1@2,far@3,near@6")]


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch):
    monkeypatch.setattr(graphs, "LEAST_BUCKET", 16)


@pytest.mark.parametrize("hierarchy", HIERARCHIES, ids=str)
def test_no_pass_is_wider_than_was_said(models, hierarchy):
    widest = widest_passes([hierarchy])
    generation = decode(models, hierarchy, [11, 4, 60, 4, 11], max_new_tokens=150)
    assert all(round_.width <= widest[round_.model] for round_ in generation.rounds)


def test_everything_that_timed_runs_replay_is_recorded_before(models, plan_of, prompts, monkeypatch):
    record_replayed(monkeypatch)
    set_, slow = stepped(models, record=True), []
    steps = [network.steps for network in set_.networks.values() if hasattr(network, "steps")]
    real = run.generate_whole

    def watched(*given, **settings):
        for _ in range(2):  # the passes of a prompt may be narrow, too, and are not timed as decoding: met and recorded here
            real(*given, **(settings | {"max_new_tokens": 1}))
        before = sum(one.num_slow for one in steps)
        found = real(*given, **settings)
        slow.append(sum(one.num_slow for one in steps) - before)
        return found

    monkeypatch.setattr(run, "generate_whole", watched)
    compare(set_, plan_of("early-exit:1@2,near@4", "near@3"), prompts, repeats=1, max_new_tokens=40, methods=["target", "best-single"])
    assert len(slow) == 2 * 4 and not any(slow)


def test_a_recording_that_fails_is_told_before_anything_is_timed(models, monkeypatch):
    monkeypatch.setattr(graphs, "record", lambda *given: (_ for _ in ()).throw(RuntimeError("no graphs")))
    with pytest.raises(LevelFault, match=r"no graphs.*Compare again"):
        record_passes(stepped(models, record=True), HIERARCHIES, 40, NEVER)


def test_recording_ends_when_stopped(models, monkeypatch):
    made = record_replayed(monkeypatch)
    record_passes(stepped(models, record=True), HIERARCHIES, 40, lambda: True)
    assert len(made) <= 1


def test_nothing_is_recorded_for_models_without_graphs(models, monkeypatch):
    made = record_replayed(monkeypatch)
    record_passes(models, HIERARCHIES, 40, NEVER)
    assert not made
