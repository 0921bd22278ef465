"""Compare: the prediction beside measured runs of plain, single-draft and hierarchical decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from transformers import PreTrainedModel

from hsd.compare.baselines import BASELINES, assistants, can_run, load_modules, run_baseline
from hsd.compare.divergence import first_divergences, parted
from hsd.compare.record import LATENCY_MODELS, Comparison, Divergence, MethodResult
from hsd.compare.warm import record_passes
from hsd.compare.whole import generate_whole
from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.generate.prompt import encode_prompt
from hsd.measure.intervals import median_estimate
from hsd.measure.prompts import Prompt, PromptSet
from hsd.models.prefill import cancelling
from hsd.pick.model_set import ModelSet
from hsd.plan.record import Plan, Prediction
from hsd.records import Estimate, Hierarchy, Level, Progress, Report, Sampling, ShouldStop

METHODS = ("target", "best-single", "hierarchy", *BASELINES)


@dataclass(slots=True)
class _Tally:
    """What one method did so far."""

    rates: list[float] = field(default_factory=list)  # tokens per second, one a repeat
    tokens: int = 0
    rounds: int = 0
    inside_s: float = 0.0
    decode_s: float = 0.0
    texts: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)  # by prompt, one a repeat


def compare(
    models: ModelSet,
    plan: Plan,
    prompts: PromptSet,
    *,
    repeats: int = 3,
    max_new_tokens: int = 64,
    methods: Sequence[str] | None = None,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
) -> Comparison:
    """Decode every prompt by every method, `repeats` times, interleaved so that a drift of the machine falls on all.

    With sampling each prompt of each repeat has the next seed, the same for all methods. A mode of transformers that fails, or for which
    there is no memory, is left out, and why is told. A warm-up of one short run a method is not counted; caches are never reused.
    Tokens per second are committed tokens over wall seconds of decoding, the prompt's own pass excluded, for all methods alike. When
    stopped after a complete repeat, what is complete is returned, but not where texts differ; before that, `Cancelled` is raised.
    `BadInput` when a method wrote nothing that could be timed.
    """
    check_can_be_timed(max_new_tokens)
    hierarchies = _hierarchies(plan)
    chosen = _choose_methods(methods, models, hierarchies)
    encoded = [(prompt, encode_prompt(models.tokenizer, prompt.prompt)) for prompt in prompts]
    if not encoded:
        raise BadInput("There is no prompt to compare on; give at least one.")
    report(Progress("compare", 0, repeats * len(encoded), None, "warming up"))
    modules, left_out = load_modules(models, chosen)
    tallies = {name: _Tally() for name in chosen if can_run(name, models, modules)}
    timed = [hierarchies[name] for name in tallies if name in hierarchies]
    longest = max(len(ids) for _, ids in encoded) + max_new_tokens + max(len(hierarchy.levels) for hierarchy in timed)
    record_passes(models, timed, longest, should_stop)

    def attempt(name: str, sampling: Sampling, prompt_ids: list[int], limit: int) -> _Outcome | None:
        """`None` for a mode of transformers that failed: it takes no further part."""
        nonlocal left_out
        try:
            return _run(name, models, modules, sampling, hierarchies, prompt_ids, limit, should_stop)
        except LevelFault as error:
            if name not in BASELINES:
                raise
            del tallies[name]
            left_out += (f"{name} is left out. {error}",)
            return None

    for name in list(tallies):
        attempt(name, plan.sampling, encoded[0][1], min(8, max_new_tokens))
    complete = 0
    for repeat in range(repeats):
        spent = {name: [0, 0.0] for name in tallies}
        for position, (prompt, prompt_ids) in enumerate(encoded):
            sampling = plan.sampling.of_run(repeat * len(encoded) + position)
            for name in list(tallies):
                report(_progress(repeat, repeats, position, len(encoded), name, prompt))
                outcome = attempt(name, sampling, prompt_ids, max_new_tokens)
                if should_stop():
                    break
                if outcome:
                    _add(tallies[name], prompt, outcome, spent[name])
            if should_stop():
                break
        if should_stop():
            break
        for name, tally in tallies.items():
            tokens, seconds = spent[name]
            if not tokens or not seconds:
                raise BadInput(f"Every text of {name} ended with its first token, so that nothing was timed; take other prompts.")
            tally.rates.append(tokens / seconds)
        complete += 1
    if not complete:
        raise Cancelled("Stopped before every method had run once; there is nothing to compare yet.")
    texts = {name: tally.texts for name, tally in tallies.items()} if plan.sampling.greedy else {}
    divergences: tuple[Divergence, ...] = ()
    try:
        before_pass = cancelling(should_stop, "Stopped before it was looked at.")
        divergences = tuple(first_divergences(models, modules, texts, {prompt.id: ids for prompt, ids in encoded}, before_pass))
    except (Cancelled, LevelFault) as error:
        left_out += (f"Whether texts that differ from the target's do so at near-ties is not known. {error}",)
    found = _assemble(models, plan, hierarchies, tallies, len(encoded), complete, max_new_tokens)
    return replace(found, divergences=divergences, left_out=left_out)


def check_can_be_timed(max_new_tokens: int) -> None:
    """Raise `BadInput` for texts so short that transformers has nothing to time."""
    if max_new_tokens < 2:
        raise BadInput(
            f"With {max_new_tokens} new token nothing can be timed: transformers gives it with the prompt's own pass; give 2 at least."
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    token_ids: tuple[int, ...]
    timed_tokens: int
    seconds: float
    rounds: int
    inside_s: float


def _hierarchies(plan: Plan) -> dict[str, Hierarchy]:
    found = {"target": Hierarchy((Level(plan.hierarchy.target),)), "hierarchy": plan.hierarchy}
    if plan.best_single_draft is not None:
        found["best-single"] = plan.best_single_draft.hierarchy
    return found


def _choose_methods(methods: Sequence[str] | None, models: ModelSet, hierarchies: dict[str, Hierarchy]) -> list[str]:
    possible = [name for name in METHODS if name in hierarchies or (name in BASELINES and (name != BASELINES[2] or assistants(models)))]
    if methods is None:
        return possible
    for name in methods:
        if name not in possible:
            raise BadInput(f"“{name}” cannot be compared here; possible are {', '.join(possible)}.")
    return [name for name in possible if name in methods or name == "target"]  # the target is what all are held against


def _run(
    name: str,
    models: ModelSet,
    modules: Mapping[str, PreTrainedModel],
    sampling: Sampling,
    hierarchies: dict[str, Hierarchy],
    prompt_ids: list[int],
    max_new_tokens: int,
    should_stop: ShouldStop,
) -> _Outcome:
    if name in BASELINES:
        run = run_baseline(name, models, modules, prompt_ids, sampling=sampling, max_new_tokens=max_new_tokens, should_stop=should_stop)
        return _Outcome(run.token_ids, run.timed_tokens, run.seconds, 0, 0.0)
    settings = {"sampling": sampling, "max_new_tokens": max_new_tokens, "should_stop": should_stop}
    found = generate_whole(models, hierarchies[name], prompt_ids, **settings)
    return _Outcome(found.token_ids, len(found.token_ids), found.end.decode_s, found.target_rounds, found.forward_s)


def _add(tally: _Tally, prompt: Prompt, outcome: _Outcome, spent: list) -> None:
    tally.texts.setdefault(prompt.id, []).append(outcome.token_ids)
    tally.tokens += len(outcome.token_ids)
    tally.rounds += outcome.rounds
    tally.inside_s += outcome.inside_s
    tally.decode_s += outcome.seconds
    spent[0] += outcome.timed_tokens
    spent[1] += outcome.seconds


def _progress(repeat: int, repeats: int, position: int, count: int, name: str, prompt: Prompt) -> Progress:
    done = repeat * count + position
    return Progress("compare", done, repeats * count, None, f"repeat {repeat + 1} of {repeats}, prompt {prompt.id}, {name}")


def _assemble(
    models: ModelSet,
    plan: Plan,
    hierarchies: dict[str, Hierarchy],
    tallies: dict[str, _Tally],
    prompts: int,
    repeats: int,
    max_new_tokens: int,
) -> Comparison:
    predicted = _predictions(plan)
    results = []
    for name, tally in tallies.items():
        results.append(
            MethodResult(
                name=name,
                hierarchy=str(hierarchies[name]) if name in hierarchies else "",
                tokens_per_s=median_estimate(tally.rates),
                predicted_tokens_per_s=1 / predicted[name].best if name in predicted else None,
                tokens_per_target_pass=tally.tokens / tally.rounds if tally.rounds else None,
                identical=not any(parted(tallies["target"].texts, tally.texts)) if plan.sampling.greedy else None,
                outside_forward_share=1 - tally.inside_s / tally.decode_s if tally.rounds else None,
                predicted_by_model=_rates_by_model(predicted[name]) if name in predicted else {},
                times_target=None if name == "target" else _times(tally.rates, tallies["target"].rates),
            )
        )
    hierarchy = next((result for result in results if result.name == "hierarchy"), None)
    return Comparison(
        methods=tuple(results),
        identical=hierarchy.identical if hierarchy else None,
        divergences=(),
        repeats=repeats,
        prompts=prompts,
        max_new_tokens=max_new_tokens,
        sampling=plan.sampling,
        environment=models.environment,
        ranked_by=plan.ranked_by,
    )


def _times(rates: Sequence[float], alone: Sequence[float]) -> Estimate:
    """Ratios of the repeats."""
    return median_estimate([rate / other for rate, other in zip(rates, alone, strict=True)])


def _predictions(plan: Plan) -> dict[str, Prediction]:
    """What was predicted, by method."""
    alone = next((entry for entry in plan.alternatives if not entry.hierarchy.drafts), None)
    found = {"hierarchy": plan.predicted_s_per_token}
    if alone is not None:
        found["target"] = alone.predicted_s_per_token
    if plan.best_single_draft is not None:
        found["best-single"] = plan.best_single_draft.predicted_s_per_token
    return found


def _rates_by_model(prediction: Prediction) -> dict[str, float | None]:
    """Tokens per second under each latency model."""
    values = {name: getattr(prediction, name) for name in LATENCY_MODELS}
    return {name: 1 / seconds if seconds else None for name, seconds in values.items()}
