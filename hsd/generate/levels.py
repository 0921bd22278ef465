"""A level of a running hierarchy: one model, its cache, and its place in the text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from numbers import Integral

import torch

from hsd.errors import BadInput, LevelFault
from hsd.models.graphs import SlotCache
from hsd.models.network import Cache, Network, Proposer
from hsd.models.prefill import feed
from hsd.models.upload import upload
from hsd.records import Hierarchy


@dataclass(slots=True)
class Text:
    """The tokens so far. Above the committed ones lie those that the levels have drafted.

    The three lists run in parallel: the token, the level whose sampling produced it, and the distribution (vocab,)
    it was drawn from by the level that last kept it (`None`: one-hot, as for greedy and for prompt lookup).
    """

    token_ids: list[int]
    origin: list[int] = field(default_factory=list)
    probs: list[torch.Tensor | None] = field(default_factory=list)
    committed: int = 0

    def __post_init__(self) -> None:
        self.origin = [-1] * len(self.token_ids)
        self.probs = [None] * len(self.token_ids)
        self.committed = len(self.token_ids)

    def __len__(self) -> int:
        return len(self.token_ids)

    def push(self, token_id: int, origin: int, probs: torch.Tensor | None) -> None:
        self.token_ids.append(token_id)
        self.origin.append(origin)
        self.probs.append(probs)

    def truncate(self, length: int) -> None:
        del self.token_ids[length:], self.origin[length:], self.probs[length:]


@dataclass(slots=True)
class NetworkLevel:
    """A model that verifies. Its cache always holds a prefix of the text, so one number describes it."""

    index: int
    name: str
    threshold: int | None
    network: Network
    vocab: int  # token ids from here on are padding, or unknown to a level above
    cache: Cache | None = None  # until opened, and once dropped
    dropped: bool = False

    def open(self, capacity: int) -> None:
        """A fresh cache for `capacity` tokens over the shared weights."""
        self.cache = self.network.new_cache(capacity)

    def feed(self, text: Text, num_logits: int) -> tuple[torch.Tensor, int]:
        """One forward pass over everything the cache lacks: logits (num_logits, vocab) and the pass's width."""
        new = text.token_ids[self.cache.length :]
        self._check(len(text), new)
        logits = self.network.forward(upload(new, self.network.device), self.cache, num_logits)
        return logits[:, : self.vocab], len(new)

    def prefill(self, text: Text, length: int, target: NetworkLevel, stop_if_asked: Callable[[], None]) -> None:
        """Fill the cache with the first `length` tokens, by copying where the target's keys and values serve."""
        self._check(length, text.token_ids[:length])
        if self is target or not self.network.adopt(self.cache, target.network, target.cache):
            feed(self.network, self.cache, text.token_ids[:length], stop_if_asked)

    def rollback(self, length: int) -> None:
        if self.cache is not None and self.cache.length > length:
            self.cache.crop(length)

    def drop(self) -> None:
        """Take no further part. The cache goes: a level often drops out because the memory is full."""
        self.dropped = True
        if isinstance(self.cache, SlotCache):
            self.cache.discard()
        self.cache = None

    def _check(self, length: int, new: Sequence[int]) -> None:
        """Raise `LevelFault` before the device meets a position or a token it has no row for."""
        if length > self.network.max_context:
            raise LevelFault(f"The text is longer than the context of {self.name} ({self.network.max_context} tokens).")
        if (largest := max(new, default=0)) >= self.network.vocab_size:
            raise LevelFault(
                f"The text holds token {largest}, which is not in the vocabulary of {self.name} ({self.network.vocab_size} tokens)."
            )


