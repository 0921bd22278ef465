"""Caches follow the text: right after every round, never behind, never more than text and block, never shared."""

from __future__ import annotations

import gc

import pytest
import torch
from decoding_checks import decode, greedy_alone
from tiny_models import model_set, small_set
from watching import Watched, watched

from hsd.generate import engine
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent, RoundEvent
from hsd.models.lookup import PromptLookup
from hsd.models.retrieval import Retrieval, Successors
from hsd.records import Hierarchy, Sampling

PROMPT = [11, 4, 60, 4, 11]
LONG = 30
HIERARCHIES = [
    "",
    "near@1",
    "near@5",
    "quantized:int8@4",
    "prompt-lookup@3,near@4",
    "early-exit:1@2,quantized:int4@3",
    "other@2,far@3,near@4",
    "prompt-lookup@2,early-exit:1@3,far@2,near@6",
]


@pytest.fixture(scope="module")
def small():
    return small_set()


@pytest.mark.parametrize("drafts", HIERARCHIES)
@pytest.mark.parametrize("temperature", [0, 1])
def test_every_level_says_what_it_would_say_without_a_cache(small, drafts, temperature):
    hierarchy = Hierarchy.parse(drafts, "target")
    networks = watched(small.networks, [level.model for level in hierarchy.levels])
    generation = decode(model_set(networks), hierarchy, PROMPT, max_new_tokens=LONG, sampling=Sampling(temperature=temperature))
    if temperature == 0:
        assert list(generation.token_ids) == greedy_alone(small.modules["target"], PROMPT, LONG)
    for level in hierarchy.levels:
        if isinstance(networks[level.model], Watched):
            assert len(networks[level.model].widths) > 3 and not generation.notices


@pytest.mark.parametrize("drafts", HIERARCHIES)
def test_no_level_falls_behind_and_no_cache_holds_more_than_the_text_and_a_block(small, drafts, monkeypatch):
    """After every round a level's cache lacks only what it could not have been fed: the newest token, and for a level
    below also its own last one and one of each level in between."""
    hierarchy = Hierarchy.parse(drafts, "target")
    longest = hierarchy.longest_blocks
    verify = engine._Run._verify
    seen, wrong = set(), []

    def checking(self, level, start):
        for lower in self.levels[: level.index]:
            if hasattr(lower, "cache") and lower.cache.length > start + longest[level.index - 1]:
                wrong.append(f"level {lower.index} holds {lower.cache.length} tokens, {start} and a block for level {level.index}")
        outcome = verify(self, level, start)
        text, caches = (
            len(self.text),
            {lower.index: lower.cache.length for lower in self.levels[: level.index + 1] if hasattr(lower, "cache")},
        )
        for index, length in caches.items():
            lag = 1 if index == level.index else 1 + level.index - index
            near_the_end = text > self.limit - len(self.levels)  # where there is no room for a draft, the lower levels rest
            if length > text - 1 or (length < text - lag and not near_the_end):
                wrong.append(f"level {index} holds {length} of {text} tokens after a round of level {level.index}")
        seen.add(level.name)
        return outcome

    monkeypatch.setattr(engine._Run, "_verify", checking)
    decode(small, hierarchy, PROMPT, max_new_tokens=LONG)
    assert wrong == []
    assert seen == {level.model for level in hierarchy.levels} - {"prompt-lookup"}


@pytest.mark.parametrize("drafts", HIERARCHIES)
def test_passes_are_as_wide_as_the_block_and_what_is_new(small, drafts):
    """A cache that fell behind would still give the right text, only ever more slowly."""
    hierarchy = Hierarchy.parse(drafts, "target")
    generation = decode(small, hierarchy, PROMPT, max_new_tokens=LONG)
    for round_ in generation.rounds:
        if round_.width:
            behind = len(hierarchy.levels) - 1 - round_.level  # each level above can have added a token since
            assert round_.drafted + 1 <= round_.width <= round_.drafted + 1 + behind
    if hierarchy.drafts and hierarchy.drafts[0].model != "prompt-lookup":
        widths = [round_.width for round_ in generation.rounds if round_.level == 0]
        assert min(widths) == 1


