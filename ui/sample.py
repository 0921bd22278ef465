"""The recorded sample that fills the page before anything is measured, made by this program (see `record`).

To record it again on another machine, from the project's folder:

    python -c "from ui.live import LiveEngine; from ui.sample import record; record(LiveEngine())"
"""

from __future__ import annotations

import dataclasses
import json
import logging
import types
import typing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hsd.compare.record import Comparison
from hsd.measure.record import Measurement
from hsd.plan.record import Plan
from hsd.records import Sampling
from hsd.settings import DEFAULT_CANDIDATES, DEFAULT_TARGET
from ui.engine import CompareRequest, Engine, GenerateRequest, MeasureRequest, Setup
from ui.runs import RunPair

log = logging.getLogger("hsd.ui")

PATH = Path(__file__).parent.parent / "assets" / "sample.json"
PROMPT = "Explain in three sentences why the sky is blue."
UNPLANNED = "prompt-lookup@4"  # a hierarchy that every target can run before anything was planned


@dataclass(frozen=True, slots=True)
class Sample:
    measurement: Measurement
    plan: Plan
    run: RunPair | None
    comparison: Comparison | None


def load(path: Path = PATH) -> Sample | None:
    """The sample, or None when there is no file or it belongs to another version of this program."""
    try:
        return revive(Sample, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("the recorded sample cannot be read (%s); the page starts without it", error)
        return None


def save(sample: Sample, path: Path = PATH) -> None:
    """With the recorded positions (about 60 kB): the acceptance by kind of prompt is told from them."""
    path.write_text(json.dumps(asdict(sample), ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def record(engine: Engine, path: Path = PATH, max_new_tokens: int = 96) -> Sample:
    """Measure (or take what was kept), plan, generate and compare on the embedded default, and save the result."""
    from ui.planning import Limits, make_plan
    from ui.recorder import collect

    setup = Setup(DEFAULT_TARGET, DEFAULT_CANDIDATES)

    def say(step: Any) -> None:
        print(f"{step.phase} {step.done}/{step.total}", end="\r")

    request = MeasureRequest(Sampling(), False, None)
    measurement, _ = engine.measure(setup, request, say, print, lambda _: None, lambda: False)
    plan = make_plan(measurement, Limits())
    runs = []
    for hierarchy in (plan.hierarchy, dataclasses.replace(plan.hierarchy, levels=plan.hierarchy.levels[-1:])):
        request = GenerateRequest(hierarchy, PROMPT, "", False, Sampling(), max_new_tokens)
        runs.append(collect(engine, setup, request))
    comparison = engine.compare(setup, CompareRequest(plan, 3, 64, True, prompts=4), say, print, lambda: False)
    sample = Sample(measurement, plan, RunPair(*runs), comparison)
    save(sample, path)
    return sample


def revive(kind: Any, data: Any) -> Any:
    """Rebuild a tree of dataclasses from JSON by its type hints; for files of this program only, not for untrusted ones."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if data is None or kind is Any:
        return data
    if origin in (types.UnionType, typing.Union):
        return revive(next(argument for argument in arguments if argument is not type(None)), data)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is ...:
            return tuple(revive(arguments[0], item) for item in data)
        return tuple(revive(argument, item) for argument, item in zip(arguments, data, strict=True))
    if origin is dict:
        return {(int(key) if arguments[0] is int else key): revive(arguments[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{field.name: revive(hints[field.name], data[field.name]) for field in dataclasses.fields(kind) if field.name in data})
    return data
