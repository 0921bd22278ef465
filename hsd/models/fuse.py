"""From a transformers module to a lean network, and from one lean network to the drafts made of it."""

from __future__ import annotations

import functools
from dataclasses import replace

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from hsd.models.blocked import Blocked, BlockedLinear, blocked, pages_for, streaming_kernels
from hsd.models.causal import context_limit
from hsd.models.kernels import LargePages
from hsd.models.layer import Layer, Shape
from hsd.models.lean import LeanNetwork
from hsd.models.linear import HEAD_BITS, DenseLinear, Linear, PackedDenseLinear, dense_linear, quantized_linear
from hsd.models.shortlist import ShortlistHead, serves_as_shortlist

LEAN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
_ROPE_TYPES = ("default", "llama3", "linear")  # others change with the length of the text


def supports_lean(module: PreTrainedModel) -> bool:
    """Whether this architecture and configuration is what `LeanNetwork` computes."""
    config = module.config
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type in LEAN_TYPES
        and type(module).__name__.endswith("ForCausalLM")
        and getattr(config, "hidden_act", "") == "silu"
        and rope.get("rope_type", "default") in _ROPE_TYPES
        and not (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True))
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and not getattr(config, "mlp_bias", False)
        and all(type(layer.self_attn.q_proj) is torch.nn.Linear for layer in module.model.layers)
    )


def lean_network(name: str, module: PreTrainedModel) -> LeanNetwork:
    """Take over the weights of `module`, its projections fused; nothing is kept twice, but for an embedding tied to a bfloat16 head
    that is packed for a kernel of oneDNN.

    Where the fused weights are packed for a kernel, the module's own are given up and it can compute no more; elsewhere they
    become views of the fused ones.
    """
    model, config = module.model, module.config
    first = model.layers[0].self_attn
    pages = _pages_for(module)
    shape = Shape(
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=first.head_dim,
        hidden=config.hidden_size,
        eps=config.rms_norm_eps,
    )
    layers = []
    for block in model.layers:
        attention, mlp = block.self_attn, block.mlp
        layers.append(
            Layer(
                input_norm=block.input_layernorm.weight.detach(),
                qkv=_fuse(pages, attention.q_proj, attention.k_proj, attention.v_proj),
                q_norm=attention.q_norm.weight.detach() if hasattr(attention, "q_norm") else None,
                k_norm=attention.k_norm.weight.detach() if hasattr(attention, "k_norm") else None,
                out=_fuse(pages, attention.o_proj),
                post_norm=block.post_attention_layernorm.weight.detach(),
                gate_up=_fuse(pages, mlp.gate_proj, mlp.up_proj),
                down=_fuse(pages, mlp.down_proj),
            )
        )
    tied = module.lm_head.weight is model.embed_tokens.weight
    head = _fuse(pages, module.lm_head, shared=tied)
    embedding = model.embed_tokens.weight.detach()
    if tied and isinstance(head, BlockedLinear):
        model.embed_tokens.weight = module.lm_head.weight  # given up
        embed = head.rows
    else:
        embed = functools.partial(F.embedding, weight=embedding)
    products = [head, *(linear for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down))]
    shares_embedding = tied and not isinstance(head, PackedDenseLinear)
    memory_bytes = sum(product.nbytes for product in products) + (0 if shares_embedding else embedding.nbytes)
    return LeanNetwork(
        name,
        layers,
        embed,
        vocab_size=embedding.shape[0],
        final_norm=model.norm.weight.detach(),
        head=head,
        shape=shape,
        rotary=_rotary_tables(module),
        memory_bytes=memory_bytes,
    )


def keeps_weights(module: PreTrainedModel) -> bool:
    """Whether the module can still compute: none of its weights was given up for a kernel's packed ones."""
    return all(parameter.numel() for parameter in module.parameters())