def test_a_cache_is_sized_for_the_run_and_not_for_the_longest_context(small):
    networks = watched(small.networks, ["near", "target"])
    decode(model_set(networks), Hierarchy.parse("near@4", "target"), PROMPT, max_new_tokens=10)
    assert networks["target"].capacity <= len(PROMPT) + 10 + 2
    assert networks["near"].longest <= len(PROMPT) + 10


def test_runs_share_no_state(small):
    """The same prompt again costs the same passes and gives the same text; two runs may be interleaved."""
    hierarchy = Hierarchy.parse("prompt-lookup@2,far@3,near@4", "target")
    prompts = [PROMPT, [5, 6, 5, 6, 5], PROMPT]
    once = [decode(small, hierarchy, prompt, max_new_tokens=LONG) for prompt in prompts]
    story = lambda run: [(r.model, r.token_ids, r.accepted, r.next_token_id, r.width) for r in run]  # noqa: E731
    assert story(once[0].rounds) == story(once[2].rounds) and once[0].token_ids == once[2].token_ids
    open_runs = [generate(small, hierarchy, prompt, max_new_tokens=LONG) for prompt in prompts]
    together: list[list] = [[] for _ in prompts]
    ends = [None] * len(prompts)
    while not all(ends):
        for index, run in enumerate(open_runs):
            event = next(run, None)
            if isinstance(event, RoundEvent):
                together[index].append(event)
            elif isinstance(event, EndEvent):
                ends[index] = event
    for alone, rounds, end in zip(once, together, ends, strict=True):
        assert end.token_ids == alone.token_ids and story(rounds) == story(alone.rounds)


def test_a_long_run_keeps_nothing_but_tokens(small):
    """2,000 tokens: the tensors alive do not grow with the text, sampled (whose blocks carry distributions) or not."""
    module = small_set(context=2100)
    hierarchy = Hierarchy.parse("prompt-lookup@3,near@4", "target")
    for temperature in (0, 1):
        events = generate(module, hierarchy, PROMPT, sampling=Sampling(temperature=temperature), max_new_tokens=2000)
        alive, count = {}, 0
        for event in events:
            if isinstance(event, RoundEvent) and event.model == "target":
                count += event.accepted + 1
            if isinstance(event, EndEvent):
                break
            for mark in (300, 1900):
                if mark not in alive and count >= mark:
                    gc.collect()
                    alive[mark] = sum(type(thing) is torch.Tensor for thing in gc.get_objects())
        assert len(event.token_ids) == 2000
        assert alive[1900] <= alive[300] + 20, alive


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("name", ["prompt-lookup", "retrieval"])
def test_a_draft_that_looks_tokens_up_knows_the_text_and_nothing_that_was_taken_back(small, name, temperature):
    """It looks at new tokens only: one rollback that it is not told of, and it would look up in a text that never was."""
    calls, rolled_back = [], []

    class Checked(PromptLookup if name == "prompt-lookup" else Retrieval):
        def fresh(self):
            return self

        def propose(self, token_ids, count):
            proposed = super().propose(token_ids, count)
            followed = self if name == "prompt-lookup" else self._text
            calls.append(followed._text == list(token_ids))
            return proposed

        def rollback(self, length):
            followed = self if name == "prompt-lookup" else self._text
            rolled_back.append(length < len(followed._text))
            super().rollback(length)

    draft = Checked() if name == "prompt-lookup" else Checked(name, Successors([list(range(64)) * 2]))
    models = model_set(dict(small.networks) | {name: draft})
    decode(models, Hierarchy.parse(f"{name}@3,far@2,near@6", "target"), PROMPT, max_new_tokens=LONG, sampling=Sampling(temperature))
    assert len(calls) > 5 and all(calls) and any(rolled_back)
