"""Seconds of one pass of every model, by width and by context length: warmed up, interleaved over models against drift."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from hsd.errors import Cancelled
from hsd.generate.faults import as_level_fault
from hsd.generate.sampling import Transforms, choose, probabilities
from hsd.measure.intervals import median_estimate
from hsd.models.network import Cache, Network, Proposer
from hsd.models.prefill import cancelling, feed
from hsd.models.upload import upload
from hsd.records import Estimate, Progress, Report, Sampling, ShouldStop

NARROW = 0.02  # half width of the interval, relative to the median, beyond which more samples change nothing
LEAST_SAMPLES = 7
_ROW = 4  # passes of a draft, one after the other
_MEETINGS = 3  # with each width, where passes are recorded: met, recorded, replayed


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of a pass by model and width; a proposer has the cost of one call, at width 0."""

    by_width: dict[str, dict[int, Estimate]]  # at the mean context
    by_context: dict[str, dict[int, dict[int, Estimate]]]  # [model][context tokens][width], at other lengths
    sweeps: tuple[dict[str, dict[int, float]], ...] = ()  # [sweep][model][width] at the mean context: a machine has fast and slow minutes


def measure_costs(
    networks: Mapping[str, Network | Proposer],
    token_ids: Sequence[int],
    *,
    context_tokens: int,
    widths: Sequence[int],
    sampling: Sampling,
    budget_s: float,
    report: Report,
    should_stop: ShouldStop,
    contexts: Sequence[int] = (),
    context_widths: Sequence[int] = (),
    between: Callable[[], None] = lambda: None,
    narrow: float = NARROW,
) -> Costs:
    """The forward pass over `width` new tokens after `context_tokens`, and the choice of a token from each of its rows, as
    a round of the engine pays it; at the other lengths `contexts` for the fewer `context_widths`.

    Every sweep takes one sample of each model at each width, so that a drift of the machine falls on all alike; after each sweep `between`
    is called. The last of `networks` is the target, of which one pass is timed, after passes of others as in a hierarchy. A sample
    of a draft is the mean of four passes in a row, as it runs below a verifier: from the second on, a part of its weights is still
    in the processor's cache (SmolLM2-135M, 32 MiB of L3: the fourth pass of `quantized:int4` took 6 to 12 % less than the first, of
    `quantized:int8` 0 to 8 %; the target's 270 MB gained nothing). Sweeps go on until every median at the mean context has a 95 %
    interval within `narrow` of it on either side, from 7 samples at least, or the budget ends; what is left when stopped is returned.
    Raises `LevelFault` for a model that fails.
    """
    transforms = Transforms(sampling)
    target = list(networks)[-1]
    plan = {context_tokens: tuple(widths), **{context: tuple(context_widths) for context in contexts if context != context_tokens}}
    models = {name: model for name, model in networks.items() if isinstance(model, Network)}
    turns = [(name, context, width) for context, chosen in plan.items() for width in chosen for name in models]
    expected = sum(context == context_tokens for _, context, _ in turns) + len(networks) - len(models)
    report(Progress("cost", 0, expected, budget_s if budget_s < float("inf") else None, "warming up"))
    samples: dict[tuple[str, int, int], list[float]] = {}  # (model, context, width)
    caches: dict[tuple[str, int], Cache] = {}
    try:
        for name, context in dict.fromkeys((name, context) for name, context, _ in turns):
            with as_level_fault(name):
                caches[name, context] = _warm(models[name], token_ids, context, plan[context], cancelling(should_stop))
    except Cancelled:
        return _costs(networks, samples, context_tokens, ())
    sweeps: list[dict[str, dict[int, float]]] = []
    started = time.perf_counter()
    while True:
        sweep: dict[str, dict[int, float]] = {name: {} for name in networks}
        for name, context, width in turns:
            if should_stop():
                return _costs(networks, samples, context_tokens, sweeps)
            row = 1 if name == target else _ROW
            with as_level_fault(name):
                passes = [_time_pass(models[name], caches[name, context], token_ids, context, width, transforms) for _ in range(row)]
            seconds = sum(passes) / row
            samples.setdefault((name, context, width), []).append(seconds)
            if context == context_tokens:
                sweep[name][width] = seconds
        for name, model in networks.items():
            if not isinstance(model, Network):
                calls = _time_calls(model, token_ids)
                samples.setdefault((name, context_tokens, 0), []).extend(calls)
                sweep[name][0] = statistics.median(calls)
        sweeps.append(sweep)
        between()
        spent = time.perf_counter() - started
        estimates = [median_estimate(values) for (_, context, _), values in samples.items() if context == context_tokens]
        known = sum(_is_narrow(estimate, narrow) for estimate in estimates)
        left = max(0.0, budget_s - spent) if budget_s < float("inf") else None
        report(
            Progress(
                "cost", known, len(estimates), left, f"{known} of {len(estimates)} costs known to {narrow:.0%}, {len(sweeps)} samples each"
            )
        )
        if spent > budget_s or known == len(estimates):
            return _costs(networks, samples, context_tokens, sweeps)


