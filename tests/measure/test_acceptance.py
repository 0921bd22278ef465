"""Acceptance is what the definition says: computed again from full logits, without a cache, in plain loops."""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import replace

import pytest
import torch
from tables import OneHot, hierarchy_of, processed, tables
from tiny_models import LETTERS, SMALL_DRAFTS, model_set, perturbed, small_set, tiny_llama

from hsd.errors import Cancelled
from hsd.generate.collect import collect
from hsd.generate.engine import generate
from hsd.generate.sampling import Transforms
from hsd.measure import acceptance
from hsd.measure.acceptance import block_gains, trace_text
from hsd.measure.record import Trace
from hsd.models import prefill
from hsd.models.build import build_network
from hsd.models.network import Network
from hsd.records import GREEDY, Hierarchy, Level, Sampling
from hsd.settings import MAX_THRESHOLD

SETTINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_k=5),
    Sampling(temperature=1.3, top_p=0.8),
    Sampling(temperature=0.8, repetition_penalty=1.3, no_repeat_ngram_size=2),
]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 3, 1, 4, 1]
NETWORKS = tuple(name for name in SMALL_DRAFTS if name != "prompt-lookup")


@pytest.fixture(scope="module")
def models():
    return small_set()


def own_text(models, sampling=GREEDY, count=40, prompt_ids=PROMPT):
    events = generate(models, Hierarchy((Level(models.target),)), prompt_ids, sampling=sampling, max_new_tokens=count)
    return list(collect(events).token_ids)


def trace(models, response_ids, sampling=GREEDY, names=None, **options):
    networks = {name: models.networks[name] for name in names or models.networks}
    return trace_text(networks, "p", "kind", PROMPT, response_ids, Transforms(sampling), **options)


def full_rows(models, name, response_ids):
    """Logits (positions, vocab) of the response's positions, each from a fresh pass over the whole text before it.

    A quantized copy reads the target's keys and values of the prompt, as it does in the engine.
    """
    network, target = models.networks[name], models.networks["target"]
    rows = []
    for position in range(len(response_ids)):
        text = [*PROMPT, *response_ids[:position]]
        cache, prompt_cache = network.new_cache(len(text)), target.new_cache(len(PROMPT))
        target.forward(torch.tensor(PROMPT[:-1]), prompt_cache, 1)
        if name.startswith("quantized"):
            assert network.adopt(cache, target, prompt_cache)
        rows.append(network.forward(torch.tensor(text[cache.length :]), cache, 1)[0])
    return torch.stack(rows)


def pairs(names):
    return [(draft, verifier) for i, draft in enumerate(names) for verifier in names[i + 1 :]]


def test_greedy_acceptance_is_agreement_of_argmaxes(models):
    response_ids = own_text(models)
    found = trace(models, response_ids)
    best = {name: full_rows(models, name, response_ids).argmax(-1) for name in (*NETWORKS, "target")}
    for draft, verifier in pairs((*NETWORKS, "target")):
        assert list(found.accept[draft][verifier]) == (best[draft] == best[verifier]).float().tolist(), (draft, verifier)
    assert best["target"].tolist() == response_ids
    assert 0 < sum(found.accept["far"]["target"]) < len(response_ids)  # neither trivial


@pytest.mark.parametrize("sampling", SETTINGS, ids=lambda sampling: sampling.label())
def test_sampled_acceptance_is_the_overlap_of_the_processed_distributions(models, sampling):
    response_ids = own_text(models, sampling, count=36)
    found = trace(models, response_ids, sampling)
    probs = {
        name: torch.stack(
            [processed(row, [*PROMPT, *response_ids[:t]], sampling) for t, row in enumerate(full_rows(models, name, response_ids))]
        )
        for name in (*NETWORKS, "target")
    }
    for draft, verifier in pairs((*NETWORKS, "target")):
        wanted = torch.minimum(probs[draft], probs[verifier]).sum(-1)
        assert torch.tensor(found.accept[draft][verifier], dtype=torch.float64) == pytest.approx(wanted, abs=2e-5), (draft, verifier)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 65])
