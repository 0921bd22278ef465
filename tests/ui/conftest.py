"""A page over the scripted engine, and a headless Chromium to look at it with."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

HOW_TO_GET_ONE = "no Chromium here: install one (Debian: apt-get install chromium) and the browser tests run"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser():
    path = find_chromium()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(HOW_TO_GET_ONE)
        pytest.skip(HOW_TO_GET_ONE)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Served:
    """A running page with the engine behind it."""

    def __init__(self, engine, sample=None) -> None:
        from ui.build import build, launch_options

        self.engine = engine
        self.demo = build(engine, sample)
        options = launch_options()
        _, url, _ = self.demo.launch(server_name="127.0.0.1", server_port=None, prevent_thread_lock=True, quiet=True, **options)
        self.url = url

    def close(self) -> None:
        self.demo.close(verbose=False)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """One server for all browser tests; the recorded sample on it is made of scripted tables."""
    from scripted import ScriptedEngine, make_sample

    server = Served(ScriptedEngine(), make_sample())
    yield server
    server.close()


class Visit:
    """One visitor's page, with the words of the tests: `tab`, `click`, `finish`."""

    def __init__(self, page, url: str, theme: str = "light") -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(45_000)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{url}?__theme={theme}")
        page.wait_for_selector("#candidates input", state="attached")

    def tab(self, name: str) -> None:
        self.page.click(f"#tab-{name}-button")
        self.page.wait_for_selector(f"#tab-{name}", state="visible")

    def state(self) -> str:
        return self.page.get_attribute("#status .status", "data-state")

    def status(self) -> str:
        return self.page.inner_text("#status")

    def finish(self, *states: str) -> str:
        """Wait until the run has ended; returns the status line."""
        wanted = ", ".join(f"#status [data-state={state}]" for state in states or ("done", "error"))
        self.page.wait_for_selector(wanted)
        return self.status()

    def fill(self, field: str, words: str) -> None:
        """Fill a field, again where it does not hold: one that was put on the page this instant may not listen yet."""
        for _ in range(5):
            self.page.fill(field, words)
            self.page.keyboard.press("Tab")
            self.page.wait_for_timeout(100)
            if self.page.input_value(field) == words:
                return
        raise AssertionError(f"{field} does not keep what is filled in")

    def start(self, button: str) -> None:
        """Press a main action, or another button of the tab that shows."""
        self.page.click(f"#{button}")
        self.page.wait_for_selector("#status [data-state=running], #status [data-state=waiting], #status [data-state=error]")

    def measure(self) -> str:
        self.start("measure")
        return self.finish()

    def generate(self, prompt: str = "", max_new: int | None = None) -> None:
        if prompt or max_new:
            self.tab("generate")
        if prompt:
            self.page.fill("#prompt textarea", prompt)
        if max_new:
            self.page.fill("#max-new input", str(max_new))
        self.start("generate")

    def load(self, file: Path) -> None:
        self.tab("export")
        with self.page.expect_file_chooser() as chooser:
            self.page.click("#load-file")
        chooser.value.set_files(file)

    def streaming(self) -> None:
        """Wait until the run of a prompt that says “long” shows its first tokens; a recorded sample may stand there before."""
        self.page.wait_for_function("() => document.querySelector('#token-pane').textContent.startsWith('w0 ')")

    def pane(self, name: str = "token-pane") -> str:
        return self.page.eval_on_selector(f"#{name}", "pane => pane.textContent")


@pytest.fixture
def visit(browser, served) -> Iterator[Callable[..., Visit]]:
    """Opens pages, each a visitor of its own, and closes them after the test."""
    contexts = []

    def open_page(width: int = 1280, height: int = 900, theme: str = "light") -> Visit:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        contexts.append(context)
        return Visit(context.new_page(), served.url, theme)

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """A test may not leave a job running."""
    yield
    for thread in threading.enumerate():
        if thread.name == "hsd-job":
            thread.join(10)
            assert not thread.is_alive(), "a job still runs after the test"
