"""A measurement: models in order, every pair and width, partial results, stopping, and a file that reads back the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from tables import Table, tables
from tiny_models import LETTERS, SMALL_DRAFTS, model_set, small_set, tiny_llama

from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.measure import run
from hsd.measure.costs import Costs
from hsd.measure.prompts import Prompt, PromptSet
from hsd.measure.record import Measurement
from hsd.measure.run import Effort, measure
from hsd.models.build import build_network
from hsd.models.network import Network
from hsd.plan.planner import plan
from hsd.records import Sampling

TEXTS = ("abcabcabcabc", "the same words the same words", "zyxw", "one two three")
EFFORT = Effort(prompts=3, max_new_tokens=8, cost_budget_s=0.0, widths=(1, 2, 5))


def prompt_set(*texts, name="own"):
    return PromptSet(name, tuple(Prompt(f"p{number}", "chat", text) for number, text in enumerate(texts)))


@pytest.fixture(autouse=True)
def small_effort(monkeypatch):
    monkeypatch.setattr(run, "QUICK", EFFORT)
    monkeypatch.setattr(run, "THOROUGH", replace(EFFORT, prompts=4, widths=(1, 2, 3, 5)))


@pytest.fixture(scope="module")
def models():
    return small_set()


@pytest.fixture(scope="module")
def prompts():
    return prompt_set(*TEXTS)


def through_json(measurement):
    return Measurement.from_json(json.loads(json.dumps(measurement.to_json(), allow_nan=False)))


def test_everything_the_planner_needs_is_measured(models, prompts):
    found = measure(models, prompts)
    assert sorted(found.models) == sorted(models.networks) and found.target == "target"
    networks = [name for name in found.models if isinstance(models.networks[name], Network)]
    for name in networks:
        assert sorted(found.cost_s[name]) == [1, 2, 5] and found.cost_s[name][1].median > 0
    assert list(found.cost_s["prompt-lookup"]) == [0]
    for position, draft in enumerate(networks[:-1]):
        assert list(found.acceptance[draft]) == networks[position + 1 :]
        for value in found.acceptance[draft].values():
            assert (value.positions, value.prompts) == (24, 3) and 0 <= value.low <= value.mean <= value.high <= 1
    assert list(found.block_gains["prompt-lookup"]) == networks
    assert found.overhead_s > 0 and len(found.traces) == 3
    assert found.prompts.name == "own, 3 of 4" and found.prompts.count == 3 and found.prompts.sha256 != prompts.sha256
    assert plan(found).hierarchy.target == "target"


def test_thorough_takes_more_prompts_and_widths(models, prompts):
    found = measure(models, prompts, thorough=True)
    assert len(found.traces) == 4 and sorted(found.cost_s["target"]) == [1, 2, 3, 5]


def test_models_run_smallest_first_by_measured_cost_with_the_target_last(models, prompts):
    found = measure(models, prompts)
    assert found.models[0] == "prompt-lookup" and found.models[-1] == "target"
    costs = [found.cost_s[name][1].median for name in found.models[1:-1]]
    assert costs == sorted(costs)


def test_a_draft_that_costs_more_than_the_target_stays_below_it(prompts, monkeypatch):
    models = small_set()
    monkeypatch.setattr(run, "measure_costs", lambda networks, *args, **options: fake_costs(networks, {"other": 9.0, "prompt-lookup": 5.0}))
    assert measure(models, prompts).models == (
        "prompt-lookup",
        "early-exit:1",
        "quantized:int4",
        "quantized:int8",
        "far",
        "near",
        "other",
        "target",
    )


def fake_costs(networks, special):
    from hsd.measure.intervals import median_estimate

    first = lambda model: 1 if isinstance(model, Network) else 0  # noqa: E731
    return Costs({name: {first(model): median_estimate([special.get(name, 1.0)])} for name, model in networks.items()}, {})


def test_acceptance_is_the_mean_of_the_recorded_positions(models, prompts):
    found = measure(models, prompts, sampling=Sampling(temperature=1.0))
    values = [value for trace in found.traces for value in trace.accept["far"]["target"]]
    assert found.acceptance["far"]["target"].mean == pytest.approx(sum(values) / len(values))
    offers = [pair for trace in found.traces for pair in trace.proposals["prompt-lookup"]["target"] if pair[0]]
    lookup = found.acceptance["prompt-lookup"]["target"]
    assert lookup.mean == pytest.approx(sum(accepted > 0 for _, accepted in offers) / len(offers))
    assert lookup.positions == len(offers)


def test_the_text_measured_on_is_the_targets_own(models, prompts):
    """Greedy: the target agrees with itself everywhere, so a twin of it is always accepted."""
    twins = model_set({"twin": models.networks["target"], "target": models.networks["target"]})
    found = measure(twins, prompts)
    assert found.acceptance["twin"]["target"].mean == found.acceptance["twin"]["target"].low == 1.0


def test_costs_are_measured_at_the_mean_context_and_stay_within_the_texts(models, prompts, monkeypatch):
    seen = {}

    def spy(networks, token_ids, **options):
        seen.update(options, token_ids=list(token_ids))
        return fake_costs(networks, {})

    monkeypatch.setattr(run, "measure_costs", spy)
    found = measure(models, prompts)
    wanted = sum(len(text) for text in TEXTS[:3]) // 3 + EFFORT.max_new_tokens // 2
    assert seen["context_tokens"] == found.context_tokens == wanted
    lengths = [len(text) for text in TEXTS[:3]]
    assert list(seen["contexts"]) == []  # texts of nearly one length cost the same
    assert len(seen["token_ids"]) == max(lengths) + EFFORT.max_new_tokens + max(EFFORT.widths)
    assert set(seen["token_ids"]) <= {LETTERS.index(letter) for text in TEXTS for letter in text}


def test_partial_results_are_whole_measurements_that_grow(models, prompts):
    partial = []
    final = measure(models, prompts, on_partial=partial.append)
    assert [len(found.traces) for found in partial] == [1, 2, 3]
    for found in partial:
        assert through_json(found) == found
        assert plan(found).alternatives
    assert partial[-1] == final


def test_it_reads_back_from_json_as_it_was_written(models, prompts):
    for sampling in (Sampling(), Sampling(temperature=0.7, top_k=9, top_p=0.9, seed=3)):
        found = measure(models, prompts, sampling=sampling)
        assert found.sampling == sampling
        assert through_json(found) == found


def test_each_prompt_is_sampled_with_a_seed_of_its_own(models, monkeypatch):
    """With one seed for all, the same luck would fall on each text, and prompts would not be independent."""
    traced, real = [], run.trace_text

    def trace_text(*given):
        traced.append(given)
        return real(*given)

    monkeypatch.setattr(run, "trace_text", trace_text)
    found = measure(models, prompt_set(*["the same words"] * 3), sampling=Sampling(temperature=1.0, seed=8))
    texts, seeds = [tuple(given[4]) for given in traced], [given[6] for given in traced]
    assert len(set(texts)) == 3 and seeds == [8, 9, 10] and found.sampling.seed == 8


def test_the_same_seed_gives_the_same_acceptance(models, prompts):
    first, second, other = (measure(models, prompts, sampling=Sampling(temperature=1.0, seed=seed)) for seed in (4, 4, 5))
    assert first.traces == second.traces or first.models != second.models
    assert sorted(trace.accept["far"]["target"] for trace in first.traces) == sorted(
        trace.accept["far"]["target"] for trace in second.traces
    )
    assert [trace.accept["far"]["target"] for trace in first.traces] != [trace.accept["far"]["target"] for trace in other.traces]


def test_stopped_before_anything_was_measured(models, prompts):
    with pytest.raises(Cancelled, match="nothing was kept"):
        measure(models, prompts, should_stop=lambda: True)


def test_stopped_while_the_first_text_is_written(models, prompts):
    partial, phases = [], []
    with pytest.raises(Cancelled, match="before the first prompt was complete"):
        measure(
            models,
            prompts,
            report=lambda progress: phases.append(progress.phase),
            should_stop=lambda: "acceptance" in phases,
            on_partial=partial.append,
        )
    assert partial == []


def test_stopped_later_keeps_complete_prompts_only(models, prompts):
    partial = []
    found = measure(models, prompts, should_stop=lambda: bool(partial), on_partial=partial.append)
    assert found == partial[0] and len(found.traces) == 1
    assert found.acceptance["far"]["target"].prompts == 1 and found.acceptance["far"]["target"].positions == 8
    assert plan(found).hierarchy.target == "target"


def test_stopped_within_a_prompts_passes_keeps_the_prompts_before_it(models, prompts, monkeypatch):
    real, begun = run.trace_text, []

    def trace_text(*given):
        begun.append(given)
        return real(*given)

    monkeypatch.setattr(run, "trace_text", trace_text)
    found = measure(models, prompts, should_stop=lambda: len(begun) == 2)
    assert len(found.traces) == 1 and len(begun) == 2
    begun.clear()
    with pytest.raises(Cancelled, match="before the first prompt was complete"):
        measure(models, prompts, should_stop=lambda: len(begun) == 1)


def test_progress_is_told_in_order(models, prompts):
    told = []
    measure(models, prompts, report=told.append)
    assert [progress.phase for progress in told] == sorted((progress.phase for progress in told), reverse=True)  # cost, acceptance
    steps = [(progress.done, progress.total) for progress in told if progress.phase == "acceptance"]
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert "prompt 2 of 3 (chat)" in [progress.message for progress in told]


def test_a_prompt_that_leaves_no_room_for_an_answer_is_named(models):
    with pytest.raises(BadInput, match=r"Prompt p1 has 90 tokens, target takes 88 .* shorten it"):
        measure(models, prompt_set("abc", "abc" * 30))


@pytest.fixture(scope="module")
def short_sighted():
    """A target of 64 tokens over a draft that knows the first 26."""
    return model_set({"lower": build_network("lower", tiny_llama(3, layers=1, vocab=26)), "target": build_network("target", tiny_llama())})


def test_a_prompt_with_a_token_beyond_a_drafts_vocabulary_is_named(short_sighted):
    with pytest.raises(BadInput, match=r"Prompt p1 holds token 63, .* of lower \(26 tokens\); .* do without lower"):
        measure(short_sighted, prompt_set("abc", "a b"))


def test_a_text_counts_up_to_the_token_at_which_a_draft_would_drop_out(short_sighted):
    found = measure(short_sighted, prompt_set("abcabc", "zyxw"))
    assert all(0 < trace.tokens < EFFORT.max_new_tokens for trace in found.traces)
    assert all(trace.accept["lower"]["target"][-1] == 0.0 for trace in found.traces)


def test_timed_passes_end_within_the_context_of_every_model(models):
    """Where just the answer fits after a prompt, the widest timed pass does not fit after half of the answer."""
    found = measure(models, prompt_set("ab" * 44))
    assert found.context_tokens + max(EFFORT.widths) == models.networks["target"].max_context


def test_a_target_that_gives_no_numbers_is_named(prompts):
    models = tables(64, 1)
    broken = Table("target", torch.full((64, 64, 64), float("nan")))
    with pytest.raises(LevelFault, match="target gave logits that are not finite"):
        measure(model_set({"m0": models.networks["m0"], "target": broken}), prompts)


@pytest.mark.parametrize("spoiled", ["nan", "short"])
def test_a_draft_that_cannot_follow_is_named(prompts, spoiled):
    """A draft with numbers that are not finite, or with a context that the texts exceed, ends the measurement by name."""
    models = tables(64, 1)
    draft = models.networks["m0"]
    if spoiled == "nan":
        draft = Table("m0", torch.full((64, 64, 64), float("nan")))
    else:
        draft.max_context = 20
    with pytest.raises((LevelFault, BadInput), match=r"m0 (gave logits|takes)|context of m0"):
        measure(model_set({"m0": draft, "target": models.networks["target"]}), prompts)


@pytest.mark.parametrize("name", ["near", "target"])
@pytest.mark.parametrize("method", ["new_cache", "forward"])
@pytest.mark.parametrize("phase", ["cost", "acceptance"])
def test_a_model_that_runs_out_of_memory_is_named(models, prompts, monkeypatch, name, method, phase):
    """The costs hold a cache of each model at each context at once: more than any run does."""
    network, told = models.networks[name], []
    real = getattr(network, method)

    def roomless(*given):
        if told[-1].phase == phase:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        return real(*given)

    monkeypatch.setattr(network, method, roomless)
    with pytest.raises(LevelFault, match=f"{name} ran out of memory; choose fewer or smaller models, or a shorter text"):
        measure(models, prompts, report=told.append)


def test_memory_environment_and_settings_are_stamped(models, prompts):
    found = measure(replace(models, memory_bytes={"target": 7, "far": 3}), prompts)
    assert found.memory_bytes == {"target": 7, "far": 3} and found.environment == models.environment


def test_every_draft_kind_is_in_the_set():
    assert set(SMALL_DRAFTS) < set(small_set().networks)
