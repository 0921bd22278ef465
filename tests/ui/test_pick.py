"""Every candidate is listed; what cannot serve is disabled with its reason (pitfall 25)."""

import pytest
from scripted import DRAFTS

pytestmark = pytest.mark.browser


def test_unusable_candidates_are_listed_disabled_and_say_why(visit):
    page = visit()
    assert page.page.locator("#candidates input").count() == len(DRAFTS) + 1
    box = page.page.locator("#candidates input[data-name=gpt2]")
    assert box.is_disabled() and not box.is_checked()
    page.page.click("#candidates summary")
    assert "50257 against 49152" in page.page.inner_text("#candidates")
    assert page.page.locator("#candidate-table details").get_attribute("open") is None
    assert page.page.inner_text("#candidate-table summary").startswith("1 not usable")
    page.page.click("#candidate-table summary")
    table = page.page.inner_text("#candidate-table details")
    assert "gpt2" in table and "50257 against 49152" in table and "prompt-lookup" not in table


def test_ticking_changes_memory_and_what_is_measured(visit):
    page = visit()
    before = page.page.inner_text("#memory")
    page.page.uncheck("#candidates input[data-name='quantized:int8']")
    page.page.wait_for_function("before => document.querySelector('#memory').innerText !== before", arg=before)
    page.measure()
    measured = page.page.inner_text("#measure-table")
    assert "quantized:int4" in measured and "quantized:int8" not in measured


def test_own_model_is_added_and_an_odd_one_gets_its_reason(visit):
    page = visit()
    page.page.fill("#add-name input, #add-name textarea", "someone/good-draft")
    page.page.click("#add")
    page.page.wait_for_selector("#candidates input[data-name='someone/good-draft']")
    assert page.page.is_checked("#candidates input[data-name='someone/good-draft']")
    page.page.fill("#add-name input, #add-name textarea", "someone/odd")
    page.page.click("#add")
    page.page.wait_for_selector("#candidates input[data-name='someone/odd']", state="attached")
    assert page.page.is_disabled("#candidates input[data-name='someone/odd']")
    assert "someone/odd cannot be used: The vocabulary" in page.finish("error")
    assert page.page.is_checked("#candidates input[data-name='someone/good-draft']"), "the first one stays"
    page.page.fill("#add-name input, #add-name textarea", " ")
    page.page.click("#add")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('hub id')")


def test_device_decides_what_is_usable(visit):
    page = visit()
    page.page.click("#device input")
    page.page.click("text=Scripted GPU")
    page.page.wait_for_function("() => document.querySelector(\"#candidates input[data-name='quantized:int4']\").disabled")
    page.page.click("#candidate-table summary")
    assert "CPU kernels" in page.page.inner_text("#candidate-table")


def test_unknown_target_is_a_sentence(visit):
    page = visit()
    page.page.fill("#target input", "nobody/knows-this")
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Tab")
    assert "not on the hub" in page.finish("error")
