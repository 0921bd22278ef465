"""The replay of recorded text against the algorithm itself, run step by step on models whose every choice is known."""

import time
from dataclasses import replace

import numpy as np
import pytest

from hsd.plan.exact import exact_latency
from hsd.plan.planner import plan, predict
from hsd.plan.trace import load, replay
from hsd.records import Hierarchy

LENGTHS = (61, 200, 7)  # tokens of three recorded texts, one shorter than a block


def tables(models, seed, agree=0.8, lengths=LENGTHS):
    """Argmaxes [model][text][position] of models that look at the position only; each differs from the target now and then."""
    random = np.random.default_rng(seed)
    target = [random.integers(0, 50, n) for n in lengths]
    drafts = [[np.where(random.random(t.size) < agree, t, random.integers(50, 53, t.size)) for t in target] for _ in range(models - 1)]
    return [*drafts, target]


def recorded(choices, first=0):
    """accept[i, j] of all pairs, the first models excepted."""
    count = len(choices)
    return {
        (i - first, j - first): [a == b for a, b in zip(choices[i], choices[j], strict=True)] for j in range(count) for i in range(first, j)
    }


class StepByStep:
    """Greedy decoding as in design §2, token by token, with the caches as lists of the tokens fed."""

    def __init__(self, choices, costs, thresholds, offers=None, call_s=0.0):
        self.choices, self.costs, self.thresholds, self.offers, self.call_s = choices, costs, thresholds, offers, call_s

    def run(self):
        """Seconds by level, target rounds and tokens over all texts; each is decoded to its last token."""
        self.seconds, rounds, tokens = np.zeros(len(self.choices)), 0, 0
        for text, choices in enumerate(self.choices[-1]):
            self.text, done, n = text, ["prompt"], len(choices)
            self.limit = n + 1
            self.fed = [[] for _ in self.choices]
            while len(done) - 1 < n:
                done, rounds = self.verify(len(self.choices) - 1, done), rounds + 1
            tokens += len(done) - 1
        return self.seconds, rounds, tokens

    def forward(self, level, tokens):
        """Argmaxes after every token of `tokens`; pays for what the cache lacks."""
        fed = self.fed[level]
        common = next((k for k, (a, b) in enumerate(zip(fed, tokens, strict=False)) if a != b), min(len(fed), len(tokens)))
        self.seconds[level] += self.costs[level][len(tokens) - common]
        self.fed[level] = list(tokens)
        table = self.choices[level][self.text]
        return [table[position % len(table)] for position in range(len(tokens))]

    def draft(self, level, context):
        goal = min(len(context) + self.thresholds[level], self.limit - (len(self.choices) - 1 - level))
        if level == 0 and self.offers is not None:
            if goal <= len(context):
                return list(context)
            self.seconds[0] += self.call_s
            return [*context, *self.offers[self.text][len(context) - 1]][:goal]
        text = list(context)
        while len(text) < goal:
            text = [*text, self.forward(0, text)[-1]] if level == 0 else self.verify(level, text)
        return text

    def verify(self, level, context):
        drafted = self.draft(level - 1, context)
        wanted = self.forward(level, drafted)[len(context) - 1 :]
        block = drafted[len(context) :]
        kept = next((k for k, token in enumerate(block) if token != wanted[k]), len(block))
        for lower in range(level + 1):  # a rejection crops every cache below, also where a token was right by luck
            self.fed[lower] = self.fed[lower][: len(context) + kept]
        return [*context, *block[:kept], wanted[kept]]


def check(measurement, problem, chain, thresholds, simulation):
    seconds, rounds, tokens = simulation.run()
    replayed = replay(load(measurement, problem), problem, chain, thresholds)
    assert replayed.tokens.sum() == tokens and replayed.rounds.sum() == rounds
    assert replayed.seconds.sum(axis=0) == pytest.approx(seconds)


# Each width costs something else, so that a pass of a wrong width is noticed.
COSTS = [
    {1: 0.1, 2: 0.13, 4: 0.21, 64: 3.0},
    {1: 1.0, 2: 1.1, 4: 1.7, 64: 9.0},
    {1: 4.0, 2: 4.3, 4: 5.5, 64: 33.0},
    {1: 10.0, 4: 14.0, 64: 90.0},
]


@pytest.mark.parametrize("thresholds", [(1,), (4,), (9,), (1, 1), (3, 6), (5, 2), (2, 9), (1, 1, 1), (3, 6, 12), (4, 2, 3)])
def test_replay_equals_the_algorithm_step_by_step(measured, with_traces, problem_of, thresholds):
    count = len(thresholds) + 1
    choices = tables(count, seed=sum(thresholds))
    measurement = with_traces(measured(COSTS[:count], [[0.5] * count] * count), recorded(choices))
    problem = problem_of(measurement)
    simulation = StepByStep(choices, problem.cost_s, thresholds)
    check(measurement, problem, tuple(range(count)), thresholds, simulation)


