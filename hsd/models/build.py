"""From a loaded transformers module to networks: the lean forward where it applies, transformers' own elsewhere."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from hsd.errors import BadInput, IncompatibleModel
from hsd.models.causal import CausalNetwork
from hsd.models.derived import early_exit_module, quantized_module
from hsd.models.fuse import early_exit_copy, lean_network, quantized_copy, supports_lean
from hsd.models.lean import LeanNetwork
from hsd.models.lookup import PromptLookup
from hsd.models.network import Network, Proposer
from hsd.models.pieces import ShardedNetwork, in_pieces, is_sharded, refuse_derived
from hsd.models.retrieval import RETRIEVERS

PROPOSERS = ("prompt-lookup", *RETRIEVERS)
_PROBE_TOKENS = 6
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}  # of the largest logit; lower precisions below
_LOW_PRECISION_TOLERANCE = 0.15


def is_derived(name: str) -> bool:
    """Whether a draft of this name is made from the target and needs no weights of its own."""
    return name in PROPOSERS or name.startswith(("quantized:", "early-exit:"))


def build_network(name: str, module: PreTrainedModel) -> Network:
    """A network over `module`; raises `IncompatibleModel` when its cache cannot be rolled back.

    A lean network takes the module's weights over. The module is its reference: what the lean pass computes must be what
    the module computes. A module in pieces stays transformers' own.
    """
    network: Network = ShardedNetwork(name, module) if is_sharded(module) else CausalNetwork(name, module)
    if supports_lean(module) and not in_pieces(module):
        wanted = _probe(network)
        network = lean_network(name, module)
        if not _close(wanted, _probe(network)):
            raise IncompatibleModel(f"{name} cannot be used: the lean forward pass and transformers disagree. Please report this model.")
    check_rollback(network)
    return network


def derive(spec: str, target: Network, module: PreTrainedModel) -> Network | Proposer:
    """The draft that `spec` names, made from the target: design §7. Raises `BadInput` for an unknown name."""
    kind, _, detail = spec.partition(":")
    if spec == "prompt-lookup":
        return PromptLookup()
    refuse_derived(spec, module)
    if kind == "quantized" and detail in ("int8", "int4"):
        bits = int(detail.removeprefix("int"))
        if isinstance(target, LeanNetwork):
            return quantized_copy(spec, target, bits)
        twin, added = quantized_module(module, bits)
        return CausalNetwork(spec, twin, memory_bytes=added)
    if kind == "early-exit":
        total = module.config.get_text_config().num_hidden_layers
        if not detail.isdecimal() or not 1 <= int(detail) < total:
            raise BadInput(f"early-exit:{detail or '?'} is not possible; the target has {total} layers, give 1 to {total - 1}.")
        if isinstance(target, LeanNetwork):
            return early_exit_copy(spec, target, int(detail))
        return CausalNetwork(spec, early_exit_module(module, int(detail)), memory_bytes=0)
    raise BadInput(
        f"“{spec}” is no draft; known are prompt-lookup, retrieval, bigram, quantized:int8, quantized:int4 and early-exit:<layers>."
    )


def check_rollback(network: Network) -> None:
    """Feed, roll back, feed again, and compare with a fresh cache; `IncompatibleModel` when they differ."""
    token_ids = _probe_ids(network)
    fresh = network.new_cache(2 * _PROBE_TOKENS)
    wanted = network.forward(token_ids, fresh, _PROBE_TOKENS)
    cache = network.new_cache(2 * _PROBE_TOKENS)
    network.forward(token_ids[:3], cache, 1)
    network.forward(token_ids[:3].flip(0), cache, 1)  # a wrong block
    cache.crop(3)
    got = network.forward(token_ids[3:], cache, _PROBE_TOKENS - 3)
    if not _close(wanted[3:], got):
        raise IncompatibleModel(
            f"The cache of {network.name} does not come back to where it was after a rejected block; choose another model."
        )


def _probe(network: Network) -> torch.Tensor:
    return network.forward(_probe_ids(network), network.new_cache(_PROBE_TOKENS), _PROBE_TOKENS)


def _probe_ids(network: Network) -> torch.Tensor:
    return (torch.arange(1, _PROBE_TOKENS + 1) * 7919) % network.vocab_size


def _close(wanted: torch.Tensor, got: torch.Tensor) -> bool:
    scale = wanted.float().abs().max().item()
    error = (wanted.float() - got.float()).abs().max().item()
    return error <= _TOLERANCE.get(wanted.dtype, _LOW_PRECISION_TOLERANCE) * max(scale, 1.0)
