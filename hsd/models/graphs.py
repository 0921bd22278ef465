"""Narrow passes on CUDA as recorded graphs: one launch instead of some hundred, and no number from the host in them.

A pass of a few tokens is so short on a GPU that starting its operations takes longer than they do. A graph is recorded
for fixed addresses and shapes, so that here the position is a tensor, keys and values are written by index, and attention
runs over a fixed number of keys, of which those after a token are masked. `static_step` is that pass in torch's own
operations; it runs on any device, recorded only on CUDA.

Attention over the whole cache would cost a short text as much as a long one. The keys come in buckets of a power of two,
the least that holds the text: at most twice the keys needed are read, and a text of n tokens meets about log2(n) buckets.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from hsd.models.layer import after_attention, heads_of
from hsd.settings import cuda_graphs

if TYPE_CHECKING:
    from hsd.models.lean import LeanNetwork

WIDEST_RECORDED = 33  # tokens; the widest pass that is measured. A prompt's passes are wider and worth their launches
LEAST_BUCKET = 256  # keys
_ROUNDING = 0.05  # of the largest logit; low precision through many layers
_RECORDING = threading.Lock()  # one recording at a time in the process


class Slot:
    """Keys and values at addresses that stay, and the graphs recorded over them. One generation holds it at a time."""

    def __init__(self, network: LeanNetwork, capacity: int) -> None:
        shape, device = network.shape, network.device
        size = (len(network.layers), shape.kv_heads, bucket_of(capacity), shape.head_dim)
        self.keys = torch.zeros(size, dtype=network.dtype, device=device)
        self.values = torch.zeros(size, dtype=network.dtype, device=device)
        self.token_ids = torch.zeros(WIDEST_RECORDED, dtype=torch.long, device=device)
        self.start = torch.zeros(1, dtype=torch.long, device=device)
        self.graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}  # (width, bucket) -> graph, its logits
        self.seen: set[tuple[int, int]] = set()
        # Graphs of one slot never run at once and share the memory of their intermediates, for which they are recorded on one stream.
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def clear(self) -> None:
        """Forget the last text: a masked key counts for nothing only if its value is a finite number."""
        self.keys.zero_()
        self.values.zero_()


class SlotCache:
    """The cache of one generation over a slot, which goes back to its network when the cache does."""

    __slots__ = ("__weakref__", "_finalizer", "capacity", "keys", "length", "slot", "values")

    def __init__(self, slot: Slot, capacity: int, take_back: Callable[[Slot], None]) -> None:
        self.slot, self.capacity, self.length = slot, capacity, 0
        self.keys, self.values = slot.keys, slot.values
        self._finalizer = weakref.finalize(self, take_back, slot)
        self._finalizer.atexit = False

    def crop(self, length: int) -> None:
        self.length = min(self.length, length)

    def discard(self) -> None:
        """The memory is needed: nobody takes the slot over."""
        self._finalizer.detach()


class Steps:
    """The narrow passes of one network, recorded the second time a width and a bucket are met."""

    def __init__(self, network: LeanNetwork, *, record: bool) -> None:
        self._network = weakref.proxy(network)  # the network owns its steps
        self._record = record
        # A cache that is collected gives its slot back, in the midst of whatever a thread is doing: no lock that it might hold.
        self._idle: deque[Slot] = deque()
        self.num_slow = 0  # passes so far that were met for the first time or recorded, and took longer than those to come
        self.problem = ""  # why nothing is recorded any more, in one sentence

    def new_cache(self, capacity: int) -> SlotCache:
        """An empty cache; takes over the slot of an earlier generation, with its graphs, where it is large enough."""
        capacity = min(capacity, self._network.max_context)
        slot = self._take_idle(capacity)
        if slot is None:
            slot = Slot(self._network, capacity)
        else:
            slot.clear()
        return SlotCache(slot, capacity, self._idle.append)

    def _take_idle(self, capacity: int) -> Slot | None:
        """A slot that is large enough. The others are too small, or more than are needed at once: they go."""
        found = None
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                idle = self._idle.popleft()
                if found is None and idle.capacity >= capacity:
                    found = idle
        return found

    def give_up_idle(self) -> bool:
        """The memory is needed: let the slots go that no generation holds, with their graphs; whether there were any."""
        found = bool(self._idle)
        self._idle.clear()
        return found

    def __call__(self, token_ids: torch.Tensor, cache: SlotCache, num_logits: int) -> torch.Tensor:
        """As `LeanNetwork.forward` for at most `WIDEST_RECORDED` tokens that fit into the cache."""
        slot, width = cache.slot, token_ids.shape[0]
        bucket = min(bucket_of(cache.length + width), slot.capacity)
        slot.token_ids[:width].copy_(token_ids, non_blocking=True)
        slot.start.fill_(cache.length)  # the number travels with the launch: nothing waits for a copy
        logits = self._run(slot, width, bucket)
        cache.length += width
        return logits[width - num_logits :]

    def prepare(self, capacity: int, widest: int) -> Iterator[None]:
        """Record every pass of 1 to `widest` tokens in a text of up to `capacity`, one at each step of the iterator. The slot, as large as
        any that is needed, is the one that the next cache takes over."""
        cache = self.new_cache(capacity)
        ends = [LEAST_BUCKET]  # texts that just fill each bucket
        while ends[-1] < cache.capacity:
            ends.append(2 * ends[-1])
        for end in (min(end, cache.capacity) for end in ends):
            for width in range(1, min(widest, WIDEST_RECORDED, end) + 1):
                for _ in range(2):  # met and recorded; what is recorded already is replayed
                    cache.length = end - width
                    self(cache.slot.token_ids[:width], cache, 1)
                yield

    def _run(self, slot: Slot, width: int, bucket: int) -> torch.Tensor:
        key = (width, bucket)
        if key in slot.graphs and not self.problem:
            graph, logits = slot.graphs[key]
            graph.replay()
            return logits.clone()  # the next replay writes to the same memory
        self.num_slow += self._record and not self.problem
        logits = static_step(self._network, slot.token_ids[:width], slot.start, slot.keys, slot.values, bucket)
        if self._record and not self.problem and key in slot.seen and logits.isfinite().all():  # else nothing could be compared
            self._try_to_record(slot, key, logits)
        slot.seen.add(key)
        return logits

    def _try_to_record(self, slot: Slot, key: tuple[int, int], wanted: torch.Tensor) -> None:
        """Record the step that has just given `wanted`, or remember why not: without a graph it runs operation by operation, to the
        same effect."""
        why = ""
        try:
            with _RECORDING:
                recorded = record(self._network, slot, *key)
            if replays(*recorded, wanted):
                slot.graphs[key] = recorded
            else:
                why = "a replay gave other numbers than the pass itself"
        except Exception as error:
            short_of_memory = isinstance(error, torch.OutOfMemoryError)
            why = "there is too little memory" if short_of_memory else f"{type(error).__name__}: {[*str(error).splitlines(), ''][0]}"
        if why:
            slot.graphs.clear()
            self.problem = (
                f"{self._network.name}: CUDA graphs cannot be recorded ({why}); its passes go on without them, slower, until it is loaded "
                "anew. Free memory or choose smaller models, or switch graphs off with HSD_CUDA_GRAPHS=0."
            )
            recorded = None
            gc.collect()  # outside of the handler, whose traceback holds what was allocated
            torch.cuda.empty_cache()


def steps_for(network: LeanNetwork) -> Steps | None:
    """The recorded passes of a network on CUDA; `None` elsewhere and where they are switched off."""
    return Steps(network, record=True) if network.device.type == "cuda" and cuda_graphs() else None


def bucket_of(length: int) -> int:
    """The least bucket that holds `length` keys."""
    return max(LEAST_BUCKET, 1 << (length - 1).bit_length())


def record(network: LeanNetwork, slot: Slot, width: int, bucket: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Record one step over the slot's own tensors; it has just run on this thread, so that libraries are set up."""
    graph = torch.cuda.CUDAGraph()
    # By itself torch records on the current device, which need not be the network's, and a recording that fails would leave its stream
    # the current one. Another thread may allocate meanwhile: only this thread's calls are checked.
    capture = torch.cuda.graph(graph, pool=slot.pool, stream=slot.stream, capture_error_mode="thread_local")
    with torch.cuda.device(network.device), torch.cuda.stream(slot.stream), capture:
        logits = static_step(network, slot.token_ids[:width], slot.start, slot.keys, slot.values, bucket)
    return graph, logits