@pytest.fixture
def networks(measured):
    """Measurement of networks alone; a target without drafts is what is left of a pair."""

    def make(costs, rate=0.5):
        count = len(costs)
        if count > 1:
            return measured(costs, [[rate] * count] * count)
        pair = measured([*costs, *costs], [[0.5] * 2] * 2)
        return replace(pair, models=("m0",), acceptance={})

    return make


@pytest.mark.parametrize("thresholds", [(1,), (5,), (3, 4), (5, 1), (2, 3, 7)])
def test_replay_with_prompt_lookup_equals_the_algorithm_step_by_step(networks, with_lookup, with_traces, problem_of, thresholds):
    count = len(thresholds) + 1
    choices = tables(count, seed=3)
    random = np.random.default_rng(1)
    offers = []  # what the lookup offers at each position: nothing, or some right tokens and then a wrong one
    for text in choices[-1]:
        n = text.size
        lengths = random.choice([0, 2, 6], n)
        right = random.integers(0, 7, n)
        offers.append([[int(text[(t + k) % n]) if k < right[t] else 99 for k in range(lengths[t])] for t in range(n)])
    proposals = {}
    for j in range(1, count):
        proposals[j - 1] = []
        for text, offered in zip(choices[j], offers, strict=True):
            pairs = []
            for t, block in enumerate(offered):
                kept = next((k for k, token in enumerate(block) if token != text[(t + k) % text.size]), len(block))
                pairs.append((len(block), kept))
            proposals[j - 1].append(pairs)
    measurement = with_lookup(networks(COSTS[1:count]), 0.03, {(6, 6): 1})
    measurement = with_traces(measurement, recorded(choices, first=1), proposals)
    problem = problem_of(measurement)
    simulation = StepByStep(choices, problem.cost_s, thresholds, offers, 0.03)
    check(measurement, problem, tuple(range(count)), thresholds, simulation)


@pytest.mark.parametrize(
    ("alphas", "thresholds"), [((0.7,), (4,)), ((0.7, 0.8), (3, 6)), ((0.7, 0.8), (2, 2)), ((0.6, 0.75, 0.85), (3, 3, 3))]
)
@pytest.mark.parametrize("sampled", [False, True])
def test_replay_of_independent_acceptances_is_the_exact_expression(measured, with_traces, problem_of, alphas, thresholds, sampled):
    """Constant costs: what a cache must catch up then costs nothing, and only the acceptances count."""
    random = np.random.default_rng(5)
    count, tokens = len(alphas) + 1, 60_000 if not sampled else 40_000
    accept = {(i, j): [np.zeros(tokens)] for j in range(count) for i in range(j)}
    for i, alpha in enumerate(alphas):
        accept[i, i + 1] = [np.full(tokens, alpha) if sampled else random.random(tokens) < alpha]
    measurement = with_traces(measured((1.0, 4.0, 20.0, 50.0)[:count], alphas, overhead_s=0.3), accept)
    problem, chain = problem_of(measurement), tuple(range(count))
    shares, overhead = replay(load(measurement, problem), problem, chain, thresholds).per_token(0.3)
    exact = exact_latency(problem, chain, np.array([thresholds], np.int64))
    assert shares.sum() + overhead == pytest.approx(exact.total[0], rel=0.015)
    assert shares == pytest.approx(exact.by_level[0], rel=0.03)


def test_replay_sees_what_independence_misses(measured, with_traces, problem_of):
    """Positions that are hard for one pair are hard for the next: same rates as independent ones, other latency."""
    random = np.random.default_rng(2)
    hard = np.repeat(random.random(1500) < 0.3, 10)  # stretches of ten tokens at which nobody agrees
    accept = {(0, 1): [~hard], (1, 2): [~hard], (0, 2): [~hard]}
    rate = float((~hard).mean())
    measurement = with_traces(measured((1.0, 4.0, 20.0), (rate, rate)), accept)
    prediction = predict(measurement, Hierarchy.parse("m0@3,m1@6", "m2")).predicted_s_per_token
    assert prediction.trace is not None and prediction.best == prediction.trace
    assert abs(prediction.trace / prediction.exact - 1) > 0.1


def test_plan_ranks_by_traces_only_where_every_pair_was_recorded(measured, with_traces):
    choices = tables(3, seed=9)
    measurement = with_traces(measured((0.5, 2.0, 20.0), [[0, 0.7, 0.7], [0, 0, 0.7], [0, 0, 0]]), recorded(choices))
    found = plan(measurement)
    assert found.ranked_by == "trace"
    seconds = [entry.predicted_s_per_token.trace for entry in found.alternatives]
    assert seconds == sorted(seconds)
    assert sum(found.alternatives[0].seconds_by_model.values()) == pytest.approx(found.predicted_s_per_token.trace)
    part = recorded(choices)
    del part[0, 1]
    found = plan(with_traces(measurement, part))
    assert found.ranked_by == "exact" and found.predicted_s_per_token.trace is None


