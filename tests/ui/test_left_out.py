"""A draft that could not be had is named with its own reason before the text of the run begins."""

from __future__ import annotations

import contextlib
import itertools
from types import SimpleNamespace

import pytest

from hsd.generate.events import NoticeEvent
from hsd.pick import registry
from hsd.records import GREEDY, Environment, Hierarchy
from ui.engine import GenerateRequest, Setup
from ui.live import LiveEngine

HERE = Environment("cpu", "", "float32", "", "", "", "")


@pytest.fixture
def told(monkeypatch):
    """The first events of a run whose drafts `notices` tells to be missing."""

    def first_events(drafts: str, notices: dict[str, str]) -> list[NoticeEvent]:
        models = SimpleNamespace(networks={"target": None}, notices=notices, environment=HERE, fallbacks=())
        lease = lambda *args, **options: contextlib.nullcontext(models)  # noqa: E731
        monkeypatch.setattr(registry, "REGISTRY", SimpleNamespace(lease=lease))
        hierarchy = Hierarchy.parse(drafts, "target")
        request = GenerateRequest(hierarchy, "Hello", "", False, GREEDY, 4)
        setup = Setup("target", tuple(level.model for level in hierarchy.drafts), "cpu", "float32")
        events = LiveEngine().generate(setup, request, lambda progress: None, lambda: False, lambda environment: None)
        return list(itertools.islice(events, len(hierarchy.drafts)))

    return first_events


def test_a_draft_whose_name_is_part_of_another_ones_has_its_own_reason(told):
    reasons = {"gpt2-medium": "The draft gpt2-medium is left out. There is no memory for it.", "gpt2": "The draft gpt2 is left out. Gated."}
    found = told("gpt2@2,gpt2-medium@3", reasons)
    assert [(notice.level, notice.model, notice.message) for notice in found] == [
        (0, "gpt2", reasons["gpt2"]),
        (1, "gpt2-medium", reasons["gpt2-medium"]),
    ]


def test_a_draft_that_is_missing_without_a_reason_has_none_of_another(told):
    (first, second) = told("gpt2@2,gpt2-medium@3", {"gpt2-medium": "The draft gpt2-medium is left out. Gated."})
    assert first.message == "It could not be loaded." and "Gated" in second.message
