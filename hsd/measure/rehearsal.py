"""What a running hierarchy takes beside the passes of its models, from real generations made between the timed passes.

Short hierarchies are decoded in turns, one target round at a time. Each round of a level tells its own seconds; what they exceed the
pass by, and what the loop takes around all rounds, are the overheads that a prediction has to add.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from hsd.errors import LevelFault
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent, Event, RoundEvent
from hsd.measure.costs import LEAST_SAMPLES, Costs
from hsd.pick.model_set import ModelSet
from hsd.records import Hierarchy, Sampling, ShouldStop

_THRESHOLD = 4  # of the drafts rehearsed
_TRIMMED = 0.1  # share of the samples left out at each end: an interruption by the system is no property of a model


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds beside the passes."""

    target_round_s: float
    token_s: float  # per committed token
    round_s: dict[str, float]  # per round of each model
    rounds: int  # of the target, that these were found in


@dataclass(frozen=True, slots=True)
class _Sample:
    model: str
    width: int
    seconds: float
    sweep: int  # of the timed passes, which it came after


@dataclass(slots=True)
class Rehearsal:
    """Call it to decode one more target round of the target alone, and of one draft below it."""

    models: ModelSet
    prompts: Sequence[Sequence[int]]
    sampling: Sampling
    max_new_tokens: int
    should_stop: ShouldStop
    samples: list[_Sample] = field(default_factory=list)
    sweep: int = -1  # of the timed passes, the latest
    loops: list[tuple[int, int, float]] = field(default_factory=list)  # of a target round: tokens, draft rounds, seconds outside
    _running: dict[str, Iterator[bool]] = field(init=False)  # by the model that each is for: a draft over the target, and the target alone
    _turns: Iterator[str] = field(init=False)  # of the drafts

    def __post_init__(self) -> None:
        target = self.models.target
        drafts = [name for name in self.models.networks if name != target]
        self._running = {name: self._decode(Hierarchy.of((name, _THRESHOLD), target=target)) for name in drafts}
        self._running[target] = self._decode(Hierarchy.of(target=target))
        self._turns = cycle(drafts)

    def __call__(self) -> None:
        self.sweep += 1
        self._go_on(self.models.target)
        if (draft := next(self._turns, None)) is not None:
            self._go_on(draft)

    def fill_up(self) -> None:
        """Decode until there are enough samples of every model, where the passes were known after a few sweeps (one at least)."""
        for name in self._running:
            for _ in range(LEAST_SAMPLES - sum(one.model == name for one in self.samples)):  # a round gives one at least
                if self.sweep >= 0 and not self.should_stop():
                    self._go_on(name)

    def _go_on(self, name: str) -> None:
        """To the end of the next round that counts."""
        while not next(self._running[name]) and not self.should_stop():
            pass

    def _decode(self, hierarchy: Hierarchy) -> Iterator[bool]:
        """Prompt after prompt without end; pauses after each target round and tells whether it counts. A round that was timed together
        with the prompt's own pass does not, nor one in which a pass was recorded."""
        for prompt_ids in cycle(self.prompts):
            settings = {"sampling": self.sampling, "max_new_tokens": self.max_new_tokens, "should_stop": self.should_stop}
            events = generate(self.models, hierarchy, prompt_ids, **settings)
            before, first, useful, ended = self._num_slow(hierarchy), True, False, False
            while not ended:
                slow = self._num_slow(hierarchy)
                started = time.perf_counter()
                rounds, tokens, ended = _one_round(events, hierarchy.target)
                seconds = time.perf_counter() - started
                if counts := bool(rounds) and not first and self._num_slow(hierarchy) == slow:
                    self._note(rounds, tokens, seconds)
                    useful = True
                if not (first or ended):
                    yield counts
                first = False
            # A text of one round has none that counts: waiting for another would not end.
            yield counts or (not useful and self._num_slow(hierarchy) == before)

    def _num_slow(self, hierarchy: Hierarchy) -> int:
        """Passes so far that took longer than they will, as CUDA graphs were yet to be recorded."""
        steps = [getattr(self.models.networks[level.model], "steps", None) for level in hierarchy.levels]
        return sum(one.num_slow for one in steps if one is not None)

    def _note(self, rounds: list[RoundEvent], tokens: int, seconds: float) -> None:
        self.samples += [_Sample(one.model, one.width, one.seconds, self.sweep) for one in rounds]
        self.loops.append((tokens, len(rounds) - 1, seconds - sum(one.seconds for one in rounds)))

    def overheads(self, costs: Costs) -> Overheads:
        """What the rounds so far took beside the passes of `costs`, each beside those timed just before it: the median pass of a machine
        that has slow minutes is one of its fast minutes."""
        fixed, token_s, draft_s = _split(self.loops)
        names = self.models.networks
        drafts = {name: draft_s if name != self.models.target else 0.0 for name in names}
        return Overheads(fixed, token_s, {name: drafts[name] + self._beside(name, costs) for name in names}, len(self.loops))

    def _beside(self, name: str, costs: Costs) -> float:
        beside = [one.seconds - _at(costs.sweeps[one.sweep][name], one.width) for one in self.samples if one.model == name]
        return max(0.0, _trimmed_mean(beside))


def _one_round(events: Iterator[Event], target: str) -> tuple[list[RoundEvent], int, bool]:
    """Rounds and committed tokens of the next target round, and whether the text ended."""
    rounds: list[RoundEvent] = []
    left, tokens = None, 0
    for event in events:
        match event:
            case RoundEvent():
                rounds.append(event)
                if event.model == target:
                    left = event.accepted + 1
            case EndEvent(reason="target_fault"):
                raise LevelFault(event.message)
            case EndEvent():
                return (rounds if left is not None else []), tokens, True
            case _ if left is not None:
                tokens += 1
                if tokens == left:
                    return rounds, tokens, False
    return [], 0, True


def _at(seconds: Mapping[int, float], width: int) -> float:
    widths = sorted(seconds)
    return float(np.interp(width, widths, [seconds[at] for at in widths]))


def _trimmed_mean(values: Sequence[float]) -> float:
    ordered = np.sort(np.asarray(values, float))
    cut = int(_TRIMMED * ordered.size)
    return float(ordered[cut : ordered.size - cut].mean()) if ordered.size else 0.0


def _split(loops: Sequence[tuple[int, int, float]]) -> tuple[float, float, float]:
    """Seconds per target round, per committed token and per round of a draft, all 0 or more, that sum to what was seen.

    Least absolute deviations (iteratively reweighted least squares), so that an interruption does not count for more than one round.
    """
    if not loops:
        return 0.0, 0.0, 0.0
    data = np.asarray(loops, float)
    design, seen = np.column_stack([np.ones(len(data)), data[:, 0], data[:, 1]]), data[:, 2]
    kept = [column for column in range(3) if column != 1 or np.ptp(data[:, 0])]  # always one token a round: no part of its own
    found = np.zeros(3)
    while kept:
        weights = np.ones(len(data))
        for _ in range(30):
            root = np.sqrt(weights)
            solved = np.linalg.lstsq(design[:, kept] * root[:, None], seen * root, rcond=None)[0]
            weights = 1 / np.maximum(np.abs(seen - design[:, kept] @ solved), 1e-7)
        negative = [column for column, value in zip(kept, solved, strict=True) if value < 0]
        if not negative:
            found[kept] = solved
            break
        kept.remove(negative[0])
    return float(found[0]), float(found[1]), float(found[2])
