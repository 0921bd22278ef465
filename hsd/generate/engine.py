"""Hierarchical speculative decoding (Mohri et al., arXiv 2510.19705, Algorithm 1; design §2).

    generate -> step of the target -> draft(level) <-> verify(level) -> commit

All levels share one text. Drafting appends to it, verification cuts it and appends one token, and a level's cache is
always a prefix of it: rolling back is cropping to a length, catching up is feeding what the cache lacks, in the same
forward pass that verifies. The target alone and a single draft are hierarchies of one and two models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from hsd.errors import BadInput
from hsd.generate.events import EndEvent, EndReason, Event, NoticeEvent, Outcome, RoundEvent, TokenEvent
from hsd.generate.faults import explain
from hsd.generate.levels import LevelState, NetworkLevel, ProposerLevel, Text, as_token_ids, check_request, make_levels
from hsd.generate.rule import RULES, Rule, RuleFailed, accountable, stack_rows, verify_greedily, verify_tokens
from hsd.generate.sampling import Transforms, chances_of, check_finite, choose, probabilities_and_maxima
from hsd.generate.text import TextStream, TokenTexts
from hsd.models.upload import upload
from hsd.pick.model_set import ModelSet
from hsd.records import GREEDY, Hierarchy, Sampling, ShouldStop
from hsd.settings import DEFAULT_MAX_NEW_TOKENS


class _Stopped(BaseException):
    """Unwinds the levels when the user asks to stop; no `Exception`, which would be taken for a level's fault."""


def generate(
    models: ModelSet,
    hierarchy: Hierarchy,
    prompt_ids: Sequence[int],
    *,
    sampling: Sampling = GREEDY,
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS,
    stop: Sequence[str] = (),
    rule: Rule = verify_tokens,
    probabilities: bool = False,
    should_stop: ShouldStop = lambda: False,
) -> Iterator[Event]:
    """Decode `prompt_ids` through `hierarchy`; yields rounds, tokens and notices, and one `EndEvent` at the end.

    The tokens are distributed exactly as the target's alone under `sampling`, and equal to its greedy text at
    temperature 0. A fault of a draft removes that draft (a `NoticeEvent`), a fault of the target ends the run with what
    was committed. With `probabilities` every token tells its own at the target. `rule` verifies sampled blocks; a greedy one is
    compared with the verifier's own choices, whichever of `RULES` is given. What a rule of your own raises is raised here. Raises
    `BadInput` at once, before any event, when the run cannot start.
    """
    token_ids = as_token_ids(prompt_ids)
    check_request(models.networks, hierarchy, token_ids, max_new_tokens, stop)
    if sampling.greedy and rule not in RULES.values():
        raise BadInput("A rule of your own is for sampled text, and at temperature 0 nothing is sampled; give a temperature, or no rule.")
    return _Run(models, hierarchy, token_ids, sampling, int(max_new_tokens), tuple(stop), rule, probabilities, should_stop).events()


def generate_each(models: ModelSet, hierarchy: Hierarchy, prompts: Iterable[Sequence[int]], **settings: Any) -> Iterator[tuple[int, Event]]:
    """Several prompts, one after the other: pairs of the prompt's place and an event of its run.

    Each prompt is a sequence of its own with fresh caches and the same settings (see `generate`), so that its text is what
    it would be alone; there is no padding and no batch. A prompt that cannot start raises `BadInput` when its turn comes.
    """
    for place, prompt_ids in enumerate(prompts):
        for event in generate(models, hierarchy, prompt_ids, **settings):
            yield place, event


