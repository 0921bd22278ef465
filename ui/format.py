"""Numbers for people: a unit, and three significant digits unless more are meant."""

from __future__ import annotations

from hsd.records import Hierarchy
from hsd.units import byte_size


def significant(value: float, digits: int = 3) -> str:
    """`0.0123`, `1.23`, `12.3`, `123`; thin spaces in thousands."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    places = max(0, digits - 1)
    while magnitude >= 10 and places > 0:
        magnitude /= 10
        places -= 1
    while magnitude < 1 and places < 6:
        magnitude *= 10
        places += 1
    return f"{value:,.{places}f}".replace(",", "\u2009")


def seconds(value: float) -> str:
    if value < 1e-3:
        return f"{significant(value * 1e6)} µs"
    if value < 1:
        return f"{significant(value * 1e3)} ms"
    if value < 120:
        return f"{significant(value)} s"
    return f"{int(value // 60)} min {int(value % 60):02d} s"


def milliseconds(value_s: float) -> str:
    return f"{significant(value_s * 1e3)} ms"


def rate(tokens_per_s: float) -> str:
    return f"{significant(tokens_per_s)} tokens/s"


def times(ratio: float) -> str:
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.0f}×"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def memory(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "–"
    return byte_size(size_bytes)


def parameters(count: int | None) -> str:
    if not count:
        return "–"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{significant(count / size)} {unit}"
    return str(count)


def interval(low: float, high: float, digits: int = 3) -> str:
    return f"{significant(low, digits)}–{significant(high, digits)}"


def moment(iso: str) -> str:
    """`2026-01-02 03:04` of an ISO time."""
    return iso[:16].replace("T", " ")


def drafts(hierarchy: Hierarchy) -> str:
    """The drafts of a hierarchy with room to break a line between them; the target alone has none."""
    return ", ".join(f"{level.model}@{level.threshold}" for level in hierarchy.drafts) or "target alone"
