"""Measure: what every model costs, and how often each is accepted by each larger one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent
from hsd.generate.prompt import encode_prompt
from hsd.generate.sampling import Transforms
from hsd.measure.acceptance import block_gains, trace_text
from hsd.measure.breakdown import acceptance_rates
from hsd.measure.costs import NARROW, Costs, measure_costs
from hsd.measure.prompts import Prompt, PromptSet
from hsd.measure.record import Measurement, Trace
from hsd.measure.rehearsal import Overheads, Rehearsal
from hsd.models.network import Network
from hsd.pick.model_set import ModelSet
from hsd.records import GREEDY, Estimate, Hierarchy, Level, Progress, Report, Sampling, ShouldStop


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a measurement spends."""

    prompts: int
    max_new_tokens: int
    cost_budget_s: float
    widths: tuple[int, ...]  # at the mean context
    context_widths: tuple[int, ...] = ()  # at the shortest and the longest context


# Kernels work on groups of rows, so that a pass of five tokens may cost as much as one of eight: narrow widths are all measured.
QUICK = Effort(prompts=16, max_new_tokens=64, cost_budget_s=35.0, widths=(*range(1, 10), 12, 17, 25), context_widths=(1, 4, 25))
THOROUGH = Effort(
    prompts=40,
    max_new_tokens=128,
    cost_budget_s=180.0,
    widths=(*range(1, 18), 19, 21, 25, 29, 33),
    context_widths=(1, 2, 4, 8, 16, 33),
)
_REHEARSED = 4  # prompts
_SPAN = 64  # contexts that differ by fewer tokens cost the same


def measure(
    models: ModelSet,
    prompts: PromptSet,
    *,
    sampling: Sampling = GREEDY,
    thorough: bool = False,
    effort: Effort | None = None,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
    on_partial: Callable[[Measurement], None] = lambda measurement: None,
) -> Measurement:
    """Measure every loaded model on this device, quickly, thoroughly or with an `effort` of your own.

    With sampling each prompt has the next seed. `on_partial` receives the measurement so far after each prompt. When stopped after the
    first prompt, what is complete is returned; before that, `Cancelled` is raised. `BadInput` for a prompt that does not fit.
    """
    effort = effort or (THOROUGH if thorough else QUICK)
    chosen = prompts.spread(effort.prompts)
    encoded = [(prompt, _encode(models, prompt, effort.max_new_tokens)) for prompt in chosen]
    passes = time_passes(models, [ids for _, ids in encoded], effort, sampling=sampling, report=report, should_stop=should_stop)
    if should_stop():
        raise Cancelled("Stopped before anything was complete; nothing was kept. Start the measurement again when you like.")
    order = _smallest_first(models, passes.costs.by_width)
    networks = {name: models.networks[name] for name in order}
    transforms = Transforms(sampling)
    traces: list[Trace] = []
    measurement: Measurement | None = None
    started = time.perf_counter()
    for position, (prompt, prompt_ids) in enumerate(encoded):
        left = (time.perf_counter() - started) / position * (len(encoded) - position) if position else None
        report(Progress("acceptance", position, len(encoded), left, f"prompt {position + 1} of {len(encoded)} ({prompt.category})"))
        own = sampling.of_run(position)
        response_ids = _target_text(models, prompt_ids, own, effort.max_new_tokens, should_stop)
        if should_stop():
            break
        try:
            traces.append(trace_text(networks, prompt.id, prompt.category, prompt_ids, response_ids, transforms, own.seed, should_stop))
        except Cancelled:
            break
        measurement = _assemble(models, order, passes, traces, sampling, chosen)
        on_partial(measurement)
    if measurement is None:
        raise Cancelled("Stopped before the first prompt was complete; nothing was kept. Start the measurement again when you like.")
    report(Progress("acceptance", len(traces), len(encoded), 0.0, f"{len(traces)} of {len(encoded)} prompts measured"))
    return measurement


@dataclass(frozen=True, slots=True)
class Passes:
    """What passes cost, and what running hierarchies take beside them."""

    costs: Costs
    overheads: Overheads
    context_tokens: int


