"""Loading by name: what works, and a sentence for each thing that can go wrong."""

import json
import threading
from pathlib import Path

import pytest
import torch
from huggingface_hub import errors as hub
from transformers import T5Config, ViTConfig

from hsd.errors import BadInput, IncompatibleModel, ModelUnavailable
from hsd.pick import source
from hsd.pick.failures import explain
from hsd.pick.load import load, load_config
from hsd.pick.memory import skeleton
from hsd.pick.source import availability, find_source, hub_problem

CPU = {"device": torch.device("cpu"), "dtype": torch.float32}


def test_a_local_folder_loads_with_its_tokenizer_and_end_tokens(make_model):
    loaded = load(make_model("model"), **CPU)
    assert loaded.module.dtype == torch.float32 and not loaded.module.training
    assert loaded.eos_token_ids == {1}
    assert loaded.tokenizer("w3 w4", add_special_tokens=False)["input_ids"] == [5, 6]


def test_every_end_token_of_the_generation_settings_counts(make_model):
    folder = Path(make_model("model"))
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [1, 7]}))
    assert load(str(folder), **CPU).eos_token_ids == {1, 7}


def test_precisions_do_not_mix_when_a_model_is_looked_at_while_another_loads(make_model):
    """The page computes the memory of a model from its skeleton while the device loads another."""
    name, done = make_model("model"), threading.Event()
    config = load_config(name)

    def look() -> None:
        while not done.is_set():
            skeleton(config)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        for _ in range(12):
            module = load(name, device=torch.device("cpu"), dtype=torch.bfloat16).module
            assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    finally:
        done.set()
        watching.join()
    assert torch.get_default_dtype() == torch.float32


def test_an_empty_name_and_a_strange_one_are_bad_input():
    for name in ("", "  ", "\0", "x" * 5000):
        with pytest.raises((BadInput, ModelUnavailable)):
            find_source(name)


@pytest.mark.parametrize("name", ["./nope", "/nope/at/all", "a b", "../../nowhere", "owner/name/more", "https://hub/x", "owner/../x"])
def test_what_is_neither_a_folder_nor_a_hub_id_cannot_be_found(name):
    with pytest.raises(ModelUnavailable, match="cannot be found"):
        find_source(name)


def test_a_page_that_strangers_see_tells_nothing_of_what_lies_here(make_model, monkeypatch, tmp_path):
    folder = make_model("target")
    (tmp_path / "file.txt").write_text("here")
    assert find_source(folder).kind == "folder"
    monkeypatch.setenv("HSD_LOCAL_MODELS", "0")
    told = set()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "folder").mkdir(parents=True)
    for name in (folder, str(tmp_path), str(tmp_path / "file.txt"), str(tmp_path / "nothing"), "owner/folder"):
        with pytest.raises(ModelUnavailable, match="opens no folders or files") as found:
            find_source(name)
        told.add(str(found.value).replace(name[:80], "…"))
    assert len(told) == 1
    assert find_source("owner/name").kind == "hub" and find_source("smollm2-135m").kind == "embedded"


def test_a_hub_id_without_network_says_so_at_once(monkeypatch):
    with pytest.raises(ModelUnavailable, match=r"not on this machine and https://hub\.test cannot be reached"):
        load("owner/name", **CPU)
    assert "cannot be reached" in availability("owner/name").problem


def test_the_hub_is_asked_once_a_minute_at_most(monkeypatch):
    asked = []
    monkeypatch.setattr(source, "_probe", lambda: asked.append(1))
    assert hub_problem() is None and hub_problem() is None
    assert len(asked) == 1


def test_a_folder_without_configuration_weights_or_with_pickles_only_is_refused(make_model, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnavailable, match=r"no config\.json"):
        load(str(tmp_path / "empty"), **CPU)
    (tmp_path / "empty" / "m.gguf").write_text("x")
    with pytest.raises(ModelUnavailable, match=r"it holds m\.gguf"):
        load(str(tmp_path / "empty"), **CPU)
    folder = Path(make_model("model"))
    weights = folder / "model.safetensors"
    weights.rename(folder / "kept")
    with pytest.raises(ModelUnavailable, match="no weights"):
        load(str(folder), **CPU)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    with pytest.raises(ModelUnavailable, match="pickled weights only"):
        load(str(folder), **CPU)


def test_half_downloaded_weights_are_refused(make_model):
    folder = Path(make_model("model"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(ModelUnavailable, match="half downloaded"):
        load(str(folder), **CPU)


def test_a_shard_that_is_missing_is_refused(make_model):
    folder = Path(make_model("model"))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelUnavailable, match=r"incomplete|no complete"):
        load(str(folder), **CPU)


def test_weights_that_are_missing_are_not_filled_with_random_numbers(make_model):
    folder = Path(make_model("model", layers=2))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(IncompatibleModel, match="lacks 9 of its weights"):
        load(str(folder), **CPU)


def test_weights_of_another_shape_are_refused(make_model):
    folder = Path(make_model("model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises((IncompatibleModel, ModelUnavailable)):
        load(str(folder), **CPU)


def test_code_of_the_model_is_never_run(make_model, tmp_path):
    folder = Path(make_model("model"))
    config = json.loads((folder / "config.json").read_text())
    mark = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(mark)!r}, 'w')")
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(IncompatibleModel, match="own Python code"):
        load(str(folder), **CPU)
    assert not mark.exists()


def test_an_unknown_architecture_and_damaged_json_are_explained(make_model):
    folder = Path(make_model("model"))
    (folder / "config.json").write_text('{"model_type": "not-yet-invented"}')
    with pytest.raises(IncompatibleModel, match="architecture"):
        load(str(folder), **CPU)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="damaged"):
        load(str(folder), **CPU)


def test_models_that_are_not_causal_language_models_are_refused(make_model):
    folder = make_model("model")
    T5Config(d_model=8).save_pretrained(folder)
    with pytest.raises(IncompatibleModel, match="encoder-decoder"):
        load_config(folder)
    ViTConfig().save_pretrained(folder)
    with pytest.raises(IncompatibleModel, match="not a causal"):
        load_config(folder)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (hub.GatedRepoError, "is gated: accept its licence"),
        (hub.RepositoryNotFoundError, "does not exist on the hub"),
        (hub.LocalEntryNotFoundError, "not on this machine"),
        (torch.OutOfMemoryError, "not enough memory"),
        (MemoryError, "not enough memory"),
        (ImportError, "package that is not installed"),
        (RuntimeError, "could not be loaded (RuntimeError"),
    ],
)
def test_failures_of_the_hub_and_the_device_become_one_sentence(error, said):
    cause = error.__new__(error, "detail")
    outer = OSError("could not load")
    outer.__cause__ = cause
    for failure in (cause, outer) if error is not RuntimeError else (cause,):
        message = str(explain("owner/name", failure))
        assert said in message and "owner/name" in message
        assert "\n" not in message
