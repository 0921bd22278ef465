"""CUDA graphs that timed runs will replay, recorded before the clock runs."""

from __future__ import annotations

from collections.abc import Iterable

from hsd.errors import LevelFault
from hsd.pick.model_set import ModelSet
from hsd.records import Hierarchy, ShouldStop


def record_passes(models: ModelSet, hierarchies: Iterable[Hierarchy], capacity: int, should_stop: ShouldStop) -> None:
    """Record every pass that these hierarchies may make in texts of up to `capacity` tokens; nothing where passes are not recorded.

    A recording takes as long as some hundred passes, and each width of each level meets one for each bucket of keys: left to the runs, it
    would be timed as decoding, of hierarchies more than of the target. Raises `LevelFault` when a pass cannot be recorded.
    """
    for name, widest in widest_passes(hierarchies).items():
        steps = getattr(models.networks[name], "steps", None)
        for _ in steps.prepare(capacity, widest) if steps is not None and not steps.problem else ():
            if should_stop():
                return
    for why in models.new_fallbacks:
        raise LevelFault(f"{why} Compare again, without those graphs from the start.")


def widest_passes(hierarchies: Iterable[Hierarchy]) -> dict[str, int]:
    """Tokens in the widest pass of each model: the longest block from below, its own last token, and one from each level above, which
    appends one when it accepts all."""
    widest: dict[str, int] = {}
    for hierarchy in hierarchies:
        for index, (level, block) in enumerate(zip(hierarchy.levels, (0, *hierarchy.longest_blocks), strict=True)):
            above = len(hierarchy.levels) - 1 - index
            widest[level.model] = max(widest.get(level.model, 0), block + 1 + above)
    return widest
