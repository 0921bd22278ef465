"""The page over the real engine: what it shows is what the library generates, token by token and colour by colour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from visits import Served, Visit

from hsd.generate.collect import Generation, collect
from hsd.generate.engine import generate
from hsd.generate.prompt import encode_prompt
from hsd.measure import run as measuring
from hsd.pick import source
from hsd.pick.model_set import ModelSet
from hsd.pick.registry import REGISTRY
from hsd.records import GREEDY, Hierarchy
from hsd.settings import cache_dir
from ui.engine import MeasureRequest, Setup
from ui.live import LiveEngine

pytestmark = pytest.mark.browser

PROMPTS = "the quick brown fox jumps over the lazy dog\nHow many legs have two dogs and a bird?\nCount: one two one two one two"


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder of the test's own beside the weights that are there, and no hub."""
    home = tmp_path / "home"
    home.mkdir()
    cache = cache_dir()
    cache.mkdir(parents=True, exist_ok=True)
    (home / "cache").symlink_to(cache)
    monkeypatch.setenv("HSD_HOME", str(home))
    monkeypatch.setattr(source, "_probe", lambda: "the hub is not asked in this test")
    monkeypatch.setattr(source, "_last_probe", None)


@pytest.fixture
def live(browser, own_home) -> Iterator[Callable]:
    """A visitor of a page over the real engine."""
    server = Served(LiveEngine())
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield Visit(context.new_page(), server.url)
    context.close()
    server.close()


