"""List what can serve as target and as drafts: everything is listed, and what cannot be used says why. No weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from hsd.errors import HsdError, IncompatibleModel
from hsd.models.build import is_derived
from hsd.models.retrieval import RETRIEVERS
from hsd.pick import catalogue, datastore, embedded, vocabulary
from hsd.pick.catalogue import CATALOGUE
from hsd.pick.device import choose_device, choose_dtype
from hsd.pick.facts import Facts, facts_of, facts_of_entry
from hsd.pick.load import load_tokenizer
from hsd.pick.memory import derived_bytes, usable_bytes
from hsd.pick.placement import may_spread
from hsd.pick.registry import REGISTRY
from hsd.pick.source import availability
from hsd.units import byte_size

Kind = Literal["free", "derived", "model"]
Status = Literal["ready", "download", "unusable"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One line of the picker. `memory_bytes` is weights plus a cache of 2048 tokens, 0 where unknown."""

    name: str
    kind: Kind  # free: no network at all; derived: made from the target; model: weights of its own
    status: Status
    reason: str  # why it is unusable, or what a download means; empty when ready
    parameters: int | None
    memory_bytes: int
    description: str


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of a selection before it is loaded; `by_model` runs in the order given, the target last."""

    by_model: dict[str, int]
    needed_bytes: int
    usable_bytes: int
    fits: bool
    sentence: str


def list_targets(*, device: str = "auto", dtype: str = "auto") -> tuple[Candidate, ...]:
    """The curated models as targets, the embedded default first. Raises `DeviceUnsupported` or `BadInput`."""
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    return tuple(_model(facts_of_entry(entry), kind, where, beside=0) for entry in CATALOGUE)


def list_candidates(target: str, names: Sequence[str] = (), *, device: str = "auto", dtype: str = "auto") -> tuple[Candidate, ...]:
    """Every draft for `target`: those made from it, the curated models, and the user's own `names`.

    Usable ones come first, smallest first. Raises for a target, a device or a dtype that cannot be used.
    """
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    base = facts_of(target)
    derived = [*_standard_derived(base), *(name for name in names if is_derived(name))]
    found = [_derived(name, base, kind, where) for name in dict.fromkeys(derived)]
    models = dict.fromkeys([*(name for name in names if not is_derived(name)), *(entry.name for entry in CATALOGUE)])
    found += [_draft_model(name, base, kind, where, asked=name in names) for name in models if name != target]
    order = {"ready": 0, "download": 1, "unusable": 2}
    return tuple(sorted(found, key=lambda candidate: (order[candidate.status], candidate.parameters or 0, candidate.memory_bytes)))


def memory_fit(target: str, drafts: Sequence[str], *, device: str = "auto", dtype: str = "auto") -> MemoryFit:
    """Whether a selection fits, from configurations alone; models already in memory count as free."""
    where = choose_device(device)
    kind = choose_dtype(dtype, where)
    base = facts_of(target)
    by_model: dict[str, int] = {}
    for name in drafts:
        own = base if is_derived(name) else facts_of(name)
        by_model[name] = derived_bytes(name, base.footprint(kind)) if is_derived(name) else own.footprint(kind).total_bytes
    by_model[target] = base.footprint(kind).total_bytes
    resident = REGISTRY.loaded()
    needed = sum(size for name, size in by_model.items() if name not in resident and f"{name} of {target}" not in resident)
    usable = usable_bytes(where)
    fits = needed <= usable or may_spread(needed, where)
    verdict = "fits" if fits else "does not fit; leave out a draft, or choose a smaller model or dtype"
    total, missing = byte_size(sum(by_model.values())), byte_size(needed)
    sentence = f"{total} in all, {missing} of it still to load, {byte_size(usable)} usable on {where}: {verdict}."
    return MemoryFit(by_model, needed, usable, fits, sentence)


def _standard_derived(base: Facts) -> list[str]:
    exits = base.early_exits or ((max(1, base.layers // 3),) if base.layers > 1 else ())
    return ["prompt-lookup", *RETRIEVERS, *(f"early-exit:{layers}" for layers in exits), "quantized:int4", "quantized:int8"]


def _derived(name: str, base: Facts, dtype: torch.dtype, device: torch.device) -> Candidate:
    kind, _, detail = name.partition(":")
    size = derived_bytes(name, base.footprint(dtype))
    if name == "prompt-lookup":
        return Candidate(name, "free", "ready", "", None, 0, "n-grams of the text so far; costs next to nothing")
    if name in RETRIEVERS:
        what = "n-grams of the text so far, then of" if name == "retrieval" else "each token's most frequent successor in"
        once = "" if datastore.is_written(base.name) else f"; it writes first, once, for {datastore.SECONDS:.0f} s at most"
        return Candidate(name, "free", "ready", "", None, size, f"{what} text that the target wrote{once}")
    if kind == "early-exit":
        fine = detail.isdecimal() and 1 <= int(detail) < base.layers
        reason = "" if fine else f"{base.name} has {base.layers} layers; give early-exit:1 to early-exit:{base.layers - 1}."
        trained = ", trained for it" if fine and int(detail) in base.early_exits else ""
        text = f"the first {detail} of {base.layers} layers{trained}, weights shared with the target"
        return Candidate(name, "derived", "ready" if fine else "unusable", reason, None, size, text)
    if kind == "quantized":
        reason = ""
        if detail not in ("int4", "int8"):
            reason = f"“{name}” is not known; give quantized:int8 or quantized:int4."
        elif device.type != "cpu":
            reason = f"Weight-only {detail} copies run on CPU kernels, not on {device.type}; use a smaller model or early-exit."
        elif size > usable_bytes(device):
            reason = f"It needs {byte_size(size)} of memory, {byte_size(usable_bytes(device))} are usable."
        text = f"a weight-only {detail} copy of the target"
        return Candidate(name, "derived", "unusable" if reason else "ready", reason, base.parameters, size, text)
    return Candidate(name, "free", "ready", "", None, 0, "made from the target")


def _draft_model(name: str, base: Facts, dtype: torch.dtype, device: torch.device, *, asked: bool) -> Candidate:
    try:
        own = facts_of(name)
        reason = _vocabulary_problem(base, own)
        if not reason and own.parameters >= base.parameters and not asked:
            reason = f"It is not smaller than {base.name}."
        if reason:
            raise IncompatibleModel(reason)
    except HsdError as error:
        entry = catalogue.BY_NAME.get(name)
        size = entry.footprint(dtype).total_bytes if entry else 0
        parameters = entry.parameters if entry else None
        return Candidate(name, "model", "unusable", str(error), parameters, size, _describe(name, parameters))
    loaded = base.name in REGISTRY.loaded()
    return _model(own, dtype, device, beside=0 if loaded else base.footprint(dtype).total_bytes)


def _vocabulary_problem(base: Facts, own: Facts) -> str:
    """Why the draft's tokens are not the target's; token by token where both tokenizers are at hand."""
    if availability(base.name).files and availability(own.name).files:
        return vocabulary.why_unusable(load_tokenizer(base.name), own.name, base.name)
    known = base.vocabulary, own.vocabulary
    if known[0] and known[1] and known[0] != known[1]:
        return f"It has another vocabulary ({known[1].name}) than {base.name} ({known[0].name}); choose a draft of the same family."
    if (known[0] is None) != (known[1] is None):
        strange, curated = (base, own) if known[0] is None else (own, base)
        return f"{strange.name} has another vocabulary than {curated.name}; choose a draft of the same family."
    return ""  # compared token by token when it loads


def _model(own: Facts, dtype: torch.dtype, device: torch.device, *, beside: int) -> Candidate:
    size = own.footprint(dtype).total_bytes
    state = availability(own.name)
    status: Status = "ready" if state.ready else "download"
    reason = state.problem
    if own.name not in REGISTRY.loaded() and size + beside > usable_bytes(device):
        together = f" beside the target's {byte_size(beside)}" if beside else ""
        reason = f"It needs {byte_size(size)} of memory{together}; {byte_size(usable_bytes(device))} are usable on {device}."
        status = "unusable"
    elif state.problem:
        status = "unusable"
    elif status == "download":
        reason = "93 MB from PyPI, converted once" if own.name == embedded.NAME else f"about {byte_size(own.parameters * 2)} to download"
        reason += "; gated: accept its licence on the hub first" if own.gated else ""
    return Candidate(own.name, "model", status, reason, own.parameters, size, _describe(own.name, own.parameters))


def _describe(name: str, parameters: int | None) -> str:
    entry = catalogue.BY_NAME.get(name)
    parts = [entry.family] if entry else []
    parts += [f"{_count(parameters)} parameters"] if parameters else []
    parts += [entry.note] if entry and entry.note else []
    return "; ".join(parts)


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.0f} million"