def time_passes(
    models: ModelSet,
    encoded: Sequence[Sequence[int]],
    effort: Effort,
    *,
    sampling: Sampling,
    report: Report,
    should_stop: ShouldStop,
    between: Callable[[], None] = lambda: None,
    narrow: float = NARROW,
) -> Passes:
    """Time every model at the contexts of these prompts (token ids), and rehearse hierarchies on them; see `measure_costs`."""
    lengths = [len(ids) for ids in encoded]
    # The new tokens of the widest pass must still fit after the context.
    room = min(network.max_context for network in models.networks.values() if isinstance(network, Network)) - max(effort.widths)
    context_tokens = min(sum(lengths) // len(lengths) + effort.max_new_tokens // 2, room)
    ends = [min(*lengths, room), min(max(lengths) + effort.max_new_tokens, room)]
    filler = [token_id for ids in encoded for token_id in ids]
    longest = max(ends) + max(effort.widths)
    # Rehearsed at the contexts of the timed passes, whose seconds are taken off.
    near = sorted(encoded, key=lambda ids: abs(len(ids) + effort.max_new_tokens // 2 - context_tokens))
    rehearsal = Rehearsal(models, near[:_REHEARSED], sampling, effort.max_new_tokens, should_stop)

    def after_each_sweep() -> None:
        rehearsal()
        between()

    costs = measure_costs(
        {name: models.networks[name] for name in sorted(models.networks, key=lambda name: name == models.target)},
        (filler * (longest // len(filler) + 1))[:longest],
        context_tokens=context_tokens,
        widths=effort.widths,
        sampling=sampling,
        budget_s=effort.cost_budget_s,
        report=report,
        should_stop=should_stop,
        contexts=[length for length in ends if abs(length - context_tokens) >= _SPAN],
        context_widths=effort.context_widths,
        between=after_each_sweep,
        narrow=narrow,
    )
    rehearsal.fill_up()
    return Passes(costs, rehearsal.overheads(costs), context_tokens)


def with_passes(measurement: Measurement, passes: Passes) -> Measurement:
    """The measurement with these costs and overheads of the same models."""
    costs, overheads = passes.costs, passes.overheads
    return replace(
        measurement,
        cost_s={name: costs.by_width[name] for name in measurement.models},
        context_cost_s=costs.by_context,
        context_tokens=passes.context_tokens,
        overhead_s=overheads.target_round_s,
        token_overhead_s=overheads.token_s,
        round_overhead_s=overheads.round_s,
        overhead_rounds=overheads.rounds,
    )


def _encode(models: ModelSet, prompt: Prompt, max_new_tokens: int) -> list[int]:
    token_ids = encode_prompt(models.tokenizer, prompt.prompt)
    networks = [network for network in models.networks.values() if isinstance(network, Network)]
    shortest = min(networks, key=lambda network: (network.max_context, network.name != models.target))
    room = shortest.max_context - max_new_tokens
    if len(token_ids) > room:
        other = "" if shortest.name == models.target else f", or do without {shortest.name}"
        raise BadInput(
            f"Prompt {prompt.id} has {len(token_ids)} tokens, {shortest.name} takes {room} with room for an answer; "
            f"leave it out or shorten it{other}."
        )
    fewest = min(networks, key=lambda network: network.vocab_size)
    if (largest := max(token_ids)) >= fewest.vocab_size:
        raise BadInput(
            f"Prompt {prompt.id} holds token {largest}, which is not in the vocabulary of {fewest.name} ({fewest.vocab_size} tokens); "
            f"leave it out, or do without {fewest.name}."
        )
    return token_ids


def _smallest_first(models: ModelSet, cost_s: dict[str, dict[int, Estimate]]) -> tuple[str, ...]:
    """Names by measured cost of a pass of width 1 (proposers first), the target last."""
    drafts = [name for name in models.networks if name != models.target]
    drafts.sort(key=lambda name: (isinstance(models.networks[name], Network), min(cost_s[name].items())[1].median))
    return (*drafts, models.target)


def _target_text(models: ModelSet, prompt_ids: list[int], sampling: Sampling, max_new_tokens: int, should_stop: ShouldStop) -> list[int]:
    """The target's own continuation, as far as every draft can read it: one that meets a token beyond its vocabulary drops out."""
    known = min(network.vocab_size for network in models.networks.values() if isinstance(network, Network))
    alone = Hierarchy((Level(models.target),))
    for event in generate(models, alone, prompt_ids, sampling=sampling, max_new_tokens=max_new_tokens, should_stop=should_stop):
        match event:
            case EndEvent(reason="target_fault"):
                raise LevelFault(event.message)
            case EndEvent():
                end = next((place for place, token_id in enumerate(event.token_ids, 1) if token_id >= known), None)
                return list(event.token_ids[:end])
    raise AssertionError("a generation ends with an EndEvent")


def _assemble(
    models: ModelSet,
    order: tuple[str, ...],
    passes: Passes,
    traces: list[Trace],
    sampling: Sampling,
    prompts: PromptSet,
) -> Measurement:
    verifiers = [name for name in order if isinstance(models.networks[name], Network)]
    proposers = [name for name in order if name not in verifiers]
    bare = Measurement(
        models=order,
        cost_s={},
        acceptance=acceptance_rates(traces),
        block_gains={draft: {verifier: block_gains(traces, draft, verifier) for verifier in verifiers} for draft in proposers},
        overhead_s=0.0,
        context_tokens=0,
        sampling=sampling,
        prompts=prompts.info,
        environment=models.environment,
        memory_bytes=dict(models.memory_bytes),
        traces=tuple(traces),
    )
    return with_passes(bare, passes)
