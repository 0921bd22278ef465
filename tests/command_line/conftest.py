"""Verbs called in this process, and what the first two of them make, on small local models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from saved_models import save_model

from hsd.__main__ import main
from hsd.measure import run as measure_run
from hsd.measure.run import Effort


@pytest.fixture(scope="session")
def work(tmp_path_factory):
    """Two model folders, a prompt file, and an HSD_HOME of the tests' own."""
    folder = tmp_path_factory.mktemp("command-line")
    save_model(folder / "target", layers=2, seed=0)
    save_model(folder / "draft", layers=1, seed=1)
    (folder / "prompts.txt").write_text("abc abc abc abc\none two three\nthe same the same\n")
    return folder


@pytest.fixture(autouse=True)
def small_and_apart(work, monkeypatch):
    monkeypatch.setenv("HSD_HOME", str(work / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(measure_run, "QUICK", Effort(prompts=3, max_new_tokens=12, cost_budget_s=0.3, widths=(1, 2, 4, 9, 17)))


@pytest.fixture
def hsd(capsys):
    """Run a verb in this process: (status, stdout, stderr)."""

    def call(*words):
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as error:
            status = error.code
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def ok(hsd):
    """Run a verb with --json that must succeed: its object."""

    def call(*words):
        status, out, err = hsd(*words, "--json")
        assert status == 0, err
        assert out.count("\n") == 1
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    return call


@pytest.fixture(scope="session")
def measured(work):
    """A measurement and a plan on disk, made once by the first two verbs."""
    patch = pytest.MonkeyPatch()
    patch.setenv("HSD_HOME", str(work / "home"))
    patch.setattr(measure_run, "QUICK", Effort(prompts=3, max_new_tokens=12, cost_budget_s=0.3, widths=(1, 2, 4, 9, 17)))
    candidates = f"prompt-lookup,early-exit:1,quantized:int8,{work / 'draft'}"
    words = ["measure", "--target", work / "target", "--candidates", candidates, "--out", work / "m.json", "--quick"]
    assert main([*map(str, words), "--prompts", str(work / "prompts.txt"), "--dtype", "float32"]) == 0
    assert main(["plan", str(work / "m.json"), "--out", str(work / "p.json")]) == 0
    patch.undo()
    return work