def quantized_copy(name: str, network: LeanNetwork, bits: int) -> LeanNetwork:
    """A weight-only copy of `network` with `bits` bits that shares its embedding, norms and rotary tables.

    The head keeps `HEAD_BITS` at least, or is exact where it matters: rounding all of it to 4 bits costs more acceptance than all
    layers together (SmolLM2-135M: 0.89 of its tokens accepted, against 0.97).
    """
    pages = _pages_of_copy(network, bits)
    quantize = functools.partial(_quantized, bits=bits, pages=pages)
    layers = [
        replace(layer, qkv=quantize(layer.qkv), out=quantize(layer.out), gate_up=quantize(layer.gate_up), down=quantize(layer.down))
        for layer in network.layers
    ]
    shortlist = serves_as_shortlist(network.head, bits)
    head = ShortlistHead(network.head, pages) if shortlist else _quantized(network.head, max(bits, HEAD_BITS), pages)
    size = head.nbytes + sum(linear.nbytes for layer in layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down))
    rotary = (network.cos, network.sin)
    return LeanNetwork(
        name, layers, network.embed, network.vocab_size, network.final_norm, head, network.shape, rotary, memory_bytes=size, parent=network
    )


def early_exit_copy(name: str, network: LeanNetwork, num_layers: int) -> LeanNetwork:
    """The first `num_layers` layers with the final norm and head; shares every weight."""
    rotary = (network.cos, network.sin)
    layers = network.layers[:num_layers]
    return LeanNetwork(
        name,
        layers,
        network.embed,
        network.vocab_size,
        network.final_norm,
        network.head,
        network.shape,
        rotary,
        memory_bytes=0,
        parent=network,
    )


def _pages_for(module: PreTrainedModel) -> LargePages | None:
    """Room for every linear weight of the module, where this project's own products serve."""
    weight = module.lm_head.weight
    if streaming_kernels(weight.device, weight.dtype) is None:
        return None
    return pages_for([(part.weight.shape, 16) for part in module.modules() if isinstance(part, torch.nn.Linear)])


def _pages_of_copy(network: LeanNetwork, bits: int) -> LargePages | None:
    layers = [linear for layer in network.layers for linear in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    if not all(isinstance(product, BlockedLinear) for product in (network.head, *layers)):
        return None
    head_bits = bits if serves_as_shortlist(network.head, bits) else max(bits, HEAD_BITS)
    return pages_for([*((product.shape, bits) for product in layers), (network.head.shape, head_bits)])


def _quantized(linear: Linear, bits: int, pages: LargePages | None) -> Linear:
    weight = linear.weight
    return blocked(weight, linear.bias, bits, pages) or quantized_linear(weight, linear.bias, bits)


@torch.no_grad()
def _fuse(pages: LargePages | None, *linears: torch.nn.Linear, shared: bool = False) -> DenseLinear | PackedDenseLinear | Blocked:
    """One product instead of several of the same input; the linears' own weights become views of it, or are given up."""
    weight = linears[0].weight.detach() if len(linears) == 1 else torch.cat([linear.weight.detach() for linear in linears])
    bias = None if linears[0].bias is None else torch.cat([linear.bias.detach() for linear in linears])
    product = blocked(weight, bias, 16, pages) or dense_linear(weight, bias, shared)
    if not isinstance(product, DenseLinear):
        for linear in linears:
            # A new parameter, so that an embedding tied to the old one keeps it.
            linear.weight = torch.nn.Parameter(weight.new_empty(0), requires_grad=False)
    elif len(linears) > 1:
        sizes = [linear.weight.shape[0] for linear in linears]
        for linear, rows in zip(linears, weight.split(sizes), strict=True):
            linear.weight = torch.nn.Parameter(rows, requires_grad=False)
        for linear, entries in zip(linears, () if bias is None else bias.split(sizes), strict=bias is not None):
            linear.bias = torch.nn.Parameter(entries, requires_grad=False)
    return product


@torch.inference_mode()
def _rotary_tables(module: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines (max_context, head_dim) from the module's own rotary embedding."""
    limit = context_limit(module.config)
    weight = module.model.embed_tokens.weight
    positions = torch.arange(limit, device=weight.device)[None]
    cos, sin = module.model.rotary_emb(weight[:1, None], positions)  # (1, limit, head_dim)
    cos, sin = cos[0].clone(), sin[0].clone()
    sin[:, : sin.shape[1] // 2].neg_()
    return cos, sin
