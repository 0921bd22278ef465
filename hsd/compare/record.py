"""What a comparison found: measured runs beside the prediction."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hsd.records import SCHEMA, Environment, Estimate, Sampling, read_fields

LATENCY_MODELS = ("paper", "exact", "trace")


@dataclass(frozen=True, slots=True)
class LatencyModelError:
    """Predictions of one latency model relative to what was measured."""

    median_error: float  # of the absolute relative errors
    max_error: float
    bias: float  # median of the signed ones: above 0 it predicts too many seconds


def latency_model_errors(pairs: Mapping[str, Sequence[tuple[float | None, float]]]) -> dict[str, LatencyModelError]:
    """By latency model, from (predicted, measured) seconds per token; a model that predicted nothing is left out."""
    found = {}
    for name, rows in pairs.items():
        errors = [predicted / measured - 1 for predicted, measured in rows if predicted is not None]
        if errors:
            sizes = list(map(abs, errors))
            found[name] = LatencyModelError(statistics.median(sizes), max(sizes), statistics.median(errors))
    return found


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One way of decoding the same prompts. Names: target, hierarchy, best-single, transformers,
    transformers-prompt-lookup, transformers-assistant.

    `times_target` is how many times as fast as the target alone it is. Methods take turns within a repeat, so that each repeat
    has a ratio of its own, the method's tokens per second over the target's; median and spread are those of these ratios.
    """

    name: str
    hierarchy: str  # written smallest first; empty for transformers' own modes
    tokens_per_s: Estimate  # over repeats; tokens committed / wall seconds of decoding, prefill excluded
    predicted_tokens_per_s: float | None  # None where nothing was predicted
    tokens_per_target_pass: float | None  # None for transformers' own modes
    identical: bool | None  # text equal to the target alone on every prompt of every repeat; None when sampling
    outside_forward_share: float | None  # share of the wall outside of the rounds of the models
    predicted_by_model: dict[str, float | None] = field(default_factory=dict)  # tokens per second by latency model: paper, exact, trace
    times_target: Estimate | None = None  # None for the target itself, and in files that do not tell


@dataclass(frozen=True, slots=True)
class Divergence:
    """First place where a text departs from the target alone, and how close the decision was there."""

    method: str
    prompt_id: str
    position: int  # of new tokens, from 0
    logit_margin: float  # between the two tokens at the target, infinite where one text ended; tiny in bfloat16 means a near-tie
    near_tie: bool

    @classmethod
    def from_json(cls, data: Any) -> Divergence:
        """From untrusted JSON; raises `BadInput` that names what is wrong."""
        if isinstance(data, dict) and data.get("logit_margin", 0) is None:  # JSON knows no infinite numbers
            data = {**data, "logit_margin": math.inf}
        return read_fields(cls, data, "“divergences”")

    def sentence(self, method: str = "") -> str:
        """For people, who count tokens from 1; `method` is what to call the method instead of its name."""
        if math.isinf(self.logit_margin):
            why = "one text ended"
        else:
            why = f"the two logits differ by {self.logit_margin:.3g}" + (": a near-tie" if self.near_tie else "")
        named = method or self.method
        return f"{named} departs from the target alone on prompt {self.prompt_id} at token {self.position + 1}, where {why}."


@dataclass(frozen=True, slots=True)
class Comparison:
    methods: tuple[MethodResult, ...]
    identical: bool | None
    divergences: tuple[Divergence, ...]
    repeats: int
    prompts: int
    max_new_tokens: int
    sampling: Sampling
    environment: Environment
    ranked_by: str = "exact"  # the latency model that the planner used
    left_out: tuple[str, ...] = ()  # methods that could not run, and why

    def speedup(self, name: str) -> float | None:
        """How many times as fast as the target alone a method is: the median over the repeats, or the ratio of the medians
        where the file tells no more; None where either did not run.
        """
        by_name = {method.name: method for method in self.methods}
        method, alone = by_name.get(name), by_name.get("target")
        if method and method.times_target:
            return method.times_target.median
        return method.tokens_per_s.median / alone.tokens_per_s.median if method and alone and alone.tokens_per_s.median > 0 else None

    @property
    def latency_models(self) -> dict[str, LatencyModelError]:
        """How each latency model errs over the methods it predicted."""
        return latency_model_errors(
            {
                name: [
                    (1 / rate, 1 / method.tokens_per_s.median)
                    for method in self.methods
                    if (rate := method.predicted_by_model.get(name)) and method.tokens_per_s.median
                ]
                for name in LATENCY_MODELS
            }
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": "comparison",
            **asdict(self),
            "divergences": list(map(_divergence_json, self.divergences)),
            "latency_models": {name: asdict(error) for name, error in self.latency_models.items()},
        }


