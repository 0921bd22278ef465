"""A text into a cache, in passes short enough to stop soon and to need little memory beside the weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hsd.errors import Cancelled
from hsd.models.network import Cache, Network
from hsd.models.upload import upload
from hsd.records import ShouldStop

PREFILL_CHUNK = 256  # tokens per forward pass: small enough to stop soon, large enough to be fast


def feed(
    network: Network,
    cache: Cache,
    token_ids: Sequence[int],
    before_pass: Callable[[], None] = lambda: None,
    *,
    chunk: int | None = None,
) -> torch.Tensor | None:
    """Feed `token_ids` after what `cache` holds, at most `chunk` (`PREFILL_CHUNK`) of them in a pass.

    The mask of a pass has a row for each of its tokens and a column for each token so far: a long text at once would need
    more memory for it than for the weights. `before_pass` may raise to end it. Logits (1, vocab) of the last token; `None`
    without a token.
    """
    logits = None
    chunk = chunk or PREFILL_CHUNK
    for start in range(0, len(token_ids), chunk):
        before_pass()
        logits = network.forward(upload(token_ids[start : start + chunk], network.device), cache, 1)
    return logits


def cancelling(should_stop: ShouldStop, message: str = "Stopped.") -> Callable[[], None]:
    """What to call before a pass: it raises `Cancelled` once the user has asked to stop."""

    def before_pass() -> None:
        if should_stop():
            raise Cancelled(message)

    return before_pass
