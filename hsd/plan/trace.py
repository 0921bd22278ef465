"""Latency predicted by replaying the recorded positions of real text through a hierarchy (design §4, last paragraph).

The recorded text is the target's own, so it is known at every position which neighbours agree there. In greedy decoding a block of
level i consists of M_i's own argmaxes; as long as the block follows the recorded text, the next level therefore keeps its token at
position t exactly when the pair agreed at t, whoever drafted below. So acceptance varies with the text, and a token that was hard for
one pair is hard for the next: neither is assumed away. What is not known is how levels agree *after* a block left the text (it will be
rejected there by a larger model, but until then more rounds are made): the pair's record at the same position stands in. For a sampled
text the record is a probability per position; it is drawn, with a fixed seed, independently for each pair.

The replay also counts what a pass must catch up (a level whose cache lacks the last tokens feeds them with its next pass) and that no
level drafts beyond the end of the text: it charges what the engine charges when it generates the recorded texts, each to its last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hsd.errors import BadInput
from hsd.measure.record import Measurement
from hsd.plan.context import segments
from hsd.plan.problem import Array, Problem

Ints = NDArray[np.int64]

SEED = 0
POSITIONS = 4000  # a sampled record is drawn several times until about so many positions are replayed
MOST_DRAWS = 8
MOST_KEPT = 500  # replayed lower levels that one `Positions` remembers
NO_PASS = -1


@dataclass(frozen=True, slots=True)
class Positions:
    """All recorded positions in one row, text after text."""

    room: Ints  # (P,) tokens from here to the end of the text
    texts: tuple[tuple[int, int, int], ...]  # (begin, tokens, prompt) of each text; a prompt drawn twice has two
    prompts: int
    run: dict[tuple[int, int], Ints]  # [draft, verifier]: (P,) accepted tokens in a row from here, at most to the end
    offers: dict[tuple[int, int], tuple[Ints, Ints]]  # [proposer, verifier]: drafted (P,) and accepted (P,)
    below: Ints  # (P,) the measured context below each position's own
    share: Array  # (P,) how far that lies towards the next one
    blocks: dict[tuple[object, ...], Blocks] = field(default_factory=dict)  # replayed lower levels, reused by hierarchies that share them

    @property
    def count(self) -> int:
        return self.room.size

    def extra(self, problem: Problem, model: int, width: Ints | int) -> Array | float:
        """Seconds (P,) that a pass of `width` tokens costs at each position beyond its mean."""
        if problem.context_s is None:
            return 0.0
        table = problem.context_s[:, model]
        return table[self.below, width] * (1 - self.share) + table[self.below + 1, width] * self.share


@dataclass(frozen=True, slots=True)
class Blocks:
    """What a level hands up when asked at each position; the rows of 2-d arrays are the levels up to this one."""

    count: Ints  # (P,) tokens of the block
    seconds: Array  # (i+1, P) by level, when no level has anything to catch up
    cached: Ints  # (i+1, P) tokens of the block that each level's cache holds afterwards
    first: Ints  # (i+1, P) tokens in each level's first pass, what it catches up not counted; NO_PASS where it makes none


@dataclass(frozen=True, slots=True)
class Replayed:
    """Sums over each prompt's text."""

    seconds: Array  # (prompts, K+1) by level
    rounds: Array  # (prompts,) target rounds
    tokens: Array  # (prompts,) committed

    def per_token(self, overhead_s: float, token_overhead_s: float = 0.0) -> tuple[Array, float]:
        """Seconds per token by level (K+1,), and those outside of the levels' rounds."""
        tokens = self.tokens.sum()
        return self.seconds.sum(axis=0) / tokens, overhead_s * float(self.rounds.sum() / tokens) + token_overhead_s


def covers(measurement: Measurement) -> bool:
    """Whether every measured pair was recorded at every position, so that all hierarchies can be ranked by replaying."""
    pairs = [(draft, verifier) for draft, row in measurement.acceptance.items() for verifier in row if draft not in measurement.block_gains]
    offers = [(draft, verifier) for draft, row in measurement.block_gains.items() for verifier in row]
    return bool(measurement.traces) and all(
        trace.tokens > 0
        and all(len(trace.accept.get(draft, {}).get(verifier, ())) == trace.tokens for draft, verifier in pairs)
        and all(len(trace.proposals.get(draft, {}).get(verifier, ())) == trace.tokens for draft, verifier in offers)
        for trace in measurement.traces
    )


