"""Do predictions come true? Many hierarchies, each predicted from a measurement and then run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from hsd.compare.record import Sweep, SweepPoint
from hsd.compare.whole import generate_whole
from hsd.errors import Cancelled
from hsd.generate.prompt import encode_prompt
from hsd.measure import run
from hsd.measure.intervals import median_estimate
from hsd.measure.prompts import PromptSet
from hsd.measure.record import Measurement
from hsd.models.network import Network
from hsd.pick.model_set import ModelSet
from hsd.plan.planner import Predictor, plan_with
from hsd.plan.record import Alternative, Plan
from hsd.records import Estimate, Hierarchy, Level, Progress, Report, Sampling, ShouldStop
from hsd.settings import MAX_DEPTH

KINDS = ("summarisation", "chat")
_PATTERNS = ((2, 4, 8, 12), (3, 3, 3, 3), (6, 8, 10, 12), (1, 2, 4, 6), (4, 2, 5, 3))  # thresholds, smallest model first
_LARGEST = 12  # threshold
_WIDEST = 54  # new tokens in the longest pass of any of them
_FIRST_LOOK_S = 6.0  # passes timed to choose the hierarchies; those that count are timed while the hierarchies run
_MOST_AT_ONCE = 6  # runs between two sweeps over the passes, fewer where that made too few sweeps for a narrow median
_SWEEPS = 40


def sweep(
    models: ModelSet,
    plan: Plan,
    prompts: PromptSet,
    *,
    count: int = 24,
    prompts_per_kind: int = 4,
    repeats: int = 3,
    max_new_tokens: int = 64,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> Sweep:
    """On each kind of prompts predict `count` hierarchies (depth 1 to 4, thresholds 1 to 12, the planned ones and the target alone
    among them) and run them on the same prompts.

    The passes are timed anew while the hierarchies run, a sweep over all models after every few runs, so that a drift of the machine
    falls on prediction and measurement alike: what is tested is the latency model, not whether the machine is as fast as a minute ago.
    Raises `Cancelled` when stopped.
    """
    points: list[SweepPoint] = []
    ranked_by = ""
    for kind, chosen in _kinds(prompts, prompts_per_kind).items():
        effort = run.QUICK
        first = replace(
            effort,
            prompts=len(chosen),
            max_new_tokens=max_new_tokens,
            cost_budget_s=min(_FIRST_LOOK_S, effort.cost_budget_s),
        )
        measurement = run.measure(models, chosen, sampling=plan.sampling, effort=first, report=report, should_stop=should_stop)
        _raise_if(should_stop())
        hierarchies = [entry.hierarchy for entry in choose(measurement, models, plan, count)]
        encoded = [encode_prompt(models.tokenizer, prompt.prompt) for prompt in chosen]
        runs = _Runs(models, hierarchies, encoded, repeats, max_new_tokens, plan.sampling, report, should_stop)
        widest = max(max(hierarchy.longest_blocks, default=0) for hierarchy in hierarchies) + 1
        passes = run.time_passes(
            models,
            encoded,
            replace(first, cost_budget_s=float("inf"), widths=_widths(effort.widths, widest)),
            sampling=plan.sampling,
            report=lambda progress: None,
            should_stop=lambda runs=runs: runs.complete or should_stop(),
            between=runs.go_on,
            narrow=0.0,
        )
        _raise_if(not runs.complete)
        predictor = Predictor.prepare(run.with_passes(measurement, passes), _WIDEST)
        ranked_by = predictor.ranked_by
        points += [_point(predictor.predict(hierarchy), kind, runs.seconds_per_token(hierarchy)) for hierarchy in hierarchies]
    return Sweep(tuple(points), repeats, max_new_tokens, plan.sampling, models.environment, ranked_by)


def choose(measurement: Measurement, models: ModelSet, plan: Plan, count: int) -> list[Alternative]:
    """`count` predicted hierarchies: the plan's, the target alone and what is planned for these prompts, then evenly from the
    fastest to the slowest."""
    predictor = Predictor.prepare(measurement, _WIDEST)
    here = plan_with(predictor, min(MAX_DEPTH, len(measurement.models) - 1), _LARGEST)
    fixed = list(dict.fromkeys([plan.hierarchy, Hierarchy((Level(models.target),)), here.hierarchy]))
    everything = dict.fromkeys([*fixed, *_grid(measurement, models)])
    predicted = [predictor.predict(hierarchy) for hierarchy in everything]
    rest = sorted(predicted[len(fixed) :], key=lambda entry: entry.predicted_s_per_token.best)
    wanted = min(max(1, count - len(fixed)), len(rest))
    picked = [rest[i * (len(rest) - 1) // max(1, wanted - 1)] for i in range(wanted)]
    return [*predicted[: len(fixed)], *picked]


def _grid(measurement: Measurement, models: ModelSet) -> list[Hierarchy]:
    """Every chain of models with every pattern of thresholds."""
    drafts = measurement.models[:-1]
    found = []
    for depth in range(1, min(4, len(drafts)) + 1):
        for chain in combinations(drafts, depth):
            if any(not isinstance(models.networks[name], Network) for name in chain[1:]):
                continue  # only the bottom level may be a proposer
            found += [Hierarchy.of(*zip(chain, pattern, strict=False), target=measurement.target) for pattern in _PATTERNS]
    return found


def _kinds(prompts: PromptSet, count: int) -> dict[str, PromptSet]:
    present = [kind for kind in KINDS if kind in prompts.categories]
    if not present:
        return {prompts.name: prompts.spread(count)}
    return {kind: prompts.only(kind).spread(count) for kind in present}


def _widths(widths: Sequence[int], widest: int) -> tuple[int, ...]:
    """The usual widths as far as the hierarchies go, and their widest pass."""
    return tuple(sorted({*(width for width in widths if width < widest), widest}))


@dataclass(slots=True)
class _Runs:
    """Every hierarchy on every prompt, `repeats` times, a few runs at a time."""

    models: ModelSet
    hierarchies: Sequence[Hierarchy]
    encoded: Sequence[Sequence[int]]
    repeats: int
    max_new_tokens: int
    sampling: Sampling
    report: Report
    should_stop: ShouldStop
    spent: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # [hierarchy, prompt]: seconds, one a repeat
    tokens: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    done: int = 0

    @property
    def total(self) -> int:
        return self.repeats * len(self.encoded) * len(self.hierarchies)

    @property
    def complete(self) -> bool:
        return self.done == self.total

    def go_on(self) -> None:
        """The next few runs, in the order repeat, prompt, hierarchy."""
        at_once = max(1, min(_MOST_AT_ONCE, self.total // _SWEEPS))
        for _ in range(min(at_once, self.total - self.done)):
            rest, number = divmod(self.done, len(self.hierarchies))
            repeat, prompt = divmod(rest, len(self.encoded))
            self.report(Progress("sweep", self.done, self.total, None, f"repeat {repeat + 1} of {self.repeats}"))
            hierarchy = self.hierarchies[number]
            settings = {"sampling": self.sampling.of_run(rest), "max_new_tokens": self.max_new_tokens, "should_stop": self.should_stop}
            found = generate_whole(self.models, hierarchy, self.encoded[prompt], **settings)
            _raise_if(found.end.reason == "stopped")
            self.spent.setdefault((str(hierarchy), prompt), []).append(found.end.decode_s)
            self.tokens.setdefault((str(hierarchy), prompt), []).append(len(found.token_ids))
            self.done += 1

    def seconds_per_token(self, hierarchy: Hierarchy) -> Estimate:
        """From the median over repeats of each prompt; the interval from the repeats as wholes."""
        rows = [key for key in self.spent if key[0] == str(hierarchy)]
        tokens = sum(statistics.median(self.tokens[key]) for key in rows)
        middle = sum(statistics.median(self.spent[key]) for key in rows) / tokens
        whole = [
            sum(self.spent[key][repeat] for key in rows) / sum(self.tokens[key][repeat] for key in rows) for repeat in range(self.repeats)
        ]
        spread = median_estimate(whole)
        return Estimate(middle, min(spread.low, middle), max(spread.high, middle), self.repeats)


def _point(entry: Alternative, kind: str, measured: Estimate) -> SweepPoint:
    prediction = entry.predicted_s_per_token
    return SweepPoint(
        hierarchy=str(entry.hierarchy),
        prompts=kind,
        predicted_s_per_token=prediction.best,
        predicted_low=prediction.low,
        predicted_high=prediction.high,
        paper_s_per_token=prediction.paper,
        exact_s_per_token=prediction.exact,
        measured_s_per_token=measured,
        trace_s_per_token=prediction.trace,
    )


def _raise_if(stopped: bool) -> None:
    if stopped:
        raise Cancelled("Stopped before the sweep was complete; nothing is known yet.")
