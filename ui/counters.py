"""Live counters of one generation, folded from its events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hsd.generate.events import Event, RoundEvent, TokenEvent
from hsd.measure.record import Measurement
from ui import format as fmt
from ui import text
from ui.nodes import Node, el, swatch, table
from ui.palette import slot_of


@dataclass(slots=True)
class Counters:
    models: tuple[str, ...]  # smallest first, target last
    tokens: int = 0
    time_s: float = 0.0
    target_rounds: int = 0
    examined: Counter[str] = field(default_factory=Counter)  # by verifying model: kept tokens and first rejections
    accepted: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    committed: Counter[str] = field(default_factory=Counter)  # by generating model

    def add(self, event: Event) -> None:
        if isinstance(event, TokenEvent):
            self.tokens += 1
            self.time_s = max(self.time_s, event.time_s)
            self.committed[event.generated_by] += 1
        elif isinstance(event, RoundEvent):
            self.seconds[event.model] += event.seconds
            if event.next_token_id is not None:
                self.examined[event.model] += event.accepted + (event.accepted < event.drafted)
                self.accepted[event.model] += event.accepted
            self.target_rounds += event.model == self.models[-1]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.time_s if self.time_s > 0 else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        return self.tokens / self.target_rounds if self.target_rounds else 0.0

    def show(self, palette_models: tuple[str, ...], measurement: Measurement | None, speedup: float | None = None) -> Node:
        """Figures and a table by level; acceptance stands beside the measured rate where there is one.

        `speedup` is the rate against the target alone, once both have run.
        """
        total = sum(self.seconds.values())
        rows: list[list[Node]] = []
        for index in range(len(self.models) - 1, -1, -1):
            name = self.models[index]
            below = self.models[index - 1] if index else None
            share = fmt.percent(self.seconds[name] / total) if total else "–"
            seen = "–"
            if below and self.examined[name]:
                seen = f"{fmt.percent(self.accepted[name] / self.examined[name])} of {self.examined[name]} examined"
            measured = _rate(measurement, below, name) if measurement and below else "–"
            label = el("span", swatch(slot_of(name, palette_models)), name, cls="named")
            rows.append([label, str(self.committed[name]), seen, measured, share])
        figures = el(
            "div",
            _figure(fmt.significant(self.tokens_per_s) if self.tokens else "–", "tokens per second"),
            _figure(f"{self.tokens_per_target_pass:.2f}" if self.target_rounds else "–", "tokens per target pass"),
            _figure(str(self.tokens), "tokens committed"),
            _figure(fmt.times(speedup), text.RUN_SPEEDUP) if speedup else None,
            cls="figures",
        )
        head: list[Node] = ["Model", "Tokens generated", "Accepted from below, this run", "Measured rate α", "Share of time"]
        return el("div", figures, table(head, rows, "Counters by level"))


def _rate(measurement: Measurement, draft: str, verifier: str) -> str:
    """The measured α; of a draft without weights it is the rate of first tokens, unlike the share of all that a run examined."""
    known = measurement.acceptance.get(draft, {}).get(verifier)
    if known is None or draft in measurement.block_gains:
        return "–"
    interval = f" ({fmt.percent(known.low)}–{fmt.percent(known.high)})" if known.interval else ""
    return fmt.percent(known.mean) + interval


def _figure(value: str, label: str) -> Node:
    return el("div", el("b", value), el("span", label), cls="figure")
