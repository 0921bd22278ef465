"""Targets in pieces: over several devices by accelerate, in shards by torchrun; each writes the text of one process."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, LlamaConfig

from hsd import ranks
from hsd.__main__ import main
from hsd.console import write_text
from hsd.errors import BadInput, DeviceUnsupported, IncompatibleModel, ModelUnavailable, NotEnoughMemory
from hsd.generate.collect import collect
from hsd.generate.engine import generate
from hsd.models.build import build_network, derive
from hsd.models.causal import CausalNetwork
from hsd.models.lean import LeanNetwork
from hsd.models.pieces import is_spread
from hsd.pick import device as devices
from hsd.pick import load as loading
from hsd.pick import placement, registry
from hsd.pick.device import choose_device
from hsd.pick.failures import explain
from hsd.pick.placement import check_shards, loading_options, may_spread
from hsd.pick.registry import Registry
from hsd.records import Hierarchy

ROOT = Path(__file__).resolve().parents[2]
PROMPT_IDS = [5, 9, 14, 9, 5]


def text_of(models, drafts=""):
    generation = collect(generate(models, Hierarchy.parse(drafts, models.target), PROMPT_IDS, max_new_tokens=24))
    assert not generation.notices
    return generation.token_ids


def cpu_and_disk(folder):
    """Accelerate's own hooks, with a disk in place of a second GPU."""
    layers = {"model.layers.0": "cpu", "model.layers.1": "disk"}
    rest = dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"), "cpu")
    return {"device_map": layers | rest, "offload_folder": folder}


def test_a_target_over_two_places_writes_the_same_text_and_is_left_to_transformers(make_model, tmp_path, monkeypatch):
    target, draft = make_model("target"), make_model("draft", layers=1)
    with Registry().lease(target, [draft], device="cpu", dtype="float32") as models:
        assert isinstance(models.networks[target], LeanNetwork)
        wanted = text_of(models)
    monkeypatch.setattr(registry, "may_spread", lambda needed, device: True)
    monkeypatch.setattr(Registry, "_make_room", full_for(target))
    monkeypatch.setattr(
        loading, "loading_options", lambda place, *rest: cpu_and_disk(str(tmp_path / "offload")) if place == "spread" else {}
    )
    with Registry().lease(target, ["prompt-lookup", "early-exit:1", "retrieval", draft], device="cpu", dtype="float32") as models:
        assert type(models.networks[target]) is CausalNetwork and isinstance(models.networks[draft], LeanNetwork)
        assert is_spread(models.networks[target].module)
        assert [text_of(models, drafts) for drafts in ("", f"prompt-lookup@3,{draft}@4")] == [wanted, wanted]
        refused = ["early-exit:1", "retrieval"]  # processes that write for themselves would soon propose different tokens
        assert list(models.notices) == refused
        assert all(f"{name} is made from the target, which" in notice for name, notice in models.notices.items())


def full_for(name):
    """Memory that `name` does not fit into as a whole."""

    def make_room(self, wanted, needed, device):
        if wanted == name:
            raise NotEnoughMemory("full")

    return make_room


def test_only_what_fits_on_all_gpus_together_is_spread(monkeypatch):
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(placement, "usable_bytes", lambda device: 10)
    assert may_spread(20, cuda) and not may_spread(21, cuda) and not may_spread(1, torch.device("cpu"))
    assert loading_options("spread", cuda, LlamaConfig(), "m") == {"device_map": "auto", "max_memory": {0: 10, 1: 10}}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert not may_spread(5, cuda)


def test_what_does_not_fit_and_cannot_be_spread_is_refused(make_model, monkeypatch):
    target = make_model("target")
    monkeypatch.setattr(Registry, "_make_room", full_for(target))
    with pytest.raises(NotEnoughMemory, match="full"), Registry().lease(target, device="cpu", dtype="float32"):
        pass


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ModelUnavailable("It is gated."), ["whole"]),
        (explain("m", OSError("couldn't connect")), ["whole"]),
        (explain("m", SafetensorError("half downloaded")), ["whole"]),
        (explain("m", torch.OutOfMemoryError("CUDA out of memory")), ["whole", "spread"]),
    ],
)
def test_only_a_target_that_lacked_memory_is_loaded_again_over_several_gpus(error, tries, make_model, monkeypatch):
    tried = []

    def load(name, *, placement, **settings):
        tried.append(placement)
        raise error

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "may_spread", lambda needed, device: True)
    with pytest.raises(type(error)), Registry().lease(make_model("target"), device="cpu", dtype="float32"):
        pass
    assert tried == tries


def test_room_on_other_gpus_is_asked_for_when_what_was_half_loaded_is_gone(make_model, monkeypatch):
    half = []

    def load(name, *, placement, **settings):
        weights = torch.zeros(10)
        half.append(weakref.ref(weights))
        raise NotEnoughMemory("full")

    monkeypatch.setattr(registry, "load", load)
    monkeypatch.setattr(registry, "may_spread", lambda needed, device: half[0]() is not None)
    with pytest.raises(NotEnoughMemory, match="full"), Registry().lease(make_model("target"), device="cpu", dtype="float32"):
        pass
    assert len(half) == 1


