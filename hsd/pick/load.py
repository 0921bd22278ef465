"""Load a model by name: safetensors only, no remote code, and every failure as a sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from hsd.errors import HsdError, IncompatibleModel
from hsd.pick.failures import explain
from hsd.pick.memory import BUILDING
from hsd.pick.placement import Placement, loading_options
from hsd.pick.source import Source, find_source, prepare
from hsd.records import Progress, Report, ShouldStop


@dataclass(frozen=True, slots=True)
class Loaded:
    """One model in memory."""

    name: str
    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos_token_ids: frozenset[int]


def load_config(name: str) -> PretrainedConfig:
    """Configuration alone; no weight is read. Raises `ModelUnavailable`, `IncompatibleModel` or `BadInput`."""
    source = find_source(name)
    with _explained(name):
        config = AutoConfig.from_pretrained(source.location, **source.options)
    _check_causal(name, config)
    return config


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Tokenizer alone. Raises as `load_config` does."""
    source = find_source(name)
    with _explained(name):
        return AutoTokenizer.from_pretrained(source.location, **source.options)


def load(
    name: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    placement: Placement = "whole",
    report: Report | None = None,
    should_stop: ShouldStop | None = None,
) -> Loaded:
    """Fetch if needed and load, onto `device` or as `placement` says.

    Raises `ModelUnavailable`, `IncompatibleModel`, `BadInput` or `Cancelled`.
    """
    source = find_source(name)
    prepare(source, report, should_stop)
    if report:
        report(Progress("load model", 0, 1, message=name))
    config = load_config(name)
    tokenizer = load_tokenizer(name)
    with _explained(name):
        module = _load_module(source, config, dtype, loading_options(placement, device, config, name))
    if report:
        report(Progress("load model", 1, 1, message=name))
    return Loaded(name, module, tokenizer, eos_token_ids(module, tokenizer))


def eos_token_ids(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a text: the generation settings' own, else the configuration's, else the tokenizer's."""
    generation = getattr(module, "generation_config", None)
    for ids in (getattr(generation, "eos_token_id", None), getattr(module.config, "eos_token_id", None), tokenizer.eos_token_id):
        if ids is not None:
            return frozenset(ids if isinstance(ids, list | tuple) else [ids])
    return frozenset()


def _load_module(source: Source, config: PretrainedConfig, dtype: torch.dtype, where: dict[str, Any]) -> PreTrainedModel:
    with BUILDING, _quiet():
        module, info = AutoModelForCausalLM.from_pretrained(
            source.location,
            dtype=dtype,
            output_loading_info=True,
            **where,
            **(gguf_options() if source.gguf_file else {"use_safetensors": True, "config": config}),
            **source.options,
        )
    missing = sorted(info.get("missing_keys") or ())
    if missing:  # transformers fills these with random numbers and only warns
        raise IncompatibleModel(
            f"{source.name} lacks {len(missing)} of its weights (first: {missing[0]}); "
            "the files are incomplete or belong to another kind of model. Fetch them again or choose another."
        )
    return module.eval().requires_grad_(False)


def gguf_options() -> dict[str, object]:
    """Settings that turn a GGUF file into a dense model: packed, every product would cast and unpack its weights anew.

    transformers from 5.24 on keeps GGUF weights packed unless asked; older ones always unpack and lack the class.
    """
    config_class = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": config_class(dequantize=True)} if config_class else {}


def _check_causal(name: str, config: PretrainedConfig) -> None:
    if getattr(config, "is_encoder_decoder", False):
        raise IncompatibleModel(f"{name} is an encoder-decoder model; choose a causal (decoder-only) language model.")
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise IncompatibleModel(f"{name} is a {config.model_type} model, not a causal language model; choose one that generates text.")


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except HsdError:
        raise
    except Exception as error:
        raise explain(name, error) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars on stderr while loading: progress is told through `report`."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