class _Run:
    """One generation: the text, the levels over it, and what happened so far."""

    def __init__(
        self,
        models: ModelSet,
        hierarchy: Hierarchy,
        prompt_ids: Sequence[int],
        sampling: Sampling,
        max_new_tokens: int,
        stop: tuple[str, ...],
        rule: Rule,
        probabilities: bool,
        should_stop: ShouldStop,
    ) -> None:
        networks = models.networks
        self.stop, self.rule, self.should_stop = stop, accountable(rule), should_stop
        self.eos_token_ids = models.eos_token_ids
        self.transforms = Transforms(sampling)
        self.text = Text(list(prompt_ids))
        self.prompt_length = len(prompt_ids)
        target = networks[hierarchy.target]
        self.limit = min(target.max_context, self.prompt_length + max_new_tokens)  # longest text, in tokens
        self.full: EndReason = "max_new_tokens" if self.limit == self.prompt_length + max_new_tokens else "context_full"
        self.levels = make_levels(networks, hierarchy)
        self.target: NetworkLevel = self.levels[-1]
        self.generators = {
            level.network.device: torch.Generator(level.network.device).manual_seed(sampling.seed)
            for level in self.levels
            if isinstance(level, NetworkLevel)
        }
        # Networks whose passes are recorded, until it was told that they no longer are.
        self.recording = [level for level in self.levels if getattr(getattr(level, "network", None), "steps", None) is not None]
        self.show = TokenTexts(models.tokenizer)
        self.stream = TextStream(models.tokenizer)
        self.end: EndReason | None = None
        self.round = 0
        self.decoding_since = 0.0
        self.pending: list[Event] = []  # events of the round under way
        self.wants_probabilities = probabilities
        self.probabilities: list[float | None] = []  # of the tokens that the target's last round kept and appended

    def events(self) -> Iterator[Event]:
        message = ""
        started = self.decoding_since = time.perf_counter()
        try:
            # All caches before any pass, the target's first: where memory is short, it is a draft that goes without.
            self._for_each_level(lambda level: level.open(self.limit + len(self.levels)))
            self._for_each_level(lambda level: level.prefill(self.text, self.prompt_length - 1, self.target, self._stop_if_asked))
            for device in self.generators:
                _wait_for(device)  # a clock read while the prompt's passes are under way would count them as decoding
            yield from self._take_pending()
            self.decoding_since = time.perf_counter()
            while self.end is None:
                self._step()
                self.round += 1
                if self.recording:
                    self._tell_fallbacks()
                yield from self._take_pending()
        except _Stopped:
            self.end = "stopped"
        except RuleFailed as failed:
            raise failed.__cause__ from None
        except Exception as error:
            self.end, message = "target_fault", explain(self.target.name, error)
        ended = time.perf_counter()
        yield from self._take_pending()
        tail = self.stream.finish()
        yield EndEvent(
            reason=self.end,
            text=self.stream.text,
            tail=tail,
            token_ids=tuple(self.text.token_ids[self.prompt_length : self.text.committed]),
            prefill_s=self.decoding_since - started,
            decode_s=ended - self.decoding_since,
            message=message,
        )

    def _take_pending(self) -> list[Event]:
        events, self.pending = self.pending, []
        return events

    def _for_each_level(self, act: Callable[[LevelState], None]) -> None:
        """The target first: drafts made from it take its keys and values over. A draft that fails drops out."""
        for level in reversed(self.levels):
            try:
                if not level.dropped:
                    act(level)
            except Exception as error:
                if level is self.target:
                    raise
                self._drop(level, error)

    def _step(self) -> None:
        """One round of the target: a block from below, verified, and the tokens it commits."""
        start = len(self.text)
        below = self._below(self.target)
        if below is not None:
            self._draft(below, start)
        outcome = self._verify(self.target, start)
        self._commit(start, outcome)

    def _draft(self, level: LevelState, start: int) -> None:
        """Let `level` append at least its threshold of tokens after `start`, fewer where the text must end."""
        goal = min(start + level.threshold, self.limit - (self.target.index - level.index))
        if isinstance(level, ProposerLevel):
            self._propose(level, goal)
            return
        below = self._below(level)
        while len(self.text) < goal:
            before = len(self.text)
            if below is not None:
                self._draft(below, before)
                below = self._below(level)  # it may have dropped out
            try:
                self._verify(level, before)
            except Exception as error:
                # Kept tokens and the block from below go up as they are: each carries the distribution it came from.
                self._drop(level, error)
                return
            if not self.eos_token_ids.isdisjoint(self.text.token_ids[before:]):
                return  # a stop on kept tokens; nothing after the end is of use

    def _propose(self, level: ProposerLevel, goal: int) -> None:
        self._stop_if_asked()
        started = time.perf_counter()
        try:
            proposed = level.propose(self.text, goal - len(self.text)) if goal > len(self.text) else []
        except Exception as error:
            self._drop(level, error)
            return
        for token_id in proposed:
            self.text.push(token_id, level.index, None)
        self._tell_round(level, time.perf_counter() - started, proposed, accepted=len(proposed))

    def _verify(self, level: NetworkLevel, start: int) -> Outcome:
        """One forward pass of `level` over the block after `start`; keeps its accepted part and appends one token."""
        self._stop_if_asked()
        started = time.perf_counter()
        text = self.text
        block = text.token_ids[start:]
        logits, width = level.feed(text, len(block) + 1)
        scores = self.transforms.scores(logits, text.token_ids)  # (n + 1, vocab)
        if self.transforms.greedy:
            accepted, next_id = verify_greedily(block, choose(scores, level.name))
            kept_probs, next_probs = [None] * accepted, None
        else:
            probs, maxima = probabilities_and_maxima(scores)
            draft_probs = stack_rows(block, text.probs[start:], probs)  # (n, vocab)
            block_ids = upload(block, probs.device)
            accepted, next_id = self.rule(block_ids, draft_probs, probs, self.generators[level.network.device])
            check_finite(maxima, level.name)  # after the rule, which has waited for the device
            # What goes up with a token is always this level's full distribution, never the residual (design §2).
            kept_probs, next_probs = list(probs[:accepted]), probs[accepted]
        if level is self.target:
            kept = [*block[:accepted], next_id]
            rows = scores if self.transforms.greedy else probs
            self.probabilities = chances_of(kept, rows, self.transforms.greedy) if self.wants_probabilities else [None] * len(kept)
        end = start + accepted
        text.truncate(end)
        text.probs[start:] = kept_probs
        text.push(next_id, level.index, next_probs)
        for lower in self.levels[: level.index + 1]:
            lower.rollback(end)
        outcome: Outcome = "bonus" if accepted == len(block) else "corrected"
        seconds = time.perf_counter() - started
        self._tell_round(level, seconds, block, accepted=accepted, next_id=next_id, outcome=outcome, width=width)
        return outcome

    def _tell_round(
        self,
        level: LevelState,
        seconds: float,
        block: Sequence[int],
        *,
        accepted: int,
        next_id: int | None = None,
        outcome: Outcome | None = None,
        width: int = 0,
    ) -> None:
        self.pending.append(
            RoundEvent(
                round=self.round,
                level=level.index,
                model=level.name,
                drafted=len(block),
                accepted=accepted,
                seconds=seconds,
                token_ids=tuple(block),
                texts=tuple(map(self.show, block)),
                next_token_id=next_id,
                next_text="" if next_id is None else self.show(next_id),
                outcome=outcome,
                width=width,
            )
        )

    def _commit(self, start: int, outcome: Outcome) -> None:
        """Give out the tokens that the target kept; the text ends where the target alone would end it."""
        text = self.text
        now = time.perf_counter() - self.decoding_since
        for position in range(start, len(text)):
            token_id = text.token_ids[position]
            is_eos = token_id in self.eos_token_ids
            piece = "" if is_eos else self.stream.push(token_id)
            name = self.levels[text.origin[position]].name
            kind: Outcome = outcome if position == len(text) - 1 else "accepted"
            self.pending.append(TokenEvent(token_id, piece, name, kind, self.round, now, self.probabilities[position - start]))
            text.committed = position + 1
            if is_eos:
                self.end = "eos"
            elif self.stop and self.stream.ends_with_any(self.stop):
                self.end = "stop_string"
            elif text.committed == self.limit:
                self.end = self.full
            if self.end is not None:
                break
        text.truncate(text.committed)
        text.probs[start:] = [None] * (len(text) - start)  # a distribution is as large as the vocabulary

    def _below(self, level: LevelState) -> LevelState | None:
        """The nearest level below that still takes part."""
        return next((lower for lower in reversed(self.levels[: level.index]) if not lower.dropped), None)

    def _drop(self, level: LevelState, error: BaseException) -> None:
        level.drop()
        message = f"{explain(level.name, error)} Generation continues without it; the text stays exact."
        self.pending.append(NoticeEvent(level.index, level.name, message))

    def _tell_fallbacks(self) -> None:
        for level in list(self.recording):
            if problem := level.network.steps.problem:
                self.recording.remove(level)
                self.pending.append(NoticeEvent(level.index, level.name, problem, dropped=False))

    def _stop_if_asked(self) -> None:
        if self.should_stop():
            raise _Stopped


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
