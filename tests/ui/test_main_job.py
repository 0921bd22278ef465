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
    other.load(file)
    other.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Loaded the plan')")
    assert "From a file, measured on Scripted CPU" in other.page.inner_text("#hero")
    file.write_text("{}")
    other.load(file)
    assert "neither a measurement, nor a plan, nor a trace" in other.finish("error")


def test_what_if_replans_within_200_ms(visit):
    page = visit()
    page.tab("plan")
    page.page.click("#what-if-box button.label-wrap")
    page.page.wait_for_selector("#what-if input[type=range]")
    took = page.page.evaluate(
        """() => new Promise(resolve => {
            const sliders = [...document.querySelectorAll('#what-if input[type=range]')], times = [];
            const box = document.querySelector('#what-if-answer').parentElement;
            const figures = () => document.querySelector('#what-if-answer').textContent;
            function once(n) {
                if (n === 7) { resolve(times.slice(1).sort((a, b) => a - b)); return; }
                const one = sliders[sliders.length - 1], before = figures(), start = performance.now();
                const seen = new MutationObserver(() => {
                    if (figures() === before) return; // the figure itself must have changed
                    seen.disconnect();
                    times.push(performance.now() - start);
                    setTimeout(() => once(n + 1), 150);
                });
                seen.observe(box, { childList: true, subtree: true, characterData: true });
                one.value = 0.9 - 0.1 * n; one.dispatchEvent(new Event('input', { bubbles: true }));
            }
            once(0);
        })"""
    )
    assert page.page.locator("#what-if-answer table").count() == 1
    assert took[len(took) // 2] < 200, took
    page.page.click("#what-if-reset")
    page.page.wait_for_function("() => !document.querySelector('#what-if-answer table')")


def test_what_if_keeps_to_the_memory_limit(visit):
    page = visit()
    page.tab("plan")
    page.fill("#memory-limit input", "0.000001")
    page.page.click("#what-if-box button.label-wrap")
    page.page.locator("#what-if input[type=range]").last.evaluate(
        "one => { one.value = 0.5; one.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    assert "more than the limit of 1 kB" in page.page.inner_text("#what-if-answer [role=alert]")


def test_what_would_change_the_plan_and_one_more_draft(visit):
    page = visit()
    page.tab("plan")
    page.page.click("#tipping-box button.label-wrap")
    page.page.wait_for_selector("#tipping tbody tr:nth-child(2)")
    assert page.page.inner_text("#tipping tbody tr:first-child td:nth-child(4)")[0] in "+−"
    page.page.click("#one-more-box button.label-wrap")
    page.fill("#one-more-cost input", "0.1")
    page.fill("#one-more-rates input, #one-more-rates textarea", f"{TARGET}=0.99")
    page.page.click("#one-more")
    page.page.wait_for_selector("#one-more-answer table")
    assert "new draft@" in page.page.inner_text("#one-more-answer") and "would be used" in page.page.inner_text("#one-more-answer")
    page.fill("#one-more-rates input, #one-more-rates textarea", f"{TARGET}=much")
    page.page.click("#one-more")
    page.page.wait_for_selector("#one-more-answer [role=alert]")
    assert "not a model with a rate" in page.page.inner_text("#one-more-answer")
    page.page.click("#growth-box button.label-wrap")
    page.page.click("#growth")
    page.page.wait_for_function("() => document.querySelectorAll('#growth-plot .scatterlayer .point').length >= 30")


def test_a_saved_trace_tells_where_it_ran_and_is_stepped_through_again(visit, tmp_path):
    page = visit()
    page.measure()  # the plan is one of float32
    page.page.click("#sampling button.label-wrap")
    page.page.get_by_label("Precision of the target (dtype)").click()
    page.page.click("[role=option]:has-text('bfloat16')")
    page.generate()
    page.finish("done")
    page.tab("export")
    page.page.click("#export-kind input")
    page.page.click("text=Trace of the last generation")
    page.page.click("#export")
    with page.page.expect_download() as download:
        page.page.click("#download:not([disabled])")
    file = tmp_path / "trace.json"
    file.write_bytes(download.value.path().read_bytes())
    assert json.loads(file.read_text())["environment"]["dtype"] == "bfloat16"
    other = visit()
    other.load(file)
    other.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Loaded the trace')")
    other.tab("generate")
    assert other.pane() == STORY
    other.page.click("#token-pane .tk >> nth=5")
    number = int(other.page.inner_text("#token-detail").split("round ")[1].split(" ")[0])
    assert f"target round {number} of" in other.page.inner_text("#stack .stack-bar"), "a click on a token opens its round"
    other.page.click("#stack button[aria-label='Next target round']")
    assert f"target round {number + 1} of" in other.page.inner_text("#stack .stack-bar")


def test_lossless_check_and_sweep_tell_their_verdicts(visit):
    page = visit()
    page.measure()
    page.tab("compare")
    page.start("lossless")
    assert "24 greedy cases" in page.finish("done")
    assert "the target's distribution" in page.page.inner_text("#lossless-answer")
    page.start("sweep")
    page.page.wait_for_selector("#sweep-answer table")
    assert "Paper, Theorem 2.2" in page.page.inner_text("#sweep-answer")
    page.page.wait_for_function("() => document.querySelectorAll('#sweep-plot .scatterlayer .point').length >= 5")
    assert page.errors == []


def test_calculator_needs_no_model(visit):
    page = visit()
    page.tab("plan")
    page.page.click("#calculator-box button.label-wrap")
    page.page.click("#calculate")
    page.page.wait_for_selector("#calculator-answer table")
    assert page.page.inner_text("#calculator-answer b").startswith("small@")
    page.fill("#calculator-table textarea", "model, cost, target\nsmall, 1, 1.7\ntarget, 20,")
    page.page.click("#calculate")
    page.page.wait_for_function("() => document.querySelector('#calculator-answer').innerText.includes('between 0 and 1')")