def _costs(
    networks: Iterable[str],
    samples: Mapping[tuple[str, int, int], Sequence[float]],
    context_tokens: int,
    sweeps: Sequence[dict[str, dict[int, float]]],
) -> Costs:
    found = Costs({name: {} for name in networks}, {}, tuple(sweeps))
    for (name, context, width), values in samples.items():
        rows = found.by_width if context == context_tokens else found.by_context.setdefault(name, {})
        rows.setdefault(name if context == context_tokens else context, {})[width] = median_estimate(values)
    return found


def _is_narrow(estimate: Estimate, narrow: float) -> bool:
    return estimate.samples >= LEAST_SAMPLES and estimate.high - estimate.low <= 2 * narrow * estimate.median


def _warm(network: Network, token_ids: Sequence[int], context_tokens: int, widths: Sequence[int], before_pass: Callable[[], None]) -> Cache:
    """A cache that holds the context; each pass begins after it."""
    cache = network.new_cache(context_tokens + max(widths))
    feed(network, cache, token_ids[:context_tokens], before_pass)
    recorded = getattr(network, "steps", None) is not None
    for width in [width for width in widths for _ in range(_MEETINGS)] if recorded else [max(widths)]:
        before_pass()
        network.forward(upload(token_ids[context_tokens : context_tokens + width], network.device), cache, width)
        cache.crop(context_tokens)
    return cache


def _time_pass(network: Network, cache: Cache, token_ids: Sequence[int], context_tokens: int, width: int, transforms: Transforms) -> float:
    new = list(token_ids[context_tokens : context_tokens + width])
    clock = Clock(network.device)
    logits = network.forward(upload(new, network.device), cache, width)
    scores = transforms.scores(logits, token_ids[: context_tokens + width])
    if transforms.greedy:
        choose(scores, network.name)
    else:
        probabilities(scores, network.name)
    seconds = clock.seconds()
    cache.crop(context_tokens)
    return seconds


def _time_calls(proposer: Proposer, token_ids: Sequence[int], calls: int = 8) -> list[float]:
    """Seconds of single proposals while the text grows, the index already holding what came before."""
    fresh = proposer.fresh()
    grown = list(token_ids[: len(token_ids) - calls])
    fresh.propose(grown, 8)
    seconds = []
    for token_id in token_ids[len(token_ids) - calls :]:
        grown.append(token_id)
        started = time.perf_counter()
        fresh.propose(grown, 8)
        seconds.append(time.perf_counter() - started)
    return seconds


class Clock:
    """Seconds since it was made: CUDA events on CUDA, the processor's clock elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._device = device
            self._start, self._end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize(device)
            self._start.record(torch.cuda.current_stream(device))
        else:
            self._since = time.perf_counter()

    def seconds(self) -> float:
        if not self._cuda:
            return time.perf_counter() - self._since
        self._end.record(torch.cuda.current_stream(self._device))
        torch.cuda.synchronize(self._device)
        return self._start.elapsed_time(self._end) / 1000
