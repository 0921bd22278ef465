"""What the registry lends to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hsd import ranks
from hsd.models.build import is_derived
from hsd.models.fuse import keeps_weights
from hsd.models.network import Network, Proposer
from hsd.models.pieces import is_sharded, is_spread
from hsd.pick.device import environment
from hsd.pick.load import Loaded
from hsd.records import Environment


@dataclass(frozen=True, slots=True)
class ModelSet:
    """What one run works with; valid inside its lease."""

    target: str
    networks: Mapping[str, Network | Proposer]  # drafts in the order asked for, then the target
    own_weights: tuple[str, ...]  # the names of those that are not derived from the target
    tokenizer: PreTrainedTokenizerBase
    environment: Environment
    notices: Mapping[str, str]  # drafts that were left out: the sentence that says so, and why
    eos_token_ids: frozenset[int]
    memory_bytes: Mapping[str, int]  # what each network adds to those before it
    modules: Mapping[str, PreTrainedModel]  # transformers' own of those with weights of their own, where they still compute (fuse.py)
    known_fallbacks: tuple[str, ...] = ()  # `fallbacks` when the set was lent

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Why passes of these models are no longer recorded; they go on without, slower."""
        return _fallbacks(self.networks)

    @property
    def new_fallbacks(self) -> tuple[str, ...]:
        """Those that arose while the set was lent: its earlier passes ran with graphs, its later ones without, and its stamp is false."""
        return tuple(why for why in self.fallbacks if why not in self.known_fallbacks)


def lend(
    target: str,
    loaded: Loaded,
    networks: Mapping[str, Network | Proposer],
    device: torch.device,
    dtype: torch.dtype,
    notices: Mapping[str, str] = MappingProxyType({}),
    modules: Mapping[str, PreTrainedModel] = MappingProxyType({}),
) -> ModelSet:
    """A set of `networks`, the target last, which was made from `loaded`; `modules` are what the drafts were made from."""
    kept = {**modules, target: loaded.module}
    return ModelSet(
        target=target,
        networks=MappingProxyType(dict(networks)),
        own_weights=tuple(name for name in networks if not is_derived(name)),
        tokenizer=loaded.tokenizer,
        environment=_environment(device, dtype, loaded, networks),
        notices=MappingProxyType(dict(notices)),
        eos_token_ids=loaded.eos_token_ids,
        memory_bytes=MappingProxyType(_memory(networks)),
        known_fallbacks=_fallbacks(networks),
        modules=MappingProxyType({name: module for name, module in kept.items() if keeps_weights(module)}),
    )


def _fallbacks(networks: Mapping[str, Network | Proposer]) -> tuple[str, ...]:
    recorded = [getattr(network, "steps", None) for network in networks.values()]
    return tuple(steps.problem for steps in recorded if steps is not None and steps.problem)


def _memory(networks: Mapping[str, Network | Proposer]) -> dict[str, int]:
    """Bytes that each adds to those before it: drafts that look tokens up in the same text share its tables."""
    counted: set[int] = set()
    sizes = {}
    for name, network in networks.items():
        tables = id(getattr(network, "successors", network))
        sizes[name] = 0 if tables in counted else int(getattr(network, "memory_bytes", 0))
        counted.add(tables)
    return sizes


def _environment(device: torch.device, dtype: torch.dtype, loaded: Loaded, networks: Mapping[str, Network | Proposer]) -> Environment:
    """The stamp of a run; names every device that the target lies on, and how the passes run."""
    stamp = environment(device, dtype)
    if any(getattr(network, "steps", None) is not None for network in networks.values()) and not _fallbacks(networks):
        stamp = replace(stamp, kernels="cuda-graphs")
    if is_sharded(loaded.module):
        return replace(stamp, device_name=f"{ranks.count()} processes, each {stamp.device_name}")
    if is_spread(loaded.module):
        return replace(stamp, device_name=f"{torch.cuda.device_count()} × {stamp.device_name}")
    return stamp
