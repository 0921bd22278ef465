"""Nothing that a visitor made is lost when the page is loaded anew."""

import json

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


def test_a_browser_may_send_anything_as_ids():
    page = Page(engine=None, sample=None)
    run = page.store.put(RunPair(None))
    assert read_ids(page, json.dumps({"run": run, "loaded": True})) == Ids(run=run, loaded=True)
    nothing = ("", "{", "[]", "null", '{"run": 3}', '{"run": "gone", "kept": true}', json.dumps({"plan": run}), None, 7)
    assert all(read_ids(page, kept) == Ids() for kept in nothing)
