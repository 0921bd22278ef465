"""What the tabs share: the engine, the results, the status line with Stop, and the pattern of every run on the device."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import gradio as gr

from hsd.compare.record import Comparison
from hsd.errors import Cancelled
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from hsd.records import Progress
from ui import text
from ui.engine import Engine
from ui.hero import hero
from ui.jobs import DEVICE, TICK_S, Done, Failed, Job, JobBoard, Notice, Updates, explain, follow, run
from ui.nodes import Node, encoded, sends
from ui.runs import RunPair
from ui.sample import Sample
from ui.status import Course, failure, notices, progress, status
from ui.store import Store
from ui.watched import WatchedRuns

log = logging.getLogger("hsd.ui")


@dataclass(frozen=True, slots=True)
class Ids:
    """All that a browser tab's state holds: ids of results in the store, and where the measurement is from."""

    measurement: str | None = None
    kept: bool = False  # the measurement is one that was kept from earlier
    loaded: bool = False  # measurement or plan came from a file, so perhaps from another device
    plan: str | None = None
    run: str | None = None
    comparison: str | None = None


RESULTS = {"measurement": Measurement, "plan": Plan, "run": RunPair, "comparison": Comparison}  # what the ids are of


@dataclass(slots=True)
class Page:
    engine: Engine
    sample: Sample | None
    store: Store = field(default_factory=Store)
    jobs: JobBoard = field(default_factory=JobBoard)
    watched: WatchedRuns = field(default_factory=WatchedRuns)
    ids: gr.State = None
    hero: gr.HTML = None
    status: gr.HTML = None
    notices: gr.HTML = None  # below the status, on every tab
    stop: gr.Button = None
    actions: dict[str, gr.Button] = field(default_factory=dict)  # the action bar, by step
    ticket: gr.Textbox = None  # hidden; which job the events of a run belong to
    run_buttons: list[gr.Button] = field(default_factory=list)  # those that use the device
    backs: list[gr.Textbox] = field(default_factory=list)  # one for each of them: gets the ticket of a run to go on with
    form: list[Any] = field(default_factory=list)  # what a visitor fills in
    shows: list[Callable[[Ids], Updates]] = field(default_factory=list)  # one a tab: fills it from results
    outputs: list[Any] = field(default_factory=list)  # components that `shows` fill
    wire: list[Callable[[list[Any]], None]] = field(default_factory=list)  # events that need every component to exist; get all outputs
    load: tuple[Callable[..., Updates], list[Any], list[Any]] | None = None  # what fills the lists when a visitor arrives
    after_run: tuple[Callable[..., Updates], list[Any], list[Any]] | None = None  # what a run on the device may have changed beside it

    def measurement(self, ids: Ids) -> Measurement | None:
        return self.store.get(ids.measurement, Measurement)

    def plan(self, ids: Ids) -> Plan | None:
        return self.store.get(ids.plan, Plan)

    def run(self, ids: Ids) -> RunPair | None:
        return self.store.get(ids.run, RunPair)

    def comparison(self, ids: Ids) -> Comparison | None:
        return self.store.get(ids.comparison, Comparison)

    def show(self, ids: Ids) -> Updates:
        """Everything on the page that depends on the results with these ids."""
        updates: Updates = {self.ids: ids, self.hero: self.hero_of(ids)}
        for show in self.shows:
            updates |= show(ids)
        return updates

    def hero_of(self, ids: Ids) -> Node:
        """The hero line for these results; the recorded sample as long as there are none. It carries the ids to the browser, which
        keeps them for when the page is loaded anew (ui/reload.py)."""
        plan, sample = self.plan(ids), self.sample
        if plan is None and sample and not ids.measurement:
            node = hero(sample.plan, sample.comparison, sample.run, text.RECORDED)
        else:
            node = hero(plan, self.comparison(ids), self.run(ids), text.LOADED_FROM if ids.loaded else text.YOURS)
        tag, attributes, *children = node
        return [tag, attributes | ({"data-ids": json.dumps(asdict(ids))} if ids != Ids() else {}), *children]

    def busy(self, running: bool) -> Updates:
        return {button: gr.Button(interactive=not running) for button in self.run_buttons}

    def on_device(
        self, button: gr.Button, handler: Callable[..., Iterator[Updates]], inputs: list[Any], live: list[Any], more: list[Any]
    ) -> None:
        """Let `button` start `handler(job, *inputs)` when the device is free; Stop works from the first moment on.

        Three events: buttons off at once; the run itself, which updates only what `live` names, since each output costs time at
        every update; and at its end `job.final`, which may update `more` as well, with the buttons back. By then the visitor may have
        planned or loaded something else, so that it is told the results of that moment. A page that is loaded anew
        during the run goes on with the second (ui/reload.py).
        """
        always = [self.notices, self.status]
        quiet = dict(show_progress="hidden", api_visibility="private")
        back = gr.Textbox("", visible=False, max_length=64)
        self.backs.append(back)

        @sends
        def begin(request: gr.Request) -> Updates:
            job = self.jobs.open(request.session_hash, back)
            words = status("waiting", text.WAITING, ticket=job.ticket)
            return {self.ticket: job.ticket, self.status: words, self.notices: None} | self.busy(True)

        def work(request: gr.Request, ticket: Any, *given: Any) -> Iterator[Updates]:
            job = self.jobs.start(request.session_hash, str(ticket))
            if job is not None:  # not stopped while it waited in line
                job.told, job.updates = {self.notices: None}, self._updates(job, handler, given)
                yield from self._followed(job)

        def go_on(request: gr.Request, ticket: Any) -> Iterator[Updates]:
            job = self.jobs.of(request.session_hash, str(ticket))
            if job is not None:
                yield from self._followed(job)

        @sends
        def end(request: gr.Request, ids: Ids) -> Updates:
            job = self.jobs.close(request.session_hash)
            if job is None:
                return {self.run_buttons[0]: gr.skip()}  # Gradio takes no empty dict
            try:
                return job.final(ids) | self.busy(False)
            except Exception as error:
                return {self.status: failure(explain(error))} | self.busy(False)

        # A run that was stopped in line is still in Gradio's queue when its visitor clicks again: that click must not be dropped.
        quiet |= {"trigger_mode": "multiple"}
        shown = [*always, *live]
        begun = button.click(begin, None, [self.ticket, *always, *self.run_buttons], queue=False, **quiet)
        ran = begun.then(work, [self.ticket, *inputs], shown, concurrency_id="device", concurrency_limit=1, **quiet)
        ends = list(dict.fromkeys([self.ids, self.hero, *always, *self.run_buttons, *live, *more]))
        for course in (ran, back.change(go_on, [back], shown, concurrency_limit=None, **quiet)):
            ended = course.then(end, [self.ids], ends, queue=False, **quiet)
            if self.after_run:
                again, given, outputs = self.after_run
                ended.then(again, given, outputs, queue=False, **quiet)

    def _updates(self, job: Job, handler: Callable[..., Iterator[Updates]], given: tuple[Any, ...]) -> Iterator[Updates]:
        """What the page shows while `handler` runs, once the device is free of a run whose visitor has left."""
        try:
            while DEVICE.locked():
                if job.should_stop():
                    raise Cancelled(text.STOPPED_BEFORE_START)
                yield {}
                time.sleep(TICK_S)
            yield encoded({self.status: status("running", text.STARTING, ticket=job.ticket)})
            for updates in handler(job, *given):
                yield encoded(updates)
        except Exception as error:  # a visitor's mistake found before the work began, or a fault of the page itself
            job.stop.set()
            job.ended.set()
            failed = {self.status: failure(explain(error))}
            job.final = lambda ids: failed

    def _followed(self, job: Job) -> Iterator[Updates]:
        elsewhere = yield from follow(job)
        if elsewhere:
            yield encoded({self.status: status("idle", text.FOLLOWED_ELSEWHERE)})

    def stream(
        self,
        job: Job,
        work: Callable[[], Any],
        on_batch: Callable[[list[Any]], Updates],
        on_done: Callable[[Any, Ids], Updates],
        on_failed: Callable[[Failed, Ids], Updates] = lambda _, ids: {},
    ) -> Iterator[Updates]:
        """Updates of one run: `on_batch` gets what the worker put (progress aside); `on_done` its result, when the run has ended, with
        the ids of the page's results by then; `on_failed` why there is none."""
        told: list[str] = []
        course = Course()
        for batch in run(job, work):
            if not batch:  # nothing new, but Gradio notices between updates only that a visitor has left
                yield {}
                continue
            last = batch[-1]
            items = batch[:-1] if isinstance(last, Done | Failed) else batch
            steps = [item for item in items if isinstance(item, Progress)]
            updates: Updates = {self.status: progress(steps[-1], course.share(steps[-1]))} if steps else {}
            updates |= on_batch([item for item in items if not isinstance(item, Progress | Notice)])
            new = [item.message for item in items if isinstance(item, Notice)]
            if new:
                told += new
                updates[self.notices] = notices(told)
            if updates:
                yield updates
            if isinstance(last, Done):
                job.final = partial(on_done, last.value)
            elif isinstance(last, Failed):
                job.final = lambda ids, last=last: {self.status: failure(last)} | on_failed(last, ids)

    def keep(self, ids: Ids, **items: Any) -> Ids:
        """Put results into the store; returns the ids with theirs."""
        return replace(ids, **{kind: self.store.put(item) for kind, item in items.items()})
