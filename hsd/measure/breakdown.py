"""Acceptance from the recorded positions: over all of them, by kind of prompt and by place in the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hsd.measure.intervals import acceptance_estimate
from hsd.measure.record import Acceptance, Trace

PLACES = 16  # positions that share a figure

Breakdown = dict[str, dict[str, Acceptance]]  # [draft][verifier]


def acceptance_by_category(traces: Sequence[Trace]) -> dict[str, Breakdown]:
    """[category][draft][verifier]; the interval resamples the prompts of the category."""
    kinds = dict.fromkeys(trace.category for trace in traces)
    return {kind: acceptance_rates([trace for trace in traces if trace.category == kind]) for kind in kinds}


def acceptance_by_position(traces: Sequence[Trace]) -> dict[int, Breakdown]:
    """[first position][draft][verifier]: places 0 to 15 of the generated text, 16 to 31 and so on, over all prompts that reach there."""
    longest = max((trace.tokens for trace in traces), default=0)
    return {
        start: acceptance_rates(traces, lambda values, start=start: values[start : start + PLACES]) for start in range(0, longest, PLACES)
    }


def acceptance_rates(traces: Sequence[Trace], part: Callable[[Sequence], Sequence] = lambda values: values) -> Breakdown:
    """[draft][verifier] over all positions of the traces, or the `part` of each.

    Of a proposer: how often its first proposed token is accepted, over the positions where it proposes.
    """
    if not traces:
        return {}
    found: Breakdown = {}
    for draft, row in traces[0].accept.items():
        for verifier in row:
            _put(found, draft, verifier, [part(trace.accept[draft][verifier]) for trace in traces])
    for draft, row in traces[0].proposals.items():
        found.setdefault(draft, {})
        for verifier in row:
            firsts = [[float(a > 0) for n, a in part(trace.proposals[draft][verifier]) if n] for trace in traces]
            _put(found, draft, verifier, firsts)
    return found


def _put(found: Breakdown, draft: str, verifier: str, per_prompt: Sequence[Sequence[float]]) -> None:
    if any(len(values) for values in per_prompt):
        found.setdefault(draft, {})[verifier] = acceptance_estimate(per_prompt)
