"""Where a target's weights go: onto one device, over several GPUs, or in shards to the processes of torchrun."""

from __future__ import annotations

from typing import Any, Literal

import torch
from transformers import PretrainedConfig

from hsd import ranks
from hsd.errors import IncompatibleModel
from hsd.pick.memory import usable_bytes

Placement = Literal["whole", "spread", "sharded"]


def may_spread(needed: int, device: torch.device) -> bool:
    """Whether `needed` bytes that do not fit on `device` fit on all GPUs together."""
    return device.type == "cuda" and torch.cuda.device_count() > 1 and needed <= sum(_room().values())


def loading_options(placement: Placement, device: torch.device, config: PretrainedConfig, name: str) -> dict[str, Any]:
    """What transformers' `from_pretrained` is told. Raises `IncompatibleModel` for a model that cannot be sharded so."""
    if placement == "sharded":
        from transformers.distributed import DistributedConfig

        check_shards(name, config, ranks.count())
        return {"distributed_config": DistributedConfig(tp_size=ranks.count())}
    if placement == "spread":
        # Without a place in main memory named, no layer is left there: each pass would have to fetch it.
        return {"device_map": "auto", "max_memory": _room()}
    # On an accelerator the weights go straight there instead of through a second copy in main memory.
    return {"device_map": {"": device}} if device.type != "cpu" else {}


def check_shards(name: str, config: PretrainedConfig, count: int) -> None:
    """Raise `IncompatibleModel` unless `count` processes can share the model's heads evenly."""
    text = config.get_text_config()
    if not getattr(text, "base_model_tp_plan", None):
        raise IncompatibleModel(f"transformers does not know how to shard a {text.model_type} model; run {name} without torchrun.")
    for field, words in (("num_attention_heads", "attention heads"), ("num_key_value_heads", "key-value heads")):
        heads = getattr(text, field, None) or text.num_attention_heads
        if heads % count:
            fitting = ", ".join(str(n) for n in range(1, heads + 1) if text.num_attention_heads % n == 0 and heads % n == 0)
            raise IncompatibleModel(
                f"{name} has {heads} {words}, which {count} processes cannot share evenly; start torchrun with --nproc-per-node {fitting}."
            )


def _room() -> dict[int, int]:
    """Bytes that each GPU can take."""
    return {index: usable_bytes(torch.device("cuda", index)) for index in range(torch.cuda.device_count())}
