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

from visits import Served, Visit  # noqa: E402

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


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """One server for all browser tests; the recorded sample on it is made of scripted tables."""
    from scripted import ScriptedEngine, make_sample

    server = Served(ScriptedEngine(), make_sample())
    yield server
    server.close()


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
