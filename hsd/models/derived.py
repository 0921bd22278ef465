"""Drafts made from the target module itself, for architectures without a lean forward; every other weight is shared."""

from __future__ import annotations

import copy

import torch
from torch import nn
from transformers import PreTrainedModel

from hsd.errors import IncompatibleModel
from hsd.models.blocked import blocked
from hsd.models.linear import HEAD_BITS, Linear, quantized_linear

_LAYER_LISTS = ("model.layers", "transformer.h", "gpt_neox.layers", "model.decoder.layers", "model.language_model.layers")


class PackedLinear(nn.Module):
    """A weight-only quantized stand-in for `nn.Linear`; flattens the batch, as the packed kernels take matrices."""

    def __init__(self, linear: nn.Linear, bits: int) -> None:
        super().__init__()
        bias = None if linear.bias is None else linear.bias.detach()
        weight = linear.weight.detach()
        self.product: Linear = blocked(weight, bias, bits, pages=None) or quantized_linear(weight, bias, bits)
        self.weight = linear.weight  # shared; transformers reads its dtype and device

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)


def share_weights(module: PreTrainedModel) -> PreTrainedModel:
    """A copy of the module's structure whose parameters and buffers are the very same tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})


def quantized_module(module: PreTrainedModel, bits: int) -> tuple[PreTrainedModel, int]:
    """A copy with packed linear layers, and the bytes that the packed weights add."""
    twin = share_weights(module)
    head = twin.get_output_embeddings()
    added = 0
    for parent in list(twin.modules()):
        for child_name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                packed = PackedLinear(child, max(bits, HEAD_BITS) if child is head else bits)
                added += packed.product.nbytes
                setattr(parent, child_name, packed)
    if not added:
        raise IncompatibleModel(
            f"{module.config.model_type} keeps its weights in no plain linear layers; there is nothing to quantize here."
        )
    return twin, added


def early_exit_module(module: PreTrainedModel, num_layers: int) -> PreTrainedModel:
    """The first `num_layers` layers with the final norm and head."""
    twin = share_weights(module)
    twin.config = copy.deepcopy(module.config)
    for path in _LAYER_LISTS:
        parent_path, _, attribute = path.rpartition(".")
        try:
            parent = twin.get_submodule(parent_path)
            layers = getattr(parent, attribute)
        except AttributeError:
            continue
        setattr(parent, attribute, layers[:num_layers])
        config = twin.config.get_text_config()
        config.num_hidden_layers = num_layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:num_layers]
        for part in twin.modules():
            if getattr(part, "config", None) is not None and part.config.__class__ is config.__class__:
                part.config = config
        return twin
    raise IncompatibleModel(f"early-exit does not know where {module.config.model_type} keeps its layers; choose another draft.")
