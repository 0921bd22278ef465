"""Any transformers causal language model as a network, with a cache that is rolled back by `crop`."""

from __future__ import annotations

import inspect

import torch
from transformers import DynamicCache, PreTrainedModel

from hsd.errors import IncompatibleModel
from hsd.models.network import Cache, Network

NO_LIMIT = 1 << 20  # tokens; for models whose configuration names no longest context
_CONTEXT_FIELDS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_RECURRENT_LAYERS = ("linear_attention", "mamba", "recurrent", "conv", "rwkv", "ssm")


def context_limit(config: object) -> int:
    """Longest context in tokens that the configuration of a text model promises."""
    limits = [getattr(config, name, None) for name in _CONTEXT_FIELDS]
    return min((int(limit) for limit in limits if isinstance(limit, int) and limit > 0), default=NO_LIMIT)


class GrowingCache:
    """A `DynamicCache` of full layers: a sliding window is left to the mask, so that every step can be undone."""

    __slots__ = ("store",)

    def __init__(self) -> None:
        # Without a config every layer is kept whole; sliding layers would discard what a rollback needs.
        self.store = DynamicCache()

    @property
    def length(self) -> int:
        return self.store.get_seq_length()

    def crop(self, length: int) -> None:
        surplus = self.length - length
        if surplus > 0:
            self.store.crop(-surplus)


class CausalNetwork:
    """A transformers model behind the `Network` protocol; the fallback for every architecture."""

    def __init__(self, name: str, module: PreTrainedModel, memory_bytes: int | None = None) -> None:
        refuse_unless_croppable(name, module)
        config = module.config.get_text_config()
        head = module.get_output_embeddings()
        self.name = name
        self.module = module.eval()
        # transformers renamed the argument within the 5.x series.
        self._cache_argument = "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"
        self.vocab_size = int(head.weight.shape[0]) if head is not None and hasattr(head, "weight") else int(config.vocab_size)
        self.max_context = context_limit(config)
        self.device = module.device
        self.dtype = module.dtype
        self.memory_bytes = module.get_memory_footprint() if memory_bytes is None else memory_bytes

    def new_cache(self, capacity: int) -> GrowingCache:
        return GrowingCache()

    @torch.inference_mode()
    def forward(self, token_ids: torch.Tensor, cache: GrowingCache, num_logits: int) -> torch.Tensor:
        """(q,) int64 -> logits (num_logits, vocab) of the last `num_logits` tokens, in the model's dtype."""
        output = self.module(
            input_ids=token_ids.to(self.device)[None],  # (1, q)
            use_cache=True,
            logits_to_keep=num_logits,
            **{self._cache_argument: cache.store},
        )
        return output.logits[0, -num_logits:]

    def adopt(self, cache: Cache, other: Network, other_cache: Cache) -> bool:
        return False


def refuse_unless_croppable(name: str, module: PreTrainedModel) -> None:
    """Raise `IncompatibleModel` for a cache that cannot be rolled back token by token."""
    config = module.config.get_text_config()
    layer_types = set(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ())
    recurrent = sorted(kind for kind in layer_types if any(word in kind for word in _RECURRENT_LAYERS))
    if getattr(module, "_is_stateful", False) or recurrent:
        detail = f" ({', '.join(recurrent)} layers)" if recurrent else ""
        raise IncompatibleModel(
            f"{name} is a recurrent or hybrid {config.model_type} model{detail}: its state cannot be rolled back after a "
            "rejected token. Choose a model whose layers all use attention."
        )
    if getattr(module.config, "is_encoder_decoder", False):
        raise IncompatibleModel(f"{name} is an encoder-decoder model; choose a causal (decoder-only) language model.")
