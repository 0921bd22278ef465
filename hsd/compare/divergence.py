"""Where a text departs from the target's own, and whether that was a near-tie of a low precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from transformers import PreTrainedModel

from hsd.compare.baselines import BASELINES
from hsd.compare.record import Divergence
from hsd.generate.faults import as_level_fault
from hsd.models.causal import CausalNetwork
from hsd.models.network import Network
from hsd.models.prefill import feed
from hsd.pick.model_set import ModelSet

_Texts = Mapping[str, Sequence[Sequence[int]]]  # by prompt, one a repeat


def parted(wanted: _Texts, got: _Texts) -> Iterator[tuple[str, Sequence[int], Sequence[int]]]:
    """Each prompt whose texts differ, with the two of the first repeat in which they do."""
    for prompt_id, texts in wanted.items():
        for pair in zip(texts, got[prompt_id], strict=False):  # where it was stopped, one may have written a text more
            if pair[0] != pair[1]:
                yield prompt_id, *pair
                break


def first_divergences(
    models: ModelSet,
    modules: Mapping[str, PreTrainedModel],
    texts: Mapping[str, _Texts],
    prompt_ids: Mapping[str, Sequence[int]],
    before_pass: Callable[[], None],
) -> Iterator[Divergence]:
    """Of each method (`texts` by its name, the target's among them) on each prompt where the texts differ. Raises what `before_pass` does,
    and `LevelFault` where a pass fails."""
    target = models.networks[models.target]
    theirs = CausalNetwork(models.target, modules[models.target]) if modules else None
    for method, by_prompt in texts.items():
        other = theirs if method in BASELINES else None
        for prompt_id, wanted, got in parted(texts["target"], by_prompt):
            with as_level_fault(models.target):
                yield first_divergence(method, prompt_id, target, prompt_ids[prompt_id], wanted, got, other, before_pass)


def first_divergence(
    method: str,
    prompt_id: str,
    target: Network,
    prompt_ids: Sequence[int],
    wanted: Sequence[int],
    got: Sequence[int],
    other: Network | None = None,
    before_pass: Callable[[], None] = lambda: None,
) -> Divergence | None:
    """`None` when the texts are equal.

    At the first different token the target's logits are computed twice: in one wide pass and in passes of one token, or
    by `other` where that is what made the text (transformers' own pass over the same weights). Precisions below float32
    round the two differently; where the two tokens' distance is within twice that difference, neither is more right than
    the other: a near-tie. `before_pass` may raise to end it.
    """
    if list(wanted) == list(got):
        return None
    shared = min(len(wanted), len(got))
    position = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), shared)
    if position == shared:  # one text ended early: no two tokens to weigh
        return Divergence(method, prompt_id, position, float("inf"), False)
    text = [*prompt_ids, *wanted[:position]]
    logits = _logits(target, text, 1, before_pass)
    again = _logits(other or target, text, 1 if other else 32, before_pass)
    noise = (logits - again).abs().max().item()
    margin = abs(logits[wanted[position]] - logits[got[position]]).item()
    return Divergence(method, prompt_id, position, margin, margin <= 2 * noise)


def _logits(target: Network, text: list[int], chunk: int, before_pass: Callable[[], None]) -> torch.Tensor:
    """Logits (vocab,) float32 after `text`, whose last 32 tokens are fed `chunk` at a time."""
    cache = target.new_cache(len(text))
    head = max(0, len(text) - 32)
    feed(target, cache, text[:head], before_pass)
    return feed(target, cache, text[head:], before_pass, chunk=chunk)[0].float()