def test_borders_of_chunks_leave_no_mark(models, length):
    sampling = Sampling(temperature=1.0)
    response_ids = (own_text(models, sampling) + own_text(models, Sampling(temperature=1.0, seed=1)))[:length]
    found = trace(models, response_ids, sampling, names=("far", "target"))
    whole = [full_rows(models, name, response_ids).double().softmax(-1) for name in ("far", "target")]
    assert found.tokens == length == len(found.accept["far"]["target"])
    assert found.accept["far"]["target"] == pytest.approx(torch.minimum(*whole).sum(-1).tolist(), abs=2e-5)


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_size_of_chunks_changes_nothing(models, monkeypatch, chunk):
    for sampling in (GREEDY, Sampling(temperature=0.9, repetition_penalty=1.2)):
        response_ids = own_text(models, sampling, count=20)
        wanted = trace(models, response_ids, sampling)
        with monkeypatch.context() as patch:
            patch.setattr(acceptance, "_CHUNK", chunk)
            found = trace(models, response_ids, sampling)
        assert found.proposals == wanted.proposals
        for draft, verifier in pairs((*NETWORKS, "target")):
            assert found.accept[draft][verifier] == pytest.approx(wanted.accept[draft][verifier], abs=1e-5)


def test_a_long_prompt_is_fed_in_parts(models, monkeypatch):
    response_ids = own_text(models, count=10)
    wanted = trace(models, response_ids)
    monkeypatch.setattr(prefill, "PREFILL_CHUNK", 5)
    assert trace(models, response_ids) == wanted


def test_a_stop_is_heeded_before_every_pass(models, monkeypatch):
    monkeypatch.setattr(prefill, "PREFILL_CHUNK", 5)
    monkeypatch.setattr(acceptance, "_CHUNK", 4)
    response_ids = own_text(models, count=10)
    asked = itertools.count()
    trace(models, response_ids, should_stop=lambda: next(asked) < 0)
    questions = next(asked)
    adopted = sum(name.startswith("quantized") or name.startswith("early-exit") for name in NETWORKS)
    assert questions == 3 * (len(NETWORKS) + 1) + 3 * (len(NETWORKS) + 1 - adopted), "three passes over the response and the prompt each"
    for moment in range(questions):
        asked = itertools.count()
        with pytest.raises(Cancelled):
            trace(models, response_ids, should_stop=lambda at=moment, n=asked: next(n) >= at)
        assert next(asked) == moment + 1, "nothing is done after a stop"


def test_a_prompt_of_one_token(models):
    response_ids = own_text(models, count=5, prompt_ids=[8])
    found = trace_text(dict(models.networks), "p", "", [8], response_ids, Transforms(GREEDY))
    assert len(found.accept["near"]["target"]) == 5


@pytest.mark.parametrize("sampling", [GREEDY, *SETTINGS], ids=lambda sampling: sampling.label())
def test_a_model_accepts_itself_always(sampling):
    module = tiny_llama()
    models = model_set({"twin": build_network("twin", tiny_llama()), "target": build_network("target", copy.deepcopy(module))})
    found = trace(models, own_text(models, sampling), sampling)
    assert found.accept["twin"]["target"] == pytest.approx([1.0] * 40, abs=1e-5)
    assert max(found.accept["twin"]["target"]) <= 1.0


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=3)], ids=lambda s: s.label())
@pytest.mark.parametrize("padding", [(4,), (4, 2), (1, 3)], ids=str)
def test_padding_of_a_vocabulary_is_no_token(sampling, padding):
    """The engine cuts a draft's row to the vocabulary above it before anything else; so does the measurement."""
    response_ids = [0, 3, 2, 1, 5, 5, 4, 0, 2, 2]
    traced = [
        trace_text(dict(tables(6, len(padding), padded=padded).networks), "p", "", [0, 1], response_ids, Transforms(sampling)).accept
        for padded in (padding, ())
    ]
    assert traced[0] == traced[1]
    assert 0 < sum(traced[1]["m0"]["target"]) < 10


