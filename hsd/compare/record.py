"""What a comparison found: measured runs beside the prediction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hsd.records import SCHEMA, Environment, Estimate, Sampling


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One way of decoding the same prompts. Names: target, hierarchy, best-single, transformers,
    transformers-prompt-lookup, transformers-assistant."""

    name: str
    hierarchy: str  # written smallest first; empty for transformers' own modes
    tokens_per_s: Estimate  # over repeats; tokens committed / wall seconds of decoding, prefill excluded
    predicted_tokens_per_s: float | None  # None where nothing was predicted
    tokens_per_target_pass: float | None  # None for transformers' own modes
    identical: bool | None  # text equal to the target alone on every prompt; None when sampling
    outside_forward_share: float | None  # share of the wall outside of forward passes


@dataclass(frozen=True, slots=True)
class Divergence:
    """First place where a text departs from the target alone, and how close the decision was there."""

    method: str
    prompt_id: str
    position: int
    logit_margin: float  # between the two tokens at the target; tiny in bfloat16 means a near-tie
    near_tie: bool


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

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "kind": "comparison", **asdict(self)}
