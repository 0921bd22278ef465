"""transformers' own modes are timed as this engine is, and write the same greedy text in float32."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from decoding_checks import greedy_alone
from tiny_models import letter_tokenizer, perturbed, tiny_llama

from hsd.compare.baselines import BASELINES, assistants, load_modules, run_baseline
from hsd.compare.run import compare
from hsd.errors import BadInput
from hsd.pick.registry import Registry
from hsd.records import GREEDY, Sampling

NEVER = lambda: False  # noqa: E731
PROMPT = [3, 1, 4, 1, 5, 3, 1, 4, 1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target and a draft of its own weights that is often right, on disk as transformers saves them."""
    home = tmp_path_factory.mktemp("models")
    module = tiny_llama(context=200)
    module.generation_config.repetition_penalty = 1.7  # a folder's own settings must not leak into a comparison
    for name, one in (("target", module), ("draft", perturbed(module, 0.05))):
        one.save_pretrained(home / name)
        letter_tokenizer().save_pretrained(home / name)
    return home


@pytest.fixture(scope="module")
def leased(folders):
    with Registry().lease(str(folders / "target"), ["early-exit:1", str(folders / "draft")], dtype="float32") as models:
        yield models


@pytest.fixture(scope="module")
def modules(leased):
    found, left_out = load_modules(leased, BASELINES)
    assert not left_out
    return found


def run(name, leased, modules, *, sampling=GREEDY, count=40, should_stop=NEVER):
    return run_baseline(name, leased, modules, PROMPT, sampling=sampling, max_new_tokens=count, should_stop=should_stop)


@pytest.mark.parametrize("name", BASELINES)
def test_the_greedy_text_is_the_targets_own(leased, modules, name):
    found = run(name, leased, modules)
    wanted = greedy_alone(modules[leased.target], PROMPT, 40)
    ends = next((position + 1 for position, token in enumerate(wanted) if token in leased.eos_token_ids), 40)
    assert list(found.token_ids) == wanted[:ends] and len(found.token_ids) > 5


@pytest.mark.parametrize("name", BASELINES)
def test_tokens_of_the_prompts_own_pass_are_not_timed(leased, modules, name):
    found = run(name, leased, modules)
    first = len(found.token_ids) - found.timed_tokens
    assert 1 <= first <= (1 if name == "transformers" else 21) and found.seconds > 0
    alone = run("transformers", leased, modules, count=1)
    assert len(alone.token_ids) == 1 and alone.timed_tokens == 0 and alone.seconds < found.seconds


@pytest.mark.parametrize("name", BASELINES)
def test_a_comparison_holds_them_against_the_engine(leased, plan_of, prompts, name):
    plan = plan_of("early-exit:1@2", target=leased.target)
    found = compare(leased, plan, prompts, repeats=1, max_new_tokens=15, methods=[name])
    method = found.methods[-1]
    assert [method.name for method in found.methods] == ["target", name]
    assert method.identical is True and method.tokens_per_s.median > 0
    assert (method.hierarchy, method.predicted_tokens_per_s, method.tokens_per_target_pass, method.outside_forward_share) == (
        "",
        None,
        None,
        None,
    )
    json.dumps(found.to_json(), allow_nan=False)


def test_sampling_settings_reach_transformers(leased, modules):
    likeliest = run("transformers", leased, modules, sampling=Sampling(temperature=1.0, top_k=1))
    assert likeliest.token_ids == run("transformers", leased, modules).token_ids
    texts = {run("transformers", leased, modules, sampling=Sampling(temperature=1.5, seed=seed)).token_ids for seed in (1, 2)}
    again = run("transformers", leased, modules, sampling=Sampling(temperature=1.5, seed=1)).token_ids
    assert len(texts) == 2 and again in texts


def test_stopping_ends_a_generation_early(leased, modules):
    asked = []
    found = run("transformers", leased, modules, should_stop=lambda: asked.append(1) or len(asked) > 3)
    assert len(found.token_ids) < 8


def test_an_assistant_has_weights_of_its_own(leased, folders):
    assert assistants(leased) == [str(folders / "draft")]
    assert load_modules(leased, ["target"]) == ({}, ())
    assert set(load_modules(leased, ["transformers"])[0]) == {leased.target}