def test_a_smaller_vocabulary_of_the_draft():
    module, draft = tiny_llama(), tiny_llama(99, layers=1, vocab=40)
    models = model_set({"short": build_network("short", copy.deepcopy(draft)), "target": build_network("target", copy.deepcopy(module))})
    response_ids = [token_id % 40 for token_id in range(20)]
    sampling = Sampling(temperature=1.0)
    found = trace(models, response_ids, sampling).accept["short"]["target"]
    short, full = (full_rows(models, name, response_ids).double().softmax(-1) for name in ("short", "target"))
    assert found == pytest.approx(torch.minimum(short, full[:, :40]).sum(-1).tolist(), abs=2e-5)


# ---- drafts of variable length


def naive_proposal(text, longest=3):
    """What followed the latest earlier occurrence of the longest suffix; nothing where there is none."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                return text[end : end + MAX_THRESHOLD]
    return []


def test_greedy_proposals_are_what_a_naive_loop_finds(models):
    response_ids = own_text(models, count=60)
    found = trace(models, response_ids)
    accepted_anywhere = 0
    for verifier in (*NETWORKS, "target"):
        choices = full_rows(models, verifier, response_ids).argmax(-1).tolist()
        for position in range(len(response_ids)):
            proposal = naive_proposal([*PROMPT, *response_ids[:position]])[: len(response_ids) - position]
            accepted = 0
            for offset, token_id in enumerate(proposal):
                if token_id != choices[position + offset]:
                    break
                accepted += 1
                if token_id != response_ids[position + offset]:
                    break  # the text goes another way: nothing is known of what this verifier would say next
            assert found.proposals["prompt-lookup"][verifier][position] == (len(proposal), accepted), (verifier, position)
            accepted_anywhere += accepted
    assert accepted_anywhere > 20


def test_recorded_greedy_rounds_are_those_that_the_engine_has(models):
    """With the target alone above it, walking through the record repeats the engine's own rounds one by one."""
    offers = trace(models, own_text(models, count=60)).proposals["prompt-lookup"]["target"]
    events = generate(models, Hierarchy.parse(f"prompt-lookup@{MAX_THRESHOLD}", "target"), PROMPT, max_new_tokens=80)
    position, compared = 0, 0
    for round_ in collect(events).rounds:
        if round_.model == "target" and position + MAX_THRESHOLD < 60:
            assert offers[position] == (round_.drafted, round_.accepted)
            position += round_.accepted + 1
            compared += 1
    assert compared > 20


def test_walking_counts_a_round_once_and_skips_what_it_kept():
    pairs = ((4, 2), (9, 9), (9, 9), (3, 0), (0, 0), (5, 1), (7, 7), (2, 2))
    record = Trace("p", "", len(pairs), {}, {"lookup": {"target": pairs}})
    found = [(gain.drafted, gain.accepted, gain.count) for gain in block_gains([record, record], "lookup", "target")]
    assert found == [(0, 0, 2), (2, 2, 2), (3, 0, 2), (4, 2, 2), (5, 1, 2)]


def sampled_texts(models, count):
    """Texts of 40 tokens that the target sampled, one a seed."""
    return [own_text(models, Sampling(temperature=1.0, seed=seed), 40, [0, 1]) for seed in range(count)]


def sampled_traces(models, count, sampling):
    networks, transforms = dict(models.networks), Transforms(sampling)
    return [trace_text(networks, "p", "", [0, 1], text, transforms, seed) for seed, text in enumerate(sampled_texts(models, count))]


