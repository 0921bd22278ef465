"""Long work in a thread, seen by the page as a few batches a second; Stop and a lost connection only set an event."""

from __future__ import annotations

import logging
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hsd.errors import Cancelled, HsdError
from ui import text

log = logging.getLogger("hsd.ui")

Updates = dict[Any, Any]  # values by component of the page

TICK_S = 0.25  # between updates of the page: each costs a browser on this machine 30 ms of a core
BEAT_S = 5.0  # an empty batch when nothing else was there
LONGEST_WORD, LONGEST = 120, 600  # characters of a message: what a visitor typed comes back in it
GRACE_S = 120.0  # how long work goes on for a visitor whose connection broke
DEVICE = threading.Lock()  # held while work goes on, also when its visitor has left: two runs at once would spoil each other's times


@dataclass(slots=True)
class Job:
    """One run of one visitor."""

    back: Any = None  # component that takes the ticket of a run with which a page loaded anew goes on
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(9))  # tells this click from the same visitor's other clicks
    started: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    items: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    detached_at: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    updates: Iterator[Updates] | None = None  # of the page, from its start on
    told: Updates = field(default_factory=dict)  # what they have said so far, for a page that begins to follow
    final: Callable[[Any], Updates] = lambda ids: {}  # for when the run has ended, given the ids of the page's results by then
    viewer: object = None  # who follows: the latest
    turn: threading.Lock = field(default_factory=threading.Lock)  # to advance `updates`

    def should_stop(self) -> bool:
        return self.stop.is_set() or self.is_abandoned()

    def is_abandoned(self) -> bool:
        """Whether its visitor left and did not come back."""
        return self.detached_at is not None and time.monotonic() - self.detached_at > GRACE_S

    def notify(self, message: str) -> None:
        self.items.put(Notice(shortened(message)))


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the visitor must know although the work goes on."""

    message: str


@dataclass(frozen=True, slots=True)
class Done:
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    message: str  # for the page
    cancelled: bool


class JobBoard:
    """The current job of each browser tab, by Gradio's session hash; those of visitors who left are forgotten in time."""

    def __init__(self, capacity: int = 1000) -> None:
        self._jobs: dict[str, Job] = {}
        self._capacity = capacity
        self._lock = threading.Lock()

    def open(self, session: str, back: Any = None) -> Job:
        """A new job for that tab; an older one that still runs is asked to stop."""
        job = Job(back)
        with self._lock:
            if session in self._jobs:
                self._jobs.pop(session).stop.set()
            left = [key for key, old in self._jobs.items() if old.ended.is_set() and old.is_abandoned()]
            for key in left + list(self._jobs)[: max(0, len(self._jobs) - self._capacity)]:
                self._jobs.pop(key, None)
            self._jobs[session] = job
        return job

    def start(self, session: str, ticket: str) -> Job | None:
        """The tab's job of that ticket, whose turn has come; None when it was stopped while it waited."""
        with self._lock:
            job = self._jobs.get(session)
            if job is None or job.ticket != ticket or job.started:
                return None
            job.started = True
            return job

    def move(self, ticket: str, session: str) -> Job | None:
        """The started job of that ticket becomes this tab's: the page was loaded anew. None if it is over and was told, or unknown."""
        with self._lock:
            before = next((key for key, job in self._jobs.items() if job.ticket == ticket and job.started), None)
            if before is None:
                return None
            self._jobs[session] = self._jobs.pop(before)
            return self._jobs[session]

    def of(self, session: str, ticket: str) -> Job | None:
        """The tab's job, if it is that of the ticket."""
        with self._lock:
            job = self._jobs.get(session)
            return job if job and job.ticket == ticket else None

    def close(self, session: str) -> Job | None:
        """The tab's job if it is over; it is forgotten now."""
        with self._lock:
            job = self._jobs.get(session)
            return self._jobs.pop(session) if job and job.ended.is_set() else None

    def stop(self, session: str) -> Literal["waiting", "running"] | None:
        """Ask the tab's job to end; one that still waits in line is over at once. None if there is none."""
        with self._lock:
            job = self._jobs.get(session)
            if job is None or job.ended.is_set():
                return None
            job.stop.set()
            if job.started:
                return "running"
            del self._jobs[session]
            return "waiting"


def shortened(message: str) -> str:
    """`message` with the middle left out of very long words, and of itself when it is still too long: its ends say what is meant."""
    message = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: f"{word[0][:60]}…{word[0][-19:]}", message)
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 200]} … {message[-190:]}"


def explain(error: BaseException) -> Failed:
    """An error as one sentence for the page; the unexpected ones go to the log with their trace and stay there."""
    if isinstance(error, HsdError):
        return Failed(shortened(str(error)), isinstance(error, Cancelled))
    log.error("unexpected error", exc_info=error)
    return Failed(text.UNEXPECTED.format(kind=type(error).__name__), False)


def run(job: Job, work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do `work` in a thread; yield what it put into `job.items`, batched, at most every `TICK_S`, at least every `BEAT_S`.

    The last batch ends with `Done` or `Failed`.
    """

    def worker() -> None:
        try:
            with DEVICE:
                if job.should_stop():
                    raise Cancelled(text.STOPPED_BEFORE_START)
                last: Done | Failed = Done(work())
        except BaseException as error:  # the thread is the last place where an error can still reach the visitor
            last = explain(error)
        job.ended.set()
        job.items.put(last)

    threading.Thread(target=worker, name="hsd-job", daemon=True).start()
    finished = False
    while not finished:
        try:
            batch = [job.items.get(timeout=BEAT_S)]
        except queue.Empty:
            yield []
            continue
        deadline = time.monotonic() + TICK_S
        while not isinstance(batch[-1], Done | Failed):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                batch.append(job.items.get(timeout=left))
            except queue.Empty:
                break
        finished = isinstance(batch[-1], Done | Failed)
        yield batch


def follow(job: Job) -> Iterator[Updates]:
    """All that the updates of `job` have told, and again after each of them, for one page at a time: the latest to follow.

    Gradio builds a component anew for every output that an update leaves out, which costs the run that streams; a value that is told
    again costs nothing and is not sent. Closing this iterator (the visitor left) leaves the work running for `GRACE_S`, in which the page
    that is loaded anew may follow. Returns whether another page took over.
    """
    me = job.viewer = object()
    job.detached_at = None
    over = False
    try:
        yield job.told
        while True:
            with job.turn:
                if job.viewer is not me:
                    return True
                updates = next(job.updates, None)
                over = updates is None
                job.told |= updates or {}
            if over:
                return False
            yield job.told
    finally:
        if not over and job.viewer is me:
            job.detached_at = time.monotonic()
