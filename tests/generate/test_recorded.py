"""A run over networks whose passes are recorded: the same text, and a notice when recording fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from decoding_checks import decode, greedy_alone
from recorded_models import stepped
from tiny_models import small_set

from hsd.compare.whole import generate_whole
from hsd.errors import LevelFault
from hsd.models import graphs
from hsd.records import Hierarchy, Sampling

PROMPT = [11, 4, 60, 4, 11]
HIERARCHIES = ["", "near@5", "prompt-lookup@3,near@4", "early-exit:1@2,far@3,near@6"]


@pytest.fixture(scope="module")
def small():
    return small_set()


@pytest.mark.parametrize("drafts", HIERARCHIES)
def test_static_steps_write_the_targets_text(small, drafts, monkeypatch):
    monkeypatch.setattr(graphs, "LEAST_BUCKET", 16)
    models = stepped(small, record=False)
    for prompt in (PROMPT, list(range(40, 0, -1))):  # the longer prompt's pass is an ordinary one
        generation = decode(models, Hierarchy.parse(drafts, "target"), prompt, max_new_tokens=40)
        assert list(generation.token_ids) == greedy_alone(small.modules["target"], prompt, 40)
        assert not generation.notices


@pytest.mark.parametrize("temperature", [0, 1])
def test_a_failed_recording_is_told_once_and_alters_no_token(small, temperature, monkeypatch):
    """Here every recording fails, as this machine has no CUDA."""
    if torch.cuda.is_available():
        monkeypatch.setattr(graphs, "record", lambda *args: (_ for _ in ()).throw(RuntimeError("no recording")))
    hierarchy, settings = Hierarchy.parse("near@3", "target"), {"max_new_tokens": 24, "sampling": Sampling(temperature=temperature)}
    models = stepped(small, record=True)
    generation = decode(models, hierarchy, PROMPT, **settings)
    assert generation.token_ids == decode(small, hierarchy, PROMPT, **settings).token_ids
    assert sorted((notice.model, notice.dropped) for notice in generation.notices) == [("near", False), ("target", False)]
    assert all("HSD_CUDA_GRAPHS=0" in notice.message for notice in generation.notices)
    assert len(decode(models, hierarchy, PROMPT, **settings).notices) == 2, "the next run's reader must know it too"


def test_a_comparison_in_which_graphs_were_lost_is_refused_and_the_next_one_is_not(small, monkeypatch):
    monkeypatch.setattr(graphs, "record", lambda *given: (_ for _ in ()).throw(RuntimeError("no recording")))
    hierarchy, models = Hierarchy.parse("near@3", "target"), stepped(small, record=True)
    with pytest.raises(LevelFault, match=r"HSD_CUDA_GRAPHS=0.*compare again"):
        generate_whole(models, hierarchy, PROMPT, max_new_tokens=24)
    again = replace(models, known_fallbacks=models.fallbacks)  # as the next lease lends it
    assert generate_whole(again, hierarchy, PROMPT, max_new_tokens=24).token_ids
    again.networks["near"].steps.problem = "Another reason."
    with pytest.raises(LevelFault, match="Another reason"):
        generate_whole(again, hierarchy, PROMPT, max_new_tokens=24)
