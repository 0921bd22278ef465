"""What the page costs the machine: it may be the one that generates (issue 6: slowed by streaming by at most 3 %)."""

import time

import pytest
from visits import Visit

pytestmark = pytest.mark.browser

COUNT = """for (const name of ["requestAnimationFrame", "structuredClone"]) {
    const real = window[name].bind(window);
    window.counted = Object.assign(window.counted || {}, { [name]: 0 });
    window[name] = (...given) => { window.counted[name]++; return real(...given); };
}"""


@pytest.fixture(scope="module")
def counted(browser, served):
    """A page that counts frames asked for and values that Gradio's components copy; at rest again after each test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_init_script(COUNT)
    page = Visit(context.new_page(), served.url)
    page.page.wait_for_timeout(4000)  # Gradio's loading screen swings on for a while
    yield page
    context.close()


def spent(page: Visit, seconds: float) -> dict[str, float]:
    """Per second: frames asked for, values copied, and seconds that the page's main thread was busy."""
    tools = page.page.context.new_cdp_session(page.page)
    tools.send("Performance.enable")

    def now() -> dict[str, float]:
        busy = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
        return page.page.evaluate("() => ({ ...window.counted })") | {"busy": busy, "clock": time.monotonic()}

    before = now()
    page.page.wait_for_timeout(1000 * seconds)
    after = now()
    return {name: (after[name] - before[name]) / (after["clock"] - before["clock"]) for name in before}


def test_a_page_at_rest_asks_for_no_frames(counted):
    assert spent(counted, 1.5)["requestAnimationFrame"] < 3


def test_streaming_takes_little_of_the_browser(counted, served):
    counted.generate("long", 1200)
    counted.streaming()
    counted.page.wait_for_timeout(1000)  # the status line tells once that loading is over
    cost = spent(counted, 3.0)
    assert served.engine.running, "measured while the run went on"
    assert cost["requestAnimationFrame"] < 20 and cost["structuredClone"] < 50, cost
    assert cost["busy"] < 0.12, cost
    assert counted.page.evaluate("() => document.getAnimations().filter((one) => one.playState === 'running').length") == 0
    counted.page.click("#stop")
    counted.finish("done")


@pytest.mark.parametrize(("host", "few", "many"), [("127.0.0.1", 0.5, 3.0), ("elsewhere.localhost", 3.1, 5.5)])
def test_a_page_on_another_machine_is_told_more_often(browser, served, host, few, many):
    context = browser.new_context()
    page = Visit(context.new_page(), served.url.replace("127.0.0.1", host))
    page.generate("long", 1200)
    page.streaming()
    page.page.wait_for_timeout(500)
    asked = []
    page.page.on("request", lambda request: asked.append(request.url))
    page.page.wait_for_timeout(3000)
    assert served.engine.running, "counted while the run went on"
    assert few < sum("component_server" in url for url in asked) / 3 < many, asked
    page.page.click("#stop")
    page.finish("done")
    context.close()


def test_an_idle_server_sleeps(served):
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.04, "Gradio's own loops take 0.05 s of every second"
