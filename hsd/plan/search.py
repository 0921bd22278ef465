"""Which hierarchies are worth ranking: every chain of models with its best thresholds, refined under the exact expression.

The shortest path (graph.py) ignores that blocks overshoot their thresholds, and a limit on depth or memory is no property of an edge.
So the same recursion is run along every chain of models that fits the limits, and the thresholds it proposes are refined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from hsd.errors import BadInput
from hsd.plan.exact import exact_latency
from hsd.plan.gains import Array
from hsd.plan.graph import Graph
from hsd.plan.problem import Problem

STARTS = 3  # proposals of the shortest path that are refined, for each chain
REFINED_CHAINS = 24
MOST_CHAINS = 10_000


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    seconds: float  # per token, under the model that was asked
    chain: tuple[int, ...]  # smallest first, target last
    thresholds: tuple[int, ...]


def chains(problem: Problem, max_depth: int, memory_limit_bytes: int | None) -> Iterator[tuple[int, ...]]:
    """Every chain from the target alone to `max_depth` drafts that was measured and fits the memory limit (bytes, all models)."""

    def extend(chain: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if memory_limit_bytes is not None and sum(problem.memory_bytes[model] for model in chain) > memory_limit_bytes:
            return
        yield chain
        if len(chain) <= max_depth:
            for below in range(chain[0]):
                if problem.known(below, chain[0]):
                    yield from extend((below, *chain))

    yield from extend((problem.target,))


def shortest(graph: Graph, chain: tuple[int, ...], starts: int = STARTS) -> list[Candidate]:
    """Best thresholds of one chain by the recursion of the shortest path, for each of the `starts` best last thresholds."""
    target = graph.problem.target
    if len(chain) == 1:
        return [Candidate(float(graph.alone_s[target, 0]), chain, ())]
    values, choices = graph.alone_s[chain[0]], []
    for pair in pairwise(chain[:-1]):
        through = graph.rounds[pair] * (values + graph.pass_s[pair])[:, None]
        choices.append(through.argmin(axis=0))
        values = through.min(axis=0)
    last = (chain[-2], chain[-1])
    per_token = graph.rounds[last][:, 0] * (values + graph.pass_s[last])
    found = []
    for at in np.argsort(per_token, kind="stable")[:starts]:
        thresholds = [int(at)]
        for choice in reversed(choices):
            thresholds.append(int(choice[thresholds[-1]]))
        if np.isfinite(per_token[at]):
            found.append(Candidate(float(per_token[at]), chain, tuple(t + 1 for t in reversed(thresholds))))
    return found


def refined(problem: Problem, start: Candidate, max_threshold: int) -> Candidate:
    """Coordinate descent under the exact expression: every value of one threshold at a time, until none lowers the latency."""
    best = start
    improved = bool(start.thresholds)
    while improved:
        improved = False
        for level, model in enumerate(start.chain[:-1]):
            values = np.arange(1, problem.longest(model, max_threshold) + 1)
            cases = np.tile(best.thresholds, (values.size, 1))
            cases[:, level] = values
            totals = exact_latency(problem, best.chain, cases).total
            at = int(totals.argmin())
            if totals[at] < best.seconds * (1 - 1e-12):
                best = Candidate(float(totals[at]), best.chain, tuple(int(t) for t in cases[at]))
                improved = True
    return best


def best_by_exact(graph: Graph, max_depth: int, memory_limit_bytes: int | None, keep: int = REFINED_CHAINS) -> list[Candidate]:
    """Best thresholds of the `keep` best chains under the exact expression, best first; no draft and single drafts always compete."""
    problem, most = graph.problem, graph.max_threshold
    possible = list(islice(chains(problem, max_depth, memory_limit_bytes), MOST_CHAINS + 1))
    if len(possible) > MOST_CHAINS:
        raise BadInput(f"{len(problem.models)} models make more than {MOST_CHAINS} hierarchies; plan with fewer models or a smaller depth.")
    proposals = [shortest(graph, chain) for chain in possible]
    started = sorted((_exact(problem, starts[0]), starts) for starts in proposals if starts)
    found = []
    for rank, (_, starts) in enumerate(started):
        if rank < keep or len(starts[0].chain) <= 2:
            found.append(min(refined(problem, start, most) for start in {_exact(problem, start) for start in starts}))
    return sorted(found)


def descend(score: Callable[[tuple[int, ...]], float], start: Candidate, problem: Problem, max_threshold: int, reach: int) -> Candidate:
    """Coordinate descent under `score`, seconds per token: the values of one threshold at a time, at most `reach` away, until none is
    better."""
    best = Candidate(score(start.thresholds), start.chain, start.thresholds)
    limits = [problem.longest(model, max_threshold) for model in start.chain[:-1]]
    level, tried = 0, 0  # levels in a row that did not lower it
    while tried < len(limits):
        now = best.thresholds[level]
        values = [value for value in range(max(1, now - reach), min(limits[level], now + reach) + 1) if value != now]
        moved = [(*best.thresholds[:level], value, *best.thresholds[level + 1 :]) for value in values]
        nearest = min((Candidate(score(thresholds), best.chain, thresholds) for thresholds in moved), default=best)
        tried = 1 if nearest.seconds < best.seconds else tried + 1
        best = min(best, nearest, key=lambda candidate: candidate.seconds)
        level = (level + 1) % len(limits)
    return best


def _exact(problem: Problem, candidate: Candidate) -> Candidate:
    thresholds: Array = np.array([candidate.thresholds], dtype=np.int64).reshape(1, -1)
    return Candidate(float(exact_latency(problem, candidate.chain, thresholds).total[0]), candidate.chain, candidate.thresholds)
