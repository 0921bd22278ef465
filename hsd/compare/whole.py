"""Generations in which every model took part to the end: only those say something about their hierarchy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hsd.errors import LevelFault
from hsd.generate.collect import Generation, collect
from hsd.generate.engine import generate
from hsd.pick.model_set import ModelSet
from hsd.records import Hierarchy


def generate_whole(models: ModelSet, hierarchy: Hierarchy, prompt_ids: Sequence[int], **settings: Any) -> Generation:
    """As `generate`, all at once. Raises `LevelFault` when a draft dropped out, or passes lost their graphs since the models were lent:
    what ran on was another hierarchy, or another program. The next lease runs without those graphs from the start."""
    generation = collect(generate(models, hierarchy, prompt_ids, **settings))
    for notice in generation.notices:
        if notice.dropped:
            raise LevelFault(
                f"{notice.model} dropped out of {hierarchy}, so that another hierarchy ran on. {notice.message} "
                f"To compare, do without {notice.model} or take shorter prompts."
            )
    for why in models.new_fallbacks:
        raise LevelFault(f"{why} Some of these passes were timed with graphs, others without: compare again.")
    return generation
