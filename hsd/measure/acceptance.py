"""How often each model's token is accepted by each larger one, on text that the target itself generated (design §3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import torch

from hsd.generate.faults import as_level_fault
from hsd.generate.sampling import Transforms, choose, probabilities
from hsd.measure.record import BlockGain, Trace
from hsd.models.network import Cache, Network, Proposer
from hsd.models.prefill import cancelling, feed
from hsd.models.upload import upload
from hsd.records import ShouldStop
from hsd.settings import MAX_THRESHOLD

_CHUNK = 32  # positions whose distributions are held at once, of every model


def trace_text(
    networks: Mapping[str, Network | Proposer],
    prompt_id: str,
    category: str,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    transforms: Transforms,
    seed: int = 0,
    should_stop: ShouldStop = lambda: False,
) -> Trace:
    """Per-position acceptance of every ordered pair at the positions of the response.

    `networks` runs smallest first, the target last. At temperature > 0 the value is Σ_v min(p_i, p_j) from the two full
    rows, after the sampling transforms; greedy, 1.0 where the argmaxes agree. Positions are processed in chunks, so
    that a vocabulary of 150,000 and six models fit in memory. Raises `Cancelled` when stopped, asked before every pass,
    and `LevelFault` for a model that fails.
    """
    names = [name for name, model in networks.items() if isinstance(model, Network)]
    proposers = {name: model.fresh() for name, model in networks.items() if not isinstance(model, Network)}
    accept: dict[str, dict[str, list[float]]] = {draft: {verifier: [] for verifier in names[i + 1 :]} for i, draft in enumerate(names[:-1])}
    proposed = {
        name: [_proposal(proposer, prompt_ids, response_ids, t) for t in range(len(response_ids))] for name, proposer in proposers.items()
    }
    likelihood: dict[str, dict[str, list[list[float]]]] = {name: {verifier: [] for verifier in names} for name in proposers}

    text = [*prompt_ids, *response_ids]
    vocab = _vocabularies(networks, names)
    ask = cancelling(should_stop)
    caches = _prefill(networks, names, prompt_ids, len(text), ask)
    for start in range(0, len(response_ids), _CHUNK):
        stop = min(start + _CHUNK, len(response_ids))
        # Row t follows the prompt and response[:t].
        fed = text[: len(prompt_ids) + stop - 1]
        rows = {}
        for name in names:
            ask()
            with as_level_fault(name):
                rows[name] = _rows(networks[name], caches[name], fed, stop - start, vocab[name], transforms)
        for draft, verifier in combinations(names, 2):
            accept[draft][verifier] += _agreement(rows[draft], rows[verifier])
        for name in proposers:
            for verifier in names:
                likelihood[name][verifier] += _likelihood(rows[verifier], proposed[name], start, stop)
    generator = torch.Generator().manual_seed(seed)
    return Trace(
        prompt_id=prompt_id,
        category=category,
        tokens=len(response_ids),
        accept={draft: {verifier: tuple(values) for verifier, values in row.items()} for draft, row in accept.items()},
        proposals={
            name: {
                verifier: tuple(_gains(proposed[name], chances[verifier], chances[names[-1]], response_ids, generator))
                for verifier in names
            }
            for name, chances in likelihood.items()
        },
        prompt_tokens=len(prompt_ids),
    )


def block_gains(traces: Sequence[Trace], draft: str, verifier: str) -> tuple[BlockGain, ...]:
    """Histogram of (drafted, accepted) over the rounds of `verifier` with `draft` alone.

    A round that keeps `accepted` tokens moves on by one more; counting every position instead would count a long match
    once for each of its tokens.
    """
    counts: dict[tuple[int, int], int] = {}
    for trace in traces:
        gains = trace.proposals[draft][verifier]
        position = 0
        while position < len(gains):
            counts[gains[position]] = counts.get(gains[position], 0) + 1
            position += gains[position][1] + 1
    return tuple(BlockGain(drafted, accepted, count) for (drafted, accepted), count in sorted(counts.items()))


def _prefill(
    networks: Mapping[str, Network | Proposer],
    names: Sequence[str],
    prompt_ids: Sequence[int],
    capacity: int,
    before_pass: Callable[[], None],
) -> dict[str, Cache]:
    """Caches that hold the prompt but its last token, drafts from the target's keys and values where the engine does so."""
    target = names[-1]
    caches: dict[str, Cache] = {}
    for name in reversed(names):
        with as_level_fault(name):
            caches[name] = networks[name].new_cache(capacity)
            if name == target or not networks[name].adopt(caches[name], networks[target], caches[target]):
                feed(networks[name], caches[name], prompt_ids[:-1], before_pass)
    return caches