def test_heads_that_processes_cannot_share_are_refused_with_what_would_do():
    config = LlamaConfig(hidden_size=96, num_attention_heads=12, num_key_value_heads=4)
    check_shards("m", config, 2)
    with pytest.raises(IncompatibleModel, match=r"4 key-value heads, which 3 processes cannot share.*--nproc-per-node 1, 2, 4\."):
        check_shards("m", config, 3)
    config.base_model_tp_plan = None
    with pytest.raises(IncompatibleModel, match="does not know how to shard a llama model"):
        check_shards("m", config, 2)


@pytest.fixture
def as_rank(monkeypatch):
    def set_rank(index, count=2):
        for name, value in {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count}.items():
            monkeypatch.setenv(name, str(value))

    return set_rank


def test_each_process_takes_its_own_gpu(as_rank, monkeypatch):
    as_rank(1)
    if not torch.cuda.is_available():
        assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 1)
    with pytest.raises(BadInput, match="CUDA_VISIBLE_DEVICES"):
        choose_device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(DeviceUnsupported, match="--nproc-per-node 1"):
        choose_device("auto")
    monkeypatch.setattr(devices.torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(DeviceUnsupported, match="MPS cannot share"):
        choose_device("auto")


def test_of_several_processes_the_first_speaks_and_writes(as_rank, capsys, tmp_path):
    words = ["measure", "--target", "./nowhere", "--out", str(tmp_path / "m.json")]
    for index in (0, 1):
        as_rank(index)
        assert main(words) == 2
        write_text(tmp_path / "file", f"rank {ranks.index()}")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "`measure` runs in one process; under torchrun only generate does.\n")
    assert (tmp_path / "file").read_text() == "rank 0"
    with pytest.raises(SystemExit):
        main(["generate", "--no-such-flag"])
    assert capsys.readouterr() == ("", "")


def in_two_processes(folder: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=170)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with GPUs the processes would take those")
def test_two_processes_write_the_text_of_one(make_model, tmp_path, capsys):
    """Greedy through a hierarchy, in float32; the draft lies whole on each rank."""
    target, draft = make_model("target"), make_model("draft", layers=1)
    stacked = ["generate", "--target", target, "--hierarchy", f"prompt-lookup@2,{draft}@3", "--prompt", "w3 w9 w3 w9 w3", "--raw"]
    stacked += ["--dtype", "float32", "--max-new-tokens", "24"]
    assert main([*stacked, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)

    done = in_two_processes(tmp_path, "-m", "hsd", *stacked, "--json", "--trace", "trace.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, "rank 0 speaks, and no other"
    shared = json.loads(done.stdout)
    assert shared["token_ids"] == alone["token_ids"] and len(set(alone["token_ids"])) > 3
    outline = lambda found: [(r["model"], r["token_ids"], r["accepted"]) for r in found["rounds"]]  # noqa: E731
    assert outline(shared) == outline(alone)
    assert shared["environment"]["device_name"].startswith("2 processes, each ")
    assert json.loads((tmp_path / "trace.json").read_text())["text"] == shared["text"]


CHILD = """
import sys, torch
from hsd import ranks
from hsd.errors import LevelFault
from hsd.models.pieces import ShardedNetwork, local_bytes
from hsd.pick.registry import Registry
with Registry().lease(sys.argv[1], ["early-exit:1"], device="cpu", dtype="float32") as models:
    assert "which lies on several processes" in models.notices["early-exit:1"]
    network = models.networks[models.target]
    assert type(network) is ShardedNetwork
    whole = network.module.get_memory_footprint()
    assert whole / 2 < network.memory_bytes < 0.6 * whole, (network.memory_bytes, whole)
    cache = network.new_cache(20)
    logits = network.forward(torch.tensor([3, 4, 5]), cache, 1)
    assert type(logits) is torch.Tensor and logits.shape == (1, network.vocab_size)
    try:
        network.forward(torch.tensor([6 + ranks.index()]), cache, 1)
    except LevelFault as error:
        assert "no longer have the same text" in str(error)
    else:
        raise SystemExit("texts that differ were not noticed")
ranks.leave()
ranks.exit(0)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="with GPUs the processes would take those")
def test_each_process_holds_its_share_and_texts_that_differ_are_noticed(make_model, tmp_path):
    (tmp_path / "child.py").write_text(CHILD)
    done = in_two_processes(tmp_path, "child.py", make_model("target"))
    assert done.returncode == 0, done.stderr


def test_a_whole_module_is_not_taken_for_one_in_pieces(make_model):
    module = AutoModelForCausalLM.from_pretrained(make_model("target"), device_map={"": "cpu"})
    network = build_network("target", copy.deepcopy(module))
    assert isinstance(network, LeanNetwork) and derive("early-exit:1", network, module)
