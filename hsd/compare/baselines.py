"""transformers' own ways of decoding, timed as this engine is: decoding only, the prompt's pass excluded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from hsd.errors import BadInput, ModelUnavailable
from hsd.generate.faults import as_level_fault
from hsd.pick.facts import facts_of
from hsd.pick.load import load
from hsd.pick.memory import usable_bytes
from hsd.pick.model_set import ModelSet
from hsd.records import Sampling, ShouldStop
from hsd.units import byte_size

BASELINES = ("transformers", "transformers-prompt-lookup", "transformers-assistant")
_LOOKUP_TOKENS = 10  # transformers' own documentation uses this value


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """`timed_tokens` came in `seconds` after the first tokens, which the prompt's own pass brings."""

    token_ids: tuple[int, ...]
    timed_tokens: int
    seconds: float


class _FirstTokens(BaseStreamer):
    """Notes when the first new tokens were there, and how many."""

    def __init__(self) -> None:
        self.calls = 0
        self.count = 0
        self.time = 0.0

    def put(self, value: torch.Tensor) -> None:
        self.calls += 1
        if self.calls == 2:  # the first call brings the prompt
            self.count, self.time = value.numel(), time.perf_counter()

    def end(self) -> None:
        pass


class _StopWhenAsked(StoppingCriteria):
    def __init__(self, should_stop: ShouldStop) -> None:
        self.should_stop = should_stop

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.full((input_ids.shape[0],), self.should_stop(), dtype=torch.bool, device=input_ids.device)


def assistants(models: ModelSet) -> list[str]:
    """Loaded drafts that transformers can use as an assistant: ordinary models of their own, with as many rows as the target; of
    others it wants both tokenizers and decodes in another way."""
    rows = models.networks[models.target].vocab_size
    return [name for name in models.own_weights if name != models.target and models.networks[name].vocab_size == rows]


def load_modules(models: ModelSet, methods: Sequence[str]) -> tuple[dict[str, PreTrainedModel], tuple[str, ...]]:
    """transformers' own modules for these baselines, and why one is missing.

    Where this engine computes with the module's own weights they serve both; where it packed them for its kernels, a second copy is
    loaded for as long as the comparison lasts, if there is room for it.
    """
    found: dict[str, PreTrainedModel] = {}
    for name in dict.fromkeys(name for method in methods for name in _needed(method, models)):
        try:
            found[name] = models.modules[name] if name in models.modules else _second_copy(name, models)
        except ModelUnavailable as error:
            return found, (f"transformers' own modes that need {name} are left out. {error}",)
    return found, ()


def can_run(method: str, models: ModelSet, modules: Mapping[str, PreTrainedModel]) -> bool:
    """Whether the modules that a method needs are there."""
    return all(name in modules for name in _needed(method, models))


def _needed(method: str, models: ModelSet) -> list[str]:
    """The models whose modules a method runs on; this engine's own methods need none."""
    return [models.target, *(assistants(models)[:1] if method == BASELINES[2] else [])] if method in BASELINES else []


def _second_copy(name: str, models: ModelSet) -> PreTrainedModel:
    device, dtype = torch.device(models.environment.device), models.networks[models.target].dtype
    needed, usable = facts_of(name).footprint(dtype).weight_bytes, usable_bytes(device)
    if needed > usable:
        raise ModelUnavailable(
            f"They compute on plain weights, for which {byte_size(needed)} are needed beside the packed ones of this engine, and "
            f"{byte_size(usable)} are usable on {device}; compare without them, or choose a smaller model."
        )
    return load(name, device=device, dtype=dtype).module


@torch.inference_mode()
def run_baseline(
    name: str,
    models: ModelSet,
    modules: Mapping[str, PreTrainedModel],
    prompt_ids: Sequence[int],
    *,
    sampling: Sampling,
    max_new_tokens: int,
    should_stop: ShouldStop,
) -> BaselineRun:
    """One generation by transformers; raises `BadInput` for a mode these models cannot do, `LevelFault` for one that fails."""
    module = modules[models.target]
    first = _FirstTokens()
    torch.manual_seed(sampling.seed)
    with as_level_fault(name):
        output = module.generate(
            torch.tensor([list(prompt_ids)], device=module.device),
            max_new_tokens=max_new_tokens,
            eos_token_id=sorted(models.eos_token_ids) or None,
            pad_token_id=min(models.eos_token_ids, default=0),
            streamer=first,
            stopping_criteria=[_StopWhenAsked(should_stop)],
            **_sampling_arguments(sampling),
            **_mode_arguments(name, models, modules),
        )
    ended = time.perf_counter()
    token_ids = tuple(output[0, len(prompt_ids) :].tolist())
    return BaselineRun(token_ids, len(token_ids) - first.count, ended - first.time)


def _mode_arguments(name: str, models: ModelSet, modules: Mapping[str, PreTrainedModel]) -> dict[str, Any]:
    if name == "transformers":
        return {}
    if name == "transformers-prompt-lookup":
        return {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}
    if name == "transformers-assistant":
        drafts = assistants(models)
        if not drafts:
            raise BadInput("transformers needs a draft model with weights of its own as assistant; none is loaded.")
        return {"assistant_model": modules[drafts[0]]}
    raise BadInput(f"“{name}” is no way of decoding; known are {', '.join(BASELINES)}.")


def _sampling_arguments(sampling: Sampling) -> dict[str, Any]:
    arguments: dict[str, Any] = {"do_sample": not sampling.greedy, "repetition_penalty": sampling.repetition_penalty}
    arguments["no_repeat_ngram_size"] = sampling.no_repeat_ngram_size
    if not sampling.greedy:
        arguments |= {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
        arguments |= {"min_p": sampling.min_p} if sampling.min_p else {}
    return arguments