@pytest.mark.parametrize("seed", [0, 3])
def test_sampled_rounds_of_a_proposer_keep_as_many_tokens_as_the_engines(seed):
    """A long block that is kept in the engine's runs is kept as often in the record."""
    models = tables(4, 1, one_hot=True, seed=seed)
    sampling = Sampling(temperature=1.0)
    rounds = block_gains(sampled_traces(models, 60, sampling), "m0", "target")
    rounds = [gain for gain in rounds if gain.drafted == MAX_THRESHOLD]
    recorded = sum(gain.accepted * gain.count for gain in rounds) / sum(gain.count for gain in rounds)
    lived = []
    for number in range(60):
        events = generate(models, hierarchy_of((MAX_THRESHOLD,)), [0, 1], sampling=replace(sampling, seed=100 + number), max_new_tokens=40)
        lived += [round_.accepted for round_ in collect(events).rounds if round_.model == "target" and round_.drafted == MAX_THRESHOLD]
    error = (torch.tensor(lived).double().var().item() * 2 / len(lived)) ** 0.5
    assert len(lived) > 300 and error < 0.1
    assert abs(recorded - sum(lived) / len(lived)) < 3 * error


def test_a_proposed_token_is_accepted_with_its_probability_at_every_verifier():
    models = tables(4, 2, one_hot=True, seed=3)
    middle, target = models.networks["m1"], models.networks["target"]
    for verifier in (middle, target):
        counted, wanted, variance = 0, 0.0, 0.0
        for record, text in zip(sampled_traces(models, 60, Sampling(temperature=1.0)), sampled_texts(models, 60), strict=True):
            for position, (drafted, accepted) in enumerate(record.proposals["m0"][verifier.name]):
                if drafted:
                    context = [0, 1, *text[:position]]
                    probability = float(verifier.row(context).softmax(-1)[models.networks["m0"].propose(context, 1)[0]])
                    counted, wanted, variance = counted + (accepted > 0), wanted + probability, variance + probability * (1 - probability)
        assert wanted > 100
        assert abs(counted - wanted) < 3.5 * variance**0.5


# ---- what the acceptance is for


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("amount", [0.05, 0.1])
def test_measured_acceptance_is_the_accepted_share_of_first_drafted_tokens(temperature, amount):
    """The share in real runs of a draft and its target lies within sampling error of the measured rate."""
    module = tiny_llama(context=400)
    models = model_set(
        {"draft": build_network("draft", perturbed(module, amount)), "target": build_network("target", copy.deepcopy(module))}
    )
    measured, kept, offered = [], 0, 0
    for seed in range(6):
        sampling = Sampling(temperature=temperature, seed=seed)
        prompt_ids = random.Random(seed).choices(range(len(LETTERS)), k=10)
        response_ids = own_text(models, sampling, 100, prompt_ids)
        networks = dict(models.networks)
        measured += trace_text(networks, "p", "", prompt_ids, response_ids, Transforms(sampling)).accept["draft"]["target"]
        other = Sampling(temperature=temperature, seed=1000 + seed)
        events = generate(models, Hierarchy.parse("draft@2", "target"), prompt_ids, sampling=other, max_new_tokens=100)
        for round_ in collect(events).rounds:
            if round_.model == "target" and round_.drafted:
                offered += 1
                kept += round_.accepted > 0
    mean = sum(measured) / len(measured)
    error = (mean * (1 - mean) * (1 / offered + (1 / len(measured) if temperature == 0 else 0))) ** 0.5
    assert 0.1 < mean < 0.98 and offered > 200
    assert abs(kept / offered - mean) < 3.5 * error + 0.01


def test_every_network_of_the_set_is_traced_at_every_larger_one(models):
    found = trace(models, own_text(models, count=4))
    order = (*NETWORKS, "target")
    assert {(draft, verifier) for draft, row in found.accept.items() for verifier in row} == set(pairs(order))
    assert set(found.proposals["prompt-lookup"]) == set(order)
    assert all(isinstance(models.networks[name], Network) for name in order)


def test_proposers_keep_no_memory_of_another_text(models):
    first = trace(models, own_text(models, count=20))
    trace(models, list(range(20)))
    assert trace(models, own_text(models, count=20)) == first


def test_one_hot_tables_are_proposers():
    assert not isinstance(OneHot("m0", torch.zeros(2, 2, 2)), Network)
