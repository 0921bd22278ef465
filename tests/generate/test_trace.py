"""The identities of a trace (design §6): told when broken, and the trace holds what happened."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from decoding_checks import broken_identities, check_story, decode
from tiny_models import small_set

from hsd.generate.record import Run
from hsd.records import Hierarchy, Sampling

HIERARCHY = Hierarchy.parse("prompt-lookup@2,far@3,near@4", "target")


@pytest.fixture(scope="module")
def models():
    return small_set()


@pytest.fixture(scope="module")
def run(models):
    generation = decode(models, HIERARCHY, [11, 4, 60, 4, 11], max_new_tokens=30)
    assert {token.outcome for token in generation.tokens} == {"accepted", "corrected", "bonus"}
    assert len({token.generated_by for token in generation.tokens}) > 2
    return generation


def changed(items, index, **changes):
    return (*items[:index], replace(items[index], **changes), *items[index + 1 :])


def of_target(run):
    return next(i for i, round_ in enumerate(run.rounds) if round_.model == "target" and 0 < round_.accepted < round_.drafted)


def test_a_true_run_breaks_nothing(run):
    assert broken_identities(run, HIERARCHY) == []


BREAKS = {
    "a token is missing": (lambda run: replace(run, tokens=run.tokens[:-1]), "were committed"),
    "a token comes twice": (lambda run: replace(run, tokens=(*run.tokens, run.tokens[-1])), "were committed"),
    "a token is nobody's": (lambda run: replace(run, tokens=changed(run.tokens, 3, generated_by="stranger")), "sum over models"),
    "more accepted than drafted": (
        lambda run: replace(run, rounds=changed(run.rounds, of_target(run), accepted=run.rounds[of_target(run)].drafted + 1)),
        "accepted",
    ),
    "a block of another length": (
        lambda run: replace(run, rounds=changed(run.rounds, of_target(run), drafted=run.rounds[of_target(run)].drafted + 2)),
        "accepted",
    ),
    "a correction called a bonus": (
        lambda run: replace(run, rounds=changed(run.rounds, of_target(run), outcome="bonus")),
        "calls its next token bonus",
    ),
    "[no, yes, no] counted as one accepted": (
        lambda run: replace(run, rounds=changed(run.rounds, 0, accepted=-1)),
        "accepted -1",
    ),
    "a round of the target is missing": (
        lambda run: replace(run, rounds=tuple(r for i, r in enumerate(run.rounds) if i != of_target(run))),
        "rounds gained",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_count_is_told(run, name):
    spoil, said = BREAKS[name]
    told = broken_identities(spoil(run), HIERARCHY)
    assert any(said in line for line in told), told


@pytest.mark.parametrize("spoil", [
    lambda run: replace(run, rounds=changed(run.rounds, of_target(run), next_token_id=63)),
    lambda run: replace(run, rounds=run.rounds[1:]),
    lambda run: replace(run, end=replace(run.end, token_ids=(*run.end.token_ids[:-1], 63))),
])  # fmt: skip
def test_a_wrong_story_is_told(run, spoil):
    with pytest.raises(AssertionError):
        check_story(spoil(run), HIERARCHY)


@pytest.mark.parametrize(
    "drafts", ["", "near@1", "near@4", "prompt-lookup@3", "far@2,near@4", "prompt-lookup@2,early-exit:1@2,far@2,near@3"]
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_tokens_are_the_sum_over_models_and_over_rounds(models, drafts, temperature):
    hierarchy = Hierarchy.parse(drafts, "target")
    generation = decode(models, hierarchy, [5, 6, 5, 6], max_new_tokens=33, sampling=Sampling(temperature=temperature))
    committed = len(generation.token_ids)
    made = [sum(token.generated_by == level.model for token in generation.tokens) for level in hierarchy.levels]
    assert sum(made) == committed == 33
    rounds = [round_ for round_ in generation.rounds if round_.model == "target"]
    assert generation.target_rounds == len(rounds)
    gained = sum(round_.accepted + 1 for round_ in rounds)
    assert gained - rounds[-1].accepted - 1 < committed <= gained
    assert generation.forward_s <= generation.end.decode_s + generation.end.prefill_s
    times = [token.time_s for token in generation.tokens]
    assert times == sorted(times) and times[-1] <= generation.end.decode_s


def test_the_trace_file_holds_every_token_and_round(models, run):
    kept = Run(HIERARCHY, "Hello", 5, Sampling(), run.tokens, run.rounds, run.notices, run.end, models.environment)
    trace = json.loads(json.dumps(kept.to_json()))
    assert Run.from_json(trace) == kept
    assert (trace["schema"], trace["kind"], trace["prompt_tokens"], trace["reason"]) == (1, "trace", 5, "max_new_tokens")
    assert [token["token_id"] for token in trace["tokens"]] == list(run.token_ids)
    assert "".join(token["text"] for token in trace["tokens"]) == trace["text"] == run.end.text
    assert {"token_id", "text", "generated_by", "outcome", "round", "time_s"} <= set(trace["tokens"][0])
    assert {"level", "model", "drafted", "accepted", "seconds"} <= set(trace["rounds"][0]) and len(trace["rounds"]) == len(run.rounds)
    assert trace["hierarchy"][-1] == {"model": "target", "threshold": None}
    assert trace["seconds"]["decode"] > 0 and trace["environment"]["device"] == "cpu"