@dataclass(frozen=True, slots=True)
class SamplingCheck:
    """Chi-square of sampled continuations against the target's own exact distribution."""

    hierarchy: str
    samples: int
    outcomes: int  # cells after pooling the rare ones
    chi_square: float  # infinite where a text came up that the target cannot write
    degrees_of_freedom: int
    p_value: float  # below 0.001: not the target's distribution

    @property
    def passed(self) -> bool:
        return self.p_value >= 0.001


@dataclass(frozen=True, slots=True)
class LosslessReport:
    """Greedy texts of hierarchies against the target alone, and the sampling check."""

    cases: int
    equal: int
    near_ties: int
    different: int
    divergences: tuple[Divergence, ...]
    sampling: tuple[SamplingCheck, ...]
    environment: Environment

    @property
    def passed(self) -> bool:
        return self.different == 0 and all(check.passed for check in self.sampling)

    def to_json(self) -> dict[str, Any]:
        checks = [asdict(check) | {"chi_square": _finite(check.chi_square), "passed": check.passed} for check in self.sampling]
        divergences = list(map(_divergence_json, self.divergences))
        return {
            "schema": SCHEMA,
            "kind": "lossless",
            **asdict(self),
            "divergences": divergences,
            "sampling": checks,
            "passed": self.passed,
        }


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One hierarchy on one kind of prompts: what was predicted, then what was measured."""

    hierarchy: str
    prompts: str  # kind of prompts
    predicted_s_per_token: float
    predicted_low: float
    predicted_high: float
    paper_s_per_token: float
    exact_s_per_token: float
    measured_s_per_token: Estimate
    trace_s_per_token: float | None = None  # None where the measurement holds no traces

    @property
    def error(self) -> float:
        """Relative to the measured value."""
        return self.predicted_s_per_token / self.measured_s_per_token.median - 1


@dataclass(frozen=True, slots=True)
class Sweep:
    points: tuple[SweepPoint, ...]
    repeats: int
    max_new_tokens: int
    sampling: Sampling
    environment: Environment
    ranked_by: str = "trace"  # the latency model whose prediction counts

    @property
    def errors(self) -> list[float]:
        return sorted(abs(point.error) for point in self.points)

    @property
    def latency_models(self) -> dict[str, LatencyModelError]:
        """How each latency model errs: the paper's Theorem 2.2, the exact renewal expression, the replay of the traces."""
        return latency_model_errors(
            {
                name: [(getattr(point, f"{name}_s_per_token"), point.measured_s_per_token.median) for point in self.points]
                for name in LATENCY_MODELS
            }
        )

    @property
    def median_error(self) -> float:
        return statistics.median(self.errors)

    @property
    def regret(self) -> dict[str, float]:
        """By kind of prompts: how much slower the hierarchy predicted best is than the best measured one."""
        found = {}
        for kind in dict.fromkeys(point.prompts for point in self.points):
            points = [point for point in self.points if point.prompts == kind]
            planned = min(points, key=lambda point: point.predicted_s_per_token)
            best = min(point.measured_s_per_token.median for point in points)
            found[kind] = planned.measured_s_per_token.median / best - 1
        return found

    def to_json(self) -> dict[str, Any]:
        points = [
            asdict(point)
            | {
                "measured_s_per_token": point.measured_s_per_token.median,
                "measured": asdict(point.measured_s_per_token),
                "error": point.error,
            }
            for point in self.points
        ]
        summary = {
            "median_error": self.median_error,
            "max_error": self.errors[-1],
            "regret": self.regret,
            "latency_models": {name: asdict(error) for name, error in self.latency_models.items()},
        }
        return {"schema": SCHEMA, "kind": "sweep", **asdict(self), "points": points, **summary}


def _divergence_json(divergence: Divergence) -> dict[str, Any]:
    return asdict(divergence) | {"logit_margin": _finite(divergence.logit_margin)}


def _finite(value: float) -> float | None:
    """JSON knows no infinite numbers."""
    return value if math.isfinite(value) else None