@torch.inference_mode()
def replays(graph: torch.cuda.CUDAGraph, logits: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether a replay writes `wanted` (q, vocab), up to rounding, into `logits`.

    Another algorithm may have been chosen for a product while it was recorded. A graph that lacks work leaves numbers from before.
    """
    logits.fill_(float("nan"))  # operations that ran instead of being recorded may have left the right ones
    graph.replay()
    off, largest = (logits - wanted).abs().max(), wanted.abs().max()
    return bool(off <= _ROUNDING * largest)


@torch.inference_mode()
def static_step(
    network: LeanNetwork, token_ids: torch.Tensor, start: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bucket: int
) -> torch.Tensor:
    """Logits (q, vocab) of `token_ids` (q,) int64 at the positions from `start` (1,) int64 on.

    keys and values (layers, kv_heads, capacity, head_dim) are written at those positions; attention sees the first
    `bucket` of them. No shape and no address depends on a number that changes between calls.
    """
    shape, width = network.shape, token_ids.shape[0]
    positions = start + torch.arange(width, device=token_ids.device)  # (q,)
    cos = network.cos.index_select(0, positions)[:, None]  # (q, 1, head_dim)
    sin = network.sin.index_select(0, positions)[:, None]
    group = shape.heads // shape.kv_heads
    future = torch.arange(bucket, device=token_ids.device) > positions[:, None]  # (q, bucket)
    mask = torch.zeros(width, bucket, dtype=network.dtype, device=token_ids.device).masked_fill_(future, float("-inf"))
    # Queries that share a key-value head become rows of one product: row token * group + head within the group.
    mask = mask[:, None].expand(-1, group, -1).reshape(1, 1, width * group, bucket)
    x = network.embed(token_ids)  # (q, hidden)
    for index, layer in enumerate(network.layers):
        queries, new_keys, new_values = heads_of(layer, x, shape, cos, sin)
        keys[index].index_copy_(1, positions, new_keys.transpose(0, 1))
        values[index].index_copy_(1, positions, new_values.transpose(0, 1))
        queries = queries.unflatten(1, (shape.kv_heads, group)).transpose(0, 1)  # (kv_heads, q, group, head_dim)
        queries = queries.reshape(1, shape.kv_heads, width * group, shape.head_dim)
        attended = F.scaled_dot_product_attention(queries, keys[index, None, :, :bucket], values[index, None, :, :bucket], attn_mask=mask)
        attended = attended.view(shape.kv_heads, width, group, shape.head_dim).transpose(0, 1)  # (q, kv_heads, group, head_dim)
        x = after_attention(layer, x, attended.reshape(width, shape.heads * shape.head_dim), shape)
    return network.head(F.rms_norm(x, (shape.hidden,), network.final_norm, shape.eps))
