"""How the time of planning grows with models and thresholds, beside the bound of the paper, O(T̄⁴K⁴ log T̄K)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hsd.plan.graph import bellman_ford, build, one_pass
from hsd.plan.problem import Problem

GENERAL_EDGES = 20_000  # the general solver is timed on graphs up to so many edges


@dataclass(frozen=True, slots=True)
class Growth:
    models: int  # K drafts and the target
    max_threshold: int  # T̄
    edges: int
    build_s: float  # multipliers of all edges
    one_pass_s: float
    bellman_ford_s: float | None  # None for graphs it was not tried on
    paper_operations: float  # T̄⁴K⁴ log(T̄K), a count without unit


def measure_growth(models: Sequence[int] = (3, 5, 7, 9), thresholds: Sequence[int] = (4, 8, 16, 32), repeats: int = 3) -> list[Growth]:
    """Seconds to plan random problems of each size on this machine (best of `repeats`); their numbers are made up, by a fixed seed."""
    return [_measure(count, most, repeats) for count in models for most in thresholds]


def fitted_exponents(points: Sequence[Growth]) -> dict[str, float]:
    """Powers of T̄·K with which the seconds grow, by least squares on logarithms: `build`, `one_pass`, `bellman_ford`, and `bound`.

    The bound of the paper has T̄⁴K⁴ log T̄K; its own fitted power is a little above 4. Solvers timed at fewer than two sizes are left out.
    """
    found = {}
    values = {"build": "build_s", "one_pass": "one_pass_s", "bellman_ford": "bellman_ford_s", "bound": "paper_operations"}
    for name, field in values.items():
        rows = [(point.max_threshold * (point.models - 1), getattr(point, field)) for point in points if getattr(point, field)]
        if len({size for size, _ in rows}) > 1:
            found[name] = float(np.polyfit(*np.log(np.array(rows, float)).T, 1)[0])
    return found


def random_problem(models: int, max_threshold: int, seed: int = 0) -> Problem:
    """A made-up problem: costs that grow and acceptances that fall with the distance between models."""
    random = np.random.default_rng(seed)
    costs = np.sort(random.uniform(0.5, 30, models))
    distance = np.abs(np.subtract.outer(np.arange(models), np.arange(models)))
    alpha = np.clip(random.uniform(0.7, 0.95, (models, models)) ** np.maximum(distance, 1) ** 0.5, 0, 1)
    alpha[np.tril_indices(models)] = np.nan
    widths = 1 + 0.02 * np.arange(max_threshold + 2)
    names = tuple(f"model {i}" for i in range(models))
    unknown = np.full(models, np.nan)
    return Problem(names, costs[:, None] * widths, unknown, (False,) * models, alpha, {}, 0.0, (None,) * models)


def _measure(models: int, most: int, repeats: int) -> Growth:
    problem = random_problem(models, most)
    graph = build(problem, most)
    edges = sum(rounds.size for rounds in graph.rounds.values())
    general = _best(lambda: bellman_ford(graph), 1) if edges <= GENERAL_EDGES else None
    bound = (most * (models - 1)) ** 4 * math.log(most * (models - 1))
    return Growth(
        models, most, edges, _best(lambda: build(problem, most), repeats), _best(lambda: one_pass(graph), repeats), general, bound
    )


def _best(work, repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
