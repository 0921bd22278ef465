"""A mistake ends with status 2 and one sentence, before anything is loaded where the words suffice to see it."""

from __future__ import annotations

import pytest

from hsd.pick import registry

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
        (("measure", *target, "--out", measured / "x.json", "--candidates", ",,,"), "--candidates names nothing"),
        (("pick", *target, "--candidates", " ,"), "--candidates names nothing"),
        (("compare", "--plan", measured / "p.json", "--out", measured / "prompts.txt"), "choose another --out"),
        (("compare", "--plan", measured / "p.json", "--hierarchies", "3"), "--hierarchies is for --sweep"),
        (("compare", "--plan", measured / "p.json", "--methods", ""), "--methods names nothing"),
        (("compare", "--plan", measured / "p.json", "--methods", "target", "--lossless"), "--methods is for the comparison of speeds"),
        (("compare", "--plan", measured / "p.json", "--max-new-tokens", "1"), "give 2 at least"),
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


def test_a_draft_that_was_left_out_is_an_error_and_not_a_slower_run(hsd, measured):
    status, out, err = hsd("generate", "--target", measured / "target", "--hierarchy", f"{measured / 'gone'}@3", "--prompt", "a")
    assert status == 2 and out == "" and "gone is left out" in err