@dataclass(slots=True)
class ProposerLevel:
    """A draft without weights; stands at the bottom only."""

    index: int
    name: str
    threshold: int
    proposer: Proposer
    vocab: int  # token ids that every level above knows are smaller
    dropped: bool = False

    def open(self, capacity: int) -> None:
        """It keeps no keys and values."""

    def prefill(self, text: Text, length: int, target: NetworkLevel, stop_if_asked: Callable[[], None]) -> None:
        """Let it index the prompt now, not in the first round."""
        self.propose(text, 0)

    def propose(self, text: Text, count: int) -> list[int]:
        """At most `count` tokens, cut before the first that a level above has no row for: it would take that level down."""
        proposed = self.proposer.propose(text.token_ids, count)[:count]  # more would not fit into the caches above
        return list(takewhile(lambda token_id: 0 <= token_id < self.vocab, proposed))

    def rollback(self, length: int) -> None:
        if not self.dropped:  # what failed may fail again, and would take a level above with it
            self.proposer.rollback(length)

    def drop(self) -> None:
        self.dropped = True


LevelState = NetworkLevel | ProposerLevel


def make_levels(networks: Mapping[str, Network | Proposer], hierarchy: Hierarchy) -> list[LevelState]:
    """The levels of a run, smallest model first, none of them opened yet."""
    levels: list[LevelState] = []
    vocab = networks[hierarchy.target].vocab_size
    for index in reversed(range(len(hierarchy.levels))):
        name, threshold = hierarchy.levels[index].model, hierarchy.levels[index].threshold
        model = networks[name]
        if isinstance(model, Network):
            vocab = min(vocab, model.vocab_size)
            levels.append(NetworkLevel(index, name, threshold, model, vocab))
        else:
            levels.append(ProposerLevel(index, name, threshold, model.fresh(), vocab))
    return levels[::-1]


def cannot_verify(name: str) -> BadInput:
    """For a draft without weights that stands above another."""
    return BadInput(f"{name} cannot verify other drafts; put it first, at the bottom of the hierarchy.")


def as_token_ids(prompt_ids: Iterable[int]) -> list[int]:
    """Plain numbers, where they came from numpy or torch too. Raises `BadInput` for what is no flat sequence of whole numbers."""
    try:
        return [operator.index(token_id) for token_id in prompt_ids]
    except TypeError as error:
        raise BadInput("The prompt must be a flat sequence of token ids, whole numbers; encode text with the model's tokenizer.") from error


def check_request(
    networks: Mapping[str, Network | Proposer],
    hierarchy: Hierarchy,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    stop: Sequence[str] = (),
) -> None:
    """Raise `BadInput` for a run that cannot start, naming what is wrong and what to do."""
    for position, level in enumerate(hierarchy.levels):
        model = networks.get(level.model)
        if model is None:
            raise BadInput(f"{level.model} is in the hierarchy but was not loaded; loaded are {', '.join(networks)}.")
        if position > 0 and not isinstance(model, Network):
            raise cannot_verify(level.model)
    target = networks[hierarchy.target]
    if not isinstance(target, Network):
        raise BadInput(f"{hierarchy.target} is a draft without weights and cannot be the target.")
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
        raise BadInput(f"max_new_tokens is {max_new_tokens!r}; give a whole number of at least 1.")
    if isinstance(stop, str) or not all(isinstance(text, str) for text in stop):
        raise BadInput(f"stop is {stop!r}; give a list of texts.")
    if "" in stop:
        raise BadInput("An empty stop string would end every text at once; leave it out.")
    if not prompt_ids:
        raise BadInput("The prompt is empty; type some text.")
    if len(prompt_ids) >= target.max_context:
        raise BadInput(
            f"The prompt has {len(prompt_ids)} tokens, the context of {hierarchy.target} is {target.max_context}; shorten the prompt."
        )
    unknown = next((token_id for token_id in (min(prompt_ids), max(prompt_ids)) if not 0 <= token_id < target.vocab_size), None)
    if unknown is not None:
        raise BadInput(f"Token {unknown} is not in the vocabulary of {hierarchy.target} ({target.vocab_size} tokens).")
