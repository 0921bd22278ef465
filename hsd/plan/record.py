"""The plan file (design §6): the chosen hierarchy, what it is predicted to cost, and what it was chosen against."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from hsd.errors import BadInput
from hsd.records import SCHEMA, Environment, Hierarchy, Level, Sampling, read_fields

RANKINGS = ("trace", "exact")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds per token under each latency model; `low`..`high` resamples the measurement around `best`."""

    paper: float  # Theorem 2.2, one constant cost per model: its round of width 1
    exact: float  # renewal expression with overshoot and width-dependent costs, design §4
    low: float
    high: float
    trace: float | None = None  # replay of the recorded positions; None where no traces were recorded

    @property
    def best(self) -> float:
        """The figure to show: the trace-driven one where traces exist, the exact expression otherwise."""
        return self.exact if self.trace is None else self.trace


@dataclass(frozen=True, slots=True)
class Alternative:
    """One ranked hierarchy with its prediction and where the time of a token goes."""

    hierarchy: Hierarchy
    predicted_s_per_token: Prediction
    seconds_by_model: dict[str, float]  # each model's share of the seconds of one token; with the overhead they sum to `best`
    overhead_s_per_token: float = 0.0  # outside of the models' rounds


@dataclass(frozen=True, slots=True)
class Plan:
    hierarchy: Hierarchy
    predicted_s_per_token: Prediction
    autoregressive_s_per_token: float
    best_single_draft: Alternative | None  # None when no draft fits the memory limit
    alternatives: tuple[Alternative, ...]  # best first; the first one is the plan, "no draft" is always among them
    candidates: tuple[str, ...]  # everything that was considered, smallest first, target last
    sampling: Sampling
    environment: Environment
    context_tokens: int
    ranked_by: str = "exact"  # the latency model that decided: "trace" or "exact"

    @property
    def predicted_speedup(self) -> float:
        """How many times as fast as the target alone."""
        return self.autoregressive_s_per_token / self.predicted_s_per_token.best

    @property
    def origin(self) -> str:
        """Where the figures come from, for people."""
        if not self.environment.measured:
            return "Predicted from numbers typed in"
        return f"Measured on {self.environment.label()}, {self.sampling.label()}"

    @property
    def dtype(self) -> str:
        """The precision to run in: that of the measurement, and the device's own where numbers were typed in."""
        return self.environment.dtype if self.environment.measured else "auto"

    def elsewhere(self, here: Environment) -> str | None:
        """What to know of the predictions when the plan was measured on another device or in another dtype than `here`."""
        there = self.environment
        if not there.measured:
            return f"{self.origin}, the plan says nothing of this run. Measure here and plan again."
        if (there.device_name, there.dtype) == (here.device_name, here.dtype):
            return None
        return (
            f"This plan was measured on {there.label()} and runs on {here.label()}: its predictions are not of this run. "
            "Measure here and plan again."
        )

    def to_json(self) -> dict[str, Any]:
        """The plan file: JSON types only; a hierarchy is a list of {model, threshold}, the target last and without threshold."""
        single = self.best_single_draft
        return {
            "schema": SCHEMA,
            "kind": "plan",
            "hierarchy": _write_hierarchy(self.hierarchy),
            "predicted_s_per_token": asdict(self.predicted_s_per_token),
            "predicted_speedup": self.predicted_speedup,
            "autoregressive_s_per_token": self.autoregressive_s_per_token,
            "best_single_draft": None if single is None else _write_alternative(single),
            "alternatives": [_write_alternative(alternative) for alternative in self.alternatives],
            "candidates": list(self.candidates),
            "ranked_by": self.ranked_by,
            "sampling": asdict(self.sampling),
            "environment": asdict(self.environment),
            "context_tokens": self.context_tokens,
        }

    @classmethod
    def from_json(cls, data: Any) -> Plan:
        """Read untrusted JSON; raises `BadInput` that names the first thing that is wrong."""
        if not isinstance(data, dict) or data.get("kind") != "plan":
            raise BadInput("This is not a plan file; make one with `python -m hsd plan FILE --out PLAN`.")
        if data.get("schema") != SCHEMA:
            raise BadInput(f"This plan file has schema {data.get('schema')!r}, this program reads {SCHEMA}; plan again.")
        try:
            return cls._read(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadInput(f"The plan file is damaged ({type(error).__name__}: {error}); plan again.") from error

    @classmethod
    def _read(cls, data: dict[str, Any]) -> Plan:
        if data["ranked_by"] not in RANKINGS:
            raise BadInput(f"“ranked_by” in the plan file is {data['ranked_by']!r}; it must be trace or exact.")
        hierarchy = _read_hierarchy(data["hierarchy"], "“hierarchy”")
        candidates = _strings(data["candidates"], "“candidates”")
        missing = [level.model for level in hierarchy.levels if level.model not in candidates]
        if missing:
            raise BadInput(f"The planned model {missing[0]} is not among the plan file's “candidates”; plan again.")
        single = data["best_single_draft"]
        alternatives = data["alternatives"]
        if not isinstance(alternatives, list) or not alternatives:
            raise BadInput("“alternatives” in the plan file must be a list of at least one hierarchy; plan again.")
        return cls(
            hierarchy=hierarchy,
            predicted_s_per_token=_read_prediction(data["predicted_s_per_token"], "“predicted_s_per_token”"),
            autoregressive_s_per_token=_seconds(data["autoregressive_s_per_token"], "“autoregressive_s_per_token”"),
            best_single_draft=None if single is None else _read_alternative(single, "“best_single_draft”"),
            alternatives=tuple(_read_alternative(entry, f"alternative {i + 1}") for i, entry in enumerate(alternatives)),
            candidates=candidates,
            sampling=read_fields(Sampling, data["sampling"], "“sampling”"),
            environment=read_fields(Environment, data["environment"], "“environment”"),
            context_tokens=int(data["context_tokens"]),
            ranked_by=data["ranked_by"],
        )


def _write_hierarchy(hierarchy: Hierarchy) -> list[dict[str, Any]]:
    drafts = [{"model": level.model, "threshold": level.threshold} for level in hierarchy.drafts]
    return [*drafts, {"model": hierarchy.target}]


def _write_alternative(alternative: Alternative) -> dict[str, Any]:
    return {**asdict(alternative), "hierarchy": _write_hierarchy(alternative.hierarchy)}


def _read_hierarchy(data: Any, where: str) -> Hierarchy:
    if not isinstance(data, list) or not all(isinstance(level, dict) and isinstance(level.get("model"), str) for level in data):
        raise BadInput(f"{where} must be a list of {{model, threshold}}, smallest model first; plan again.")
    for level in data:
        if isinstance(level.get("threshold"), bool):
            raise BadInput(f"The threshold of {level['model']} in {where} is {level['threshold']!r}; give a whole number of at least 1.")
    return Hierarchy(tuple(Level(level["model"], level.get("threshold")) for level in data))


def _read_alternative(data: Any, where: str) -> Alternative:
    hierarchy = _read_hierarchy(data["hierarchy"], f"the hierarchy of {where}")
    shares = {str(model): _seconds(share, f"the share of {model} in {where}") for model, share in data["seconds_by_model"].items()}
    overhead = _seconds(data["overhead_s_per_token"], f"the overhead of {where}")
    return Alternative(hierarchy, _read_prediction(data["predicted_s_per_token"], f"the prediction of {where}"), shares, overhead)


def _read_prediction(data: Any, where: str) -> Prediction:
    values = {name: _seconds(data[name], f"{name} in {where}") for name in ("paper", "exact", "low", "high")}
    trace = data["trace"]
    prediction = Prediction(**values, trace=None if trace is None else _seconds(trace, f"trace in {where}"))
    if prediction.best == 0:
        raise BadInput(f"{where} in the plan file is 0 seconds; no token is free. Plan again.")
    return prediction


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise BadInput(f"{where} in the plan file is {value!r}; it must be a number of seconds, 0 or more. Plan again.")
    return float(value)


def _strings(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise BadInput(f"{where} in the plan file must be a list of model names; plan again.")
    return tuple(value)
