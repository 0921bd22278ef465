"""The command line as a user meets it: six verbs in a chain on small local models, mistakes in one sentence, clean pipes."""

from __future__ import annotations

import json
import os
import string
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from hsd.__main__ import VERBS, main
from hsd.measure import run as measure_run
from hsd.measure.run import Effort
from hsd.pick import registry

ROOT = Path(__file__).resolve().parents[1]
LETTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + ". "
FLAGS = {  # design §6
    "pick": ["--target", "--candidates", "--json"],
    "measure": ["--target", "--candidates", "--out", "--quick", "--prompts", "--temperature", "--dtype", "--json"],
    "plan": ["F", "--out", "--max-depth", "--max-threshold", "--json"],
    "generate": [
        *("--plan", "--target", "--hierarchy", "--prompt", "--prompt-file", "--max-new-tokens"),
        *("--temperature", "--top-k", "--top-p", "--seed", "--dtype", "--raw", "--json"),
    ],
    "compare": ["--plan", "--prompts", "--lossless", "--sweep", "--out", "--json"],
    "export": ["P", "--to", "--out", "transformers", "vllm", "llama.cpp", "sglang", "python", "report", "--json"],
}


def save_model(folder: Path, *, layers: int, seed: int, context: int = 160) -> str:
    """A random Llama whose tokens are single characters."""
    backend = Tokenizer(models.WordLevel({letter: index for index, letter in enumerate(LETTERS)}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    backend.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="a", eos_token="h").save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=len(LETTERS),
        max_position_embeddings=context,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=7,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
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


def plan_with_drafts(folder, *drafts):
    """The plan file with a hierarchy of our choice on top, so that there is something to draft whatever was fastest here."""
    data = json.loads((folder / "p.json").read_text())
    target = data["hierarchy"][-1]
    chosen = [*({"model": model, "threshold": threshold} for model, threshold in drafts), target]
    data["hierarchy"] = chosen
    data["alternatives"].insert(0, data["alternatives"][0] | {"hierarchy": chosen})
    path = folder / "chosen.json"
    path.write_text(json.dumps(data))
    return path


def test_pick_lists_models_with_status_memory_and_reasons(ok, work):
    found = ok("pick", "--target", work / "target", "--candidates", f"{work / 'draft'},early-exit:7")
    by_name = {model["name"]: model for model in found["models"]}
    assert {"prompt-lookup", "quantized:int8", str(work / "draft"), "early-exit:7"} <= set(by_name)
    assert by_name[str(work / "draft")]["status"] != "unusable" and by_name["early-exit:7"]["status"] == "unusable"
    assert "2 layers" in by_name["early-exit:7"]["reason"] and by_name[str(work / "draft")]["memory_bytes"] > 0


def test_the_chain_from_measuring_to_exporting(ok, hsd, measured):
    measurement = json.loads((measured / "m.json").read_text())
    target, draft = str(measured / "target"), str(measured / "draft")
    assert set(measurement["models"]) == {"prompt-lookup", "early-exit:1", "quantized:int8", draft, target}
    assert measurement["models"][-1] == target and measurement["environment"]["dtype"] == "float32"
    plan_file = plan_with_drafts(measured, ("prompt-lookup", 3), ("early-exit:1", 2))

    made = ok("generate", "--plan", plan_file, "--prompt", "abc abc", "--max-new-tokens", 20, "--trace", measured / "t.json")
    alone = ok("generate", "--target", target, "--prompt", "abc abc", "--max-new-tokens", 20)
    assert made["token_ids"] == alone["token_ids"] and made["text"] == alone["text"]
    assert [level["model"] for level in made["hierarchy"]] == ["prompt-lookup", "early-exit:1", target]
    assert set(made["seconds"]) == {"prefill", "decode"} and len(made["tokens"]) == len(made["token_ids"])
    assert json.loads((measured / "t.json").read_text())["kind"] == "trace"

    prompts = ("--prompts", measured / "prompts.txt", "--max-new-tokens", 10)
    compared = ok("compare", "--plan", plan_file, *prompts, "--count", 2, "--repeats", 2, "--out", measured / "out")
    names = [method["name"] for method in compared["methods"]]
    assert names == ["target", "best-single", "hierarchy", "transformers", "transformers-prompt-lookup", "transformers-assistant"]
    assert all(
        set(method["tokens_per_s"]) >= {"median", "low", "high"} and method["tokens_per_s"]["median"] > 0 for method in compared["methods"]
    )
    assert compared["identical"] is True and all(method["identical"] for method in compared["methods"])

    checked = ok("compare", "--plan", plan_file, *prompts, "--count", 2, "--lossless", "--out", measured / "out")
    assert checked["passed"] is True and checked["different"] == 0 and checked["cases"] >= 2
    assert sorted(path.name for path in (measured / "out").iterdir()) == ["comparison.json", "lossless.json"]

    for kind in ("transformers", "vllm", "llama.cpp", "sglang", "python"):
        status, _, err = hsd("export", plan_file, "--to", kind, "--out", measured / f"{kind}.txt")
        assert status in (0, 2) and (status == 0 or err.count("\n") == 1), (kind, err)
    report = ok(
        *("export", plan_file, "--to", "report", "--out", measured / "report.md"),
        *("--measurement", measured / "m.json", "--comparison", measured / "out" / "comparison.json"),
    )
    assert report["to"] == "report" and "transformers-prompt-lookup" in (measured / "report.md").read_text()


def test_progress_goes_to_stderr_and_tables_to_stdout(hsd, measured):
    plan_file = plan_with_drafts(measured, ("prompt-lookup", 3))
    status, out, err = hsd(
        "compare", "--plan", plan_file, "--prompts", measured / "prompts.txt", "--max-new-tokens", 4, "--methods", "hierarchy"
    )
    assert status == 0 and "repeat 1 of 3" in err and "repeat" not in out.splitlines()[-1]
    assert "tokens/s" in out and "prompt-lookup@3" in out and "was measured on" not in err
    status, out, err = hsd("plan", measured / "m.json", "--out", measured / "p2.json")
    assert status == 0 and out.startswith("Plan: ") and "ms" in out


def test_a_plan_from_another_device_is_said_to_be_one(hsd, measured):
    found = json.loads(plan_with_drafts(measured, ("prompt-lookup", 3)).read_text())
    found["environment"]["device_name"] = "another processor"
    (measured / "elsewhere.json").write_text(json.dumps(found))
    words = ["--prompts", measured / "prompts.txt", "--max-new-tokens", 4, "--repeats", 1, "--methods", "hierarchy"]
    status, _, err = hsd("compare", "--plan", measured / "elsewhere.json", *words)
    assert status == 0 and "was measured on another processor" in err


def test_a_sweep_by_json(ok, measured):
    found = ok(
        "compare", "--plan", measured / "p.json", "--prompts", measured / "prompts.txt", "--max-new-tokens", 6, "--repeats", 1, "--sweep"
    )
    assert len(found["points"]) >= 20
    assert 0 <= found["median_error"] <= found["max_error"]
    assert {"hierarchy", "predicted_s_per_token", "measured_s_per_token"} <= set(found["points"][0])


MISTAKES = [
    (["generate", "--target", "{work}/none", "--prompt", "a"], "none"),
    (["generate", "--target", "no/such/model/anywhere", "--prompt", "a"], "no/such/model/anywhere"),
    (["generate", "--target", "{work}/target", "--hierarchy", "quantised@3", "--prompt", "a"], "quantised"),
    (["generate", "--target", "{work}/target", "--hierarchy", "early-exit:9@3", "--prompt", "a"], "early-exit:9"),
    (["generate", "--target", "{work}/target", "--hierarchy", "early-exit:1@0", "--prompt", "a"], "threshold of early-exit:1 is 0"),
    (["generate", "--target", "{work}/target", "--hierarchy", "early-exit:1@x", "--prompt", "a"], "not a draft with its threshold"),
    (["generate", "--target", "{work}/target", "--hierarchy", "early-exit:1@2,prompt-lookup@2", "--prompt", "a"], "at the bottom"),
    (["generate", "--target", "{work}/target", "--prompt", "  "], "prompt is empty"),
    (["generate", "--target", "{work}/target"], "--prompt TEXT"),
    (["generate", "--target", "{work}/target", "--prompt-file", "{work}/none.txt"], "none.txt"),
    (["generate", "--target", "{work}/target", "--prompt", "long" * 50], "context"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--temperature", "-1"], "temperature is -1"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--temperature", "warm"], "warm"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--temperature", "1e-40"], "temperature is 1e-40"),
    (["generate", "--target", "{work}/target", "--prompt-file", "{work}/target/model.safetensors"], "is not UTF-8 text"),
    (["generate", "--target", "{work}/target", "--hierarchy", "early-exit:9@3", "--prompt", "a"], "Nothing was generated"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--top-p", "2"], "top_p is 2"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--max-new-tokens", "0"], "at least 1"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--dtype", "float7"], "float7"),
    (["generate", "--target", "{work}/target", "--prompt", "a", "--device", "abacus"], "abacus"),
    (["generate", "--target", "{work}/target", "--plan", "{work}/p.json", "--prompt", "a"], "not both"),
    (["generate", "--plan", "{work}/none.json", "--prompt", "a"], "cannot be read"),
    (["generate", "--plan", "{work}/prompts.txt", "--prompt", "a"], "is not JSON"),
    (["generate", "--plan", "{work}/m.json", "--prompt", "a"], "not a plan file"),
    (["plan", "{work}/none.json", "--out", "{work}/x.json"], "cannot be read"),
    (["plan", "{work}/p.json", "--out", "{work}/x.json"], "not a measurement file"),
    (["plan", "{work}/m.json", "--out", "{work}/x.json", "--max-threshold", "0"], "threshold is 0"),
    (["plan", "{work}/m.json"], "Say with --out P"),
    (["plan", "--out", "{work}/x.json"], "Give a measurement file"),
    (["plan", "{work}/m.json", "--growth"], "--growth"),
    (["measure", "--target", "{work}/target", "--out", "{work}/x.json", "--prompts", "{work}/no.txt"], "no.txt"),
    (["measure", "--target", "{work}/none", "--out", "{work}/x.json"], "none"),
    (["compare", "--plan", "{work}/p.json", "--methods", "vllm"], "vllm"),
    (["compare", "--plan", "{work}/p.json", "--count", "0"], "--count is 0"),
    (["compare", "--plan", "{work}/p.json", "--lossless", "--sweep"], "--lossless"),
    (["compare"], "--plan"),
    (["export", "{work}/p.json", "--to", "word", "--out", "{work}/x"], "word"),
    (["export", "{work}/p.json", "--to", "report", "--out", "{work}/prompts.txt/x.md"], "x.md"),
    (["conquer"], "conquer"),
    (["measure", "--colour", "red", "--out", "x"], "--colour"),
    ([], "pick"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "named"), MISTAKES, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "")
def test_a_mistake_ends_with_status_2_and_one_sentence(hsd, measured, words, named):
    status, out, err = hsd(*(word.format(work=measured) for word in words))
    assert status == 2 and out == ""
    lines = [line for line in err.splitlines() if line.strip()]
    while len(lines) > 1 and any(word in lines[0] for word in ("load model", "prepare draft", "fetch")):
        lines.pop(0)  # progress that came before
    assert len(lines) == 1 and named in lines[0] and "Traceback" not in err
    assert lines[0].strip().endswith((".", ")"))
    assert not (measured / "x.json").exists()


def test_mistakes_that_are_seen_in_the_words_are_told_before_anything_is_loaded(hsd, measured, monkeypatch):
    monkeypatch.setattr(registry.Registry, "lease", lambda *given, **settings: pytest.fail("it loaded models first"))
    target = ("--target", measured / "target")
    for words, named in (
        (("generate", *target, "--prompt", "  "), "The prompt is empty"),
        (("generate", *target, "--prompt", "abc", "--max-new-tokens", "0"), "--max-new-tokens is 0"),
        (("generate", *target, "--prompt", "\udcff x"), "no characters"),
        (("generate", *target, "--prompt", "abc", "--system", "\udcff"), "no characters"),
        (("generate", *target, "--prompt", "abc", "--raw", "--system", "be brief"), "takes no system prompt"),
        (("generate", *target, "--prompt", "abc", "--stop", ""), "An empty --stop"),
        (("generate", *target, "--prompt", "abc", "--hierarchy", "quantized:int8@3,retrieval@2"), "retrieval cannot verify"),
        (("generate", *target, "--prompt", "abc", "--trace", measured / "prompts.txt" / "t.json"), "choose another --trace"),
        (("generate", *target, "--prompt", "abc", "--trace", measured), "choose another --trace"),
        (("measure", *target, "--out", measured / "prompts.txt" / "m.json"), "choose another --out"),
        (("compare", "--plan", measured / "p.json", "--out", measured / "prompts.txt"), "choose another --out"),
        (("compare", "--plan", measured / "p.json", "--methods", "hierarchy,fastest"), "“fastest” is no method"),
    ):
        status, out, err = hsd(*words)
        assert status == 2 and out == "" and named in err


@pytest.mark.parametrize(
    "content", ["{}", "[]", "null", '{"kind": "plan", "schema": 1}', '{"kind": "plan", "schema": 7}', "[" * 100_000, ""]
)
def test_a_damaged_plan_file_is_refused_by_every_verb_that_reads_one(hsd, measured, content):
    path = measured / "damaged.json"
    path.write_text(content)
    for words in (
        ["generate", "--plan", path, "--prompt", "a"],
        ["compare", "--plan", path],
        ["export", path, "--to", "python", "--out", path],
    ):
        status, out, err = hsd(*words)
        assert status == 2 and out == "" and err.count("\n") == 1 and "plan" in err


def test_a_prompt_file_means_its_text_without_the_mark_of_its_encoding(ok, measured):
    (measured / "plain.txt").write_text("abc", encoding="utf-8")
    (measured / "marked.txt").write_text("abc", encoding="utf-8-sig")
    words = ("--target", measured / "target", "--max-new-tokens", 4, "--trace", measured / "t.json", "--prompt-file")
    tokens = []
    for name in ("plain.txt", "marked.txt"):
        ok("generate", *words, measured / name)
        tokens.append(json.loads((measured / "t.json").read_text())["prompt_tokens"])
    assert tokens[0] == tokens[1]


def test_a_draft_that_was_left_out_is_an_error_and_not_a_slower_run(hsd, measured):
    status, out, err = hsd("generate", "--target", measured / "target", "--hierarchy", f"{measured / 'gone'}@3", "--prompt", "a")
    assert status == 2 and out == "" and "gone is left out" in err


def hsd_process(work, *words):
    """Started, so that several can import torch at the same time."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hsd", *(word.format(work=work) for word in words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=work)


def test_as_a_process_stdout_holds_one_object_and_stderr_the_progress(work):
    words = ["--prompt", "abc", "--max-new-tokens", "5", "--dtype", "float32", "--json"]
    right = hsd_process(work, "generate", "--target", "{work}/target", *words)
    wrong = hsd_process(work, "generate", "--target", "{work}/none", "--prompt", "abc")
    (out, err), (wrong_out, wrong_err) = ([text.decode() for text in process.communicate(timeout=120)] for process in (right, wrong))
    assert right.returncode == 0, err
    assert len(json.loads(out)["token_ids"]) <= 5 and "load model" in err
    assert wrong.returncode == 2 and wrong_out == "" and "Traceback" not in wrong_err and "none" in wrong_err


PIPED = [["--help"], ["compare", "--help"], ["pick", "--target", "{work}/target"]]


@pytest.fixture(scope="module")
def piped(work):
    """Verbs whose reader has closed its end of the pipe, all running at once."""
    started = {" ".join(words): hsd_process(work, *words) for words in PIPED}
    for process in started.values():
        process.stdout.close()
    return started


@pytest.mark.parametrize("words", [" ".join(words) for words in PIPED])
def test_a_closed_pipe_ends_quietly(piped, words):
    """`| head` closes its end: no traceback, whoever reads first."""
    process = piped[words]
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=120) in (0, 141)
    assert "Traceback" not in err and "BrokenPipe" not in err and "Exception ignored" not in err


def test_help_names_every_verb_and_flag(hsd):
    status, out, _ = hsd("--help")
    assert status == 0 and all(verb in out for verb in VERBS)
    for verb, flags in FLAGS.items():
        status, out, err = hsd(verb, "--help")
        assert status == 0 and err == ""
        words = out.replace(",", " ").replace("[", " ").replace("]", " ").replace("{", " ").replace("}", " ").split()
        missing = [flag for flag in flags if flag not in words]
        assert missing == [], verb
        for line in out.splitlines():  # every option says what it is for
            if line.startswith("  --"):
                assert len(line.split()) > 1, line
