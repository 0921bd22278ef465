"""What the registry lends to a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from hsd.models.network import Network, Proposer
from hsd.records import Environment


@dataclass(frozen=True, slots=True)
class ModelSet:
    """What one run works with; valid inside its lease."""

    target: str
    networks: Mapping[str, Network | Proposer]  # drafts in the order asked for, then the target
    own_weights: tuple[str, ...]  # the names of those that are not derived from the target
    tokenizer: PreTrainedTokenizerBase
    environment: Environment
    notices: tuple[str, ...]  # drafts that were left out, and why
    eos_token_ids: frozenset[int]
    memory_bytes: Mapping[str, int]  # what each network adds to those before it

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Why passes of these models are no longer recorded; they go on without, slower."""
        recorded = [getattr(network, "steps", None) for network in self.networks.values()]
        return tuple(steps.problem for steps in recorded if steps is not None and steps.problem)
