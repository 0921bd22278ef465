"""What a report is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar with its range, where there is one; `emphasis` marks the plan."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    emphasis: bool = False


@dataclass(frozen=True, slots=True)
class Bars:
    caption: str
    unit: str
    range_name: str  # what `low` to `high` of its bars is
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    paragraphs: tuple[str, ...]
    blocks: tuple[Table | Bars, ...]


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    answer: str  # the one line that matters
    sections: tuple[Section, ...]
