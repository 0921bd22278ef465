"""From logits to the distribution every level shares: transformers' own processors, in transformers' own order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from hsd.errors import LevelFault
from hsd.models import kernels
from hsd.models.upload import upload
from hsd.records import Sampling


class Transforms:
    """The sampling settings as functions of logits and of the full context, drafted tokens included."""

    def __init__(self, sampling: Sampling) -> None:
        self.greedy = sampling.greedy
        self._on_context = LogitsProcessorList()
        self._on_row = LogitsProcessorList()
        if sampling.repetition_penalty != 1:
            self._on_context.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
        if sampling.no_repeat_ngram_size:
            self._on_context.append(NoRepeatNGramLogitsProcessor(sampling.no_repeat_ngram_size))
        if not sampling.greedy:
            self._on_row.append(TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                self._on_row.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                self._on_row.append(TopPLogitsWarper(sampling.top_p))
            if sampling.min_p:
                self._on_row.append(MinPLogitsWarper(sampling.min_p))

    @property
    def needs_context(self) -> bool:
        return bool(self._on_context)

    def scores(self, logits: torch.Tensor, token_ids: Sequence[int]) -> torch.Tensor:
        """Processed scores (n, vocab) of `logits` (n, vocab), whose row j follows `token_ids[: len - n + 1 + j]`."""
        if self.needs_context:
            num_rows = logits.shape[0]
            full = upload(token_ids, logits.device)[None]  # (1, length)
            ends = range(len(token_ids) - num_rows + 1, len(token_ids) + 1)
            logits = torch.cat([self._on_context(full[:, :end], row[None].float()) for end, row in zip(ends, logits, strict=True)])
        if self._on_row:
            logits = self._on_row(None, logits.float())
        return logits


def choose(scores: torch.Tensor, model: str) -> list[int]:
    """Argmax of each row of `scores` (n, vocab); one device synchronisation. Raises `LevelFault` for NaN or inf."""
    compiled = kernels.load() if kernels.applicable(scores.device, scores.dtype) else None
    if isinstance(compiled, kernels.Kernels):  # torch looks for a place one value at a time
        maxima, token_ids = compiled.maxima(scores)
        _check_finite(maxima, model)
        return token_ids
    values, choices = scores.max(-1)
    # float32 holds every token id up to 2**24, and is the widest kind of number that Apple's GPUs know.
    maxima, token_ids = torch.stack((values.float(), choices.float())).tolist()
    _check_finite(maxima, model)
    return [int(token_id) for token_id in token_ids]


def probabilities(scores: torch.Tensor, model: str) -> torch.Tensor:
    """Distribution (n, vocab) float32 of each row of processed `scores`. Raises `LevelFault` for NaN or inf."""
    probs, maxima = probabilities_and_maxima(scores)
    check_finite(maxima, model)
    return probs


def probabilities_and_maxima(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `probabilities`, and the maxima (n,) of the rows on their way to the host, for `check_finite` to look at once
    something else has waited for the device: a round has one such wait."""
    scores = scores.float()
    return scores.softmax(-1), scores.amax(-1).to("cpu", non_blocking=True)


def chances_of(token_ids: Sequence[int], rows: torch.Tensor, are_scores: bool) -> list[float]:
    """Probability of each of `token_ids` (n) in its row of `rows` (n or more, vocab), which are scores or probabilities."""
    rows = rows[: len(token_ids)]
    if are_scores:
        rows = rows.softmax(-1, dtype=torch.float32)  # one fused pass over the rows; a log-sum-exp takes several
    return rows.gather(1, upload(token_ids, rows.device)[:, None])[:, 0].clamp(max=1).tolist()  # rounding may exceed 1


def check_finite(maxima: torch.Tensor, model: str) -> None:
    """Raise `LevelFault` when a row's maximum (n,), on the host, says that the row holds NaN or inf."""
    _check_finite(maxima.tolist(), model)


def _check_finite(row_maxima: list[float], model: str) -> None:
    """NaN and +inf anywhere in a row surface in its maximum, and so does a row of −inf alone."""
    if not all(map(math.isfinite, row_maxima)):
        raise LevelFault(f"{model} gave logits that are not finite numbers (NaN or infinite); its weights or its precision are at fault.")
