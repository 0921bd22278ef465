"""What the page asks of the models below it; the real one is in `live.py`, tests bring a scripted one without torch.

Planning needs no model and no torch, so the page calls `hsd.plan` itself (`planning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hsd.compare.record import Comparison, LosslessReport, Sweep
from hsd.generate.events import Event
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from hsd.records import Environment, Hierarchy, Report, Sampling, ShouldStop


@dataclass(frozen=True, slots=True)
class Setup:
    """What the visitor picked: the models and where they run."""

    target: str
    drafts: tuple[str, ...]
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One draft as the picker shows it; `reason` says why it is unusable, or what a download means."""

    name: str
    kind: str
    status: str  # ready, download, unusable
    reason: str
    parameters: int | None
    memory_bytes: int | None
    description: str


@dataclass(frozen=True, slots=True)
class TargetRow:
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class DeviceRow:
    name: str  # torch name
    label: str


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Memory of a selection, from configurations alone; `sentence` states it for people."""

    needed_bytes: int
    usable_bytes: int
    fits: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    hierarchy: Hierarchy
    prompt: str
    system: str
    raw: bool  # no chat template
    sampling: Sampling
    max_new_tokens: int
    rule: str = "token"  # how sampled blocks are verified, by token or by block


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    sampling: Sampling
    thorough: bool
    prompts: str | None  # the user's own prompts; None takes the project's set
    prompts_format: str = "txt"  # txt, jsonl or csv
    column: str | None = None  # field of jsonl and csv
    again: bool = False  # measure although there is a kept measurement of the same conditions


@dataclass(frozen=True, slots=True)
class CompareRequest:
    plan: Plan
    repeats: int
    max_new_tokens: int
    with_transformers: bool
    prompts: int = 8  # of the project's own set, spread over its kinds


Notify = Callable[[str], None]  # something the visitor must know while the work goes on, such as a draft left out


class Engine(Protocol):
    def targets(self) -> Sequence[TargetRow]: ...

    def devices(self) -> Sequence[DeviceRow]: ...

    def candidates(self, target: str, names: Sequence[str], device: str, dtype: str) -> Sequence[CandidateRow]: ...

    def memory(self, setup: Setup) -> MemoryRow: ...

    def measure(
        self,
        setup: Setup,
        request: MeasureRequest,
        report: Report,
        notify: Notify,
        on_partial: Callable[[Measurement], None],
        should_stop: ShouldStop,
    ) -> tuple[Measurement, bool]:
        """The measurement, and whether it is one that was kept from earlier."""
        ...

    def generate(
        self,
        setup: Setup,
        request: GenerateRequest,
        report: Report,
        should_stop: ShouldStop,
        on_environment: Callable[[Environment], None],
    ) -> Iterator[Event]:
        """The events of one run; `on_environment` is told where it runs before the first of them."""
        ...

    def compare(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Comparison: ...

    def check_lossless(
        self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop
    ) -> LosslessReport: ...

    def sweep(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Sweep: ...

    def export(self, kind: str, plan: Plan, measurement: Measurement | None, comparison: Comparison | None) -> str: ...
