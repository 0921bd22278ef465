"""Snippets are valid for the tool they are for, run where the tool is at hand, and say what they leave out."""

import ast
import contextlib
import io
import json
import shlex
import subprocess

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from hsd.errors import BadInput
from hsd.export.exporter import export
from hsd.export.kinds import KINDS, SUFFIXES
from hsd.plan.calculator import typed_measurement
from hsd.plan.planner import plan as search
from hsd.records import Environment, Sampling

SHELL = ("vllm", "llama.cpp", "sglang")
PYTHON = ("transformers", "python")
HOSTILE = "o/x'; rm -rf ~ #\n$(id) \"\u2028`id` <script>"


def commands(text: str) -> list[list[str]]:
    """Words of each uncommented command of a shell script."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [shlex.split(line, comments=True) for line in lines.replace("\\\n", " ").splitlines() if line.strip()]


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_an_unknown_kind_is_refused_with_the_known_ones(plan):
    with pytest.raises(BadInput, match=r"transformers, vllm, llama\.cpp, sglang, python, report"):
        export("ollama", plan)


def test_a_hierarchy_shrinks_to_the_best_single_draft_that_the_tool_has_and_says_so(plan):
    wanted = {"transformers": "owner/small@5", "vllm": "owner/small@5", "sglang": "owner/small@5", "llama.cpp": "quantized:int4@4"}
    for kind, draft in wanted.items():
        text = export(kind, plan)
        assert "takes one draft and no hierarchy" in text and draft in text
        assert "best single draft" in text and "Test CPU, 2 threads · bfloat16" in text
    assert "the plan's best single draft" in export("llama.cpp", plan)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_from_numbers_that_were_typed_in_says_so_and_names_nothing_measured(kind):
    typed = typed_measurement({"owner/small": 0.002, "owner/big": 0.03}, {("owner/small", "owner/big"): 0.8})
    text = export(kind, search(typed), measurement=typed if kind == "report" else None)
    assert "from numbers typed in" in text and "Measured" not in text and "measured on" not in text and "typed numbers" not in text
    assert kind == "report" or "'none'" not in text  # they are of no device, and run on one


def test_a_tool_without_any_of_the_drafts_runs_the_target_alone_and_says_so(make_plan):
    text = export("vllm", make_plan((10, ("early-exit:4", 2))))
    assert "none of the plan's single drafts" in text and "speculative" not in text.split("vllm serve")[1]


def test_a_draft_that_is_slower_than_the_target_alone_is_not_recommended(make_plan):
    text = export("transformers", make_plan((10, ("retrieval", 3), ("quantized:int4", 8)), (42, ("early-exit:4", 1))))
    assert "early-exit:4@1" in text and "0.71 times as fast" in text and "gains nothing over 30" in text
    assert "assistant" not in text


@pytest.mark.parametrize("layers", ["x", "", "-1", "0", "²", "9" * 5000])
def test_an_early_exit_without_a_number_of_layers_is_no_draft(make_plan, layers):
    text = export("transformers", make_plan((10, (f"early-exit:{layers}", 2))))
    assert "none of the plan's single drafts" in text and "assistant" not in text


def test_a_plan_without_draft_gives_the_target_alone(make_plan):
    for kind in KINDS[:4]:
        text = export(kind, make_plan())
        assert "recommends no draft" in text
        assert "spec" not in "".join(" ".join(words) for words in commands(text)) if kind in SHELL else "assist" not in text


def test_suffixes_of_snippets_are_those_of_their_language(plan):
    assert set(SUFFIXES) == set(KINDS)
    for kind in (*SHELL, *PYTHON):
        assert (SUFFIXES[kind] == ".sh") == export(kind, plan).startswith("#!/usr/bin/env bash")


def test_vllm_gets_one_speculative_config(make_plan):
    (words,) = commands(export("vllm", make_plan((10, ("owner/small", 5)))))
    assert option(words, "--generation-config") == "vllm"
    assert words[:3] == ["vllm", "serve", "owner/big"] and option(words, "--dtype") == "bfloat16"
    assert json.loads(option(words, "--speculative-config")) == {
        "method": "draft_model",
        "model": "owner/small",
        "num_speculative_tokens": 5,
    }
    (words,) = commands(export("vllm", make_plan((10, ("prompt-lookup", 6)))))
    assert json.loads(option(words, "--speculative-config")) == {
        "method": "ngram",
        "num_speculative_tokens": 6,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }


def test_vllm_is_given_no_setting_that_it_refuses_or_leaves_to_its_default(make_plan):
    sampling = Sampling(temperature=0.7, min_p=0.05)
    text = export("vllm", make_plan((10, ("owner/small", 5)), sampling=sampling))
    (words,) = commands(text)
    assert json.loads(option(words, "--speculative-config"))["draft_sample_method"] == "probabilistic"
    assert "the plan's 0.05 is left out" in text and '"min_p"' not in text and "refuses a draft whose vocab_size" in text
    lookup = export("vllm", make_plan((10, ("prompt-lookup", 6)), sampling=sampling))
    assert '"min_p"' not in lookup and "draft_sample_method" not in lookup and "vocab_size" not in lookup
    alone = export("vllm", make_plan(sampling=sampling))
    assert '"min_p": 0.05' in alone and "refuses" not in alone


def test_sglang_gets_the_standalone_or_the_ngram_algorithm(make_plan):
    (words,) = commands(export("sglang", make_plan((10, ("owner/small", 5)))))
    assert option(words, "--speculative-algorithm") == "STANDALONE" and option(words, "--sampling-defaults") == "openai"
    assert option(words, "--speculative-draft-model-path") == "owner/small"
    assert [option(words, f"--speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")] == ["5", "1", "6"]
    (words,) = commands(export("sglang", make_plan((10, ("prompt-lookup", 6)))))
    assert option(words, "--speculative-algorithm") == "NGRAM" and "--speculative-draft-model-path" not in words


def test_llama_cpp_converts_quantizes_and_serves(make_plan):
    script = commands(export("llama.cpp", make_plan((10, ("quantized:int4", 4)))))
    assert ["llama-quantize", "target.gguf", "draft.gguf", "Q4_0"] in script
    assert script[-1][0] == "llama-server" and option(script[-1], "--model-draft") == "draft.gguf"
    assert option(script[-1], "--spec-draft-n-max") == option(script[-1], "--spec-draft-n-min") == "4"
    lookup = commands(export("llama.cpp", make_plan((10, ("prompt-lookup", 6)))))[-1]
    assert option(lookup, "--spec-type") == "ngram-simple" and option(lookup, "--spec-ngram-simple-size-m") == "6"
    own = commands(export("llama.cpp", make_plan((10, ("owner/small", 5)))))
    assert [words[2] for words in own if words[0] == "hf"] == ["owner/big", "owner/small"]


def test_sampling_settings_reach_every_tool(make_plan):
    sampling = Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1, no_repeat_ngram_size=4, seed=9)
    plan = make_plan((10, ("owner/small", 5)), sampling=sampling)
    assert "temperature=0.7, top_k=40, top_p=0.9, min_p=0.05, repetition_penalty=1.1, no_repeat_ngram_size=4" in export(
        "transformers", plan
    )
    assert "manual_seed(9)" in export("transformers", plan)
    alone = make_plan(sampling=sampling)
    for text in (export("sglang", plan), export("vllm", alone)):
        assert '"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1' in text
    assert '"temperature": 0.7, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1' in export("vllm", plan)
    for kind in ("vllm", "sglang"):
        assert "no no_repeat_ngram_size" in export(kind, plan)
    assert "--temp 0.7 --top-k 40 --top-p 0.9 --min-p 0.05" in export("llama.cpp", plan)
    assert "Sampling(temperature=0.7, top_k=40" in export("python", plan) and "seed=9" in export("python", plan)


def test_the_embedded_default_is_named_as_other_tools_find_it(make_plan):
    for kind in KINDS[:4]:
        text = export(kind, make_plan((10, ("prompt-lookup", 6)), target="smollm2-135m"))
        assert "HuggingFaceTB/SmolLM2-135M-Instruct" in text and "4-bit" in text
    assert "'smollm2-135m'" in export("python", make_plan(target="smollm2-135m"))


@pytest.mark.parametrize("kind", PYTHON)
def test_a_hostile_name_stays_a_string_in_python(make_plan, kind):
    plan = make_plan((10, (HOSTILE, 3)), target=HOSTILE + "t", environment=Environment(HOSTILE, HOSTILE, HOSTILE, "", "", "", ""))
    tree = ast.parse(export(kind, plan))
    strings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {HOSTILE, HOSTILE + "t"} <= strings
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"rm", "id", "script"}


@pytest.mark.parametrize("kind", SHELL)
def test_a_hostile_name_stays_one_word_in_a_shell(make_plan, kind, tmp_path):
    plan = make_plan((10, (HOSTILE, 3)), target=HOSTILE + "t", environment=Environment(HOSTILE, HOSTILE, HOSTILE, "", "", "", ""))
    text = export(kind, plan)
    tools = {"vllm", "curl", "python", "llama-server", "llama-quantize", "hf", "rm", "id"}
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in tools:
        (bin_folder / tool).write_text(
            '#!/bin/sh\necho "${0##*/}" >> "$LOG"\nfor word in "$@"; do printf "%s\\0" "$word" >> "$LOG.words"; done\n'
        )
        (bin_folder / tool).chmod(0o755)
    log = tmp_path / "log"
    subprocess.run(["/bin/bash", "-c", text], env={"PATH": str(bin_folder), "LOG": str(log)}, check=True, timeout=20, cwd=tmp_path)
    called = set(log.read_text().split())
    assert called and not called & {"rm", "id"}
    words = (tmp_path / "log.words").read_text().split("\0")
    assert any(HOSTILE in word or json.dumps(HOSTILE)[1:-1] in word for word in words)


# --- run for real, on tiny models ---------------------------------------------------------------------------------------


@pytest.fixture
def tiny_pair(tmp_path):
    """Folders of a random target and a smaller random draft that share a tokenizer."""
    words = ["<s>", "</s>", *["Why", "is", "the", "sky", "blue?"], *(f"w{index}" for index in range(40))]
    backend = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<s>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<s>", pad_token="</s>")
    folders = []
    for name, layers in (("target", 3), ("draft", 1)):
        torch.manual_seed(layers)
        config = LlamaConfig(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=len(words),
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
            initializer_range=0.4,
        )
        LlamaForCausalLM(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        folders.append(str(tmp_path / name))
    return folders


def run_python(text: str) -> str:
    """What the program prints; run in this process, since a new one imports torch for seconds."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "snippet", "exec"), {"__name__": "snippet"})
    return printed.getvalue().strip()


