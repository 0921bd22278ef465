"""The main job on the page, from the first click to the last coloured token."""

import json

import pytest
from scripted import DRAFTS, STORY, TARGET

pytestmark = pytest.mark.browser


def test_pick_measure_plan_generate_compare_export(visit):
    page = visit()
    assert [box.is_checked() for box in page.page.query_selector_all("#candidates input")].count(True) == len(DRAFTS)
    assert page.page.is_visible("#hero") and "recorded sample" in page.page.inner_text("#hero").lower()

    assert page.measure().startswith("Measured")
    assert "Measured here" in page.page.inner_text("#hero")
    assert page.page.is_visible("#tab-measure"), "an action opens its own step"
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.startsWith('Planned')")
    assert page.page.is_visible("#tab-plan")
    planned = page.page.inner_text("#alternatives tbody tr:first-child td:nth-child(2)")

    page.tab("generate")
    assert page.page.input_value("#hierarchy input, #hierarchy textarea") == planned.replace(", ", ",")
    page.page.check("#beside input")
    page.generate()
    assert "run" in page.finish("done")
    assert page.pane() == STORY
    assert page.pane("alone-pane") == STORY
    assert "Both texts are identical." in page.page.inner_text("#generate-notices")

    # Every token has the colour that the legend gives its model.
    used = page.page.evaluate(
        "() => [...new Set([...document.querySelectorAll('#token-pane .tk')].map(t => t.className.match(/t(\\d)/)[1]))]"
    )
    legend = page.page.evaluate("() => [...document.querySelectorAll('#legend .swatch')].map(s => s.className.match(/m(\\d)/)[1])")
    assert len(used) >= 2 and set(used) <= set(legend)
    backgrounds = page.page.evaluate(
        "() => new Set([...document.querySelectorAll('#token-pane .tk')].map(t => getComputedStyle(t).backgroundColor)).size"
    )
    assert backgrounds == len(used)
    assert page.page.query_selector("#token-pane .corrected") and page.page.query_selector("#token-pane .bonus")

    page.start("compare")
    assert page.finish().startswith("Compared")
    hero = page.page.inner_text("#hero")
    assert "n=3" in hero and "output identical to the target: yes" in hero

    page.tab("export")
    page.page.click("#export")
    page.page.wait_for_selector("#export-preview pre")
    exported = json.loads(page.page.inner_text("#export-preview pre"))
    assert exported["kind"] == "plan" and exported["hierarchy"][-1]["model"] == TARGET
    with page.page.expect_download() as download:
        page.page.click("#download")
    assert json.loads(download.value.path().read_text())["hierarchy"] == exported["hierarchy"]
    assert download.value.suggested_filename == "hsd-plan.json"
    assert page.errors == []


def test_counters_and_stack_trace_tell_the_run(visit):
    page = visit()
    page.generate()
    page.finish("done")
    counted = page.page.inner_text("#counters .figure:nth-child(3) b")
    assert int(counted) == page.page.locator("#token-pane .tk").count()
    rounds = page.page.inner_text("#stack .stack-bar")
    assert "target round 1 of" in rounds
    assert page.page.locator("#stack del").count() >= 1, "the first round of the script rejects a token"
    page.page.click("#stack button[aria-label='Next target round']")
    assert "target round 2 of" in page.page.inner_text("#stack .stack-bar")
    page.page.click("#stack button:has-text('Replay')")
    page.page.wait_for_function("() => document.querySelector('#stack .stack-bar').innerText.includes('target round 3 of')")
    page.page.click("#stack button:has-text('Pause')")


def test_a_plan_can_be_loaded_again(visit, tmp_path):
    page = visit()
    page.measure()
    page.tab("export")
    page.page.click("#export")
    page.page.wait_for_selector("#export-preview pre")
    file = tmp_path / "plan.json"
    file.write_text(page.page.inner_text("#export-preview pre"))
    other = visit()
    other.tab("export")
    with other.page.expect_file_chooser() as chooser:
        other.page.click("#load-file")
    chooser.value.set_files(file)
    other.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Loaded the plan')")
    assert "From a file, measured on Scripted CPU" in other.page.inner_text("#hero")
    file.write_text("{}")
    with other.page.expect_file_chooser() as chooser:
        other.page.click("#load-file")
    chooser.value.set_files(file)
    assert "neither a measurement, nor a plan, nor a trace" in other.finish("error")


def test_what_if_replans_within_200_ms(visit):
    page = visit()
    page.tab("plan")
    page.page.click("#what-if-box button.label-wrap")
    page.page.wait_for_selector("#what-if input[type=range]")
    took = page.page.evaluate(
        """() => new Promise(resolve => {
            const sliders = [...document.querySelectorAll('#what-if input[type=range]')], times = [];
            const answer = document.querySelector('#what-if-answer').parentElement;
            function once(n) {
                if (n === 4) { resolve(times.sort((a, b) => a - b)); return; }
                const one = sliders[sliders.length - 1], start = performance.now();
                const seen = new MutationObserver(() => {
                    seen.disconnect();
                    times.push(performance.now() - start);
                    setTimeout(() => once(n + 1), 250);
                });
                seen.observe(answer, { childList: true, subtree: true });
                one.value = 0.9 - 0.1 * n; one.dispatchEvent(new Event('input', { bubbles: true }));
            }
            once(0);
        })"""
    )
    assert page.page.locator("#what-if-answer table").count() == 1
    assert took[1] < 200, took
    before = page.page.inner_text("#what-if-answer")
    page.page.eval_on_selector_all(
        "#what-if input[type=range]", "all => { all[0].value = 1; all[0].dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.page.wait_for_function("before => document.querySelector('#what-if-answer').innerText !== before", arg=before)
    page.page.click("#what-if-reset")
    page.page.wait_for_function("() => !document.querySelector('#what-if-answer table')")


def test_calculator_needs_no_model(visit):
    page = visit()
    page.tab("plan")
    page.page.click("#calculator-box button.label-wrap")
    page.page.click("#calculate")
    page.page.wait_for_selector("#calculator-answer table")
    assert page.page.inner_text("#calculator-answer b").startswith("small@")
    page.page.fill("#calculator-table textarea", "model, cost, target\nsmall, 1, 1.7\ntarget, 20,")
    page.page.click("#calculate")
    page.page.wait_for_function("() => document.querySelector('#calculator-answer').innerText.includes('between 0 and 1')")
