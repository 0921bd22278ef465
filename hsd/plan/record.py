"""The plan file (design §6): the chosen hierarchy, what it is predicted to cost, and what it was chosen against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsd.records import Environment, Hierarchy, Sampling


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds per token under each latency model; `low`..`high` resamples the measurement."""

    paper: float  # Theorem 2.2
    exact: float  # renewal expression, design §4
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """One ranked hierarchy with its prediction and where the time of a token goes."""

    hierarchy: Hierarchy
    predicted_s_per_token: Prediction
    seconds_by_model: dict[str, float]  # contribution of each model to the seconds of one token


@dataclass(frozen=True, slots=True)
class Plan:
    hierarchy: Hierarchy
    predicted_s_per_token: Prediction
    autoregressive_s_per_token: float
    best_single_draft: Alternative | None  # None when no draft was measured
    alternatives: tuple[Alternative, ...]  # best first; the first one is the plan, "no draft" is always among them
    candidates: tuple[str, ...]  # everything that was considered, smallest first, target last
    sampling: Sampling
    environment: Environment
    context_tokens: int

    @property
    def predicted_speedup(self) -> float:
        return self.autoregressive_s_per_token / self.predicted_s_per_token.exact

    def to_json(self) -> dict[str, Any]:
        raise TypeError("written by the planning module")  # replaced below by its author
