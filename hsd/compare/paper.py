"""`compare --paper`: the expressions against a simulation of the algorithm, and the paper's own comparison on this device.

Mohri et al. (arXiv 2510.19705) hold hierarchies against autoregressive decoding and the best single draft. Their models are not public,
so that the same three are run here with the plan's models; the expressions are checked with made-up costs and acceptances.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hsd.compare.record import Comparison
from hsd.compare.run import compare
from hsd.measure.prompts import PromptSet
from hsd.pick.model_set import ModelSet
from hsd.plan.calculator import typed_measurement
from hsd.plan.planner import predict
from hsd.plan.record import Plan
from hsd.records import SCHEMA, Hierarchy, Report, ShouldStop

TOKENS = 200_000
# Seconds a pass, acceptance between neighbours, thresholds; smallest model first.
CASES = (
    ((1.0, 4.0, 20.0), (0.7, 0.8), (3, 6)),
    ((1.0, 4.0, 20.0), (0.7, 0.8), (4, 4)),
    ((1.0, 4.0, 20.0), (0.7, 0.8), (2, 8)),
    ((0.3, 2.0, 8.0, 30.0), (0.6, 0.75, 0.85), (3, 6, 12)),
    ((0.3, 2.0, 8.0, 30.0), (0.6, 0.75, 0.85), (3, 3, 3)),
)


@dataclass(frozen=True, slots=True)
class Case:
    """Seconds per token of one made-up hierarchy."""

    costs_s: tuple[float, ...]
    alphas: tuple[float, ...]
    thresholds: tuple[int, ...]
    paper: float  # Theorem 2.2
    exact: float  # renewal expression
    simulated: float


@dataclass(frozen=True, slots=True)
class PaperReport:
    cases: tuple[Case, ...]
    tokens: int  # simulated, for each case
    comparison: Comparison  # target alone, best single draft, hierarchy

    @property
    def speedups(self) -> dict[str, float]:
        """Tokens per second of each method relative to the target alone."""
        rates = {method.name: method.tokens_per_s.median for method in self.comparison.methods}
        return {name: rate / rates["target"] for name, rate in rates.items() if rates["target"]}

    def to_json(self) -> dict[str, Any]:
        comparison = self.comparison.to_json()
        return {
            "schema": SCHEMA,
            "kind": "paper",
            "tokens": self.tokens,
            "cases": [asdict(case) for case in self.cases],
            "speedups": self.speedups,
            "comparison": comparison,
            "environment": comparison["environment"],
        }


def reproduce(
    models: ModelSet,
    plan: Plan,
    prompts: PromptSet,
    *,
    repeats: int = 3,
    max_new_tokens: int = 64,
    tokens: int = TOKENS,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> PaperReport:
    """Check the expressions by simulating `tokens` tokens a case, then compare as the paper does. Raises as `compare` does."""
    cases = tuple(check_case(costs, alphas, thresholds, tokens) for costs, alphas, thresholds in CASES)
    methods = ["target", *(["best-single"] if plan.best_single_draft else []), "hierarchy"]
    settings = {"repeats": repeats, "max_new_tokens": max_new_tokens, "report": report, "should_stop": should_stop}
    return PaperReport(cases, tokens, compare(models, plan, prompts, methods=methods, **settings))


def check_case(costs: Sequence[float], alphas: Sequence[float], thresholds: Sequence[int], tokens: int) -> Case:
    """One made-up hierarchy by both expressions and by simulation."""
    names = [f"m{i}" for i in range(len(costs))]
    # Only neighbours meet in the chain; the other pairs must be there, and do not count.
    pairs = {(names[i], names[j]): alphas[i] if j == i + 1 else 0.0 for j in range(len(names)) for i in range(j)}
    hierarchy = Hierarchy.of(*zip(names, thresholds, strict=False), target=names[-1])
    predicted = predict(typed_measurement(dict(zip(names, costs, strict=True)), pairs), hierarchy).predicted_s_per_token
    return Case(
        tuple(costs), tuple(alphas), tuple(thresholds), predicted.paper, predicted.exact, simulate(costs, alphas, thresholds, tokens)
    )


def simulate(costs: Sequence[float], alphas: Sequence[float], thresholds: Sequence[int], tokens: int, seed: int = 0) -> float:
    """Seconds per token of the algorithm (design §2), token by token, with independent acceptances; shares no code with the planner."""
    draw = random.Random(seed)

    def draft(level: int) -> tuple[int, float]:
        """Tokens of a block and the seconds it took."""
        if level == 0:
            return thresholds[0], thresholds[0] * costs[0]
        held, seconds = 0, 0.0
        while held < thresholds[level]:
            gained, spent = one_round(level)
            held, seconds = held + gained, seconds + spent
        return held, seconds

    def one_round(level: int) -> tuple[int, float]:
        block, seconds = draft(level - 1)
        accepted = 0
        while accepted < block and draw.random() < alphas[level - 1]:
            accepted += 1
        return accepted + 1, seconds + costs[level]

    made, total = 0, 0.0
    while made < tokens:
        gained, spent = one_round(len(costs) - 1)
        made, total = made + gained, total + spent
    return total / made
