"""A whole generation at once, for those who need no live events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hsd.errors import LevelFault
from hsd.generate.events import EndEvent, Event, NoticeEvent, RoundEvent, TokenEvent


@dataclass(frozen=True, slots=True)
class Generation:
    """Everything that one run told its listeners (the trace of design §6)."""

    tokens: tuple[TokenEvent, ...]
    rounds: tuple[RoundEvent, ...]
    notices: tuple[NoticeEvent, ...]
    end: EndEvent

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.end.token_ids

    @property
    def forward_s(self) -> float:
        """Seconds inside the rounds of all levels; the rest of `end.decode_s` is the loop around them."""
        return sum(round_.seconds for round_ in self.rounds)

    @property
    def target_rounds(self) -> int:
        return 1 + max((round_.round for round_ in self.rounds), default=-1)


def collect(events: Iterable[Event], *, allow_fault: bool = False) -> Generation:
    """Run to the end. Raises `LevelFault` when the target failed, unless `allow_fault`."""
    tokens: list[TokenEvent] = []
    rounds: list[RoundEvent] = []
    notices: list[NoticeEvent] = []
    for event in events:
        match event:
            case TokenEvent():
                tokens.append(event)
            case RoundEvent():
                rounds.append(event)
            case NoticeEvent():
                notices.append(event)
            case EndEvent():
                if event.reason == "target_fault" and not allow_fault:
                    raise LevelFault(event.message)
                return Generation(tuple(tokens), tuple(rounds), tuple(notices), event)
    raise AssertionError("a generation ends with an EndEvent")
