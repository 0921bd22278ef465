"""Modules in pieces: sharded over the processes of torchrun, or with their layers on several devices.

The lean pass takes a module's weights over and computes on one device, so that a module in pieces stays transformers' own:
accelerate's hooks move what its layers exchange, and tensor parallelism adds up what the shards computed.
"""

from __future__ import annotations

import zlib

import torch
from transformers import PreTrainedModel

from hsd.errors import IncompatibleModel, LevelFault
from hsd.models.causal import CausalNetwork, GrowingCache


def is_sharded(module: PreTrainedModel) -> bool:
    """Whether each process holds a part of every large weight."""
    return any(hasattr(parameter, "device_mesh") for parameter in module.parameters())  # a DTensor of torch


def is_spread(module: PreTrainedModel) -> bool:
    """Whether the layers lie on more than one device."""
    return len(set((getattr(module, "hf_device_map", None) or {}).values())) > 1


def in_pieces(module: PreTrainedModel) -> bool:
    return is_sharded(module) or is_spread(module)


def refuse_derived(spec: str, module: PreTrainedModel) -> None:
    """Raise `IncompatibleModel` for a draft made from a target in pieces: it would have to be in pieces in the same way."""
    if in_pieces(module):
        where = "several processes" if is_sharded(module) else "several devices"
        raise IncompatibleModel(
            f"{spec} is made from the target, which lies on {where}; take prompt-lookup, or a model with weights of its own."
        )


class ShardedNetwork(CausalNetwork):
    """A target sharded over the processes of torchrun, each of which feeds it the same tokens."""

    def __init__(self, name: str, module: PreTrainedModel) -> None:
        super().__init__(name, module, memory_bytes=local_bytes(module))

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, cache: GrowingCache, num_logits: int) -> torch.Tensor:
        """As `CausalNetwork.forward`, the same logits on every rank. Raises `LevelFault` when the ranks' texts differ."""
        self._check_agreement(token_ids, cache.length)
        return super().forward(token_ids, cache, num_logits)

    def _check_agreement(self, token_ids: torch.Tensor, start: int) -> None:
        """Sums over shards of different texts would be numbers without meaning."""
        digest = zlib.crc32(repr((start, token_ids.tolist())).encode())
        bounds = torch.tensor([digest, -digest], device=self.device)
        torch.distributed.all_reduce(bounds, torch.distributed.ReduceOp.MAX)
        if bounds.sum().item() != 0:  # the largest and the smallest digest differ
            raise LevelFault(
                f"The processes that share {self.name} no longer have the same text: a draft computed other numbers on one of them. "
                "Run them on devices of the same kind."
            )


def local_bytes(module: PreTrainedModel) -> int:
    """Bytes of the weights that this process holds."""
    return sum(getattr(parameter, "_local_tensor", parameter).nbytes for parameter in module.parameters())
