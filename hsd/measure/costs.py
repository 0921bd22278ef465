"""Seconds of one pass of every model, by width: warm, interleaved over models against drift."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from hsd.generate.sampling import Transforms, choose, probabilities
from hsd.measure.intervals import median_estimate
from hsd.models.network import Cache, Network, Proposer
from hsd.records import Estimate, Progress, Report, Sampling, ShouldStop

NARROW = 0.02  # half width of the interval, relative to the median, at which more samples change nothing
_LEAST_SAMPLES = 7


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
) -> dict[str, dict[int, Estimate]]:
    """`cost_s[model][width]`: the forward pass over `width` new tokens after `context_tokens`, and the choice of a token
    from each of its rows, as a round of the engine pays it. A proposer has the cost of one call, at width 0.

    Every sweep times each model at each width once, so that a drift of the machine falls on all alike. Sweeps go on
    until every interval is within 2 % of its median or the budget ends; what is left when stopped is returned.
    """
    transforms = Transforms(sampling)
    caches = {name: _warm(model, token_ids, context_tokens, max(widths)) for name, model in networks.items() if isinstance(model, Network)}
    samples: dict[tuple[str, int], list[float]] = {}
    started = time.perf_counter()
    while not should_stop():
        for width in widths:
            for name, cache in caches.items():
                seconds = _time_pass(networks[name], cache, token_ids, context_tokens, width, transforms)
                samples.setdefault((name, width), []).append(seconds)
        for name, model in networks.items():
            if not isinstance(model, Network):
                samples.setdefault((name, 0), []).extend(_time_calls(model, token_ids))
        spent = time.perf_counter() - started
        estimates = {key: median_estimate(values) for key, values in samples.items()}
        narrow = sum(_is_narrow(estimate) for estimate in estimates.values())
        report(Progress("cost", narrow, len(estimates), max(0.0, budget_s - spent), f"{narrow} of {len(estimates)} costs known to 2 %"))
        if spent > budget_s or narrow == len(estimates):
            break
    cost_s: dict[str, dict[int, Estimate]] = {name: {} for name in networks}
    for (name, width), values in samples.items():
        cost_s[name][width] = median_estimate(values)
    return cost_s


def _is_narrow(estimate: Estimate) -> bool:
    return estimate.samples >= _LEAST_SAMPLES and estimate.high - estimate.low <= 2 * NARROW * estimate.median


def _warm(network: Network, token_ids: Sequence[int], context_tokens: int, widest: int) -> Cache:
    """A cache that holds the context; each pass begins after it."""
    cache = network.new_cache(context_tokens + widest)
    network.forward(torch.tensor(token_ids[:context_tokens]), cache, 1)
    network.forward(torch.tensor(token_ids[context_tokens : context_tokens + widest]), cache, widest)
    cache.crop(context_tokens)
    return cache


def _time_pass(network: Network, cache: Cache, token_ids: Sequence[int], context_tokens: int, width: int, transforms: Transforms) -> float:
    new = list(token_ids[context_tokens : context_tokens + width])
    clock = Clock(network.device)
    logits = network.forward(torch.tensor(new), cache, width)
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
