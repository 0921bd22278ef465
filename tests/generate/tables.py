"""Networks that are tables of logits, and the exact distribution of what the engine writes with them.

Nothing is sampled here: every random choice of a run is enumerated with its probability. The probabilities of a
verification rule's outcomes are found from the rule itself, as a function of the random numbers it is given.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from unittest import mock

import torch
from tiny_models import model_set

from hsd.generate import rule as rules
from hsd.generate.engine import generate
from hsd.generate.events import RoundEvent
from hsd.generate.rule import Rule
from hsd.pick.model_set import ModelSet
from hsd.records import Hierarchy, Sampling

Law = dict[tuple[int, ...], float]
PROMPT = (0, 1)
_ALMOST_ONE = 1 - 1e-7


class TableCache:
    def __init__(self) -> None:
        self.token_ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.token_ids)

    def crop(self, length: int) -> None:
        del self.token_ids[length:]


class Table:
    """Logits that depend on the last two tokens; `logits` is (vocab, vocab, rows of the head)."""

    max_context, device, dtype, memory_bytes = 10_000, torch.device("cpu"), torch.float32, 0

    def __init__(self, name: str, logits: torch.Tensor) -> None:
        self.name, self.logits = name, logits
        self.vocab_size = logits.shape[-1]

    def new_cache(self, capacity: int) -> TableCache:
        return TableCache()

    def adopt(self, cache, other, other_cache) -> bool:
        return False

    def forward(self, token_ids: torch.Tensor, cache: TableCache, num_logits: int) -> torch.Tensor:
        cache.token_ids += token_ids.tolist()
        return torch.stack([self.row(cache.token_ids[:end]) for end in range(cache.length - num_logits + 1, cache.length + 1)])

    def row(self, context: Sequence[int]) -> torch.Tensor:
        return self.logits[context[-2] if len(context) > 1 else 0, context[-1]]


class OneHot:
    """A draft without a distribution: the likeliest token of a table, and nothing at all after some contexts."""

    def __init__(self, name: str, logits: torch.Tensor) -> None:
        self.name, self.logits = name, logits

    def fresh(self) -> OneHot:
        return self

    def rollback(self, length: int) -> None:
        """Nothing to forget: it looks at the text it is given."""

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        text = list(token_ids)
        while len(text) < len(token_ids) + count and text[-1] != 2:
            text.append(int(self.logits[text[-2], text[-1]].argmax()))
        return text[len(token_ids) :]


class Plain:
    """As much of a tokenizer as the engine needs."""

    def decode(self, token_ids: Sequence[int], **options) -> str:
        return "".join(chr(97 + int(token_id)) for token_id in token_ids)


def tables(vocab: int, count: int, *, spread: float = 1.2, seed: int = 0, one_hot: bool = False, padded: Sequence[int] = ()) -> ModelSet:
    """`count` drafts m0, m1, … and a target, each a table of its own with something in common with the others."""
    random = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(vocab, vocab, vocab, generator=random) * spread  # noqa: E731
    common = draw()
    networks = {}
    for index in range(count):
        logits = 0.6 * common + 0.8 * draw()
        if padded:  # rows that stand for no token of the target, and that a careless engine would draw
            logits = torch.cat([logits, torch.full((vocab, vocab, padded[index]), 4.0)], dim=-1)
        networks[f"m{index}"] = OneHot(f"m{index}", logits) if one_hot and index == 0 else Table(f"m{index}", logits)
    networks["target"] = Table("target", common)
    return model_set(networks, tokenizer=Plain())


def hierarchy_of(thresholds: Sequence[int]) -> Hierarchy:
    return Hierarchy.of(*((f"m{index}", threshold) for index, threshold in enumerate(thresholds)), target="target")


def processed(logits: torch.Tensor, context: Sequence[int], sampling: Sampling) -> torch.Tensor:
    """The distribution that the settings describe, written down once more and independently: (vocab,) float64."""
    scores = logits.double().clone()
    for token_id in set(context):
        scores[token_id] *= sampling.repetition_penalty if scores[token_id] < 0 else 1 / sampling.repetition_penalty
    size = sampling.no_repeat_ngram_size
    for start in range(len(context) - size + 1 if size else 0):
        if tuple(context[start : start + size - 1]) == tuple(context[len(context) - size + 1 :]):
            scores[context[start + size - 1]] = -math.inf
    probs = (scores / sampling.temperature).softmax(-1)
    if sampling.top_k:
        probs[probs < probs.sort(descending=True).values[min(sampling.top_k, len(probs)) - 1]] = 0
        probs /= probs.sum()
    if sampling.top_p < 1:
        kept, order = 0.0, probs.argsort(descending=True).tolist()
        for token_id in order:
            if kept >= sampling.top_p:
                probs[token_id] = 0
            kept += float(probs[token_id])
        probs /= probs.sum()
    if sampling.min_p:
        probs[probs < sampling.min_p * probs.max()] = 0
        probs /= probs.sum()
    return probs


def target_law(target: Table, length: int, sampling: Sampling, start: Sequence[int] = ()) -> Law:
    """Probability of every text of `length` tokens that begins with `start`, under the target alone."""
    law: Law = {tuple(start)[:length]: 1.0}
    while len(next(iter(law))) < length:
        longer = {}
        for text, probability in law.items():
            context = [*PROMPT, *text]
            for token_id, share in enumerate(processed(target.row(context), context, sampling).tolist()):
                if share:
                    longer[(*text, token_id)] = probability * share
        law = longer
    return law


class ExactRule:
    """The outcomes of a rule with their probabilities, in place of one of them by chance.

    A rule compares one uniform number per drafted token with a bound, and draws the next token from weights. The bounds
    are found by bisection, the weights by looking on.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._known: dict[tuple, list[tuple[float, tuple[int, int]]]] = {}

    def law(self, block_ids: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor) -> list[tuple[float, tuple[int, int]]]:
        key = (tuple(block_ids.tolist()), draft_probs.numpy().tobytes(), target_probs.numpy().tobytes())
        if key not in self._known:
            self._known[key] = self._enumerate(block_ids, draft_probs, target_probs)
        return self._known[key]

    def _enumerate(self, block_ids, draft_probs, target_probs) -> list[tuple[float, tuple[int, int]]]:
        size = len(block_ids)
        weights = []

        def look(given, generator):
            weights.append((given.double() / given.double().sum()).tolist())
            return given.argmax()

        def accepted(uniform: Sequence[float]) -> int:
            with mock.patch.object(torch, "rand", lambda *shape, **options: torch.tensor(uniform, dtype=torch.float32)):
                return self.rule(block_ids, draft_probs, target_probs, None)[0]

        found: dict[tuple[int, int], float] = defaultdict(float)
        # The rules of this project draw with `draw`, wrong ones of the tests with torch.
        by_torch = mock.patch.object(torch, "multinomial", lambda given, num_samples, generator: look(given, generator)[None])
        with mock.patch.object(rules, "draw", look), by_torch:
            bounds = []
            for position in range(size):
                before, after = [0.0] * position, [_ALMOST_ONE] * (size - position - 1)
                keeps = lambda u, before=before, after=after: accepted([*before, u, *after]) > len(before)  # noqa: E731
                low, high = (1.0, 1.0) if keeps(_ALMOST_ONE) else (0.0, 0.0) if not keeps(0.0) else (0.0, 1.0)
                while high - low > 1e-6:
                    middle = (low + high) / 2
                    low, high = (middle, high) if keeps(middle) else (low, middle)
                bounds.append((low + high) / 2)
            for kept in itertools.product((True, False), repeat=size):
                probability = math.prod(bound if keep else 1 - bound for bound, keep in zip(bounds, kept, strict=True))
                if probability > 0:
                    count = accepted([0.0 if keep else _ALMOST_ONE for keep in kept])
                    for token_id, share in enumerate(weights[-1]):
                        found[count, token_id] += probability * share
        return [(probability, outcome) for outcome, probability in found.items() if probability > 1e-12]


