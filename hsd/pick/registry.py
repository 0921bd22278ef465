"""Weights in memory, shared by all sessions: loaded once, counted, kept until the memory is needed."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel

from hsd import ranks
from hsd.errors import Cancelled, HsdError, IncompatibleModel, NotEnoughMemory
from hsd.models.build import PROPOSERS, build_network, derive, is_derived
from hsd.models.network import Network, Proposer
from hsd.models.pieces import refuse_derived
from hsd.models.retrieval import RETRIEVERS, Retrieval
from hsd.pick import datastore, vocabulary
from hsd.pick.device import choose_device, choose_dtype
from hsd.pick.facts import facts_of
from hsd.pick.failures import explain
from hsd.pick.load import Loaded, load
from hsd.pick.memory import Footprint, derived_bytes, footprint, usable_bytes
from hsd.pick.model_set import ModelSet, lend
from hsd.pick.placement import Placement, may_spread
from hsd.pick.source import find_source, prepare
from hsd.records import Progress, Report, ShouldStop
from hsd.units import byte_size

_POLL_S = 0.2


@dataclass(slots=True)
class _Entry:
    """A loaded model, or a draft derived from one; `loaded` and `size` are None for the latter."""

    network: Network | Proposer
    loaded: Loaded | None
    size: Footprint | None = None
    cache_bytes: int = 0  # of one text
    users: int = 0
    last_used: float = field(default_factory=time.monotonic)

    @property
    def memory_bytes(self) -> int:
        return int(getattr(self.network, "memory_bytes", 0))


_Key = tuple[str, str, str, str]  # name, target it is derived from or "", device, dtype


class Registry:
    """All weights of one process. Methods may be called from any thread; models load one at a time."""

    def __init__(self) -> None:
        self._entries: dict[_Key, _Entry] = {}
        self._state = threading.Lock()  # guards the entries; held briefly
        self._loading = threading.Lock()  # held while a model loads

    @contextlib.contextmanager
    def lease(
        self,
        target: str,
        drafts: Sequence[str] = (),
        *,
        device: str = "auto",
        dtype: str = "auto",
        report: Report | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Iterator[ModelSet]:
        """The target and its drafts, loaded if they are not yet; they stay loaded at least until the block ends.

        A draft that cannot be had is left out and named in `notices`. Raises `ModelUnavailable`, `IncompatibleModel`,
        `DeviceUnsupported` or `BadInput` for the target, the device or the dtype, and `Cancelled`.
        """
        report = report or (lambda progress: None)
        should_stop = should_stop or (lambda: False)
        where = choose_device(device)
        kind = choose_dtype(dtype, where)
        taken: list[_Entry] = []
        try:
            yield self._gather(target, drafts, where, kind, taken, report, should_stop)
        finally:
            with self._state:
                for entry in taken:
                    entry.users -= 1
                    entry.last_used = time.monotonic()

    def loaded(self) -> dict[str, int]:
        """Bytes of everything now in memory, by name."""
        with self._state:
            return {f"{name} of {target}" if target else name: entry.memory_bytes for (name, target, *_), entry in self._entries.items()}

    def clear(self) -> None:
        """Forget every model that nobody uses."""
        with self._state:
            for key in [key for key, entry in self._entries.items() if not self._used(key, entry)]:
                del self._entries[key]
        _give_back()

    def _gather(
        self,
        target: str,
        drafts: Sequence[str],
        device: torch.device,
        dtype: torch.dtype,
        taken: list[_Entry],
        report: Report,
        should_stop: ShouldStop,
    ) -> ModelSet:
        self._wait_for_turn(report, should_stop)
        try:
            place = (str(device), str(dtype))
            base = self._take((target, "", *place), taken, lambda: self._load_target(target, device, dtype, report, should_stop))
            assert base.loaded is not None
            networks: dict[str, Network | Proposer] = {}
            modules: dict[str, PreTrainedModel] = {}
            notices: dict[str, str] = {}
            for name in dict.fromkeys(drafts):
                if name == target:
                    continue
                if should_stop():
                    raise Cancelled("Stopped while the models were being loaded.")
                try:
                    entry = self._take_draft(name, target, base, device, dtype, taken, report, should_stop)
                    networks[name] = entry.network
                    if entry.loaded is not None:
                        modules[name] = entry.loaded.module
                except Cancelled:
                    raise
                except HsdError as error:
                    notices[name] = f"The draft {name} is left out. {error}"
            networks[target] = base.network
        finally:
            self._loading.release()
        return lend(target, base.loaded, networks, device, dtype, notices, modules)

    def _wait_for_turn(self, report: Report, should_stop: ShouldStop) -> None:
        waited = False
        while not self._loading.acquire(timeout=_POLL_S):
            if should_stop():
                raise Cancelled("Stopped while waiting for another visitor's models to load.")
            if not waited:
                report(Progress("wait", 0, 1, message="another visitor's models are being loaded"))
                waited = True

    def _take(self, key: _Key, taken: list[_Entry], make: Callable[[], _Entry]) -> _Entry:
        """The entry of `key`, made if need be, with one user more; the loading lock is held."""
        with self._state:
            entry = self._entries.get(key)
            if entry is not None:
                entry.users += 1
                taken.append(entry)
                return entry
        entry = make()
        with self._state:
            entry.users += 1
            self._entries[key] = entry
            taken.append(entry)
        return entry

    def _take_draft(
        self,
        name: str,
        target: str,
        base: _Entry,
        device: torch.device,
        dtype: torch.dtype,
        taken: list[_Entry],
        report: Report,
        should_stop: ShouldStop,
    ) -> _Entry:
        assert base.loaded is not None
        place = (str(device), str(dtype))
        if is_derived(name):
            if name in RETRIEVERS:
                alone = functools.partial(lend, target, base.loaded, {target: base.network}, device, dtype)
                return self._take((name, target, *place), taken, lambda: self._look_up(name, base, alone(), report, should_stop))
            return self._take((name, target, *place), taken, lambda: self._derive(name, base, report))
        source = find_source(name)
        if source.kind == "embedded":  # its tokenizer comes with its weights; a hub model's comes alone
            prepare(source, report, should_stop)
        # The tokenizers are compared first: no weight of an unusable draft is fetched or loaded.
        if reason := vocabulary.why_unusable(base.loaded.tokenizer, name, target):
            raise IncompatibleModel(reason)
        return self._take((name, "", *place), taken, lambda: self._load(name, device, dtype, report, should_stop))

    def _load_target(self, name: str, device: torch.device, dtype: torch.dtype, report: Report, should_stop: ShouldStop) -> _Entry:
        """As `_load`; in shards under torchrun, over several GPUs where one has not enough memory."""
        if ranks.count() > 1:
            return self._load(name, device, dtype, report, should_stop, "sharded")
        try:
            return self._load(name, device, dtype, report, should_stop)
        except NotEnoughMemory as error:
            too_little = str(error)
        _give_back()  # outside of the handler, whose traceback holds what was loaded
        if not may_spread(facts_of(name).footprint(dtype).total_bytes, device):
            raise NotEnoughMemory(too_little)
        return self._load(name, device, dtype, report, should_stop, "spread")

    def _load(
        self,
        name: str,
        device: torch.device,
        dtype: torch.dtype,
        report: Report,
        should_stop: ShouldStop,
        placement: Placement = "whole",
    ) -> _Entry:
        share = ranks.count() if placement == "sharded" else 1
        if placement != "spread":
            self._make_room(name, facts_of(name).footprint(dtype).total_bytes // share, device)
        loaded = load(name, device=device, dtype=dtype, placement=placement, report=report, should_stop=should_stop)
        size = footprint(loaded.module, dtype)
        with _as_sentence(name):
            return _Entry(build_network(name, loaded.module), loaded, size, size.cache_bytes // share)

    def _look_up(self, name: str, base: _Entry, alone: ModelSet, report: Report, should_stop: ShouldStop) -> _Entry:
        """A draft that looks in text which the target, `alone`, wrote or writes now."""
        assert base.loaded is not None
        with _as_sentence(name):
            refuse_derived(name, base.loaded.module)
            return _Entry(Retrieval(name, datastore.successors(alone, report, should_stop)), None)

    def _derive(self, name: str, base: _Entry, report: Report) -> _Entry:
        assert base.loaded is not None and base.size is not None and isinstance(base.network, Network)
        report(Progress("prepare draft", 0, 1, message=name))
        cache_bytes = 0 if name in PROPOSERS else base.size.cache_bytes
        self._make_room(name, derived_bytes(name, base.size) + cache_bytes, base.network.device)
        with _as_sentence(name):
            entry = _Entry(derive(name, base.network, base.loaded.module), None, cache_bytes=cache_bytes)
        report(Progress("prepare draft", 1, 1, message=name))
        return entry

    def _make_room(self, name: str, needed: int, device: torch.device) -> None:
        """Free memory until `needed` bytes fit beside the keys and values of a text of each model in use."""
        if not needed:
            return
        with self._state:
            needed += sum(entry.cache_bytes for key, entry in self._entries.items() if key[2] == str(device) and entry.users)
        while needed > usable_bytes(device):
            if not self._free_some(device):
                raise NotEnoughMemory(
                    f"{name} needs {byte_size(needed)} of memory, the texts of all models in use included, and "
                    f"{byte_size(usable_bytes(device))} are usable on {device}; choose a smaller model or dtype, or another device."
                )
            _give_back()

    def _free_some(self, device: torch.device) -> bool:
        """Drop the unused model that was used least recently, or else what those in use hold idle; whether there was any of it."""
        with self._state:
            here = {key: entry for key, entry in self._entries.items() if key[2] == str(device)}
            unused = [(entry.last_used, key) for key, entry in here.items() if not self._used(key, entry)]
            if unused:
                self._drop(min(unused)[1])
                return True
            recorded = [getattr(entry.network, "steps", None) for entry in here.values()]
            return any([steps.give_up_idle() for steps in recorded if steps is not None])  # all of them, not up to the first

    def _used(self, key: _Key, entry: _Entry) -> bool:
        """In use itself, or the target of a derived draft that is; the state lock is held."""
        return entry.users > 0 or any(other.users > 0 for k, other in self._entries.items() if k[1] == key[0] and k[2:] == key[2:])

    def _drop(self, key: _Key) -> None:
        """Forget a model together with the drafts made from it, which share its weights."""
        for other in [k for k in self._entries if k == key or (k[1] == key[0] and k[2:] == key[2:])]:
            del self._entries[other]


REGISTRY = Registry()


@contextlib.contextmanager
def _as_sentence(name: str) -> Iterator[None]:
    try:
        yield
    except (HsdError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise explain(name, error) from error


def _give_back() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
