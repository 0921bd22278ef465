"""A served page, and a visitor of it with the words of the tests."""

from __future__ import annotations

from pathlib import Path


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
        return self.page.inner_text("#status .status")  # without Gradio's own clock over it

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
        """Press a main action, or another button of the tab that shows, and wait until the status line is of this run."""
        self.page.eval_on_selector("#status .status", "line => line.dataset.old = 'true'")  # the next one is another element
        self.page.click(f"#{button}")
        states = ("running", "waiting", "error")
        self.page.wait_for_selector(", ".join(f"#status [data-state={state}]:not([data-old])" for state in states))

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
