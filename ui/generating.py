"""A run of the Generate tab: what it asks the engine for, what browsers watch of it, and what is kept."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hsd.generate.events import Event, NoticeEvent
from hsd.records import Hierarchy, Level
from ui import stack_trace, text
from ui.engine import GenerateRequest, Setup
from ui.jobs import Job
from ui.nodes import Node, el
from ui.page import Ids, Page
from ui.recorder import Recorder
from ui.runs import RunPair
from ui.watched import Parts, Watched


@dataclass(frozen=True, slots=True)
class Generating:
    """One run through a hierarchy, and the target alone after it if the visitor asked for it."""

    page: Page
    job: Job
    setup: Setup
    request: GenerateRequest
    beside: bool  # the target alone, too
    key: str  # of what is kept
    models: tuple[str, ...]
    palette_models: tuple[str, ...]
    stacked: Watched
    alone: Watched

    @classmethod
    def of(cls, page: Page, job: Job, ids: Ids, setup: Setup, request: GenerateRequest, beside: bool) -> Generating:
        models = tuple(level.model for level in request.hierarchy.levels)
        key, palette_models = secrets.token_urlsafe(9), colours(page, models, ids)

        def parts(recorder: Recorder) -> Parts:
            """What the browser draws beside the text while it streams."""
            latest = stack_trace.value(recorder.latest_round(), models, palette_models)
            drawn = {"counters": recorder.counters.show(palette_models, page.measurement(ids)), "stack": latest}
            return drawn | ({"generate-notices": dropped(recorder.notices)} if recorder.notices else {})

        stacked = Watched(Recorder(key, models, palette_models, live=True), parts)
        alone = Watched(Recorder(key + "-alone", models[-1:], palette_models, live=True))
        return cls(page, job, setup, request, beside, key, models, palette_models, stacked, alone)

    def work(self) -> RunPair:
        """Generate; whatever was committed is kept under the run's key, also after a stop, a fault or a lost connection."""
        drafts = self.models[:-1]
        try:
            self._watch(replace(self.setup, drafts=drafts), self.request, self.stacked)
        finally:
            pair = self._keep(RunPair(self.stacked.gathered().run(self.request)))
        if self.beside and not self.job.should_stop():
            only = replace(self.request, hierarchy=Hierarchy((Level(self.models[-1]),)))
            try:
                self._watch(replace(self.setup, drafts=()), only, self.alone)
            finally:
                pair = self._keep(RunPair(pair.stacked, self.alone.gathered().run(only)))
        return pair

    def kept(self) -> RunPair | None:
        return self.page.store.get(self.key, RunPair)

    def _watch(self, setup: Setup, request: GenerateRequest, run: Watched) -> None:
        for place, event in enumerate(self._events(setup, request, run)):
            if place == 0:  # loading is over, and the status line need not tell of it any more
                self.job.items.put(event)
            run.put(event)

    def _events(self, setup: Setup, request: GenerateRequest, run: Watched) -> Iterator[Event]:
        return self.page.engine.generate(setup, request, self.job.items.put, self.job.should_stop, run.recorder.stamp)

    def _keep(self, pair: RunPair) -> RunPair:
        self.page.store.put(pair, self.key)
        return pair


def colours(page: Page, models: tuple[str, ...], ids: Ids) -> tuple[str, ...]:
    """The models whose order fixes the colours: those of the plan, so that pane and graph agree."""
    plan = page.plan(ids) or (page.sample.plan if page.sample else None)
    return plan.candidates if plan and set(models) <= set(plan.candidates) and plan.candidates[-1] == models[-1] else models


def dropped(notices: list[NoticeEvent] | tuple[NoticeEvent, ...]) -> Node | None:
    """What the visitor must know of a run: drafts that dropped out, passes that run slower."""
    if not notices:
        return None
    told = [text.DROPPED.format(model=notice.model, message=notice.message) if notice.dropped else notice.message for notice in notices]
    return el("div", *[el("p", message, cls="notice") for message in told], role="alert")
