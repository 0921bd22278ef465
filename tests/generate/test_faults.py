"""Faults inside a level, a stop at any moment, contexts and vocabularies that end early: what is committed stays exact."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest
import torch
from decoding_checks import decode, greedy_alone
from tiny_models import model_set, small_set, tiny_llama

from hsd.errors import BadInput, LevelFault
from hsd.generate.collect import collect
from hsd.generate.engine import generate
from hsd.generate.events import NoticeEvent, RoundEvent
from hsd.generate.rule import RULES, verify_tokens
from hsd.models.build import build_network
from hsd.records import Hierarchy, Sampling

PROMPT = [11, 4, 60, 4, 11]
LONG = 24
DEEP = Hierarchy.parse("prompt-lookup@2,early-exit:1@2,far@3,near@4", "target")


class Wrapped:
    """A network that does as another one does, but for what a test changes."""

    def __init__(self, network):
        self.network = network

    def __getattr__(self, name):
        return getattr(self.network, name)

    def new_cache(self, capacity):
        return self.network.new_cache(capacity)

    def adopt(self, cache, other, other_cache):
        return self.network.adopt(cache, getattr(other, "network", other), other_cache)

    def forward(self, token_ids, cache, num_logits):
        return self.network.forward(token_ids, cache, num_logits)


class Failing(Wrapped):
    """Fails in pass number `at` (the prompt's counts), and in every later one."""

    def __init__(self, network, at, fault):
        super().__init__(network)
        self.at, self.fault, self.passes = at, fault, 0

    def forward(self, token_ids, cache, num_logits):
        self.passes += 1
        logits = self.network.forward(token_ids, cache, num_logits)  # the cache has grown before the fault
        return logits if self.passes <= self.at else self.fault(logits)


def raising(error):
    def fault(logits):
        raise error

    return fault


def spoiled(value):
    def fault(logits):
        logits = logits.clone()
        logits[-1, 5] = value
        return logits

    return fault


FAULTS = {
    "exception": (raising(RuntimeError("the kernel broke\nlong detail")), "RuntimeError: the kernel broke"),
    "programming error": (raising(TypeError("no such argument")), "TypeError: no such argument"),
    "lookup": (raising(KeyError("layer")), "KeyError"),
    "assertion": (raising(AssertionError()), "AssertionError: no detail"),
    "not implemented": (raising(NotImplementedError("bfloat16")), "NotImplementedError: bfloat16"),
    "memory": (raising(torch.OutOfMemoryError("CUDA out of memory")), "ran out of memory"),
    "host memory": (raising(MemoryError()), "ran out of memory"),
    "torch's host memory": (raising(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to")), "ran out of memory"),
    "nan": (spoiled(float("nan")), "not finite"),
    "inf": (spoiled(float("inf")), "not finite"),
    "nothing": (lambda logits: torch.full_like(logits, float("-inf")), "not finite"),
}


@pytest.fixture(scope="module")
def small():
    return small_set()


@pytest.fixture(scope="module")
def text(small):
    return greedy_alone(small.modules["target"], PROMPT, LONG)


def with_failing(small, name, at, fault):
    return model_set(dict(small.networks) | {name: Failing(small.networks[name], at, fault)})


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("name", ["early-exit:1", "far", "near"])
def test_a_faulty_draft_drops_out_with_a_notice_and_the_text_stays(small, text, kind, name):
    fault, said = FAULTS[kind]
    generation = decode(with_failing(small, name, 5, fault), DEEP, PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text
    (notice,) = generation.notices
    assert notice.model == name and said in notice.message and "continues without it" in notice.message
    assert "\n" not in notice.message


@pytest.mark.parametrize("name", ["early-exit:1", "far", "near"])
def test_a_draft_may_fail_in_any_pass(small, text, name):
    for at in range(12):
        generation = decode(with_failing(small, name, at, FAULTS["exception"][0]), DEEP, PROMPT, max_new_tokens=LONG)
        assert list(generation.token_ids) == text
        assert [notice.model for notice in generation.notices] == [name]


def test_all_drafts_may_fail(small, text):
    fault = FAULTS["nan"][0]
    networks = dict(small.networks)
    for at, name in enumerate(["early-exit:1", "far", "near"]):
        networks[name] = Failing(networks[name], 2 + 2 * at, fault)
    generation = decode(model_set(networks), DEEP, PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text
    assert {notice.model for notice in generation.notices} == {"early-exit:1", "far", "near"}


def test_a_faulty_proposer_drops_out(small, text):
    class Broken:
        name = "prompt-lookup"

        def fresh(self):
            return self

        def rollback(self, length):
            raise KeyError(length)  # whatever broke it; nothing above may notice

        def propose(self, token_ids, count):
            raise KeyError(count)

    generation = decode(model_set(dict(small.networks) | {"prompt-lookup": Broken()}), DEEP, PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text
    assert [notice.model for notice in generation.notices] == ["prompt-lookup"]


class Proposing:
    """A draft that always proposes the same tokens, all of them however many are wanted."""

    name = "prompt-lookup"

    def __init__(self, token_ids):
        self.token_ids = token_ids

    def fresh(self):
        return self

    def rollback(self, length):
        pass

    def propose(self, token_ids, count):
        return self.token_ids


@pytest.mark.parametrize("unknown", [-1, -(2**40), 64, 2**40])
@pytest.mark.parametrize("drafts", ["prompt-lookup@4", "prompt-lookup@3,near@4"])
def test_a_token_that_no_model_has_is_never_proposed_to_one(small, text, drafts, unknown):
    """A text to look tokens up in may hold anything; a target that was fed such a token would fail."""
    networks = dict(small.networks) | {"prompt-lookup": Proposing([5, unknown, 6])}
    generation = decode(model_set(networks), Hierarchy.parse(drafts, "target"), PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text and generation.notices == ()
    assert any(event.token_ids == (5,) for event in generation.rounds if event.model == "prompt-lookup")


def test_a_proposer_that_gives_more_than_it_is_asked_for_is_cut(small, text):
    networks = dict(small.networks) | {"prompt-lookup": Proposing([5] * 100)}
    generation = decode(model_set(networks), Hierarchy.parse("prompt-lookup@3", "target"), PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text and generation.notices == ()
    assert max(event.drafted for event in generation.rounds if event.model == "prompt-lookup") == 3


def test_a_sampled_run_goes_on_without_its_faulty_draft(small):
    sampling = Sampling(temperature=1.0, seed=3)
    for kind in ("nan", "inf", "exception"):
        generation = decode(with_failing(small, "far", 4, FAULTS[kind][0]), DEEP, PROMPT, max_new_tokens=LONG, sampling=sampling)
        assert len(generation.token_ids) == LONG and len(generation.notices) == 1


def test_a_draft_that_dropped_out_gives_its_memory_back(small):
    """Often enough it dropped out because memory had run out."""
    caches = []

    def fault(logits):
        raise torch.OutOfMemoryError("CUDA out of memory")

    class Watched(Failing):
        def new_cache(self, capacity):
            cache = self.network.new_cache(capacity)
            caches.append(weakref.ref(cache.keys))
            return cache

    models = model_set(dict(small.networks) | {"near": Watched(small.networks["near"], 3, fault)})
    events = generate(models, Hierarchy.parse("near@3", "target"), PROMPT, max_new_tokens=LONG)
    next(event for event in events if isinstance(event, NoticeEvent))
    next(event for event in events if isinstance(event, RoundEvent))
    gc.collect()
    assert caches[0]() is None


class Roomless(Wrapped):
    """There is no memory left for its cache."""

    def new_cache(self, capacity):
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("names", [["early-exit:1"], ["far"], ["near"], ["early-exit:1", "far", "near"]])
def test_a_draft_without_memory_for_its_cache_drops_out_before_anything_is_drafted(small, text, names):
    networks = dict(small.networks) | {name: Roomless(small.networks[name]) for name in names}
    generation = decode(model_set(networks), DEEP, PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text
    assert sorted(notice.model for notice in generation.notices) == names
    assert all("ran out of memory" in notice.message and notice.dropped for notice in generation.notices)
    assert not {round_.model for round_ in generation.rounds}.intersection(names)


def test_a_target_without_memory_for_its_cache_ends_the_run_with_the_reason(small):
    opened = []

    class Opened(Wrapped):
        def new_cache(self, capacity):
            opened.append(self.name)
            return self.network.new_cache(capacity)

    drafts = {name: Opened(small.networks[name]) for name in ("far", "near")}
    models = model_set(dict(small.networks) | drafts | {"target": Roomless(small.networks["target"])})
    generation = decode(models, DEEP, PROMPT, max_new_tokens=LONG, allow_fault=True)
    assert generation.end.reason == "target_fault" and generation.token_ids == () and generation.notices == ()
    assert generation.end.message.startswith("target ran out of memory; choose")
    assert opened == [], "what there is of memory is the target's first"


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_faulty_target_ends_the_run_with_what_was_committed(small, text, kind, at):
    fault, said = FAULTS[kind]
    models = with_failing(small, "target", at, fault)
    generation = decode(models, DEEP, PROMPT, max_new_tokens=LONG, allow_fault=True)
    assert generation.end.reason == "target_fault" and said in generation.end.message and "target" in generation.end.message
    assert list(generation.token_ids) == text[: len(generation.token_ids)]
    assert len(generation.token_ids) >= max(0, at - 1), "each pass after the prompt's commits a token at least"
    with pytest.raises(LevelFault, match="target"):
        collect(generate(with_failing(small, "target", at, fault), DEEP, PROMPT, max_new_tokens=LONG))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0)])
def test_a_stop_is_heeded_at_any_moment(small, text, sampling):
    whole = decode(small, DEEP, PROMPT, max_new_tokens=LONG, sampling=sampling)
    asked = itertools.count()
    decode(small, DEEP, PROMPT, max_new_tokens=LONG, sampling=sampling, should_stop=lambda: next(asked) < 0)
    questions = next(asked)
    assert questions > 2 * len(whole.rounds) / 3, "asked before every pass"
    for moment in range(0, questions, 3):
        asked = itertools.count()
        generation = decode(
            small, DEEP, PROMPT, max_new_tokens=LONG, sampling=sampling, should_stop=lambda at=moment, n=asked: next(n) >= at
        )
        assert generation.end.reason == "stopped"
        assert next(asked) == moment + 1, "nothing is asked, and so nothing done, after a stop"
        assert generation.token_ids == whole.token_ids[: len(generation.token_ids)]


def test_a_run_left_half_way_disturbs_no_later_one(small, text):
    events = generate(small, DEEP, PROMPT, max_new_tokens=LONG)
    list(itertools.islice(events, 7))
    events.close()
    assert list(decode(small, DEEP, PROMPT, max_new_tokens=LONG).token_ids) == text


@pytest.mark.parametrize("context", [3, 5, 6, 12, 20])
def test_a_draft_with_a_shorter_context_drops_out_where_the_text_leaves_it(small, text, context):
    networks = dict(small.networks) | {"far": build_network("far", tiny_llama(3, context=max(12, context)))}
    if context < 12:  # too short for the probe at loading; a model may still promise so little
        networks["far"].max_context = context
    generation = decode(model_set(networks), DEEP, PROMPT, max_new_tokens=LONG)
    assert list(generation.token_ids) == text
    (notice,) = generation.notices
    assert notice.model == "far" and f"context of far ({context} tokens)" in notice.message
    reached = [
        len(PROMPT) + sum(token.round < round_.round for token in generation.tokens)
        for round_ in generation.rounds
        if round_.model == "far"
    ]
    assert all(length <= context for length in reached)
    assert bool(reached) == (context >= len(PROMPT) + 2), "it verifies a block of two at least"


def test_a_draft_that_does_not_know_a_token_says_so(small, text):
    """A smaller vocabulary serves until the text holds a token beyond it."""
    size = sorted(set(text))[-3]
    networks = dict(small.networks) | {"far": build_network("far", tiny_llama(3, vocab=size))}
    prompt = [token for token in PROMPT if token < size]
    wanted = greedy_alone(small.modules["target"], prompt, LONG)
    generation = decode(model_set(networks), Hierarchy.parse("far@3", "target"), prompt, max_new_tokens=LONG)
    assert list(generation.token_ids) == wanted and max(wanted) >= size
    (notice,) = generation.notices
    first = next(token for token in wanted if token >= size)
    assert f"token {first}" in notice.message and f"{size} tokens" in notice.message


@pytest.mark.parametrize("settings, said", [
    ({"prompt_ids": []}, "prompt is empty"),
    ({"prompt_ids": [64]}, "Token 64 is not in the vocabulary"),
    ({"prompt_ids": [1] * 96}, "context of target is 96"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ({"hierarchy": Hierarchy.parse("unknown@3", "target")}, "unknown is in the hierarchy but was not loaded"),
    ({"hierarchy": Hierarchy.parse("near@3,prompt-lookup@3", "target")}, "prompt-lookup cannot verify"),
    ({"hierarchy": Hierarchy.parse("near@3", "prompt-lookup")}, "prompt-lookup cannot verify|cannot be the target"),
    ({"stop": [""]}, "empty stop string"),
    ({"stop": "ab"}, "stop is 'ab'; give a list of texts"),
    ({"stop": [3]}, "give a list of texts"),
    ({"prompt_ids": [3, -1, 4]}, "Token -1 is not in the vocabulary"),
    ({"prompt_ids": [3.0]}, "flat sequence of token ids"),
    ({"prompt_ids": torch.tensor([[3, 4]])}, "flat sequence of token ids"),
    ({"prompt_ids": torch.tensor([3.0, 4.0])}, "flat sequence of token ids"),
    ({"prompt_ids": np.zeros(0, int)}, "prompt is empty"),
    ({"prompt_ids": "abc"}, "encode text with the model's tokenizer"),
    ({"prompt_ids": 3}, "flat sequence of token ids"),
    ({"max_new_tokens": 2.5}, r"max_new_tokens is 2\.5; give a whole number of at least 1"),
    ({"max_new_tokens": 4.0}, "give a whole number"),
    ({"max_new_tokens": "4"}, "give a whole number"),
])  # fmt: skip
def test_a_run_that_cannot_start_says_why_before_any_event(small, settings, said):
    request = {"hierarchy": DEEP, "prompt_ids": PROMPT} | settings
    with pytest.raises(BadInput, match=said):
        generate(small, request.pop("hierarchy"), request.pop("prompt_ids"), **request)


@pytest.mark.parametrize("error", [ValueError("my own"), torch.OutOfMemoryError("CUDA out of memory"), LevelFault("mine too")])
@pytest.mark.parametrize("drafts", ["", "far@2,near@3"])
def test_what_a_rule_of_ones_own_raises_is_raised_as_it_is(small, drafts, error):
    """It is nobody's fault but the rule's: no draft drops out, and the target is not blamed."""
    asked = []

    def failing(block_ids, draft_probs, target_probs, generator):
        asked.append(1)
        if len(asked) > 3:
            raise error
        return verify_tokens(block_ids, draft_probs, target_probs, generator)

    events = generate(small, Hierarchy.parse(drafts, "target"), PROMPT, sampling=Sampling(temperature=1.0), rule=failing)
    with pytest.raises(type(error)) as raised:
        for event in events:
            assert not isinstance(event, NoticeEvent)
    assert raised.value is error


def test_a_rule_that_gives_no_pair_is_told_so(small):
    events = generate(small, Hierarchy.parse("near@3", "target"), PROMPT, sampling=Sampling(temperature=1.0), rule=lambda *rows: None)
    with pytest.raises(TypeError, match="unpack"):
        list(events)


def test_a_rule_of_ones_own_is_refused_where_nothing_would_ask_it(small):
    with pytest.raises(BadInput, match="A rule of your own is for sampled text"):
        generate(small, DEEP, PROMPT, rule=lambda *rows: verify_tokens(*rows))
    for rule in RULES.values():
        assert list(decode(small, DEEP, PROMPT, max_new_tokens=4, rule=rule).token_ids) == greedy_alone(small.modules["target"], PROMPT, 4)


@pytest.mark.parametrize("of", [np.array, torch.tensor, lambda ids: tuple(np.array(ids, np.int32)), iter])
@pytest.mark.parametrize("count", [6, np.int64(6)])
def test_token_ids_of_numpy_and_torch_are_numbers(small, text, of, count):
    events = list(generate(small, DEEP, of(PROMPT), max_new_tokens=count))
    assert list(events[-1].token_ids) == text[:6]
    proposed = [event for event in events if isinstance(event, RoundEvent) and event.model == "prompt-lookup"]
    assert proposed and {type(token_id) for event in proposed for token_id in event.token_ids} <= {int}


def test_no_threshold_below_one_and_no_model_twice():
    for drafts in ("near@0", "near@-1", "near@two", "near", "near@3,near@3", "target@3"):
        with pytest.raises(BadInput):
            Hierarchy.parse(drafts, "target")
