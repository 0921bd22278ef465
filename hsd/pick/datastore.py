"""Text that a target wrote itself, for the drafts that look tokens up in it (hsd/models/retrieval.py).

It is made as in Magpie (Xu et al. 2024, arXiv 2406.08464): given its chat template up to the user's words, the target asks a question,
drawn at temperature 1, and then answers it greedily; a model without a template goes on from its first token. This is done once for
each target, in a minute, and kept in the cache folder. The text of the embedded default comes with the program.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
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
TOKENS = 50_000  # enough; twice as many would save 1 % a token (SmolLM2-135M, replayed)

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


def is_written(target: str) -> bool:
    """Whether the text of `target` lies here; not where the cache folder may not even be looked into."""
    return os.path.exists(file_of(target))  # a Path's own method raises there


def digest(target: str) -> str:
    """Changes with the text of `target`, which another minute of writing would make another."""
    return hashlib.sha256(file_of(target).read_bytes()).hexdigest()[:16] if is_written(target) else "unwritten"


def successors(models: ModelSet, report: Report, should_stop: ShouldStop) -> Successors:
    """What the target's own text says follows an n-gram; the target of `models` writes the text when there is none.

    Raises `ModelUnavailable` (the cache folder cannot be written, the target is too slow), `LevelFault` (it failed), `BadInput` (the
    kept text is damaged) or `Cancelled`.
    """
    file = file_of(models.target)
    if not is_written(models.target):
        try:
            settings.make_writable(file.parent)
        except OSError as error:
            raise _unwritable(file.parent, error) from error
        texts = write(models, report, should_stop, seconds=SECONDS, tokens=TOKENS)
        if not texts:
            raise ModelUnavailable(f"{models.target} wrote nothing to look tokens up in within {SECONDS:.0f} s; take prompt-lookup.")
        _keep(texts, file)
    return _read(file, file.stat().st_mtime_ns, models.networks[models.target].vocab_size)


def write(models: ModelSet, report: Report, should_stop: ShouldStop, *, seconds: float, tokens: int) -> list[tuple[int, ...]]:
    """Answers (token ids) of the target to questions of its own, until `tokens` are written or `seconds` are over."""
    opening, closing = _turn(models.tokenizer, models.eos_token_ids)
    hierarchy = Hierarchy((Level("retrieval", _DRAFTED), Level(models.target)))
    context = models.networks[models.target].max_context
    room = max(1, min(_QUESTION_TOKENS, (context - len(opening) - len(closing)) // 2))
    texts: list[tuple[int, ...]] = []
    written, known, started = 0, 0, time.perf_counter()
    deadline = started + seconds  # also within a text: a large model on a CPU may take minutes for one
    drafted = models
    while written < tokens and (spent := time.perf_counter() - started) < seconds:
        if len(texts) >= 2 * known:  # the text drafts for its own continuation; looked through anew each time it has doubled
            known = max(1, len(texts))
            draft = Retrieval("retrieval", Successors(texts))
            drafted = replace(models, networks=MappingProxyType({"retrieval": draft, models.target: models.networks[models.target]}))
        left = min(seconds - spent, spent / written * (tokens - written)) if written else seconds
        report(Progress("write datastore", written, tokens, left, f"{models.target} writes text to look tokens up in, once"))
        question = _generate(drafted, hierarchy, opening, Sampling(temperature=1.0, seed=len(texts)), room, should_stop, deadline)
        ended = question[-1:] and question[-1] in models.eos_token_ids
        prompt = [*opening, *(question[:-1] if ended else question), *closing]
        answer = _generate(drafted, hierarchy, prompt, GREEDY, _ANSWER_TOKENS, should_stop, deadline)
        texts += [answer] if answer else []
        written += len(answer)
    report(Progress("write datastore", tokens, tokens, 0.0, f"{written} tokens written"))
    return texts


def _turn(tokenizer: PreTrainedTokenizerBase, eos_token_ids: frozenset[int]) -> tuple[list[int], list[int]]:
    """Token ids before and after the user's words; a model without a chat template, or with one that takes no lone question or puts
    nothing before it, starts at its first token."""
    first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else min(eos_token_ids, default=0)
    whole = ""
    if tokenizer.chat_template:
        with contextlib.suppress(BadInput):
            whole = tokenizer.decode(encode_prompt(tokenizer, _MARK))
    before, mark, after = whole.partition(_MARK)
    if not mark:
        return [first], []
    opening, closing = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before, after))
    return opening or [first], closing


def _generate(
    models: ModelSet,
    hierarchy: Hierarchy,
    prompt_ids: Sequence[int],
    sampling: Sampling,
    limit: int,
    should_stop: ShouldStop,
    deadline: float,
) -> tuple[int, ...]:
    """The tokens after `prompt_ids`, those so far at the `deadline` (of the performance counter)."""
    asked = False

    def stopped() -> bool:
        nonlocal asked
        asked = asked or should_stop()
        return asked or time.perf_counter() >= deadline

    for event in generate(models, hierarchy, prompt_ids, sampling=sampling, max_new_tokens=limit, should_stop=stopped):
        match event:
            case EndEvent(reason="stopped") if asked:
                raise Cancelled("Stopped while the target wrote the text to look tokens up in; nothing of it was kept.")
            case EndEvent(reason="target_fault"):
                raise LevelFault(event.message)
            case EndEvent():
                return event.token_ids
    raise AssertionError("a generation ends with an EndEvent")


def _keep(texts: Sequence[Sequence[int]], file: Path) -> None:
    """Move the finished file into place in one step. Another process may have been faster: its file stays, in which its draft already
    looks, and under which its measurements are kept."""
    token_ids = np.concatenate([np.asarray(text, np.uint32) for text in texts])
    columns = {
        "token_ids": token_ids.astype(np.uint16) if token_ids.max() < 1 << 16 else token_ids,
        "lengths": np.array([len(text) for text in texts], np.uint32),
    }
    scratch = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    try:
        save_file(columns, scratch)
        if not file.exists():
            os.replace(scratch, file)
    except (OSError, SafetensorError) as error:  # the disk is full
        raise _unwritable(file.parent, error) from error
    finally:
        scratch.unlink(missing_ok=True)


def _unwritable(folder: Path, error: Exception) -> ModelUnavailable:
    return ModelUnavailable(f"The cache folder {folder} cannot be written ({error}); point HSD_HOME to a folder that can.")


@functools.lru_cache(maxsize=2)
def _read(file: Path, changed: int, vocab: int) -> Successors:
    """Both drafts of a target share one; `changed` tells a file that was written anew from the one before."""
    try:
        columns = load_file(file)
        token_ids, lengths = columns["token_ids"], columns["lengths"]
        if any(column.ndim != 1 or column.dtype.kind not in "iu" for column in (token_ids, lengths)):
            raise ValueError("its columns are no lists of whole numbers")
        if lengths.min(initial=0) < 0 or sum(lengths.tolist()) != len(token_ids):
            raise ValueError("its lengths do not add up")
        if token_ids.min(initial=0) < 0 or token_ids.max(initial=0) >= vocab:
            raise ValueError("it holds tokens that the target does not have")
        return Successors(np.split(token_ids.astype(np.int64), np.cumsum(lengths)[:-1]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{file} cannot be read ({error}); delete it, and it will be written anew.") from error
