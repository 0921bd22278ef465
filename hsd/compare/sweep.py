"""Do predictions come true? Many hierarchies, each predicted from a measurement and then run."""

from __future__ import annotations

from itertools import combinations

from hsd.compare.record import Sweep, SweepPoint
from hsd.compare.whole import generate_whole
from hsd.errors import Cancelled
from hsd.generate.prompt import encode_prompt
from hsd.measure.intervals import median_estimate
from hsd.measure.prompts import PromptSet
from hsd.measure.record import Measurement
from hsd.measure.run import measure
from hsd.models.network import Network
from hsd.pick.registry import ModelSet
from hsd.plan.planner import Predictor
from hsd.plan.record import Alternative, Plan
from hsd.records import Hierarchy, Level, Progress, Report, Sampling, ShouldStop

KINDS = ("summarisation", "chat")
_PATTERNS = ((2, 4, 8, 12), (3, 3, 3, 3), (6, 8, 10, 12), (1, 2, 4, 6), (4, 2, 5, 3))  # thresholds, smallest model first
_WIDEST = 48  # new tokens in the longest pass of any of them


def sweep(
    models: ModelSet,
    plan: Plan,
    prompts: PromptSet,
    *,
    count: int = 24,
    prompts_per_kind: int = 5,
    repeats: int = 3,
    max_new_tokens: int = 64,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> Sweep:
    """Measure on each kind of prompts, predict `count` hierarchies from it (depth 1 to 4, thresholds 1 to 12, the plan's
    best among them), then run each of them on the same prompts, interleaved.

    The measurement is made in the same run, since what is tested is the latency model and not whether the machine is
    as fast as yesterday. Raises `Cancelled` when stopped.
    """
    points: list[SweepPoint] = []
    for kind, chosen in _kinds(prompts, prompts_per_kind).items():
        measurement = measure(models, chosen, sampling=plan.sampling, report=report, should_stop=should_stop)
        _raise_if(should_stop())
        predicted = choose(measurement, models, plan, count)
        measured = _run_all(
            models, [entry.hierarchy for entry in predicted], chosen, repeats, max_new_tokens, plan.sampling, report, should_stop
        )
        points += [_point(entry, kind, measured[str(entry.hierarchy)]) for entry in predicted]
    return Sweep(tuple(points), repeats, max_new_tokens, plan.sampling, models.environment)


def choose(measurement: Measurement, models: ModelSet, plan: Plan, count: int) -> list[Alternative]:
    """`count` predicted hierarchies: the plan's and the target alone, then evenly from the fastest to the slowest."""
    predictor = Predictor.prepare(measurement, _WIDEST)
    fixed = list(dict.fromkeys([plan.hierarchy, Hierarchy((Level(models.target),))]))
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


def _run_all(
    models: ModelSet,
    hierarchies: list[Hierarchy],
    prompts: PromptSet,
    repeats: int,
    max_new_tokens: int,
    sampling: Sampling,
    report: Report,
    should_stop: ShouldStop,
) -> dict[str, list[float]]:
    """Measured seconds per token of every hierarchy, one value a repeat."""
    encoded = [encode_prompt(models.tokenizer, prompt.prompt) for prompt in prompts]
    found: dict[str, list[float]] = {str(hierarchy): [] for hierarchy in hierarchies}
    for repeat in range(repeats):
        totals = {name: [0.0, 0] for name in found}
        for position, prompt_ids in enumerate(encoded):
            report(Progress("sweep", repeat * len(encoded) + position, repeats * len(encoded), None, f"repeat {repeat + 1} of {repeats}"))
            for hierarchy in hierarchies:
                settings = {"sampling": sampling, "max_new_tokens": max_new_tokens, "should_stop": should_stop}
                run = generate_whole(models, hierarchy, prompt_ids, **settings)
                _raise_if(run.end.reason == "stopped")
                totals[str(hierarchy)][0] += run.end.decode_s
                totals[str(hierarchy)][1] += len(run.token_ids)
        for name, (seconds, tokens) in totals.items():
            found[name].append(seconds / tokens)
    return found


def _point(entry: Alternative, kind: str, measured: list[float]) -> SweepPoint:
    prediction = entry.predicted_s_per_token
    return SweepPoint(
        hierarchy=str(entry.hierarchy),
        prompts=kind,
        predicted_s_per_token=prediction.best,
        predicted_low=prediction.low,
        predicted_high=prediction.high,
        paper_s_per_token=prediction.paper,
        exact_s_per_token=prediction.exact,
        measured_s_per_token=median_estimate(measured),
    )


def _raise_if(stopped: bool) -> None:
    if stopped:
        raise Cancelled("Stopped before the sweep was complete; nothing is known yet.")
