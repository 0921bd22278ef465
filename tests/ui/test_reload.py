"""Nothing that a visitor made is lost when the page is loaded anew."""

import pytest

from ui.page import Ids, Page
from ui.reload import read_ids
from ui.runs import RunPair

pytestmark = pytest.mark.browser


def test_results_are_there_again_after_a_reload_and_in_no_other_tab(visit):
    page = visit()
    page.measure()
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Planned')")
    page.generate("long", 40)
    page.finish("done")
    hero, pane = page.page.inner_text("#hero"), page.pane()
    assert "Recorded sample" not in hero and pane
    page.page.reload()
    page.page.wait_for_selector("#status >> text=from before the page was loaded anew")
    assert page.page.inner_text("#hero") == hero
    page.tab("generate")
    page.page.wait_for_function("() => document.querySelector('#token-pane').textContent.length > 0")
    assert page.pane() == pane
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Planned')")
    assert not page.errors
    other = visit()
    other.page.wait_for_timeout(1000)
    assert "Recorded sample" in other.page.inner_text("#hero") and other.status() == "Ready."


def test_a_run_goes_on_in_the_page_that_is_loaded_anew(visit, served):
    page = visit()
    page.generate("long", 800)
    page.streaming()
    page.page.reload()
    page.page.wait_for_selector("#status [data-state=running]")
    page.errors.clear()  # the page before complains that its connections broke
    assert page.page.is_disabled("#generate")
    page.tab("generate")
    page.streaming()
    assert served.engine.running, "the text comes while the run goes on"
    page.finish("done")
    assert page.pane() == "".join(f"w{i} " for i in range(800))
    page.page.wait_for_selector("#generate:enabled")
    assert page.page.inner_text("#counters")
    assert not page.errors


def test_stop_and_partial_results_of_a_run_work_after_a_reload(visit):
    page = visit()
    page.tab("measure")
    page.page.check("text=Thorough")
    page.start("measure")
    page.page.reload()
    page.page.wait_for_selector("#status [data-state=running]")
    page.errors.clear()  # the page before complains that its connections broke
    page.tab("measure")
    page.page.wait_for_selector("#measure-facts :text('partial')")
    page.page.click("#stop")
    assert "what was complete is kept" in page.finish("done").lower()
    assert "Measured here" in page.page.inner_text("#hero")
    assert not page.errors


def test_a_run_that_ended_meanwhile_is_told_by_the_page_that_is_loaded_anew(visit, served):
    page = visit()
    page.generate("long", 300)
    page.streaming()
    page.page.goto("about:blank")
    while served.engine.running:
        page.page.wait_for_timeout(100)
    page.page.go_back()
    assert "run" in page.finish("done")
    page.tab("generate")
    assert page.pane() == "".join(f"w{i} " for i in range(300))


def test_what_is_planned_while_a_run_goes_on_stays_the_plan(visit):
    page = visit()
    page.measure()
    page.generate("long", 300)
    page.streaming()
    page.tab("plan")
    page.fill("#max-depth input", "1")
    page.page.click("#plan")
    page.page.wait_for_function("() => JSON.parse(document.querySelector('#hero [data-ids]').dataset.ids).plan")
    ids = "() => JSON.parse(document.querySelector('#hero [data-ids]').dataset.ids)"
    page.page.wait_for_timeout(500)
    planned = page.page.evaluate(ids)["plan"]
    page.finish("done")
    page.page.wait_for_function(f"() => ({ids})().run")
    assert page.page.evaluate(ids)["plan"] == planned


def test_what_was_filled_in_is_there_again(visit):
    page = visit()
    page.tab("generate")
    page.fill("#prompt textarea", "Why is the sky blue?\nSay it twice.")
    page.fill("#hierarchy input, #hierarchy textarea", "prompt-lookup@3")
    page.fill("#max-new input", "77")
    page.fill("#target input", "Qwen/Qwen2.5-0.5B-Instruct")
    page.page.wait_for_timeout(500)
    page.page.uncheck("#candidates input >> nth=0")
    page.page.wait_for_timeout(500)
    ticked = [box.is_checked() for box in page.page.query_selector_all("#candidates input")]
    page.page.reload()
    page.page.wait_for_selector("#candidates input", state="attached")
    page.page.wait_for_timeout(1000)
    page.tab("generate")
    assert page.page.input_value("#prompt textarea") == "Why is the sky blue?\nSay it twice."
    assert page.page.input_value("#hierarchy input, #hierarchy textarea") == "prompt-lookup@3"
    assert page.page.input_value("#max-new input") == "77"
    assert page.page.input_value("#target input") == "Qwen/Qwen2.5-0.5B-Instruct"
    assert [box.is_checked() for box in page.page.query_selector_all("#candidates input")] == ticked and not ticked[0]
    assert not page.errors


def test_a_browser_may_send_anything_as_ids():
    page = Page(engine=None, sample=None)
    run = page.store.put(RunPair(None))
    assert read_ids(page, {"run": run, "loaded": True}) == Ids(run=run, loaded=True)
    nothing = ("", [], {}, {"run": 3}, {"run": "gone", "kept": True}, {"plan": run}, None, 7)
    assert all(read_ids(page, kept) == Ids() for kept in nothing)
