"""The token pane: pitfalls 17, 19, 21 and 22."""

import time

import pytest
from scripted import HOSTILE, STORY

pytestmark = pytest.mark.browser


def test_2000_tokens_at_200_a_second_end_on_screen_within_a_second_of_the_engine(visit, served):
    page = visit()
    page.generate("long", 2000)
    page.page.evaluate(
        """() => {
            const pane = document.querySelector('#token-pane');
            window.paints = window.last = 0;
            const seen = new MutationObserver(() => {
                window.paints++;
                if (pane.querySelectorAll('.tk').length === 2000) { window.last = Date.now(); seen.disconnect(); }
            });
            seen.observe(pane, { childList: true });
        }"""
    )
    page.page.wait_for_function("() => window.last > 0", timeout=30_000)
    seen = page.page.evaluate("() => window.last") / 1000
    paints = page.page.evaluate("() => window.paints")
    while served.engine.running:
        time.sleep(0.02)
    assert seen - served.engine.ended_at < 1.0
    assert 10 <= paints <= 10 * 13, f"{paints} updates in about ten seconds"
    assert page.pane() == "".join(f"w{i} " for i in range(2000))
    page.finish("done")


def test_an_answer_that_comes_after_the_end_of_its_run_changes_nothing(visit):
    page = visit()

    def late(route) -> None:
        answer = route.fetch()
        time.sleep(0.7)
        route.fulfill(response=answer)

    page.page.route("**/component_server/**", late)
    page.generate("long", 100)
    page.finish("done")
    figures = page.page.inner_text("#counters")
    page.page.wait_for_timeout(1_500)
    assert page.pane() == "".join(f"w{i} " for i in range(100))
    assert page.page.inner_text("#counters") == figures


def test_a_run_streams_on_after_its_connection_was_down(visit):
    page = visit()
    down = iter([True, True])
    page.page.route("**/component_server/**", lambda route: route.abort() if next(down, False) else route.continue_())
    page.generate("long", 1000)
    page.page.wait_for_function("() => document.querySelector('#token-pane').textContent.startsWith('w0 w1 ')", timeout=4_000)
    assert page.state() == "running"
    page.page.click("#stop")
    page.finish("done")
    assert all(error.startswith("Failed to load resource") for error in page.errors), page.errors


def test_hostile_text_is_shown_as_it_is(visit):
    page = visit()
    page.generate("hostile")
    page.finish("done")
    assert page.pane() == "".join(HOSTILE)
    assert page.page.evaluate("() => window.hacked") is None
    assert page.page.locator("#token-pane img, #token-pane script, #stack img, #stack script").count() == 0
    assert page.errors == []


def test_hostile_names_and_errors_are_shown_as_they_are(visit):
    page = visit()
    name = "<img src=x onerror=window.hacked=1>${window.hacked=2}{{value}}`\\u0041"
    page.page.fill("#add-name input, #add-name textarea", name)
    page.page.click("#add")
    page.page.wait_for_function("name => document.querySelector('#candidate-table').textContent.includes(name)", arg=name)
    page.page.click("#candidates summary")
    assert name in page.page.inner_text("#candidates")
    page.tab("generate")
    page.page.fill("#hierarchy input, #hierarchy textarea", f"{name}@3")
    page.generate()
    page.finish("done")
    assert name in page.page.inner_text("#legend")
    page.page.fill("#hierarchy input, #hierarchy textarea", f"{name}@zero")
    page.generate()
    assert name in page.finish("error")
    assert page.page.evaluate("() => window.hacked") is None
    assert page.errors == []


def test_an_empty_pane_says_what_it_is_for(visit):
    page = visit()
    page.generate("fault")
    page.finish("error")
    assert page.pane() == ""
    said = page.page.evaluate("() => getComputedStyle(document.querySelector('#token-pane'), '::before').content")
    assert "each token in the colour of the model" in said
    assert "each round of the target opens here" in page.page.inner_text("#stack")


def test_pane_reads_as_plain_text_would(visit):
    page = visit()
    page.generate()
    page.finish("done")
    assert page.pane() == STORY
    # What a person selects and copies keeps the double space, the tab, the newlines and the emoji.
    copied = page.page.evaluate(
        """() => { const range = document.createRange(); range.selectNodeContents(document.querySelector('#token-pane'));
            const all = getSelection(); all.removeAllRanges(); all.addRange(range); return all.toString(); }"""
    )
    assert copied == STORY
    # Words that are split over tokens do not break at the seam: the spans are inline and carry no gap.
    assert page.page.evaluate("() => getComputedStyle(document.querySelector('#token-pane .tk')).display") == "inline"
    gap = page.page.evaluate(
        """() => { const all = [...document.querySelectorAll('#token-pane .tk')].map(t => t.getClientRects());
            const pairs = all.slice(1).map((r, i) => [all[i][all[i].length - 1], r[0]]).filter(([a, b]) => a && b && a.top === b.top);
            return Math.max(...pairs.map(([a, b]) => Math.abs(b.left - a.right))); }"""
    )
    assert gap < 0.5


def test_tokens_tell_where_they_came_from_by_pointer_and_by_key(visit):
    page = visit()
    page.generate()
    page.finish("done")
    page.page.hover("#token-pane .tk >> nth=2")
    told = page.page.inner_text("#token-detail")
    assert told.startswith("Token 3 ") and "generated by" in told and "at the target" in told and "round" in told
    assert " · probability 0.25 · " in told
    page.page.mouse.move(0, 0)
    page.page.focus("#token-pane")
    page.page.keyboard.press("ArrowRight")
    assert page.page.inner_text("#token-detail").startswith("Token 4 ")
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowLeft")
    assert page.page.inner_text("#token-detail").startswith("Token 2 ")


def test_bytes_of_a_character_that_never_became_complete_are_shown_and_are_no_token(visit):
    page = visit()
    page.generate("long, cut", 20)
    page.finish("done")
    page.page.wait_for_function("() => document.querySelector('#token-pane').textContent.endsWith('w19 \ufffd')")
    assert page.page.inner_text("#token-pane-clock").startswith("20 tokens · ")
    page.page.hover("#token-pane .tk >> nth=20")
    told = page.page.inner_text("#token-detail")
    assert told.startswith("Token 20 ") and "never became complete" in told


def test_replay_runs_on_the_clock_of_the_run_and_ends_with_the_same_text(visit):
    page = visit()
    page.generate()
    page.finish("done")
    count = page.page.locator("#token-pane .tk").count()
    page.page.click("#replay-slow")
    page.page.wait_for_timeout(200)
    assert 0 < page.page.locator("#token-pane .tk").count() < count
    page.page.wait_for_function("count => document.querySelectorAll('#token-pane .tk').length === count", arg=count)
    assert page.pane() == STORY
