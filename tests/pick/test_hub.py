"""A hub model is fetched by a helper program: with progress, stoppable, and with the hub's own reasons."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub import errors as hub_errors

from hsd.errors import Cancelled, ModelUnavailable
from hsd.pick import fetch as program
from hsd.pick import hub, source
from hsd.pick.fetch import wanted_files
from hsd.pick.source import find_source, prepare

FAKE = """
import os, sys, time
mode, blobs = os.environ["FAKE_MODE"], os.environ["FAKE_BLOBS"]
print("total 1000", flush=True)
os.makedirs(blobs, exist_ok=True)
open(blobs + "/a.incomplete", "wb").write(bytes(400))
if mode == "hang":
    time.sleep(60)
time.sleep(0.5)
if mode == "gated":
    print("owner/name is gated: accept its licence"); sys.exit(3)
if mode == "crash":
    sys.exit("Segmentation fault")
"""


@pytest.fixture
def fetcher(tmp_path, monkeypatch):
    """A program that stands for the fetching one; gives a function that sets what it does."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "fake_fetch.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))
    monkeypatch.setattr(hub, "_FETCHER", "fake_fetch")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("FAKE_BLOBS", str(hub._blobs("owner/name")))
    return lambda mode: monkeypatch.setenv("FAKE_MODE", mode)


def test_progress_counts_the_bytes_that_have_arrived(fetcher):
    fetcher("ok")
    told = []
    hub.fetch("owner/name", told.append)
    assert (told[-1].done, told[-1].total) == (400, 1000) and "owner/name" in told[-1].message


@pytest.mark.parametrize(("mode", "said"), [("gated", "owner/name is gated: accept"), ("crash", "“Segmentation fault”. Try again")])
def test_what_went_wrong_is_passed_on(fetcher, mode, said):
    fetcher(mode)
    with pytest.raises(ModelUnavailable, match=said):
        hub.fetch("owner/name")


def test_stop_ends_the_fetch_within_half_a_second(fetcher):
    fetcher("hang")
    asked = []

    def stop():
        if hub._blobs("owner/name").exists():
            asked.append(time.monotonic())
        return bool(asked)

    with pytest.raises(Cancelled):
        hub.fetch("owner/name", should_stop=stop)
    assert time.monotonic() - asked[0] < 0.5


def test_a_model_is_fetched_only_when_it_is_missing_and_the_hub_answers(monkeypatch):
    fetched = []
    monkeypatch.setattr(hub, "fetch", lambda name, *given: fetched.append(name))
    wanted = find_source("owner/name")
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        prepare(wanted, None, None)
    monkeypatch.setattr(source, "_last_probe", None)
    monkeypatch.setattr(source, "_probe", lambda: None)
    prepare(wanted, None, None)
    assert fetched == ["owner/name"]
    monkeypatch.setattr(source, "_is_cached", lambda name: True)
    prepare(wanted, None, None)
    assert fetched == ["owner/name"]


def test_only_what_loading_needs_is_fetched():
    files = dict.fromkeys(
        [
            "README.md",
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "merges.txt",
            "model.safetensors.index.json",
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "consolidated.safetensors",
            "original/model.safetensors",
            "onnx/config.json",
            "pytorch_model.bin",
            "modeling_own.py",
        ],
        1,
    )
    assert wanted_files(files) == [
        "chat_template.jinja",
        "config.json",
        "merges.txt",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    assert wanted_files({"config.json": 1, "pytorch_model.bin": 1}) == []


def test_the_program_asks_for_those_files_and_turns_failures_into_a_sentence(monkeypatch, capsys):
    asked = []
    sizes = [SimpleNamespace(rfilename="config.json", size=5), SimpleNamespace(rfilename="model.safetensors", size=70)]
    info = lambda self, name, files_metadata: SimpleNamespace(siblings=sizes)  # noqa: E731
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: asked.append((name, allow_patterns)))
    assert program.main("owner/name") == 0
    assert asked == [("owner/name", ["config.json", "model.safetensors"])] and "total 75" in capsys.readouterr().out

    def missing(self, name, files_metadata):
        raise hub_errors.RepositoryNotFoundError.__new__(hub_errors.RepositoryNotFoundError, "404")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", missing)
    assert program.main("owner/name") == hub.SENTENCE_FOLLOWS
    assert capsys.readouterr().out.splitlines()[-1].startswith("owner/name does not exist on the hub")


def test_the_program_can_be_started_as_one():
    assert Path(sys.modules[hub._FETCHER].__file__).name == "fetch.py"
