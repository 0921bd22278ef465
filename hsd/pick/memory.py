"""Memory of a model from its configuration alone, and what the device has left."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from hsd.models.causal import context_limit
from hsd.models.linear import HEAD_BITS
from hsd.models.retrieval import RETRIEVERS
from hsd.settings import INT4_GROUP_SIZE

PLANNED_CONTEXT = 2048  # tokens that a memory estimate counts a cache for
_HEADROOM = 0.9  # share of the free memory that may be planned for; the rest is activations and fragmentation
_NO_LIMIT = 1 << 62
# While transformers builds a module it sets torch's default dtype, which is the whole process's: of two threads that build at
# once, one would end with layers in the other's precision.
BUILDING = threading.Lock()
_HEAD_SHARE = 0.25  # of a model's parameters
_DATASTORE_BYTES = 2_000_000  # n-grams of 50,000 tokens; of the default's 150,000 it is 1,221,336


@dataclass(frozen=True, slots=True)
class Footprint:
    """Size of a model, known before any weight is loaded."""

    parameters: int
    weight_bytes: int
    cache_bytes_per_token: int
    context_tokens: int = PLANNED_CONTEXT  # that a cache is counted for; fewer where the model takes no more

    @property
    def cache_bytes(self) -> int:
        return self.cache_bytes_per_token * self.context_tokens

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes


def skeleton(config: PretrainedConfig) -> PreTrainedModel:
    """The model without weights (on the meta device): its structure can be asked before anything is loaded."""
    with BUILDING, torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def footprint(module: PreTrainedModel, dtype: torch.dtype) -> Footprint:
    """Exact parameter count, tied weights once, and KV cache per token; a skeleton will do."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    context_tokens = min(PLANNED_CONTEXT, context_limit(module.config.get_text_config()))
    return Footprint(parameters, parameters * dtype.itemsize, cache_bytes_per_token(module.config, dtype), context_tokens)


def cache_bytes_per_token(config: PretrainedConfig, dtype: torch.dtype) -> int:
    """Keys and values of all layers for one token."""
    text = config.get_text_config()
    heads = getattr(text, "num_attention_heads", None)
    if not heads:  # no attention, no such cache; such a model is refused when it loads
        return 0
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    return 2 * text.num_hidden_layers * kv_heads * head_dim * dtype.itemsize


def free_bytes(device: torch.device) -> int:
    """Bytes that a new allocation on the device could use now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return min(psutil.virtual_memory().available, _container_free_bytes())


def usable_bytes(device: torch.device) -> int:
    """Free bytes less a reserve for activations."""
    return int(free_bytes(device) * _HEADROOM)


def _container_free_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container's memory limit leaves, file cache counted as free; psutil sees only the whole machine."""
    for limit, used, stat, reclaimable in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        try:
            bound = (root / limit).read_text().strip()
            in_use = int((root / used).read_text())
            stats = dict(line.split() for line in (root / stat).read_text().splitlines())
        except (OSError, ValueError):
            continue
        return max(0, int(bound) - in_use + int(stats.get(reclaimable, 0))) if bound.isdecimal() else _NO_LIMIT
    return _NO_LIMIT


def derived_bytes(spec: str, target: Footprint) -> int:
    """Bytes that a draft made from the target adds: packed weights, the rest is shared. For int4, and for drafts that look in text
    that the target wrote, an upper bound.

    int4 keeps a 16-bit scale and minimum for each group of 32 weights, 4 + 32/32 = 5 bits, and a head of 8 bits, which is
    taken for the largest share that it has in small models.
    """
    if spec in RETRIEVERS:
        return _DATASTORE_BYTES
    layers = 0.5 + 4 / INT4_GROUP_SIZE
    per_parameter = {"quantized:int8": 1.0, "quantized:int4": layers + _HEAD_SHARE * (HEAD_BITS / 8 - layers)}.get(spec, 0.0)
    return int(target.parameters * per_parameter)
