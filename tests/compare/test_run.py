"""A comparison times every method alike, and says whether the text is still the target's own."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tables import Table, tables
from tiny_models import model_set

from hsd.compare import run
from hsd.compare.command import describe
from hsd.compare.divergence import first_divergence
from hsd.compare.record import Divergence
from hsd.compare.run import compare
from hsd.errors import BadInput, Cancelled, LevelFault
from hsd.export.comparison import read_comparison
from hsd.export.exporter import export
from hsd.generate import engine
from hsd.generate.rule import verify_greedily
from hsd.measure.prompts import PromptSet
from hsd.models.prefill import PREFILL_CHUNK
from hsd.records import Sampling

OWN = ("target", "best-single", "hierarchy")


@pytest.fixture
def plan(plan_of):
    return plan_of("early-exit:1@2,near@4", "near@3")


def of(comparison):
    return {method.name: method for method in comparison.methods}


def test_every_method_has_its_figures(models, plan, prompts):
    found = compare(models, plan, prompts, repeats=2, max_new_tokens=20, methods=OWN)
    assert tuple(method.name for method in found.methods) == OWN
    assert (found.repeats, found.prompts, found.max_new_tokens) == (2, 3, 20)
    for method in found.methods:
        assert method.tokens_per_s.samples == 2
        assert 0 < method.tokens_per_s.low <= method.tokens_per_s.median <= method.tokens_per_s.high
        assert 0 < method.outside_forward_share < 1 and method.identical is True
    assert found.identical is True and found.divergences == ()
    by_name = of(found)
    assert by_name["target"].tokens_per_target_pass == 1 and by_name["target"].hierarchy == "target"
    assert by_name["hierarchy"].tokens_per_target_pass > 1.5 and by_name["hierarchy"].hierarchy == "early-exit:1@2,near@4,target"
    assert by_name["best-single"].hierarchy == "near@3,target"


def test_the_prediction_stands_beside_the_measured_value(models, plan, prompts):
    found = of(compare(models, plan, prompts, repeats=1, max_new_tokens=4, methods=OWN))
    assert found["hierarchy"].predicted_tokens_per_s == pytest.approx(1 / 0.002)
    assert found["best-single"].predicted_tokens_per_s == pytest.approx(1 / 0.004)
    assert found["target"].predicted_tokens_per_s == pytest.approx(1 / 0.006)


def test_a_plan_without_a_draft_is_compared_too(models, plan_of, prompts):
    found = compare(models, plan_of(), prompts, repeats=1, max_new_tokens=5, methods=["target", "hierarchy"])
    assert [method.hierarchy for method in found.methods] == ["target", "target"] and found.identical is True


class Runs:
    """Stands in for decoding: says what ran, and how long it pretends to have taken."""

    def __init__(self, seconds=lambda name, number: 1.0, tokens=lambda name, prompt_ids: (1, 2, 3, 4)):
        self.seconds, self.tokens, self.log = seconds, tokens, []

    def __call__(self, name, models, modules, sampling, hierarchies, prompt_ids, max_new_tokens, should_stop):
        self.log.append((name, len(prompt_ids), max_new_tokens))
        token_ids = self.tokens(name, prompt_ids)
        return run._Outcome(token_ids, len(token_ids), self.seconds(name, len(self.log)), 2, 0.1)


def test_methods_take_turns_on_every_prompt(models, plan, prompts, monkeypatch):
    runs = Runs()
    monkeypatch.setattr(run, "_run", runs)
    compare(models, plan, prompts, repeats=2, max_new_tokens=30, methods=OWN)
    warm_up, timed = runs.log[:3], runs.log[3:]
    assert warm_up == [(name, len(prompts.prompts[0].prompt), 8) for name in OWN]
    once = [(name, len(prompt.prompt), 30) for prompt in prompts for name in OWN]
    assert timed == once * 2


def test_every_prompt_of_every_repeat_samples_anew_and_alike_for_all_methods(models, plan, prompts, monkeypatch):
    seeds = []
    real = run.generate_whole
    monkeypatch.setattr(
        run, "generate_whole", lambda *given, sampling, **kept: seeds.append(sampling.seed) or real(*given, sampling=sampling, **kept)
    )
    sampled = replace(plan, sampling=Sampling(temperature=0.7, seed=40))
    compare(models, sampled, prompts, repeats=3, max_new_tokens=4, methods=OWN)
    assert seeds == [40] * 3 + [seed for seed in range(40, 49) for _ in OWN]
    assert Sampling().of_run(2) == Sampling()
    assert Sampling(temperature=1, seed=2**63 - 1).of_run(2).seed == 2**63 - 3


def test_a_slow_warm_up_is_not_counted(models, plan, prompts, monkeypatch):
    monkeypatch.setattr(run, "_run", Runs(lambda name, number: 1000.0 if number <= 3 else 0.5))
    found = compare(models, plan, prompts, repeats=3, methods=OWN)
    for method in found.methods:
        assert method.tokens_per_s.low == method.tokens_per_s.high == pytest.approx(4 / 0.5)
        assert method.outside_forward_share == pytest.approx(1 - 0.1 / 0.5)
        assert method.tokens_per_target_pass == pytest.approx(2)


def test_a_repeat_is_its_tokens_over_its_seconds(models, plan, prompts, monkeypatch):
    """Of three repeats of three prompts: the median of 12 tokens over 3, 6 and 30 s."""
    repeat_of = lambda number: (number - 4) // 9  # noqa: E731
    monkeypatch.setattr(run, "_run", Runs(lambda name, number: (1.0, 2.0, 10.0)[repeat_of(number)] if number > 3 else 1.0))
    rate = of(compare(models, plan, prompts, repeats=3, methods=OWN))["hierarchy"].tokens_per_s
    assert (rate.low, rate.median, rate.high, rate.samples) == pytest.approx((0.4, 2.0, 4.0, 3))


def test_times_the_target_are_those_of_the_repeats(models, plan, prompts, monkeypatch):
    """The machine slows down tenfold after the first repeat: ratios within a repeat know nothing of it, others would."""

    def seconds(name, number):
        repeat = (number - 4) // 9 if number > 3 else 0
        return (1.0, 10.0, 10.0)[repeat] / ((2.0, 2.5, 3.0)[repeat] if name == "hierarchy" else 1.0)

    monkeypatch.setattr(run, "_run", Runs(seconds))
    found = compare(models, plan, prompts, repeats=3, methods=OWN)
    times = of(found)["hierarchy"].times_target
    assert (times.low, times.median, times.high, times.samples) == pytest.approx((2.0, 2.5, 3.0, 3))
    assert found.speedup("hierarchy") == times.median and of(found)["target"].times_target is None
    told = next(line for line in describe(found.to_json()).splitlines() if line.startswith("hierarchy"))
    assert " 2.50  2.00 to 3.00 " in told
    old = replace(found, methods=tuple(replace(method, times_target=None) for method in found.methods))
    assert old.speedup("hierarchy") == pytest.approx(1.2 / 0.4) and old.speedup("nobody") is None


def test_what_cannot_be_timed_gives_no_figure(models, plan, prompts, monkeypatch):
    with pytest.raises(BadInput, match="give 2 at least"):
        compare(models, plan, prompts, max_new_tokens=1, methods=OWN)
    monkeypatch.setattr(run, "_run", lambda name, *_: run._Outcome((1,), int(name == "target"), 0.1, 1, 0.1))  # ends at its first token
    with pytest.raises(BadInput, match="Every text of hierarchy ended with its first token"):
        compare(models, plan, prompts, methods=("hierarchy",))


def test_each_run_begins_with_fresh_caches(models, plan, prompts, monkeypatch):
    made = Counter()
    for name in ("target", "near", "early-exit:1"):
        network = models.networks[name]
        real = network.new_cache
        monkeypatch.setattr(
            network, "new_cache", lambda capacity, name=name, real=real: made.update([name]) or real(capacity), raising=False
        )
    compare(models, plan, prompts, repeats=2, max_new_tokens=4, methods=OWN)
    assert made == {"target": 3 * 7, "near": 2 * 7, "early-exit:1": 7}


def first_token_always_kept(block_ids, choices):
    accepted, next_id = verify_greedily(block_ids, choices)
    return (1, choices[1]) if len(block_ids) and not accepted else (accepted, next_id)


def test_a_wrong_rule_is_found_out(models, plan_of, prompts, monkeypatch):
    monkeypatch.setattr(engine, "verify_greedily", first_token_always_kept)
    found = compare(models, plan_of("other@3"), prompts, repeats=1, max_new_tokens=30, methods=["hierarchy"])
    assert found.identical is False and of(found)["hierarchy"].identical is False and of(found)["target"].identical is True
    for divergence in found.divergences:
        assert divergence.method == "hierarchy" and divergence.near_tie is False and divergence.logit_margin > 1e-3
    assert len(found.divergences) > 1


def test_an_altered_text_is_named_by_prompt_position_and_margin(models, plan, prompts, monkeypatch):
    real = run._run

    def altering(name, models, modules, plan, hierarchies, prompt_ids, *rest):
        outcome = real(name, models, modules, plan, hierarchies, prompt_ids, *rest)
        if name != "hierarchy" or len(prompt_ids) != len("one two three") or len(outcome.token_ids) < 6:
            return outcome
        token_ids = [*outcome.token_ids[:5], (outcome.token_ids[5] + 1) % 64, *outcome.token_ids[6:]]
        return run._Outcome(tuple(token_ids), outcome.timed_tokens, outcome.seconds, outcome.rounds, outcome.inside_s)

    monkeypatch.setattr(run, "_run", altering)
    found = compare(models, plan, prompts, repeats=1, max_new_tokens=12, methods=OWN)
    assert found.identical is False and of(found)["best-single"].identical is True
    (divergence,) = found.divergences
    assert (divergence.method, divergence.prompt_id, divergence.position, divergence.near_tie) == ("hierarchy", "p2", 5, False)
    target = models.networks["target"]
    text = models.tokenizer("one two three")["input_ids"]
    wanted = list(of_target(models, text, 6))
    logits = target.forward(torch.tensor([*text, *wanted[:5]]), target.new_cache(40), 1)[0]
    assert divergence.logit_margin == pytest.approx(float(logits[wanted[5]] - logits[(wanted[5] + 1) % 64]), abs=1e-3)


@pytest.mark.parametrize("repeat", [0, 1, 2])
def test_a_text_that_departs_in_any_repeat_is_not_identical(models, plan, prompts, monkeypatch, repeat):
    runs = Runs()

    def tokens(name, prompt_ids):
        other = name == "hierarchy" and len(prompt_ids) == len("one two three") and len(runs.log) > 3 + 9 * repeat
        return (1, 2, 9 if other else 3, 4)

    runs.tokens = tokens
    monkeypatch.setattr(run, "_run", runs)
    found = compare(models, plan, prompts, repeats=3, methods=OWN)
    assert found.identical is False and of(found)["best-single"].identical is True
    (divergence,) = found.divergences
    assert (divergence.method, divergence.prompt_id, divergence.position) == ("hierarchy", "p2", 2)


@pytest.mark.parametrize(("ends", "at"), [("stop", 1), ("stop", 5), ("fault", 0), ("fault", 5)])
def test_figures_stay_where_it_is_not_found_out_how_texts_differ(models, plan, prompts, monkeypatch, at, ends):
    """The passes that weigh two tokens come after all runs, and on long texts take a while and memory of their own."""
    passes, network = [], models.networks["target"]
    forward = network.forward

    def counted(*given):
        if ends == "fault" and len(passes) == at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        passes.append(given)
        return forward(*given)

    monkeypatch.setattr(network, "forward", counted)
    monkeypatch.setattr(run, "_run", Runs(tokens=lambda name, prompt_ids: (1, 2, 9 if name == "hierarchy" else 3, 4)))
    found = compare(models, plan, prompts, repeats=2, methods=OWN, should_stop=lambda: ends == "stop" and len(passes) >= at)
    assert len(passes) == at and found.repeats == 2 and of(found)["hierarchy"].tokens_per_s.median > 0
    assert found.identical is False and of(found)["best-single"].identical is True and found.divergences == ()
    (why,) = found.left_out
    said = "Stopped before it was looked at." if ends == "stop" else "target ran out of memory; choose"
    assert why.startswith(f"Whether texts that differ from the target's do so at near-ties is not known. {said}")


def of_target(models, prompt_ids, count):
    from hsd.generate.collect import collect
    from hsd.records import Hierarchy

    return collect(engine.generate(models, Hierarchy.parse("", "target"), prompt_ids, max_new_tokens=count)).token_ids


def test_sampled_texts_are_not_held_against_each_other(models, plan_of, prompts):
    plan = plan_of("near@3", sampling=Sampling(temperature=1.0, seed=3))
    found = compare(models, plan, prompts, repeats=1, max_new_tokens=10, methods=OWN)
    assert found.identical is None and {method.identical for method in found.methods} == {None} and found.divergences == ()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=1)], ids=lambda sampling: sampling.label())
def test_the_result_is_strict_json_that_reads_back(models, plan_of, prompts, sampling):
    found = compare(models, plan_of("near@3", sampling=sampling), prompts, repeats=1, max_new_tokens=6, methods=OWN)
    assert read_comparison(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


def test_every_latency_model_is_held_against_the_runs(models, plan, prompts):
    found = compare(models, plan, prompts, repeats=1, max_new_tokens=4, methods=OWN)
    for method, predicted in (("hierarchy", plan.predicted_s_per_token), ("best-single", plan.best_single_draft.predicted_s_per_token)):
        row = next(result for result in found.methods if result.name == method)
        wanted = {"paper": 1 / predicted.paper, "exact": 1 / predicted.exact, "trace": 1 / predicted.trace}
        assert row.predicted_by_model == pytest.approx(wanted)
    errors = [abs(row.tokens_per_s.median / rate - 1) for row in found.methods if (rate := row.predicted_by_model.get("paper"))]
    data = found.to_json()
    assert data["ranked_by"] == plan.ranked_by and data["latency_models"]["paper"]["max_error"] == pytest.approx(max(errors))


def test_transformers_modes_and_early_ends_are_strict_json_too(models, plan, prompts):
    """A mode of transformers tells nothing of passes, and a text that ended early has no margin: both are null in a file."""
    found = compare(models, plan, prompts, repeats=1, max_new_tokens=2, methods=OWN)
    theirs = replace(found.methods[0], name="transformers", hierarchy="", tokens_per_target_pass=None, outside_forward_share=None)
    early = Divergence("transformers", "p1", 3, float("inf"), False)
    found = replace(found, methods=(*found.methods, theirs), divergences=(early,))
    assert read_comparison(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
    report = export("report", plan, comparison=found, markdown=True)
    assert "transformers departs from the target alone on prompt p1 at token 4, where one text ended." in report


def test_stopped_in_the_second_repeat_keeps_the_first(models, plan, prompts):
    told = []
    found = compare(
        models, plan, prompts, repeats=3, max_new_tokens=4, methods=OWN, report=told.append, should_stop=lambda: told[-1].done >= 4
    )
    assert found.repeats == 1 and {method.tokens_per_s.samples for method in found.methods} == {1}
    assert found.identical is True


def test_stopped_before_a_complete_repeat(models, plan, prompts):
    told = []
    with pytest.raises(Cancelled, match="nothing to compare yet"):
        compare(models, plan, prompts, max_new_tokens=4, methods=OWN, report=told.append, should_stop=lambda: told[-1].done >= 2)
    with pytest.raises(Cancelled):
        compare(models, plan, prompts, max_new_tokens=4, methods=OWN, should_stop=lambda: True)


def test_progress_counts_prompts_of_all_repeats(models, plan, prompts):
    told = []
    compare(models, plan, prompts, repeats=2, max_new_tokens=2, methods=OWN, report=told.append)
    done = [progress.done for progress in told]
    assert done == sorted(done) and {progress.total for progress in told} == {6} and done[-1] == 5
    assert told[0].message == "warming up" and told[-1].message == "repeat 2 of 2, prompt p2, hierarchy"


def test_the_target_is_always_there_to_be_held_against(models, plan, prompts):
    found = compare(models, plan, prompts, repeats=1, max_new_tokens=2, methods=["hierarchy"])
    assert [method.name for method in found.methods] == ["target", "hierarchy"]


@pytest.mark.parametrize("method", ["vllm", "", "transformers-assistent"])
def test_an_unknown_method_is_named_with_the_possible_ones(models, plan, prompts, method):
    with pytest.raises(BadInput, match=rf"“{method}” cannot be compared here; possible are target, best-single, hierarchy, transformers"):
        compare(models, plan, prompts, methods=["target", method])


def test_a_plan_without_a_single_draft_has_no_best_single(models, plan_of, prompts):
    with pytest.raises(BadInput, match="“best-single” cannot be compared here"):
        compare(models, plan_of("early-exit:1@2,near@4"), prompts, methods=["best-single"])


def test_no_prompt_and_too_long_a_prompt_are_refused(models, plan, prompts):
    with pytest.raises(BadInput, match="no prompt to compare on"):
        compare(models, plan, PromptSet("none", ()), methods=OWN)
    from hsd.measure.prompts import Prompt

    with pytest.raises(BadInput, match="context of target is 400; shorten the prompt"):
        compare(models, plan, PromptSet("long", (Prompt("p", "chat", "a" * 400),)), methods=OWN)


def test_a_draft_that_drops_out_ends_the_comparison(plan_of, prompts):
    """What would be timed is another hierarchy than the one that is named."""
    models = tables(64, 1)
    broken = Table("m0", torch.full((64, 64, 64), float("nan")))
    spoiled = model_set({"m0": broken, "target": models.networks["target"]}, tokenizer=None)
    with pytest.raises(LevelFault, match="m0 gave logits that are not finite"):
        compare(spoiled, plan_of("m0@2"), prompts, repeats=1, max_new_tokens=4, methods=OWN)


# ---- where two texts part


class TwoRoundings:
    """A network whose wide passes round otherwise than its narrow ones, by `noise` in one logit."""

    name, vocab_size, max_context, device, dtype, memory_bytes = "target", 4, 100, torch.device("cpu"), torch.float32, 0

    def __init__(self, margin, noise):
        self.margin, self.noise = margin, noise

    def new_cache(self, capacity):
        from tables import TableCache

        return TableCache()

    def adopt(self, cache, other, other_cache):
        return False

    def forward(self, token_ids, cache, num_logits):
        cache.token_ids += token_ids.tolist()
        shift = self.noise if len(token_ids) > 1 else 0.0
        return torch.tensor([[0.0, 1.0, 1.0 - self.margin + shift, -1.0]]).expand(num_logits, -1)


@pytest.mark.parametrize(("margin", "noise", "near_tie"), [(0.01, 0.008, True), (0.01, 0.004, False), (0.0, 0.0, True), (0.5, 0.1, False)])
def test_a_near_tie_lies_within_twice_the_rounding_of_the_precision(margin, noise, near_tie):
    found = first_divergence("hierarchy", "p", TwoRoundings(margin, noise), [0, 1, 2], [1, 1, 1, 1], [1, 1, 2, 1])
    assert found == Divergence("hierarchy", "p", 2, pytest.approx(margin, abs=1e-6), near_tie)


def test_equal_texts_do_not_part_and_an_early_end_is_no_near_tie():
    network = TwoRoundings(0.0, 1.0)
    assert first_divergence("hierarchy", "p", network, [0], [1, 2], (1, 2)) is None
    for wanted, got in (([1, 2, 3], [1, 2]), ([1, 2], [1, 2, 3]), ([1], [])):
        found = first_divergence("hierarchy", "p", network, [0], wanted, got)
        assert found.position == min(len(wanted), len(got)) and found.near_tie is False
        assert math.isinf(found.logit_margin)


def test_a_long_text_is_looked_at_in_parts():
    """The mask of one pass over all of it could take more memory than there is, after every run was done."""
    network, widths = TwoRoundings(0.01, 0.008), []
    passes = network.forward
    network.forward = lambda token_ids, cache, num_logits: widths.append(len(token_ids)) or passes(token_ids, cache, num_logits)
    first_divergence("hierarchy", "p", network, [0] * 1000, [1, 1, 1, 1], [1, 1, 2, 1])
    assert max(widths) == PREFILL_CHUNK and sum(widths) == 2 * 1002