FLOAT32 = Environment("cpu", "Test CPU", "float32", "", "", "", "")


def test_every_transformers_snippet_runs_and_gives_the_text_of_the_target_alone(tiny_pair, make_plan):
    target, draft = tiny_pair
    texts = {
        name: run_python(export("transformers", make_plan(*([(10, (name, 3))] if name else []), target=target, environment=FLOAT32)))
        for name in ("", draft, "prompt-lookup", "early-exit:1")
    }
    assert len(texts[""].split()) > 20
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize("more", [17, -5])
def test_a_transformers_snippet_runs_with_a_draft_of_more_or_fewer_rows(tiny_pair, make_plan, more):
    target, draft = tiny_pair
    padded = draft if more > 0 else target
    module = LlamaForCausalLM.from_pretrained(padded)
    module.resize_token_embeddings(module.config.vocab_size + abs(more), mean_resizing=False)
    module.save_pretrained(padded)
    alone = run_python(export("transformers", make_plan(target=target, environment=FLOAT32)))
    plans = [make_plan((10, (draft, 3)), target=target, environment=FLOAT32, sampling=Sampling(temperature=t, seed=3)) for t in (0, 0.8)]
    greedy, sampled = (run_python(export("transformers", plan)) for plan in plans)
    assert greedy == alone and len(alone.split()) > 20 and sampled


def test_the_python_snippet_runs_the_whole_hierarchy(tiny_pair, make_plan):
    target, draft = tiny_pair
    plan = make_plan((10, ("prompt-lookup", 2), ("early-exit:1", 3), (draft, 4)), target=target, environment=FLOAT32)
    ours = run_python(export("python", plan))
    theirs = run_python(export("transformers", make_plan(target=target, environment=FLOAT32)))
    visible = [word for word in ours.split() if word not in ("<s>", "</s>")]  # the other snippet leaves special tokens out
    assert visible == theirs.split() and len(visible) > 20


def test_sampled_snippets_run_too(tiny_pair, make_plan):
    target, draft = tiny_pair
    sampling = Sampling(temperature=0.8, top_k=20, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=3)
    plan = make_plan((10, (draft, 3)), target=target, environment=FLOAT32, sampling=sampling)
    assert run_python(export("transformers", plan)) and run_python(export("python", plan))
