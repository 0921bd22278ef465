"""Text that a target wrote itself, for the drafts that look tokens up in it (hsd/models/retrieval.py).

It is made as in Magpie (Xu et al. 2024, arXiv 2406.08464): given its chat template up to the user's words, the target asks a question,
drawn at temperature 1, and then answers it greedily; a model without a template goes on from its first token. This is done once for
each target, in a minute, and kept in the cache folder. The text of the embedded default comes with the program.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedTokenizerBase

from hsd import settings
from hsd.errors import BadInput, Cancelled, LevelFault, ModelUnavailable
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent
from hsd.generate.prompt import encode_prompt
from hsd.models.retrieval import Retrieval, Successors
from hsd.pick import embedded
from hsd.pick.model_set import ModelSet
from hsd.pick.revision import revision
from hsd.records import GREEDY, Hierarchy, Level, Progress, Report, Sampling, ShouldStop

SECONDS = 60.0  # most that is spent on writing
TOKENS = 50_000  # enough; twice as many gain a draft 2 % (SmolLM2-135M)

_SHIPPED = {embedded.NAME: Path(__file__).with_name("datastore.safetensors")}  # by `write` with an hour and 150,000 tokens
_QUESTION_TOKENS, _ANSWER_TOKENS = 64, 160
_MARK = "\u2402"  # stands for the user's words in a chat template
_DRAFTED = 4  # tokens that the text so far drafts for its own continuation


def file_of(target: str) -> Path:
    """Where the text of `target` lies or will lie. Raises as `find_source` does."""
    if target in _SHIPPED:
        return _SHIPPED[target]
    key = hashlib.sha256(f"{target} {revision(target, target)}".encode()).hexdigest()
    return settings.cache_dir() / f"datastore-{key[:16]}.safetensors"


def digest(target: str) -> str:
    """Changes with the text of `target`, which another minute of writing would make another."""
    file = file_of(target)
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.exists() else "unwritten"


def successors(models: ModelSet, report: Report, should_stop: ShouldStop) -> Successors:
    """What the target's own text says follows an n-gram; the target of `models` writes the text when there is none.

    Raises `ModelUnavailable` (the cache folder cannot be written), `LevelFault` (the target failed) or `Cancelled`.
    """
    file = file_of(models.target)
    if not file.exists():
        _prepare(file.parent)
        _keep(write(models, report, should_stop, seconds=SECONDS, tokens=TOKENS), file)
    return _read(file, file.stat().st_mtime_ns)


def write(models: ModelSet, report: Report, should_stop: ShouldStop, *, seconds: float, tokens: int) -> list[tuple[int, ...]]:
    """Answers (token ids) of the target to questions of its own, until `tokens` are written or `seconds` are over."""
    opening, closing = _turn(models.tokenizer, models.eos_token_ids)
    hierarchy = Hierarchy((Level("retrieval", _DRAFTED), Level(models.target)))
    context = models.networks[models.target].max_context
    room = max(1, min(_QUESTION_TOKENS, (context - len(opening) - len(closing)) // 2))
    texts: list[tuple[int, ...]] = []
    written, known, started = 0, 0, time.perf_counter()
    drafted = models
    while written < tokens and (spent := time.perf_counter() - started) < seconds:
        if len(texts) >= 2 * known:  # the text drafts for its own continuation; looked through anew each time it has doubled
            known = max(1, len(texts))
            draft = Retrieval("retrieval", Successors(texts))
            drafted = replace(models, networks=MappingProxyType({"retrieval": draft, models.target: models.networks[models.target]}))
        left = min(seconds - spent, spent / written * (tokens - written)) if written else seconds
        report(Progress("write datastore", written, tokens, left, f"{models.target} writes text to look tokens up in, once"))
        question = _generate(drafted, hierarchy, opening, Sampling(temperature=1.0, seed=len(texts)), room, should_stop)
        ended = question[-1:] and question[-1] in models.eos_token_ids
        prompt = [*opening, *(question[:-1] if ended else question), *closing]
        texts.append(_generate(drafted, hierarchy, prompt, GREEDY, _ANSWER_TOKENS, should_stop))
        written += len(texts[-1])
    report(Progress("write datastore", tokens, tokens, 0.0, f"{written} tokens written"))
    return texts


def _turn(tokenizer: PreTrainedTokenizerBase, eos_token_ids: frozenset[int]) -> tuple[list[int], list[int]]:
    """Token ids before and after the user's words; a model without a chat template starts at its first token."""
    if tokenizer.chat_template:
        whole = tokenizer.decode(encode_prompt(tokenizer, _MARK))
        before, mark, after = whole.partition(_MARK)
        if mark:
            return (tokenizer(before, add_special_tokens=False)["input_ids"], tokenizer(after, add_special_tokens=False)["input_ids"])
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else min(eos_token_ids, default=0)
    return [first], []


def _generate(
    models: ModelSet, hierarchy: Hierarchy, prompt_ids: Sequence[int], sampling: Sampling, limit: int, should_stop: ShouldStop
) -> tuple[int, ...]:
    for event in generate(models, hierarchy, prompt_ids, sampling=sampling, max_new_tokens=limit, should_stop=should_stop):
        match event:
            case EndEvent(reason="stopped"):
                raise Cancelled("Stopped while the target wrote the text to look tokens up in; nothing of it was kept.")
            case EndEvent(reason="target_fault"):
                raise LevelFault(event.message)
            case EndEvent():
                return event.token_ids
    raise AssertionError("a generation ends with an EndEvent")


def _prepare(folder: Path) -> None:
    """Find out before the writing whether its result can be kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ModelUnavailable(f"The cache folder {folder} cannot be written ({error}); point HSD_HOME to a folder that can.") from error


def _keep(texts: Sequence[Sequence[int]], file: Path) -> None:
    """Move the finished file into place in one step; another process may be doing the same."""
    token_ids = np.concatenate([np.asarray(text, np.uint32) for text in texts])
    columns = {
        "token_ids": token_ids.astype(np.uint16) if token_ids.max() < 1 << 16 else token_ids,
        "lengths": np.array([len(text) for text in texts], np.uint32),
    }
    scratch = file.with_name(f".{file.name}-{os.getpid()}")
    save_file(columns, scratch)
    os.replace(scratch, file)


@functools.lru_cache(maxsize=2)
def _read(file: Path, changed: int) -> Successors:
    """Both drafts of a target share one; `changed` tells a file that was written anew from the one before."""
    try:
        columns = load_file(file)
        ends = np.cumsum(columns["lengths"])
        return Successors(np.split(columns["token_ids"].astype(np.int64), ends[:-1]))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise BadInput(f"{file} cannot be read ({error}); delete it, and it will be written anew.") from error