def test_a_draft_with_other_rows_than_the_target_is_no_assistant(leased, folders, monkeypatch):
    """transformers would end the comparison with a ValueError: it wants both tokenizers then, and decodes in another way."""
    monkeypatch.setattr(leased.networks[str(folders / "draft")], "vocab_size", 12)
    assert assistants(leased) == []


def test_without_memory_for_a_second_copy_the_rest_is_compared_and_told_why(leased, plan_of, prompts, monkeypatch):
    monkeypatch.setattr("hsd.compare.baselines.usable_bytes", lambda device: 1000)
    bare = replace(leased, modules={})
    found = compare(bare, plan_of("early-exit:1@2", target=leased.target), prompts, repeats=1, max_new_tokens=4)
    assert "target" in (names := [method.name for method in found.methods]) and not set(names) & set(BASELINES)
    (why,) = found.left_out
    assert "transformers' own modes" in why and "1 kB are usable" in why
    assert list(found.to_json()["left_out"]) == [why]


@pytest.mark.parametrize(
    ("calls", "error", "said"),
    [
        (1, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "ran out of memory; choose"),
        (2, RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), "ran out of memory; choose"),
        (3, RuntimeError("the kernel broke\nlong detail"), "failed in its forward pass (RuntimeError: the kernel broke)"),
    ],
)
def test_a_mode_that_fails_is_left_out_and_the_rest_compared(leased, modules, plan_of, prompts, monkeypatch, calls, error, said):
    """In the warm-up, in the first repeat or in the second."""
    module, asked = modules[leased.target], []
    generate = module.generate

    def failing(*given, **settings):
        if "prompt_lookup_num_tokens" in settings and (asked.append(1) or len(asked) >= calls):
            raise error
        return generate(*given, **settings)

    monkeypatch.setattr(module, "generate", failing)
    lent, plan = replace(leased, modules=modules), plan_of("early-exit:1@2", target=leased.target)
    found = compare(lent, plan, prompts.spread(1), repeats=2, max_new_tokens=2, methods=BASELINES[:2])
    assert [method.name for method in found.methods] == ["target", "transformers"] and len(asked) == calls
    assert {method.tokens_per_s.samples for method in found.methods} == {2}
    (why,) = found.left_out
    assert why.startswith(f"transformers-prompt-lookup is left out. transformers-prompt-lookup {said}")


def test_a_module_that_still_computes_is_lent_instead_of_loaded_again(leased, folders, monkeypatch):
    monkeypatch.setattr("hsd.compare.baselines.load", lambda *given, **options: pytest.fail("loaded again"))
    with Registry().lease(str(folders / "target"), [str(folders / "draft")], dtype="float16") as models:
        modules, _ = load_modules(models, BASELINES)
        assert set(modules) == set(models.modules) == {models.target, str(folders / "draft")}
        module = modules[models.target]
        ids = torch.tensor(PROMPT)
        cache = models.networks[models.target].new_cache(len(PROMPT))
        ours = models.networks[models.target].forward(ids, cache, len(PROMPT))
        torch.testing.assert_close(module(ids[None]).logits[0], ours, rtol=0.02, atol=0.02)
        weights = module.model.layers[0].self_attn
        assert weights.q_proj.weight.untyped_storage().data_ptr() == weights.k_proj.weight.untyped_storage().data_ptr(), "fused, kept once"


def test_modules_are_loaded_in_the_engines_dtype(leased, modules):
    assert {module.dtype for module in modules.values()} == {torch.float32}


def test_without_a_draft_of_its_own_weights_there_is_no_assistant(folders, plan_of, prompts):
    with Registry().lease(str(folders / "target"), ["early-exit:1"], dtype="float32") as models:
        with pytest.raises(BadInput, match="none is loaded"):
            run(BASELINES[2], models, load_modules(models, BASELINES[:1])[0])
        with pytest.raises(BadInput, match="“transformers-assistant” cannot be compared here"):
            compare(models, plan_of("early-exit:1@2", target=models.target), prompts, methods=[BASELINES[2]])


def test_an_unknown_mode_is_named(leased, modules):
    with pytest.raises(BadInput, match="“medusa” is no way of decoding"):
        run("medusa", leased, modules)
