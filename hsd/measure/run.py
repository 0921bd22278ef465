"""Measure: what every model costs, and how often each is accepted by each larger one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent, RoundEvent
from hsd.generate.prompt import encode_prompt
from hsd.generate.sampling import Transforms
from hsd.measure.acceptance import block_gains, trace_text
from hsd.measure.costs import measure_costs
from hsd.measure.intervals import acceptance_estimate
from hsd.measure.prompts import Prompt, PromptSet
from hsd.measure.record import Measurement, Trace
from hsd.models.network import Network
from hsd.pick.registry import ModelSet
from hsd.records import GREEDY, Estimate, Hierarchy, Level, Progress, Report, Sampling, ShouldStop


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a measurement spends."""

    prompts: int
    max_new_tokens: int
    cost_budget_s: float
    widths: tuple[int, ...]


QUICK = Effort(prompts=16, max_new_tokens=64, cost_budget_s=35.0, widths=(1, 2, 3, 4, 6, 8, 12, 17, 25))
THOROUGH = Effort(prompts=40, max_new_tokens=128, cost_budget_s=180.0, widths=(*range(1, 10), 12, 15, 17, 21, 25, 33))


def measure(
    models: ModelSet,
    prompts: PromptSet,
    *,
    sampling: Sampling = GREEDY,
    thorough: bool = False,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
    on_partial: Callable[[Measurement], None] = lambda measurement: None,
) -> Measurement:
    """Measure every loaded model on this device.

    `on_partial` receives the measurement so far after each prompt. When stopped after the first prompt, what is
    complete is returned; before that, `Cancelled` is raised. `BadInput` for a prompt that does not fit.
    """
    effort = THOROUGH if thorough else QUICK
    chosen = prompts.spread(effort.prompts)
    encoded = [(prompt, _encode(models, prompt, effort.max_new_tokens)) for prompt in chosen]
    # A pass costs more by a constant for each token of context, so that costs at the mean context are the mean costs.
    context_tokens = sum(len(ids) for _, ids in encoded) // len(encoded) + effort.max_new_tokens // 2
    filler = [token_id for _, ids in encoded for token_id in ids]
    longest = context_tokens + max(effort.widths)
    filler = (filler * (longest // len(filler) + 1))[:longest]
    cost_s = measure_costs(
        models.networks,
        filler,
        context_tokens=context_tokens,
        widths=effort.widths,
        sampling=sampling,
        budget_s=effort.cost_budget_s,
        report=report,
        should_stop=should_stop,
    )
    if should_stop():
        raise Cancelled("Stopped before anything was complete; nothing was kept. Start the measurement again when you like.")
    order = _smallest_first(models, cost_s)
    networks = {name: models.networks[name] for name in order}
    transforms = Transforms(sampling)
    traces: list[Trace] = []
    overheads: list[tuple[float, int]] = []
    measurement: Measurement | None = None
    started = time.perf_counter()
    for position, (prompt, prompt_ids) in enumerate(encoded):
        left = (time.perf_counter() - started) / position * (len(encoded) - position) if position else None
        report(Progress("acceptance", position, len(encoded), left, f"prompt {position + 1} of {len(encoded)} ({prompt.category})"))
        response_ids, overhead = _target_text(models, prompt_ids, sampling, effort.max_new_tokens, should_stop)
        if should_stop():
            break
        overheads.append(overhead)
        traces.append(trace_text(networks, prompt.id, prompt.category, prompt_ids, response_ids, transforms, sampling.seed))
        measurement = _assemble(models, order, cost_s, traces, overheads, context_tokens, sampling, chosen)
        on_partial(measurement)
    if measurement is None:
        raise Cancelled("Stopped before the first prompt was complete; nothing was kept. Start the measurement again when you like.")
    report(Progress("acceptance", len(traces), len(encoded), 0.0, f"{len(traces)} of {len(encoded)} prompts measured"))
    return measurement


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
    return token_ids


def _smallest_first(models: ModelSet, cost_s: dict[str, dict[int, Estimate]]) -> tuple[str, ...]:
    """Names by measured cost of a pass of width 1 (proposers first), the target last."""
    drafts = [name for name in models.networks if name != models.target]
    drafts.sort(key=lambda name: (isinstance(models.networks[name], Network), min(cost_s[name].items())[1].median))
    return (*drafts, models.target)


def _target_text(
    models: ModelSet, prompt_ids: list[int], sampling: Sampling, max_new_tokens: int, should_stop: ShouldStop
) -> tuple[list[int], tuple[float, int]]:
    """The target's own continuation, and (seconds outside of its passes, rounds)."""
    inside, rounds = 0.0, 0
    alone = Hierarchy((Level(models.target),))
    for event in generate(models, alone, prompt_ids, sampling=sampling, max_new_tokens=max_new_tokens, should_stop=should_stop):
        match event:
            case RoundEvent():
                inside += event.seconds
                rounds += 1
            case EndEvent(reason="target_fault"):
                raise LevelFault(event.message)
            case EndEvent():
                return list(event.token_ids), (event.decode_s - inside, rounds)
    raise AssertionError("a generation ends with an EndEvent")


def _assemble(
    models: ModelSet,
    order: tuple[str, ...],
    cost_s: dict[str, dict[int, Estimate]],
    traces: list[Trace],
    overheads: list[tuple[float, int]],
    context_tokens: int,
    sampling: Sampling,
    prompts: PromptSet,
) -> Measurement:
    verifiers = [name for name in order if isinstance(models.networks[name], Network)]
    proposers = [name for name in order if name not in verifiers]
    acceptance: dict[str, dict] = {}
    for draft, verifier in combinations(verifiers, 2):
        acceptance.setdefault(draft, {})[verifier] = acceptance_estimate([trace.accept[draft][verifier] for trace in traces])
    for draft in proposers:
        # Of a proposer: how often its first proposed token is accepted, over the positions where it proposes.
        acceptance[draft] = {}
        for verifier in verifiers:
            firsts = [[float(accepted > 0) for drafted, accepted in trace.proposals[draft][verifier] if drafted] for trace in traces]
            if any(firsts):
                acceptance[draft][verifier] = acceptance_estimate(firsts)
    return Measurement(
        models=order,
        cost_s={name: cost_s[name] for name in order},
        acceptance=acceptance,
        block_gains={draft: {verifier: block_gains(traces, draft, verifier) for verifier in verifiers} for draft in proposers},
        overhead_s=sum(seconds for seconds, _ in overheads) / max(1, sum(rounds for _, rounds in overheads)),
        context_tokens=context_tokens,
        sampling=sampling,
        prompts=prompts.info,
        environment=models.environment,
        memory_bytes=dict(models.memory_bytes),
        traces=tuple(traces),
    )
