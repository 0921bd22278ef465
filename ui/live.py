"""The engine of the running program: thin calls into `hsd`. Torch is imported with the first of them, not with the page."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hsd.compare.record import Comparison, LosslessReport, Sweep
from hsd.errors import BadInput
from hsd.generate.events import Event, NoticeEvent
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from hsd.records import Environment, Hierarchy, Report, ShouldStop
from ui.engine import (
    CandidateRow,
    CompareRequest,
    DeviceRow,
    GenerateRequest,
    MeasureRequest,
    MemoryRow,
    Notify,
    Setup,
    TargetRow,
)

if TYPE_CHECKING:
    from hsd.pick.model_set import ModelSet

OWN_METHODS = ("target", "best-single", "hierarchy")  # without transformers' own modes


class LiveEngine:
    def warm_up(self) -> None:
        """Import torch in the background, so that the first click does not wait for it."""
        threading.Thread(target=self.devices, name="hsd-warm-up", daemon=True).start()

    def targets(self) -> Sequence[TargetRow]:
        from hsd.pick.candidates import list_targets

        return tuple(TargetRow(row.name, row.description) for row in list_targets() if row.status != "unusable")

    def devices(self) -> Sequence[DeviceRow]:
        from hsd.pick.device import available_devices, choose_device, device_name

        return tuple(DeviceRow(name, f"{name} · {device_name(choose_device(name))}") for name in available_devices())

    def candidates(self, target: str, names: Sequence[str], device: str, dtype: str) -> Sequence[CandidateRow]:
        from hsd.pick.candidates import list_candidates

        return tuple(
            CandidateRow(row.name, row.kind, row.status, row.reason, row.parameters, row.memory_bytes, row.description)
            for row in list_candidates(target, names, device=device, dtype=dtype)
        )

    def memory(self, setup: Setup) -> MemoryRow:
        from hsd.pick.candidates import memory_fit

        fit = memory_fit(setup.target, setup.drafts, device=setup.device, dtype=setup.dtype)
        return MemoryRow(fit.needed_bytes, fit.usable_bytes, fit.fits, fit.sentence)

    def measure(
        self,
        setup: Setup,
        request: MeasureRequest,
        report: Report,
        notify: Notify,
        on_partial: Callable[[Measurement], None],
        should_stop: ShouldStop,
    ) -> tuple[Measurement, bool]:
        from hsd.measure.prompts import load_default, load_file
        from hsd.measure.store import measure_or_find

        if request.prompts is None:
            prompts = load_default()
        elif request.prompts_format not in ("txt", "jsonl", "csv"):
            raise BadInput("Prompts are read as txt, jsonl or csv; choose one of them.")
        else:
            prompts = load_file(request.prompts.encode(), f"your prompts.{request.prompts_format}", column=request.column)
        with _models(setup, report, notify, should_stop) as models:
            return measure_or_find(
                models,
                prompts,
                sampling=request.sampling,
                thorough=request.thorough,
                again=request.again,
                report=report,
                should_stop=should_stop,
                on_partial=on_partial,
            )

    def generate(
        self,
        setup: Setup,
        request: GenerateRequest,
        report: Report,
        should_stop: ShouldStop,
        on_environment: Callable[[Environment], None],
    ) -> Iterator[Event]:
        from hsd.generate.engine import generate
        from hsd.generate.prompt import encode_prompt
        from hsd.generate.rule import RULES

        if request.rule not in RULES:
            raise BadInput(f"The verification rule must be one of {', '.join(RULES)}.")
        with _models(setup, report, lambda _: None, should_stop) as models:
            on_environment(models.environment)
            hierarchy = request.hierarchy
            for place, level in enumerate(hierarchy.drafts):
                if level.model not in models.networks:
                    yield NoticeEvent(place, level.model, models.notices.get(level.model, "It could not be loaded."))
            present = tuple(level for level in hierarchy.levels if level.model in models.networks)
            prompt_ids = encode_prompt(models.tokenizer, request.prompt, raw=request.raw, system=request.system or None)
            yield from generate(
                models,
                Hierarchy(present),
                prompt_ids,
                sampling=request.sampling,
                max_new_tokens=request.max_new_tokens,
                rule=RULES[request.rule],
                probabilities=True,
                should_stop=should_stop,
            )

    def compare(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Comparison:
        from hsd.compare.run import compare
        from hsd.measure.prompts import load_default

        with _models(setup, report, notify, should_stop) as models:
            if elsewhere := request.plan.elsewhere(models.environment):
                notify(elsewhere)
            return compare(
                models,
                request.plan,
                load_default().spread(request.prompts),
                repeats=request.repeats,
                max_new_tokens=request.max_new_tokens,
                methods=None if request.with_transformers else OWN_METHODS,
                report=report,
                should_stop=should_stop,
            )

    def check_lossless(
        self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop
    ) -> LosslessReport:
        from hsd.compare.lossless import check_lossless
        from hsd.measure.prompts import load_default

        with _models(setup, report, notify, should_stop) as models:
            return check_lossless(
                models,
                request.plan,
                load_default().spread(request.prompts),
                max_new_tokens=request.max_new_tokens,
                report=report,
                should_stop=should_stop,
            )

    def sweep(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Sweep:
        from hsd.compare.sweep import sweep
        from hsd.measure.prompts import load_default

        with _models(setup, report, notify, should_stop) as models:
            return sweep(
                models,
                request.plan,
                load_default(),
                repeats=request.repeats,
                max_new_tokens=request.max_new_tokens,
                report=report,
                should_stop=should_stop,
            )

    def export(self, kind: str, plan: Plan, measurement: Measurement | None, comparison: Comparison | None) -> str:
        from hsd.export.exporter import export

        markdown = kind == "report-markdown"
        return export("report" if markdown else kind, plan, measurement=measurement, comparison=comparison, markdown=markdown)


@contextlib.contextmanager
def _models(setup: Setup, report: Report, notify: Notify, should_stop: ShouldStop) -> Iterator[ModelSet]:
    """The models of `setup`, shared with other visitors; what had to be left out is said at once."""
    from hsd.pick.registry import REGISTRY

    with REGISTRY.lease(
        setup.target, setup.drafts, device=setup.device, dtype=setup.dtype, report=report, should_stop=should_stop
    ) as models:
        for notice in (*models.notices.values(), *_without_kernels(models.environment)):
            notify(notice)
        yield models
        for notice in models.fallbacks:
            notify(notice)


def _without_kernels(environment: Environment) -> tuple[str, ...]:
    """Why a bfloat16 CPU runs on torch's own operations although compiled ones exist."""
    if environment.kernels != "torch" or environment.device != "cpu" or environment.dtype != "bfloat16":
        return ()
    from hsd.models.kernels import load

    found = load()
    return (found,) if isinstance(found, str) else ()
