"""`python app.py`: options, the environment, and what is not imported before the page is up."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

import app  # noqa: E402


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch):
    for name in ("GRADIO_SERVER_NAME", "GRADIO_SERVER_PORT", "SPACE_ID"):
        monkeypatch.delenv(name, raising=False)


def test_only_this_machine_unless_asked(monkeypatch):
    assert app.parse([]).host == "127.0.0.1" and app.parse([]).port is None
    assert app.parse(["--host", "0.0.0.0", "--port", "8000"]).host == "0.0.0.0"
    monkeypatch.setenv("SPACE_ID", "someone/space")
    assert app.parse([]).host == "0.0.0.0"
    monkeypatch.setenv("GRADIO_SERVER_NAME", "10.0.0.1")
    assert app.parse([]).host == "10.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "open_to_strangers"),
    [
        ("", False),
        ("--host localhost", False),
        ("--host 0.0.0.0 --auth anna:secret", False),
        ("--host 0.0.0.0", True),
        ("--share", True),
        ("--share --auth anna:secret", True),
    ],
)
def test_folders_of_the_machine_are_closed_where_strangers_may_come(arguments, open_to_strangers):
    assert app.is_open_to_strangers(app.parse(arguments.split())) is open_to_strangers


@pytest.mark.parametrize("given", ["anna", "anna:", ":secret", ""])
def test_a_bad_auth_is_a_clear_sentence(given, capsys):
    with pytest.raises(SystemExit) as stopped:
        app.parse(["--auth", given])
    assert stopped.value.code == 2
    assert "--auth takes a name and a password with a colon" in capsys.readouterr().err


def test_auth_may_hold_colons():
    assert app.parse(["--auth", "anna:a:b"]).auth == ("anna", "a:b")


@pytest.mark.parametrize("port", ["0", "70000", "x"])
def test_a_bad_port_is_named(port, capsys):
    with pytest.raises(SystemExit):
        app.parse(["--port", port])
    assert "--port" in capsys.readouterr().err


def test_the_page_is_built_without_torch_and_without_weights():
    code = "import sys; from ui.build import build; from ui.live import LiveEngine; build(LiveEngine()); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("False"), done.stderr