def load(measurement: Measurement, problem: Problem) -> Positions | None:
    """The recorded positions of every known pair, or None where they were not recorded."""
    if not covers(measurement):
        return None
    traces, models = measurement.traces, problem.models
    pairs = [(i, j) for j in range(len(models)) for i in range(j) if problem.known(i, j) and not problem.proposer[i]]
    sampled = any(0 < value < 1 for trace in traces for i, j in pairs for value in trace.accept[models[i]][models[j]])
    recorded = sum(trace.tokens for trace in traces)
    draws = min(MOST_DRAWS, max(1, POSITIONS // recorded)) if sampled else 1
    lengths = np.array([trace.tokens for trace in traces] * draws)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    texts = tuple((int(begin), int(n), t % len(traces)) for t, (begin, n) in enumerate(zip(begins, lengths, strict=True)))
    _check_records(measurement)
    random = np.random.default_rng(SEED)
    run = {}
    for i, j in pairs:
        kept = np.concatenate([np.asarray(trace.accept[models[i]][models[j]]) for trace in traces] * draws)
        run[i, j] = _runs(random.random(kept.size) < kept, texts)
    offers = {}
    for i, j in problem.gains:
        pair = np.concatenate([np.asarray(trace.proposals[models[i]][models[j]], np.int64).reshape(-1, 2) for trace in traces] * draws)
        offers[i, j] = (pair[:, 0], pair[:, 1])
    room = np.concatenate([np.arange(n, 0, -1) for n in lengths])
    begins_at = [trace.prompt_tokens or 0 for trace in traces] * draws
    places = np.concatenate([begin + np.arange(n) for begin, n in zip(begins_at, lengths, strict=True)])
    return Positions(room, texts, len(traces), run, offers, *segments(problem.contexts, places))


def replay(positions: Positions, problem: Problem, chain: Sequence[int], thresholds: Sequence[int]) -> Replayed:
    """Decode every recorded text with `chain` (smallest first, target last) and `thresholds`, and add up seconds and tokens."""
    if len(chain) == 1:
        owners, lengths = [prompt for _, _, prompt in positions.texts], [n for _, n, _ in positions.texts]
        rounds = np.bincount(owners, lengths)
        seconds = problem.cost_s[chain[0], 1] + positions.extra(problem, chain[0], 1) * np.ones(positions.count)
        return Replayed(np.bincount(np.repeat(owners, lengths), seconds)[:, None], rounds, rounds)
    below = _hand_up(positions, problem, tuple(chain[:-1]), tuple(thresholds), 1)
    one = _Round(positions, problem, chain, below)
    after = one.after.tolist()
    visited, previous, prompt = [], [], []
    for begin, n, owner in positions.texts:
        at, last = begin, -1
        while at < begin + n:
            visited.append(at)
            previous.append(last)
            prompt.append(owner)
            at, last = after[at], at
    here, before, owner = np.array(visited), np.array(previous), np.array(prompt)
    seconds = one.seconds(here, before)
    by_prompt = [np.bincount(owner, row, positions.prompts) for row in seconds]
    tokens = np.bincount(owner, one.gain[here], positions.prompts)
    return Replayed(np.array(by_prompt).T, np.bincount(owner, minlength=positions.prompts).astype(float), tokens)


class _Round:
    """One round of the top level of `chain`, from every position."""

    def __init__(self, positions: Positions, problem: Problem, chain: Sequence[int], below: Blocks) -> None:
        self.below = below
        self.costs = [None if problem.proposer[model] else problem.cost_s[model] for model in chain]
        pair = (chain[-2], chain[-1])
        kept = positions.offers[pair][1] if problem.proposer[pair[0]] else positions.run[pair]
        accepted = np.minimum(kept, below.count)
        self.gain: Ints = accepted + 1
        self.after = np.arange(positions.count) + self.gain
        self.cached = np.minimum(below.cached, accepted)  # a rejection crops the caches below
        self.lag = self.gain - self.cached  # what the next pass of each lower level must feed before drafting goes on, at least 1
        width = below.count + 1
        self.verify_s = self.costs[-1][width] + positions.extra(problem, chain[-1], width)

    def seconds(self, here: Ints, before: Ints) -> Array:
        """Seconds by level (levels, N) of rounds at `here` that follow rounds at `before` (−1: none, nothing to catch up)."""
        below = self.below.seconds[:, here]
        follows = before >= 0
        for level, cost in enumerate(self.costs[:-1]):
            if cost is not None:
                first = self.below.first[level, here]
                late = follows & (first != NO_PASS)
                below[level, late] += cost[first[late] + self.lag[level, before[late]]] - cost[first[late] + 1]
        return np.vstack([below, self.verify_s[here]])


def _hand_up(positions: Positions, problem: Problem, chain: tuple[int, ...], thresholds: tuple[int, ...], above: int) -> Blocks:
    """Blocks of the top level of `chain`, whose own threshold is the last of `thresholds`, from every position.

    `above` levels stand above it; each of them adds a token of its own, so that a block must end so many tokens before the text does.
    """
    key = (chain, thresholds, above)
    if key not in positions.blocks:
        if len(positions.blocks) >= MOST_KEPT:
            positions.blocks.clear()
        make = _bottom if len(chain) == 1 else _level
        goal = np.clip(positions.room - above, 0, thresholds[-1])
        positions.blocks[key] = make(positions, problem, chain, thresholds, above, goal)
    return positions.blocks[key]


def _bottom(positions: Positions, problem: Problem, chain: tuple[int, ...], thresholds: tuple[int, ...], above: int, goal: Ints) -> Blocks:
    model = chain[0]
    if problem.proposer[model]:
        offered = next(offer for (draft, _), offer in positions.offers.items() if draft == model)[0]
        never = np.full((1, positions.count), NO_PASS)
        return Blocks(np.minimum(offered, goal), (problem.call_s[model] * (goal > 0))[None], np.zeros_like(never), never)
    first = np.where(goal > 0, 0, NO_PASS)
    seconds = goal * (problem.cost_s[model, 1] + positions.extra(problem, model, 1))
    return Blocks(goal, seconds[None], np.maximum(goal - 1, 0)[None], first[None])


def _level(positions: Positions, problem: Problem, chain: tuple[int, ...], thresholds: tuple[int, ...], above: int, goal: Ints) -> Blocks:
    below = _hand_up(positions, problem, chain[:-1], thresholds[:-1], above + 1)
    one = _Round(positions, problem, chain, below)
    levels, size = len(chain), positions.count
    count, seconds, cached = np.zeros(size, np.int64), np.zeros((levels, size)), np.zeros((levels, size), np.int64)
    active = np.flatnonzero(goal > 0)
    here, before = active, np.full(active.size, -1)
    while active.size:
        seconds[:, active] += one.seconds(here, before)
        cached[:-1, active] = count[active] + one.cached[:, here]
        count[active] += one.gain[here]
        unfilled = count[active] < goal[active]
        active, here, before = active[unfilled], one.after[here[unfilled]], here[unfilled]
    cached[-1] = np.maximum(count - 1, 0)
    return Blocks(count, seconds, cached, np.where(goal > 0, np.vstack([below.first, below.count]), NO_PASS))


def _check_records(measurement: Measurement) -> None:
    for trace in measurement.traces:
        for draft, row in trace.accept.items():
            for verifier, values in row.items():
                if not all(0 <= value <= 1 for value in values):
                    raise BadInput(
                        f"A recorded acceptance of {draft} at {verifier} lies outside 0 to 1 ({trace.prompt_id}); measure again."
                    )


def _runs(kept: NDArray[np.bool_], texts: Sequence[tuple[int, int, int]]) -> Ints:
    """Accepted positions in a row from each one on, until the text ends."""
    runs = np.empty(kept.size, np.int64)
    for begin, n, _ in texts:
        rejection = np.where(kept[begin : begin + n], n, np.arange(n))
        runs[begin : begin + n] = np.minimum.accumulate(rejection[::-1])[::-1] - np.arange(n)
    return runs
