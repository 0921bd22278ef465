"""What people see: plots, colours, contrast, keyboard, phone width (pitfall 23, issue point 9)."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

PLOTS = {
    "measure": {"heatmap": ".heatmaplayer .hm image, .heatmaplayer image", "costs": ".scatterlayer .point"},
    "plan": {"hierarchy-graph": ".scatterlayer .point", "latency": ".barlayer .point path", "stacked": ".barlayer .point path"},
    "compare": {"compare-bars": ".barlayer .point path", "scatter": ".scatterlayer .point"},
}
LEAST = {"heatmap": 1, "costs": 22, "hierarchy-graph": 5, "latency": 8, "stacked": 6, "compare-bars": 5, "scatter": 3}

OVER_THE_BAR = """async () => {
    const label = document.querySelector('#tab-compare [data-testid=block-info]');
    scrollBy(0, label.getBoundingClientRect().top - 30);
    await new Promise(requestAnimationFrame);
    const bar = document.querySelector('#bar').getBoundingClientRect(), found = new Set();
    for (let x = bar.left + 4; x < bar.right - 4; x += 9)
        for (let y = bar.top + 3; y < bar.bottom - 3; y += 5) {
            const top = document.elementFromPoint(x, y);
            if (top && !top.closest('#bar')) found.add(top.tagName + ' ' + top.textContent.slice(0, 20));
        }
    return [...found];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_drawn_in_every_tab_after_a_switch(visit, theme, width):
    page = visit(width=width, theme=theme)
    for tab, plots in PLOTS.items():
        page.tab(tab)
        for plot, marks in plots.items():
            page.page.wait_for_selector(f"#{plot} .main-svg")
            page.page.wait_for_function(
                "([plot, marks, least]) => document.querySelectorAll(`#${plot} ${marks}`).length >= least || "
                "document.querySelectorAll(marks.split(', ').map(m => `#${plot} ${m}`).join(', ')).length >= least",
                arg=[plot, marks, LEAST[plot]],
            )
            page.page.wait_for_function(
                """plot => { const svg = document.querySelector(`#${plot} .main-svg`).getBoundingClientRect();
                    const room = document.querySelector(`#${plot}`).getBoundingClientRect();
                    return svg.width > 0.85 * room.width && svg.width <= room.width + 1 && svg.height > 100; }""",
                arg=plot,
            )
    assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width, "nothing sticks out sideways"
    fields = (
        "() => [...document.querySelectorAll('#tab-compare input[type=number]')].map(i => Math.round(i.getBoundingClientRect().bottom))"
    )
    assert len(set(page.page.evaluate(fields))) == 1, "fields of a row stand on one line also where a label takes two"
    assert page.page.evaluate(OVER_THE_BAR) == [], "what is scrolled below the bar does not show through"
    assert page.errors == []


CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
NAMELESS = (Path(__file__).parent / "nameless.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_a_contrast_of_at_least_4_5(visit, theme):
    page = visit(theme=theme)
    for tab in ("pick", "measure", "plan", "generate", "compare", "export"):
        page.tab(tab)
        if tab == "plan":
            for box in ("what-if-box", "path-box", "calculator-box"):
                page.page.click(f"#{box} button.label-wrap")
        page.page.wait_for_timeout(700)
        assert page.page.evaluate(CONTRAST) == [], tab


def test_every_control_has_a_name_for_screen_readers(visit):
    page = visit()
    page.page.click("#sampling button.label-wrap")
    page.page.click("#candidates summary")
    nameless = []
    for tab in ("pick", "measure", "plan", "generate", "compare", "export"):
        page.tab(tab)
        page.page.wait_for_timeout(200)
        nameless += page.page.evaluate(NAMELESS)
    assert nameless == []


def test_the_steps_are_reached_and_run_by_keyboard(visit):
    page = visit()
    page.page.focus("#tab-measure-button")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#tab-measure", state="visible")
    page.page.focus("#measure")
    page.page.keyboard.press("Enter")
    assert page.finish("done").startswith("Measured")


def test_first_paint_is_quick_and_the_page_is_soon_interactive(visit):
    page = visit()
    paint = page.page.evaluate("() => performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert paint < 2000, f"first contentful paint after {paint:.0f} ms"
    page.page.reload()
    page.page.wait_for_selector("#candidates input")
    page.page.check("#candidates input >> nth=0")
    assert page.page.evaluate("() => performance.now()") < 4000


def test_hero_states_the_answer_with_device_and_settings_from_the_first_second(visit):
    page = visit()
    hero = page.page.inner_text("#hero")
    assert "planned" in hero and "measured" in hero and "output identical to the target: yes" in hero
    assert "Scripted CPU" in hero and "greedy" in hero and "Recorded sample" in hero
