"""Is the output really the target's? Greedy texts compared token by token, sampled ones by a chi-square test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from hsd.compare.divergence import first_divergence
from hsd.compare.record import Divergence, LosslessReport, SamplingCheck
from hsd.compare.whole import generate_whole
from hsd.errors import BadInput, Cancelled
from hsd.generate.prompt import encode_prompt
from hsd.generate.rule import Rule, verify_tokens
from hsd.generate.sampling import Transforms
from hsd.measure.prompts import PromptSet
from hsd.models.network import Network
from hsd.models.prefill import cancelling, feed
from hsd.pick.model_set import ModelSet
from hsd.plan.record import Plan
from hsd.records import GREEDY, Hierarchy, Level, Progress, Report, Sampling, ShouldStop

CHECKED_HIERARCHIES = 4
SAMPLED_TOKENS = 3  # length of the continuations whose distribution is tested
_SAMPLED = Sampling(temperature=1.0, top_k=3)
_TEST_PROMPT = "Once upon a time"
_STOPPED = "Stopped before the check was complete; nothing is known yet."


def check_lossless(
    models: ModelSet,
    plan: Plan,
    prompts: PromptSet,
    *,
    max_new_tokens: int = 48,
    samples: int = 400,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> LosslessReport:
    """Compare the plan and its best alternatives with the target alone, in the loaded dtype.

    Greedy: every prompt through every hierarchy; a text that departs from the target's is a near-tie when the two
    tokens' logits lie within the rounding of the precision, and different otherwise. Sampling: see `sampling_check`.
    Raises `Cancelled` when stopped, since half a check proves nothing, and `BadInput` when there is nothing to check.
    """
    chosen = [entry.hierarchy for entry in plan.alternatives if entry.hierarchy.drafts][:CHECKED_HIERARCHIES]
    if not chosen or not len(prompts):
        raise BadInput("There is nothing to check: give at least one prompt, and a plan that knows a hierarchy with a draft.")
    encoded = [(prompt.id, encode_prompt(models.tokenizer, prompt.prompt)) for prompt in prompts]
    alone = Hierarchy((Level(models.target),))
    target = models.networks[models.target]
    divergences: list[Divergence] = []
    done = 0
    for prompt_id, prompt_ids in encoded:
        wanted = _text(models, alone, prompt_ids, should_stop, sampling=GREEDY, max_new_tokens=max_new_tokens)
        for hierarchy in chosen:
            report(Progress("lossless", done, len(encoded) * len(chosen), None, f"prompt {prompt_id}, {hierarchy}"))
            got = _text(models, hierarchy, prompt_ids, should_stop, sampling=GREEDY, max_new_tokens=max_new_tokens)
            divergence = first_divergence(
                str(hierarchy), prompt_id, target, prompt_ids, wanted, got, before_pass=cancelling(should_stop, _STOPPED)
            )
            divergences += [divergence] if divergence else []
            done += 1
    test_ids = encode_prompt(models.tokenizer, _TEST_PROMPT)
    checks = []
    for hierarchy in chosen[:1]:
        checks.append(sampling_check(models, hierarchy, test_ids, _SAMPLED, samples=samples, report=report, should_stop=should_stop))
    near = sum(divergence.near_tie for divergence in divergences)
    return LosslessReport(
        cases=done,
        equal=done - len(divergences),
        near_ties=near,
        different=len(divergences) - near,
        divergences=tuple(divergences),
        sampling=tuple(checks),
        environment=models.environment,
    )


def sampling_check(
    models: ModelSet,
    hierarchy: Hierarchy,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    *,
    samples: int,
    rule: Rule = verify_tokens,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> SamplingCheck:
    """Chi-square of `samples` continuations of three tokens through `hierarchy` against exact enumeration by the target.

    One token more than is tested is generated, so that blocks reach over the end of what is tested. Outcomes with fewer
    than five expected counts share a cell.
    """
    target, ask = models.networks[models.target], cancelling(should_stop, _STOPPED)
    exact = continuation_probabilities(target, prompt_ids, sampling, SAMPLED_TOKENS, models.eos_token_ids, ask)
    seen: Counter[tuple[int, ...]] = Counter()
    for draw in range(samples):
        if draw % 20 == 0:
            report(Progress("sampling check", draw, samples, None, str(hierarchy)))
        settings = {"sampling": replace(sampling, seed=draw), "max_new_tokens": SAMPLED_TOKENS + 1, "rule": rule}
        seen[_text(models, hierarchy, prompt_ids, should_stop, **settings)[:SAMPLED_TOKENS]] += 1
    statistic, cells = _chi_square(exact, seen, samples)
    freedom = max(1, cells - 1)
    return SamplingCheck(str(hierarchy), samples, cells, statistic, freedom, _p_value(statistic, freedom))


def continuation_probabilities(
    target: Network,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    length: int,
    eos_token_ids: frozenset[int] = frozenset(),
    before_pass: Callable[[], None] = lambda: None,
) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of `length` tokens that the target alone can sample; one that ends early is shorter."""
    transforms = Transforms(sampling)
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for tokens, probability in found.items():
            if tokens and tokens[-1] in eos_token_ids:
                longer[tokens] = probability
                continue
            text = [*prompt_ids, *tokens]
            logits = feed(target, target.new_cache(len(text)), text, before_pass)
            row = transforms.scores(logits, text).float().softmax(-1)[0]
            for token_id in row.nonzero()[:, 0].tolist():
                longer[(*tokens, token_id)] = probability * row[token_id].item()
        found = longer
    return found


def _chi_square(exact: dict[tuple[int, ...], float], seen: Counter[tuple[int, ...]], samples: int) -> tuple[float, int]:
    """Statistic and number of cells; an outcome that the target cannot produce makes the statistic infinite."""
    if any(outcome not in exact for outcome in seen):
        return float("inf"), len(exact)
    cells: list[tuple[float, int]] = []  # (expected, seen)
    expected, count = 0.0, 0
    for outcome in sorted(exact, key=exact.__getitem__):  # the rarest first: they share a cell until it expects five
        expected, count = expected + exact[outcome] * samples, count + seen[outcome]
        if expected >= 5:
            cells.append((expected, count))
            expected, count = 0.0, 0
    if expected > 0:  # fewer samples than any cell needs
        cells.append((expected, count))
    return sum((count - expected) ** 2 / expected for expected, count in cells), len(cells)


def _p_value(statistic: float, freedom: int) -> float:
    """Chance that the right distribution gives a chi-square of at least `statistic`."""
    return torch.special.gammaincc(torch.tensor(freedom / 2.0).double(), torch.tensor(statistic / 2).double()).item()


def _text(models: ModelSet, hierarchy: Hierarchy, prompt_ids: Sequence[int], should_stop: ShouldStop, **settings: Any) -> tuple[int, ...]:
    found = generate_whole(models, hierarchy, prompt_ids, should_stop=should_stop, **settings)
    if found.end.reason == "stopped":
        raise Cancelled(_STOPPED)
    return found.token_ids