def _vocabularies(networks: Mapping[str, Network | Proposer], names: Sequence[str]) -> dict[str, int]:
    """Token ids that each model may draw: none that a model above it does not know, as in the engine."""
    found: dict[str, int] = {}
    for name in reversed(names):
        found[name] = min(networks[name].vocab_size, *found.values()) if found else networks[name].vocab_size
    return found


def _rows(network: Network, cache: Cache, text: list[int], count: int, vocab: int, transforms: Transforms) -> torch.Tensor:
    """What the model says at the last `count` positions: argmaxes (count,) when greedy, else probabilities (count, vocab)."""
    logits = network.forward(upload(text[cache.length :], network.device), cache, count)[:, :vocab]
    scores = transforms.scores(logits, text)
    return torch.tensor(choose(scores, network.name)) if transforms.greedy else probabilities(scores, network.name).cpu()


def _agreement(draft: torch.Tensor, verifier: torch.Tensor) -> list[float]:
    if draft.dim() == 1:
        return (draft == verifier).float().tolist()
    common = min(draft.shape[1], verifier.shape[1])  # one of them may be padded
    return torch.minimum(draft[:, :common], verifier[:, :common]).sum(1).clamp(max=1.0).tolist()


def _proposal(proposer: Proposer, prompt_ids: Sequence[int], response_ids: Sequence[int], position: int) -> list[int]:
    return proposer.propose([*prompt_ids, *response_ids[:position]], MAX_THRESHOLD)


def _likelihood(rows: torch.Tensor, proposed: Sequence[Sequence[int]], start: int, stop: int) -> list[list[float]]:
    """For each position of the chunk: the verifier's probability of the k-th token of the proposal made k positions before."""
    found = []
    for position in range(start, stop):
        row = rows[position - start]
        values = []
        for offset in range(min(position + 1, MAX_THRESHOLD)):
            proposal = proposed[position - offset]
            if offset < len(proposal):
                token_id = proposal[offset]
                values.append(float(row == token_id) if row.dim() == 0 else (float(row[token_id]) if token_id < row.shape[0] else 0.0))
            else:
                values.append(0.0)
        found.append(values)
    return found


def _gains(
    proposed: Sequence[Sequence[int]],
    likelihood: Sequence[Sequence[float]],
    target_likelihood: Sequence[Sequence[float]],
    response_ids: Sequence[int],
    generator: torch.Generator,
) -> list[tuple[int, int]]:
    """(drafted, accepted) of the proposal at each position.

    A token is accepted with the verifier's probability of it, and the text holds it with the target's. The two are drawn
    together, so that the verifier goes the text's way as often as it can: the target accepts just what the text holds. A
    proposal is followed while it equals the text, where the verifier's answer is known; the count ends where it leaves.
    """
    gains = []
    for position, proposal in enumerate(proposed):
        accepted = 0
        reach = min(len(proposal), len(response_ids) - position)
        for offset in range(reach):
            here = position + offset
            follows = proposal[offset] == response_ids[here]
            chance = _chance(likelihood[here][offset], target_likelihood[here][offset], follows)
            if torch.rand((), generator=generator).item() >= chance:
                break
            accepted += 1
            if not follows:
                break
        gains.append((reach, accepted))
    return gains


def _chance(probability: float, target_probability: float, follows: bool) -> float:
    """Chance that a verifier accepts a token, given whether the target's text holds it; over all texts it is `probability`."""
    if follows:
        return min(1.0, probability / target_probability) if target_probability > 0 else probability
    rest = 1 - target_probability
    return max(0.0, probability - target_probability) / rest if rest > 0 else probability
