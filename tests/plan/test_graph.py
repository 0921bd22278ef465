"""The Generalized Shortest Path: one pass, Bellman-Ford and brute force over all paths agree."""

from itertools import combinations, pairwise, product

import numpy as np
import pytest

from hsd.plan.graph import Node, bellman_ford, build, one_pass
from hsd.plan.paper import paper_latency


def brute_force(problem, max_threshold):
    """Least seconds per token over every chain and all thresholds, by following the edges of the design one by one."""
    graph = build(problem, max_threshold)
    edges = {(edge.draft, edge.verifier): edge for edge in graph.edges()}
    target = Node(problem.target, 1)
    best = (float(problem.cost_s[problem.target, 1]) + problem.overhead_s, (target,))
    for depth in range(1, problem.target + 1):
        for drafts in combinations(range(problem.target), depth):
            for thresholds in product(range(1, max_threshold + 1), repeat=depth):
                path = (*map(Node, drafts, thresholds), target)
                if any(pair not in edges for pair in pairwise(path)):
                    continue
                seconds = thresholds[0] * float(problem.cost_s[drafts[0], 1])
                if problem.proposer[drafts[0]]:
                    seconds = float(problem.call_s[drafts[0]])
                for pair in pairwise(path):
                    seconds = edges[pair].multiplier * (seconds + edges[pair].pass_s)
                best = min(best, (seconds, path))
    return best


@pytest.mark.parametrize("seed", range(8))
def test_one_pass_equals_bellman_ford_equals_brute_force(random_measured, problem_of, seed):
    problem = problem_of(random_measured(seed, models=4, wide=seed % 2 == 1), 5)
    graph = build(problem, 5)
    fast, general = one_pass(graph), bellman_ford(graph)
    seconds, path = brute_force(problem, 5)
    assert fast.seconds == pytest.approx(seconds, rel=1e-12)
    assert general.seconds == pytest.approx(seconds, rel=1e-12)
    assert fast.path == general.path == path
    assert fast.values == pytest.approx(general.values, rel=1e-12)


def test_prompt_lookup_in_the_graph(random_measured, problem_of, with_lookup):
    measurement = with_lookup(random_measured(1, models=3), 0.05, {(0, 0): 3, (4, 4): 5, (4, 1): 2})
    problem = problem_of(measurement, 6)
    graph = build(problem, 6)
    seconds, path = brute_force(problem, 4)  # longer blocks than 4 were never offered
    assert one_pass(graph).seconds == pytest.approx(seconds) == bellman_ford(graph).seconds
    assert one_pass(graph).path == path and path[0].model == 0
    assert all(not problem.proposer[edge.verifier.model] for edge in graph.edges())


@pytest.mark.parametrize("thresholds", [(3,), (2, 5), (1, 4, 3)])
def test_a_path_costs_what_theorem_2_2_says_when_costs_are_constant(random_measured, problem_of, thresholds):
    measurement = random_measured(7)
    problem = problem_of(measurement, 5)
    edges = {(edge.draft, edge.verifier): edge for edge in build(problem, 5).edges()}
    chain = (*range(len(thresholds)), problem.target)
    path = (*map(Node, chain, thresholds), Node(problem.target, 1))
    seconds = thresholds[0] * float(problem.cost_s[0, 1])
    for pair in pairwise(path):
        edge = edges[pair]
        overhead = problem.overhead_s if pair[1].model == problem.target else 0.0
        seconds = edge.multiplier * (seconds + edge.pass_s - overhead)
    assert seconds == pytest.approx(paper_latency(problem, chain, thresholds), rel=1e-12)


def test_graph_lists_every_node_and_edge(random_measured, problem_of):
    graph = build(problem_of(random_measured(0, models=4), 5), 5)
    assert len(graph.nodes()) == 3 * 5 + 1
    edges = list(graph.edges())
    assert len(edges) == 3 * 25 + 3 * 5  # between drafts, and into the target
    assert all(edge.multiplier > 0 and np.isfinite(edge.cost_s) and edge.draft.model < edge.verifier.model for edge in edges)
    assert {node for edge in edges for node in (edge.draft, edge.verifier)} == set(graph.nodes())
