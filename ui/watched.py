"""Runs that go on, as browsers pull them: the tokens since the last pull, and now and then the counters and the last round.

A browser asks for more when it has drawn what it has, so a slow one gets larger pieces instead of a backlog. Pushing every
piece through outputs of Gradio instead took a third of a core at eleven updates a second, and a browser on the same two
cores slowed the run to half its speed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hsd.generate.events import Event
from ui.nodes import Node
from ui.recorder import Recorder

Parts = Mapping[str, Node | dict[str, Any]]  # by id of the element that shows it

WAIT_S = 1.0  # how long a pull waits for a token; a browser has few connections to one server
LOOK_S = 0.03  # how often it looks; a token costs more


@dataclass(slots=True)
class Watched:
    """One run: its worker puts events, and whoever reads gathers them, so that the run itself does nothing for its watchers."""

    recorder: Recorder
    parts: Callable[[Recorder], Parts] = lambda _: {}  # what is drawn beside the text
    _new: deque[Event] = field(default_factory=deque)
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def put(self, event: Event) -> None:
        self._new.append(event)

    def gathered(self) -> Recorder:
        """The recorder with every event put so far."""
        with self._reading:
            while self._new:
                self.recorder.add(self._new.popleft())
            return self.recorder

    def more(self, shown: int, with_parts: bool) -> dict[str, Any]:
        """Lines of the pane after the first `shown`, and the other parts as JSON texts."""
        recorder = self.gathered()
        parts = self.parts(recorder) if with_parts else {}
        return {"lines": "".join(recorder.lines[shown:]), "parts": {name: json.dumps(part) for name, part in parts.items()}}


@dataclass(slots=True)
class WatchedRuns:
    """The runs that go on, by key; the keys cannot be guessed."""

    _runs: dict[str, Watched] = field(default_factory=dict)

    @contextmanager
    def shown(self, *runs: Watched) -> Iterator[None]:
        """Let browsers pull `runs` inside this block."""
        self._runs |= {run.recorder.key: run for run in runs}
        try:
            yield
        finally:
            for run in runs:
                self._runs.pop(run.recorder.key, None)

    async def more(self, wanted: Any) -> dict[str, Any]:
        """Answer `[key, tokens shown, whether the other parts are due]`; waits for a new token, and says when the run is over.

        It is called by browsers, with anything: what is not such a list is over.
        """
        match wanted:
            case [str(key), int(shown), bool(with_parts)] if shown >= 0:
                until = time.monotonic() + WAIT_S
                while (run := self._runs.get(key)) is not None:
                    late = time.monotonic() > until  # then the parts are those of the last token, which stays the last for now
                    if late or len(run.gathered().lines) > shown:
                        return run.more(shown, with_parts or late)
                    await asyncio.sleep(LOOK_S)
        return {"over": True}