@pytest.fixture
def tiny_target(tmp_path: Path) -> str:
    """A random float32 Llama of three layers with a byte-level tokenizer, as a local folder."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False)
    backend.train_from_iterator(PROMPTS.split("\n") * 4, trainer)
    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=backend.get_vocab_size(),
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=0,
    )
    folder = tmp_path / "tiny"
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", bos_token="<end>").save_pretrained(folder)
    return str(folder)


def pick(page, target: str, drafts: tuple[str, ...]) -> None:
    if page.page.input_value("#target input") != target:
        before = page.page.inner_text("#memory")
        page.page.fill("#target input", target)
        page.page.keyboard.press("Enter")
        page.page.keyboard.press("Tab")
        page.page.wait_for_function("before => document.querySelector('#memory').innerText !== before", arg=before)
    for name in drafts:
        if not page.page.locator(f"#candidates input[data-name='{name}']").count():
            page.page.fill("#add-name input, #add-name textarea", name)
            page.page.click("#add")
            page.page.wait_for_selector(f"#candidates input[data-name='{name}']", state="attached")
    for box in page.page.locator("#candidates input:not([disabled])").all():
        box.set_checked(box.get_attribute("data-name") in drafts)


def measure(page, prompts: str) -> None:
    page.tab("measure")
    page.page.click("text=Your own prompts")
    page.fill("#own-prompts textarea", prompts)
    said = page.measure()
    assert said.startswith(("Measured", "A kept measurement")), said


def by_the_library(target: str, drafts: str, prompt: str, max_new: int) -> Generation:
    hierarchy = Hierarchy.parse(drafts, target)
    with REGISTRY.lease(target, [level.model for level in hierarchy.drafts]) as loaded:
        return collect(generate(loaded, hierarchy, encode_prompt(loaded.tokenizer, prompt), max_new_tokens=max_new))


def assert_pane_shows(page, wanted: Generation) -> None:
    """The text of the pane is the library's, and every token has the colour that the legend gives to its model."""
    assert page.pane() == wanted.end.text
    slots = page.page.evaluate("() => [...document.querySelectorAll('#token-pane .tk')].map(t => t.className.match(/\\bt(\\d)\\b/)[1])")
    legend = page.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('#legend .legend-item')].filter(i => i.querySelector('.swatch'))
            .map(i => [i.querySelector('.swatch').className.match(/m(\\d)/)[1], i.innerText.trim()]))"""
    )
    makers = [token.generated_by for token in wanted.tokens]
    tail = makers[-1:] if wanted.end.tail else []
    assert [legend[slot] for slot in slots] == [*makers, *tail]
    shown = page.page.evaluate(
        """() => [...document.querySelectorAll('#token-pane .tk')].map(t => [t.className.match(/\\bt(\\d)\\b/)[1],
            getComputedStyle(t).backgroundColor])"""
    )
    assert len({tuple(pair) for pair in shown}) == len({colour for _, colour in shown}) == len(set(makers)), "one colour a model"


def test_a_local_model_is_measured_planned_and_its_text_is_the_librarys(live, tiny_target, monkeypatch):
    small = replace(measuring.QUICK, prompts=3, max_new_tokens=12, cost_budget_s=1.0, widths=(1, 2, 4, 8))
    monkeypatch.setattr(measuring, "QUICK", small)
    page = live
    pick(page, tiny_target, ("prompt-lookup", "early-exit:1"))
    measure(page, PROMPTS)
    measured = page.page.inner_text("#measure-table")
    assert "early-exit:1" in measured and "quantized" not in measured
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.startsWith('Planned')")
    assert "early-exit:1" in page.page.inner_text("#alternatives")

    page.tab("generate")
    drafts, prompt = "prompt-lookup@2,early-exit:1@3", "one two one two one two one"
    page.page.fill("#hierarchy input, #hierarchy textarea", drafts)
    page.page.check("#beside input")
    page.generate(prompt, 48)
    said = page.finish()
    assert "tokens/s" in said, said
    wanted = by_the_library(tiny_target, drafts, prompt, 48)
    assert_pane_shows(page, wanted)
    assert len({token.generated_by for token in wanted.tokens}) >= 2, "a run in one colour would prove little"
    assert page.pane("alone-pane") == wanted.end.text
    assert "Both texts are identical." in page.page.inner_text("#generate-notices")

    assert page.measure().startswith("A kept measurement"), "the same conditions are not measured twice"
    assert "kept" in page.page.inner_text("#measure-facts")
    page.page.check("#again input")
    assert page.measure().startswith("Measured")
    assert page.errors == []


def test_passes_that_are_no_longer_recorded_are_told_when_a_measurement_ends(own_home, tiny_target, monkeypatch):
    monkeypatch.setattr(measuring, "QUICK", replace(measuring.QUICK, prompts=1, max_new_tokens=4, cost_budget_s=0.0, widths=(1, 2)))
    monkeypatch.setattr(ModelSet, "fallbacks", ("No graphs.",))
    monkeypatch.setattr(ModelSet, "new_fallbacks", ())  # they were lost before
    told: list[str] = []
    request = MeasureRequest(GREEDY, thorough=False, prompts=PROMPTS, again=True)
    LiveEngine().measure(Setup(tiny_target, ()), request, lambda _: None, told.append, lambda _: None, lambda: False)
    assert told[-1] == "No graphs."


@pytest.mark.weights
def test_the_embedded_model_is_measured_planned_and_its_text_is_the_librarys(live, monkeypatch):
    monkeypatch.setattr(measuring, "QUICK", replace(measuring.QUICK, cost_budget_s=5.0))  # every width, timed less often
    page = live
    page.page.set_default_timeout(170_000)
    pick(page, "smollm2-135m", ("prompt-lookup", "quantized:int4"))
    measure(page, PROMPTS)
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.startsWith('Planned')")

    page.tab("generate")
    box = "#hierarchy input, #hierarchy textarea"
    drafts = page.page.input_value(box) or "prompt-lookup@2,quantized:int4@4"
    page.page.fill(box, drafts)
    prompt = "List three fruits, and say of each: it is a fruit."
    page.generate(prompt, 40)
    said = page.finish()
    assert "tokens/s" in said, said
    assert_pane_shows(page, by_the_library("smollm2-135m", drafts, prompt, 40))
    assert page.errors == []
