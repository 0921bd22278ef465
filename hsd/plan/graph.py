"""Planning as a Generalized Shortest Path (Oldham 2001; Mohri et al., section 4), as a graph that can be inspected and drawn.

A node (i, T) means “M_i hands up blocks of T tokens”, and its value is the seconds of one block. An edge (i, T) → (j, T') means “M_j
makes its blocks out of those of M_i”: `multiplier` rounds, each of one block from below and one pass of `pass_s` seconds. The target is
the source of demand, one token; there the multiplier is rounds per token. Every draft may also work alone, which ends a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsd.plan.gains import blocks_at, gain_of_blocks, mean, visits
from hsd.plan.problem import Array, Problem


@dataclass(frozen=True, slots=True, order=True)
class Node:
    model: int  # number of the model, smallest first
    threshold: int  # tokens of a block; 1 for the target, whose demand is one token


@dataclass(frozen=True, slots=True)
class Edge:
    draft: Node
    verifier: Node
    multiplier: float  # rounds of the verifier per block it hands up (target: per token)
    pass_s: float  # seconds of the verifying pass of one round

    @property
    def cost_s(self) -> float:
        """What the edge itself adds to the value of `verifier`."""
        return self.multiplier * self.pass_s


@dataclass(frozen=True, slots=True)
class Graph:
    """All nodes and edges for thresholds 1 … max_threshold. Arrays are indexed by threshold − 1."""

    problem: Problem
    max_threshold: int
    alone_s: Array  # (M, T) seconds of a block that a model makes alone; inf where a model may not stand so
    rounds: dict[tuple[int, int], Array]  # [draft, verifier]: (T, T') multipliers, or (T, 1) when the verifier is the target
    pass_s: dict[tuple[int, int], Array]  # [draft, verifier]: (T,) seconds of a verifying pass

    def nodes(self) -> list[Node]:
        drafts = [Node(i, t + 1) for i in range(self.problem.target) for t in range(self.max_threshold)]
        return [*drafts, Node(self.problem.target, 1)]

    def edges(self) -> Iterator[Edge]:
        for (i, j), rounds in self.rounds.items():
            for t in range(rounds.shape[0]):
                for above in range(rounds.shape[1]):
                    yield Edge(Node(i, t + 1), Node(j, above + 1), float(rounds[t, above]), float(self.pass_s[i, j][t]))


@dataclass(frozen=True, slots=True)
class Solution:
    """Least seconds of each node, and the path that reaches them at the target."""

    values: dict[Node, float]
    path: tuple[Node, ...]  # smallest model first, the target last
    seconds: float  # value of the target: seconds per token


def build(problem: Problem, max_threshold: int) -> Graph:
    """The graph over every measured pair of `problem`; needs costs up to width max_threshold + 1."""
    target, thresholds = problem.target, np.arange(1, max_threshold + 1)
    alone = np.full((len(problem.models), max_threshold), np.inf)
    for i in range(target):
        if problem.proposer[i]:
            alone[i, : problem.longest(i, max_threshold)] = problem.call_s[i]  # one call for a block of any length
        else:
            alone[i] = thresholds * problem.cost_s[i, 1]
    alone[target, 0] = problem.cost_s[target, 1] + problem.overhead_s
    pairs = [(i, j) for j in range(1, target + 1) for i in range(j) if problem.known(i, j)]
    rounds, pass_s = {}, {}
    if not pairs:
        return Graph(problem, max_threshold, alone, rounds, pass_s)
    blocks, gains = _rounds_of(problem, pairs, max_threshold)
    held = np.cumsum(visits(gains, max_threshold), axis=-1)  # (pairs, T, T'): rounds until T' tokens are held
    tokens = mean(gains)  # (pairs, T)
    for n, (i, j) in enumerate(pairs):
        pass_s[i, j] = blocks[n] @ problem.cost_s[j, 1 : max_threshold + 2]
        rounds[i, j] = held[n]
        if j == target:
            pass_s[i, j] = pass_s[i, j] + problem.overhead_s
            rounds[i, j] = 1 / tokens[n][:, None]
    return Graph(problem, max_threshold, alone, rounds, pass_s)


def one_pass(graph: Graph) -> Solution:
    """Shortest path in one pass over the edges in size order, O(T̄²K²): the graph is layered and D(j, T') is monotone in D(i, T)."""
    best = graph.alone_s.copy()
    parents: dict[tuple[int, int], tuple[int, int]] = {}
    for (i, j), rounds in sorted(graph.rounds.items(), key=lambda item: item[0][1]):
        through = rounds * (best[i] + graph.pass_s[i, j])[:, None]  # (T, T')
        below = through.argmin(axis=0)
        for above in range(through.shape[1]):
            if through[below[above], above] < best[j, above]:
                best[j, above] = through[below[above], above]
                parents[j, above] = (i, int(below[above]))
    return _solution(graph, best, parents)


def bellman_ford(graph: Graph) -> Solution:
    """The same by relaxing all edges until nothing changes; knows nothing of layers, kept as a check of `one_pass`."""
    nodes = graph.nodes()
    values = {node: float(graph.alone_s[node.model, node.threshold - 1]) for node in nodes}
    edges = list(graph.edges())
    parents: dict[tuple[int, int], tuple[int, int]] = {}
    for _ in nodes:
        changed = False
        for edge in edges:
            through = edge.multiplier * (values[edge.draft] + edge.pass_s)
            if through < values[edge.verifier]:
                values[edge.verifier] = through
                parents[edge.verifier.model, edge.verifier.threshold - 1] = (edge.draft.model, edge.draft.threshold - 1)
                changed = True
        if not changed:
            break
    best = np.full_like(graph.alone_s, np.inf)
    for node, value in values.items():
        best[node.model, node.threshold - 1] = value
    return _solution(graph, best, parents)


def _solution(graph: Graph, best: Array, parents: dict[tuple[int, int], tuple[int, int]]) -> Solution:
    target = graph.problem.target
    path, at = [], (target, 0)
    while at is not None:
        path.append(Node(at[0], at[1] + 1))
        at = parents.get(at)
    values = {node: float(best[node.model, node.threshold - 1]) for node in graph.nodes()}
    return Solution(values, tuple(reversed(path)), float(best[target, 0]))


def _rounds_of(problem: Problem, pairs: list[tuple[int, int]], most: int) -> tuple[Array, Array]:
    """Block lengths (pairs, T, T+1) and gains of a round (pairs, T, T+2) for every pair and every threshold."""
    exact: NDArray[np.float64] = np.eye(most + 1)[1:]  # row T−1: a block of exactly T tokens
    alphas = np.array([np.nan_to_num(problem.alpha[i, j]) for i, j in pairs])
    blocks = np.tile(exact, (len(pairs), 1, 1))
    gains = gain_of_blocks(np.repeat(alphas[:, None], most, axis=1), blocks)
    for n, (i, j) in enumerate(pairs):
        if problem.proposer[i]:
            blocks[n], gains[n] = 0.0, 0.0
            for t in range(most):
                block, gain = blocks_at(problem.gains[i, j], t + 1)
                blocks[n, t, : t + 2], gains[n, t, : t + 3] = block, gain
    return blocks, gains
