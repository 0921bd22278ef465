"""The status line: what goes on or came of it, how far a run is, and what must be known although it goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hsd.records import Progress
from ui import format as fmt
from ui import text
from ui.jobs import Failed
from ui.nodes import Node, el


def status(state: str, message: str, *more: Node, role: str | None = None, ticket: str | None = None) -> Node:
    """The status line; `state` is idle, waiting, running, done or error and is readable by scripts. A `ticket` is kept by the browser,
    which goes on with that run when the page is loaded anew (ui/reload.py)."""
    return el("div", el("p", message, cls="status-words"), *more, cls=f"status {state}", data_state=state, role=role, data_ticket=ticket)


@dataclass(slots=True)
class Course:
    """How far a run is, for its bar: by count or by time, whichever is further, and within a phase never back."""

    phase: tuple[str, int] = ("", 0)  # with its total: one model is fetched after the other
    since: float = 0.0
    told: float = field(default_factory=time.monotonic)  # when a step was last told: the next phase began then
    reached: float = 0.0

    def share(self, step: Progress) -> float:
        """0..1. Costs are known only towards the end of a phase, so their count alone would stand at zero for most of it."""
        before, self.told = self.told, time.monotonic()
        if step.total <= 1:  # one of several steps, each of which begins anew; 0 where nobody knows how much there is
            return float(step.done) if step.total else 0.0
        if self.phase != (step.phase, step.total):
            self.phase, self.since, self.reached = (step.phase, step.total), before, 0.0
        spent, left = self.told - self.since, step.seconds_left
        by_time = spent / (spent + left) if left else 0.0
        self.reached = max(self.reached, by_time, step.done / step.total)
        return self.reached


def progress(step: Progress, reached: float) -> Node:
    """The status line of a run under way; `reached` is the share that its bar shows."""
    share = 100 * reached
    in_bytes = step.total >= 1e6  # a download
    count = f"{fmt.memory(step.done)} of {fmt.memory(step.total)}" if in_bytes else f"{step.done} of {step.total}"
    told = step.message.startswith(count)
    parts = [step.phase.capitalize(), count if step.total and not told else "", step.message]
    if step.seconds_left is not None:
        parts.append(text.LEFT.format(time=_remaining(step.seconds_left)))
    bar = el(
        "div",
        el("div", cls="bar-done", data_width=f"{share:.1f}"),
        cls="bar",
        role="progressbar",
        aria_valuenow=f"{share:.0f}",
        aria_valuemin="0",
        aria_valuemax="100",
        aria_label=step.phase,
    )
    return status("running", " · ".join(part for part in parts if part), bar)


def _remaining(seconds: float) -> str:
    """An expected time in whole seconds: it is not known any better."""
    whole = round(seconds)
    if whole < 1:
        return text.UNDER_A_SECOND
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def notices(messages: Sequence[str]) -> Node:
    return el("div", *(el("p", message, cls="notice") for message in messages), role="alert")


def failure(failed: Failed) -> Node:
    return status("done" if failed.cancelled else "error", failed.message, role="status" if failed.cancelled else "alert")


def done(message: str, *more: Node) -> Node:
    return status("done", message, *more, role="status")
