"""Gathers the events of one generation, for the page while it runs and for the store when it ends."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from hsd.generate.events import EndEvent, Event, NoticeEvent, RoundEvent, TokenEvent
from hsd.generate.record import Run
from hsd.records import Environment
from ui import token_pane
from ui.counters import Counters
from ui.engine import Engine, GenerateRequest, Setup


@dataclass(slots=True)
class Recorder:
    """Gathers the events of one run, with the lines of the pane and the counters kept up to date."""

    key: str
    models: tuple[str, ...]
    palette_models: tuple[str, ...]
    live: bool = False  # the browser pulls the tokens while they are generated (ui/watched.py)
    lines: list[str] = field(default_factory=list)
    tokens: list[TokenEvent] = field(default_factory=list)
    rounds: list[RoundEvent] = field(default_factory=list)
    notices: list[NoticeEvent] = field(default_factory=list)
    end: EndEvent | None = None
    environment: Environment | None = None  # None until the models are loaded
    counters: Counters = None

    def __post_init__(self) -> None:
        self.counters = Counters(self.models)

    @property
    def pane(self) -> str:
        """The value of the token pane up to here."""
        return token_pane.header(self.key, self.models, self.palette_models, self.live) + "".join(self.lines)

    def stamp(self, environment: Environment) -> None:
        """Where the run takes place, as the engine tells it."""
        self.environment = environment

    def add(self, event: Event) -> None:
        self.counters.add(event)
        if isinstance(event, TokenEvent):
            self.tokens.append(event)
            self.lines.append(token_pane.line(event, self.models))
        elif isinstance(event, RoundEvent):
            self.rounds.append(event)
        elif isinstance(event, NoticeEvent):
            self.notices.append(event)
        else:
            self.end = event
            if event.tail and self.tokens:  # bytes of a character that never became complete
                self.lines.append(token_pane.line(self.tokens[-1], self.models, event.tail))

    def latest_round(self) -> list[RoundEvent]:
        """Events of the last complete target round."""
        ended = next((event.round for event in reversed(self.rounds) if event.model == self.models[-1]), None)
        latest = []
        for event in reversed(self.rounds):
            if ended is None or event.round < ended:
                break
            if event.round == ended:
                latest.append(event)
        return latest[::-1]

    def run(self, request: GenerateRequest) -> Run:
        return Run(
            request.hierarchy,
            request.prompt,
            None,
            request.sampling,
            tuple(self.tokens),
            tuple(self.rounds),
            tuple(self.notices),
            self.end,
            self.environment,
        )


def collect(engine: Engine, setup: Setup, request: GenerateRequest) -> Run:
    """One whole run without a page; the recorded sample is made of these."""
    models = tuple(level.model for level in request.hierarchy.levels)
    recorder = Recorder("sample", models, models)
    for event in engine.generate(setup, request, lambda _: None, lambda: False, recorder.stamp):
        recorder.add(event)
    return recorder.run(request)


def replayed(run: Run, key: str, palette_models: tuple[str, ...]) -> Recorder:
    """A kept run as if it had just happened."""
    recorder = Recorder(f"{key}-{secrets.token_hex(4)}", run.models, palette_models)
    for event in (*run.tokens, *run.rounds):
        recorder.add(event)
    return recorder
