"""The command line as a user meets it: six verbs in a chain on small local models, clean pipes, and help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hsd.__main__ import VERBS

ROOT = Path(__file__).resolve().parents[2]
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


def test_a_prompt_file_means_its_text_without_the_mark_of_its_encoding(ok, measured):
    (measured / "plain.txt").write_text("abc", encoding="utf-8")
    (measured / "marked.txt").write_text("abc", encoding="utf-8-sig")
    words = ("--target", measured / "target", "--max-new-tokens", 4, "--trace", measured / "t.json", "--prompt-file")
    tokens = []
    for name in ("plain.txt", "marked.txt"):
        ok("generate", *words, measured / name)
        tokens.append(json.loads((measured / "t.json").read_text())["prompt_tokens"])
    assert tokens[0] == tokens[1]


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
