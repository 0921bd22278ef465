"""What is known of a model before a weight is loaded: from the catalogue, else from its configuration."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hsd.models.causal import refuse_unless_croppable
from hsd.pick import catalogue
from hsd.pick.catalogue import Entry, Vocabulary
from hsd.pick.load import load_config, load_tokenizer
from hsd.pick.memory import PLANNED_CONTEXT, Footprint, footprint, skeleton


@dataclass(frozen=True, slots=True)
class Facts:
    name: str
    parameters: int
    layers: int
    cache_numbers_per_token: int  # keys and values of all layers
    vocabulary: Vocabulary | None  # None: not one of the curated ones
    gated: bool = False
    early_exits: tuple[int, ...] = ()
    context_tokens: int = PLANNED_CONTEXT  # that a cache is counted for

    def footprint(self, dtype: torch.dtype) -> Footprint:
        size = dtype.itemsize
        return Footprint(self.parameters, self.parameters * size, self.cache_numbers_per_token * size, self.context_tokens)


def facts_of(name: str) -> Facts:
    """Facts of any model that can be named; one whose cache cannot be rolled back is refused here, before its weights
    are read. Raises `ModelUnavailable`, `IncompatibleModel` or `BadInput`."""
    entry = catalogue.BY_NAME.get(name)
    return facts_of_entry(entry) if entry else _facts_of_config(name)


def facts_of_entry(entry: Entry) -> Facts:
    numbers = 2 * entry.layers * entry.kv_heads * entry.head_dim
    return Facts(entry.name, entry.parameters, entry.layers, numbers, entry.vocabulary, entry.gated, entry.early_exits)


def _facts_of_config(name: str) -> Facts:
    config = load_config(name)
    module = skeleton(config)
    refuse_unless_croppable(name, module)
    size = footprint(module, torch.int8)  # one byte a number: bytes are counts
    vocabulary = catalogue.vocabulary_of_size(len(load_tokenizer(name)))
    layers = config.get_text_config().num_hidden_layers
    return Facts(name, size.parameters, layers, size.cache_bytes_per_token, vocabulary, context_tokens=size.context_tokens)