def first_round(
    models: ModelSet, hierarchy: Hierarchy, sampling: Sampling, rule: ExactRule, path: list[int]
) -> tuple[float, tuple[int, ...], list[int]]:
    """The first round of the target when each verification takes the outcome that `path` says, and the first one after.

    Returns its probability, the tokens it commits, and how many outcomes there were at each step; completes `path`.
    """
    sizes: list[int] = []
    shares: list[float] = []

    def scripted(block_ids, draft_probs, target_probs, generator):
        law = rule.law(block_ids, draft_probs, target_probs)
        if len(sizes) == len(path):
            path.append(0)
        share, outcome = law[path[len(sizes)]]
        sizes.append(len(law))
        shares.append(share)
        return outcome

    events = generate(models, hierarchy, PROMPT, sampling=sampling, max_new_tokens=60, rule=scripted)
    last = next(event for event in events if isinstance(event, RoundEvent) and event.model == "target")
    events.close()
    return math.prod(shares), (*last.token_ids[: last.accepted], last.next_token_id), sizes


def all_first_rounds(
    models: ModelSet, hierarchy: Hierarchy, sampling: Sampling, rule: ExactRule
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Every way in which the first round of the target can go: its probability and the tokens it commits."""
    path: list[int] = []
    while True:
        probability, tokens, sizes = first_round(models, hierarchy, sampling, rule, path)
        yield probability, tokens
        while path and path[-1] + 1 == sizes[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


def exact_law(models: ModelSet, thresholds: Sequence[int], sampling: Sampling, rule: Rule, length: int = 3) -> tuple[Law, float]:
    """Distribution of the first `length` tokens of the engine's text, and the mean number of tokens of a target's round.

    By induction one round suffices: what follows it is the target's own, given the text so far.
    """
    law: Law = defaultdict(float)
    mean = total = 0.0
    target = models.networks["target"]
    for probability, tokens in all_first_rounds(models, hierarchy_of(thresholds), sampling, ExactRule(rule)):
        mean += probability * len(tokens)
        total += probability
        for text, share in target_law(target, length, sampling, tokens).items():
            law[text] += probability * share
    assert math.isclose(total, 1, abs_tol=1e-4)
    return law, mean


def distance(found: Law, wanted: Law) -> float:
    """Total variation distance: the largest error in the probability of any event."""
    return sum(abs(found.get(text, 0.0) - wanted.get(text, 0.0)) for text in {*found, *wanted}) / 2


def chi_square_p(seen: dict[tuple[int, ...], int], wanted: Law) -> float:
    """p value of the counts under `wanted`; cells that expect fewer than five are pooled, an impossible text gives 0."""
    samples = sum(seen.values())
    if any(wanted.get(text, 0.0) == 0 for text in seen):
        return 0.0
    cells, pool = [], [0.0, 0.0]
    for text, probability in wanted.items():
        expected, count = probability * samples, seen.get(text, 0)
        if expected < 5:
            pool = [pool[0] + expected, pool[1] + count]
        else:
            cells.append((expected, count))
    cells += [tuple(pool)] if pool[0] >= 5 else []
    statistic = sum((count - expected) ** 2 / expected for expected, count in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, torch.tensor(statistic / 2, dtype=torch.float64)))