def test_plan_by_traces_is_the_best_of_all_thresholds(measured, with_traces, problem_of):
    choices = tables(3, seed=4, lengths=(400, 300))
    accept = recorded(choices)
    rates = {pair: float(np.concatenate(values).mean()) for pair, values in accept.items()}
    alphas = [[rates.get((i, j), 0.0) for j in range(3)] for i in range(3)]
    measurement = with_traces(measured((0.4, 2.0, 20.0), alphas), accept)
    problem = problem_of(measurement, 8)
    positions = load(measurement, problem)
    best = np.inf
    for chain, grid in (((0, 2), [(t,) for t in range(1, 9)]), ((0, 1, 2), [(s, t) for s in range(1, 9) for t in range(1, 9)])):
        best = min(best, *(float(replay(positions, problem, chain, t).per_token(0.0)[0].sum()) for t in grid))
    assert plan(measurement, max_threshold=8).predicted_s_per_token.trace <= best * 1.005


@pytest.mark.parametrize("seed", range(6))
def test_plan_by_traces_of_short_texts_sits_in_no_side_hollow(measured, with_traces, problem_of, seed):
    """Texts of 64 tokens take a whole number of blocks, so that seconds per token fall and rise several times along a threshold."""
    random = np.random.default_rng(seed)
    accept = {(0, 1): [random.random(64) < 0.5 for _ in range(16)], (1, 2): [random.random(64) < 0.98 for _ in range(16)]}
    accept[0, 2] = [below & above for below, above in zip(accept[0, 1], accept[1, 2], strict=True)]
    rates = [[0.0, 0.5, 0.49], [0.0, 0.0, 0.98], [0.0, 0.0, 0.0]]
    measurement = with_traces(measured([0.05, {1: 2.4, 4: 2.6, 8: 4.0}, {1: 8.0, 8: 8.5, 16: 12.0}], rates), accept)
    problem = problem_of(measurement, 16)
    positions = load(measurement, problem)
    grid = [(s, t) for s in range(1, 17) for t in range(1, 17)]
    best = min(float(replay(positions, problem, (0, 1, 2), t).per_token(0.0)[0].sum()) for t in grid)
    assert plan(measurement, max_threshold=16).predicted_s_per_token.trace <= best * 1.002


def test_replay_is_deterministic(measured, with_traces):
    random = np.random.default_rng(8)
    accept = {(0, 1): [random.random(90)]}
    measurement = with_traces(measured((1.0, 9.0), (0.5,)), accept)
    assert plan(measurement) == plan(measurement)


def test_planning_by_traces_is_quick(measured, with_traces):
    """Goal: 8 candidates, thresholds to 32, everything within a second; the bound is wider, since a test machine may be busy."""
    choices = tables(9, seed=1, lengths=(64,) * 40)
    costs = [{1: 0.5 * 1.6**i, 8: 0.8 * 1.6**i} for i in range(9)]
    measurement = with_traces(measured(costs, [[0.7] * 9] * 9), recorded(choices))
    started = time.perf_counter()
    assert plan(measurement, max_threshold=32).ranked_by == "trace"
    assert time.perf_counter() - started < 4


@pytest.mark.parametrize("thresholds", [(2,), (6,), (3, 5)])
def test_exact_expression_counts_the_rounds_of_a_lookup(networks, with_lookup, with_traces, problem_of, thresholds):
    """Hits of the lookup come in long runs; the exact expression must not meet each of them at every one of its positions."""
    random = np.random.default_rng(4)
    count, size = len(thresholds), 4000
    hits = np.repeat(random.random(size // 20) < 0.3, 20)
    left = [int(np.argmin(np.append(hits[t : t + 8], False))) for t in range(size)]  # right tokens from here on, at most 8
    agree = random.random(size) < 0.8
    accept = {(0, 1): [agree]} if count == 2 else {}
    pairs = [[(8, n) if n else (0, 0) for n in left]]
    measurement = with_lookup(networks([4.0, 20.0][-count:], rate=0.8), 0.03, {(8, 8): 1})
    measurement = with_traces(measurement, accept, {j: pairs for j in range(count)})
    problem, chain = problem_of(measurement), tuple(range(count + 1))
    replayed = float(replay(load(measurement, problem), problem, chain, thresholds).per_token(0)[0].sum())
    assert float(exact_latency(problem, chain, np.array([thresholds], np.int64)).total[0]) == pytest.approx(replayed, rel=0.05)
