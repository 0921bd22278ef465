"""Networks whose narrow passes are recorded, without CUDA: what stands for a graph computes the step anew."""

from __future__ import annotations

import time
from types import MappingProxyType

import torch
from tiny_models import TinySet, model_set

from hsd.models import graphs
from hsd.models.graphs import WIDEST_RECORDED, Steps
from hsd.models.lean import LeanNetwork


class Replayed:
    """Stands for a CUDA graph: computes the step into the same memory each time, from the slot's own tensors."""

    def __init__(self, network, slot, width, bucket):
        self.inputs = (network, slot.token_ids[:width], slot.start, slot.keys, slot.values, bucket)
        self.logits = graphs.static_step(*self.inputs)
        self.replays = 0

    def replay(self):
        self.replays += 1
        with torch.inference_mode():
            self.logits.copy_(graphs.static_step(*self.inputs))


def record_replayed(monkeypatch, seconds: float = 0.0) -> dict[tuple[int, int], Replayed]:
    """`Replayed` in place of graphs, each of which takes `seconds` to record; gives those that were made, the latest of each shape."""
    made = {}

    def record(network, slot, width, bucket):
        time.sleep(seconds)
        made[width, bucket] = graph = Replayed(network, slot, width, bucket)
        return graph, graph.logits

    monkeypatch.setattr(graphs, "record", record)
    return made


class Stepped:
    """A lean network that takes the static step for its narrow passes, as on CUDA."""

    def __init__(self, network: LeanNetwork, record: bool) -> None:
        self.network = network
        self.steps = Steps(network, record=record)

    def __getattr__(self, name: str):
        return getattr(self.network, name)

    def new_cache(self, capacity):
        return self.steps.new_cache(capacity)

    def adopt(self, cache, other, other_cache):
        return self.network.adopt(cache, other.network, other_cache)

    def forward(self, token_ids, cache, num_logits):
        if len(token_ids) > WIDEST_RECORDED:
            return self.network.forward(token_ids, cache, num_logits)
        return self.steps(token_ids, cache, num_logits)


def stepped(models: TinySet, record: bool) -> TinySet:
    """The same models but for the quantized ones, their narrow passes as on CUDA."""
    networks = {name: Stepped(model, record) if isinstance(model, LeanNetwork) else model for name, model in models.networks.items()}
    return model_set(MappingProxyType({name: model for name, model in networks.items() if not name.startswith("quantized")}))
