"""Worked examples of the calculator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    title: str
    table: str  # as the calculator reads it: model, cost in ms, acceptance at each larger model


HELPS = Example(
    "Example: a third model lowers the latency",
    "model, cost, medium, target\nsmall, 1, 0.80, 0.70\nmedium, 6, , 0.90\ntarget, 40, ,",
)
HELPS_NOT = Example(
    "Example: a third model does not",
    "model, cost, medium, target\nsmall, 1, 0.80, 0.78\nmedium, 12, , 0.85\ntarget, 40, ,",
)
