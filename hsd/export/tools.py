"""Snippets for other tools: the plan's best single draft in each tool's own settings."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

from hsd.export.single import LOOKUP, LOOKUP_NGRAM, SingleDraft, choose_single, comment, embedded_note, is_own_model, public_name
from hsd.plan.record import Plan
from hsd.records import Sampling
from hsd.settings import DEFAULT_MAX_NEW_TOKENS

_PROMPT = "Why is the sky blue?"


def transformers_snippet(plan: Plan) -> str:
    """Assisted generation of Hugging Face transformers: a draft model, prompt lookup or an early exit."""
    single = choose_single(plan, "transformers", lambda name: is_own_model(name) or name == LOOKUP or _exit_layers(name) is not None)
    target = public_name(plan.hierarchy.target)
    lines = [
        comment((*single.notes, *embedded_note(_names(plan, single)))),
        "import torch",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f"target = {target!r}",
        f"device, dtype = {plan.environment.device if plan.environment.measured else 'cpu'!r}, torch.{_dtype(plan)}",
        "tokenizer = AutoTokenizer.from_pretrained(target)",
        "model = AutoModelForCausalLM.from_pretrained(target, dtype=dtype).to(device)",
    ]
    assistance = ""
    if single.model == LOOKUP:
        assistance = f"prompt_lookup_num_tokens={single.threshold}, max_matching_ngram_size={LOOKUP_NGRAM}"
    elif single.model is not None:
        layers = _exit_layers(single.model)
        lines += [] if layers else _draft(public_name(single.model))
        who = "model" if layers else "draft"
        lines += [
            f"{who}.generation_config.num_assistant_tokens = {single.threshold}  # always this many, as planned",
            f'{who}.generation_config.num_assistant_tokens_schedule = "constant"',
            f"{who}.generation_config.assistant_confidence_threshold = 0.0",
        ]
        assistance = f"assistant_early_exit={layers}" if layers else "assistant_model=draft"
    settings = _transformers_sampling(plan.sampling)
    arguments = ["**inputs", f"max_new_tokens={DEFAULT_MAX_NEW_TOKENS}", *settings, *([assistance] if assistance else [])]
    lines += [
        "",
        f"message = {{'role': 'user', 'content': {_PROMPT!r}}}",
        "if tokenizer.chat_template:",
        '    inputs = tokenizer.apply_chat_template([message], add_generation_prompt=True, return_tensors="pt", return_dict=True)',
        "else:",
        '    inputs = tokenizer(message["content"], return_tensors="pt")',
        "inputs = inputs.to(device)",
        *([f"torch.manual_seed({plan.sampling.seed})"] if not plan.sampling.greedy else []),
        f"output = model.generate({', '.join(arguments)})",
        'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))',
    ]
    return "\n".join(lines) + "\n"


def _draft(name: str) -> list[str]:
    """transformers takes a draft with another number of rows for one with another tokenizer, and refuses it."""
    return [
        f"draft = AutoModelForCausalLM.from_pretrained({name!r}, dtype=dtype).to(device)",
        "# Equal ids mean equal tokens, so rows that one model lacks are padding; transformers refuses a draft with another number.",
        "draft.resize_token_embeddings(model.config.get_text_config().vocab_size, mean_resizing=False)",
    ]


def vllm_snippet(plan: Plan) -> str:
    """`vllm serve` with a draft model or n-gram lookup, and a request."""
    single = choose_single(plan, "vLLM", lambda name: is_own_model(name) or name == LOOKUP)
    sampling = plan.sampling
    config: dict[str, object] | None = None
    if single.model == LOOKUP:
        config = {
            "method": "ngram",
            "num_speculative_tokens": single.threshold,
            "prompt_lookup_max": LOOKUP_NGRAM,
            "prompt_lookup_min": 1,
        }
    elif single.model is not None:
        config = {"method": "draft_model", "model": public_name(single.model), "num_speculative_tokens": single.threshold}
        config |= {} if sampling.greedy else {"draft_sample_method": "probabilistic"}  # its default drafts greedily
    command = ["vllm serve " + shlex.quote(public_name(plan.hierarchy.target)), f"--dtype {_dtype(plan)}"]
    command.append("--generation-config vllm")  # instead of sampling defaults that come with the model
    command += [f"--speculative-config {shlex.quote(json.dumps(config))}"] if config else []
    body: dict[str, object] = {
        "model": public_name(plan.hierarchy.target),
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": DEFAULT_MAX_NEW_TOKENS,
        **_request_sampling(replace(sampling, min_p=0.0) if config else sampling),
        "seed": sampling.seed,
    }
    notes = (*single.notes, *embedded_note(_names(plan, single)), *_without_ngram_block(sampling, "vLLM"), *_vllm_notes(sampling, config))
    return _server(notes, command, "http://localhost:8000/v1/chat/completions", body)


def _vllm_notes(sampling: Sampling, config: dict[str, object] | None) -> list[str]:
    """What vLLM does not do with speculative decoding, as of 2026."""
    notes = []
    if config and sampling.min_p:
        notes.append(f"vLLM refuses min_p with speculative decoding; the plan's {sampling.min_p:g} is left out here.")
    if config and "model" in config:
        notes.append("vLLM refuses a draft whose vocab_size (config.json) is not the target's.")
    if config and "draft_sample_method" in config:
        notes.append("Without draft_sample_method, which older builds of vLLM do not know, drafts are greedy and fewer are accepted.")
    return notes


def sglang_snippet(plan: Plan) -> str:
    """`sglang.launch_server` with a standalone draft model or n-gram lookup, and a request."""
    single = choose_single(plan, "SGLang", lambda name: is_own_model(name) or name == LOOKUP)
    command = [f"python -m sglang.launch_server --model-path {shlex.quote(public_name(plan.hierarchy.target))}", f"--dtype {_dtype(plan)}"]
    command.append("--sampling-defaults openai")  # likewise
    notes = [*single.notes, *embedded_note(_names(plan, single)), *_without_ngram_block(plan.sampling, "SGLang")]
    if not plan.sampling.greedy:
        notes.append(f"The request carries no seed (the plan's is {plan.sampling.seed}): SGLang draws other texts each time.")
    if single.model == LOOKUP:
        command += ["--speculative-algorithm NGRAM", f"--speculative-num-draft-tokens {single.threshold + 1}"]
        notes.append("SGLang's n-gram drafts need CUDA.")
    elif single.model is not None:
        command += [
            "--speculative-algorithm STANDALONE",
            f"--speculative-draft-model-path {shlex.quote(public_name(single.model))}",
            f"--speculative-num-steps {single.threshold}",
            "--speculative-eagle-topk 1",
            f"--speculative-num-draft-tokens {single.threshold + 1}",
        ]
    body: dict[str, object] = {
        "model": public_name(plan.hierarchy.target),
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": DEFAULT_MAX_NEW_TOKENS,
        **_request_sampling(plan.sampling),
    }
    return _server(tuple(notes), command, "http://localhost:30000/v1/chat/completions", body)


def llama_cpp_snippet(plan: Plan) -> str:
    """`llama-server` with a draft model, a quantized copy of the target, or n-gram lookup."""
    single = choose_single(plan, "llama.cpp", lambda name: is_own_model(name) or name == LOOKUP or name.startswith("quantized:"))
    target = public_name(plan.hierarchy.target)
    kind = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[_dtype(plan)]
    steps = [_to_gguf(target, "target", kind)]
    command = ["llama-server --model target.gguf"]
    if single.model == LOOKUP:
        command += [
            "--spec-type ngram-simple",
            f"--spec-ngram-simple-size-n {LOOKUP_NGRAM}",
            f"--spec-ngram-simple-size-m {single.threshold}",
        ]
    elif single.model is not None:
        if single.model.startswith("quantized:"):
            steps.append(f"llama-quantize target.gguf draft.gguf {'Q4_0' if single.model.endswith('int4') else 'Q8_0'}")
        else:
            steps.append(_to_gguf(public_name(single.model), "draft", kind))
        command += [
            "--model-draft draft.gguf",
            "--spec-type draft-simple",
            f"--spec-draft-n-max {single.threshold}",
            f"--spec-draft-n-min {single.threshold}",
            "--spec-draft-p-min 0",
        ]
    sampling = plan.sampling
    command.append(f"--temp {sampling.temperature:g} --top-k {sampling.top_k} --top-p {sampling.top_p:g} --min-p {sampling.min_p:g}")
    command.append(f"--repeat-penalty {sampling.repetition_penalty:g} --repeat-last-n -1 --seed {sampling.seed}")
    notes = (
        *single.notes,
        *embedded_note(_names(plan, single)),
        *_without_ngram_block(sampling, "llama.cpp"),
        "llama.cpp reads GGUF files; convert_hf_to_gguf.py lies in its repository. Flags as of 2026; older builds call",
        "--spec-draft-n-max --draft-max, and the n-gram sizes --spec-ngram-size-n and --spec-ngram-size-m.",
    )
    return f"#!/usr/bin/env bash\n{comment(notes)}\nset -e\n" + "\n".join([*steps, _wrapped(command)]) + "\n"


def _to_gguf(model: str, stem: str, kind: str) -> str:
    folder = shlex.quote(f"./{stem}-hf")
    return (
        f"hf download {shlex.quote(model)} --local-dir {folder}  # leave out for a local folder, and name it below\n"
        f"python convert_hf_to_gguf.py {folder} --outtype {kind} --outfile {stem}.gguf"
    )


def _server(notes: tuple[str, ...], command: list[str], url: str, body: dict[str, object]) -> str:
    request = ["curl " + url, "--header 'Content-Type: application/json'", f"--data {shlex.quote(json.dumps(body, ensure_ascii=False))}"]
    return (
        f"#!/usr/bin/env bash\n{comment(notes)}\n{_wrapped(command)}\n\n"
        "# Once the server is up, in another terminal:\n" + "\n".join(f"# {line}" for line in _wrapped(request).splitlines()) + "\n"
    )


def _wrapped(parts: list[str]) -> str:
    return " \\\n    ".join(parts)


def _dtype(plan: Plan) -> str:
    """The plan file is untrusted: only a known dtype is written out."""
    return plan.environment.dtype if plan.environment.dtype in ("bfloat16", "float16", "float32") else "bfloat16"


def _names(plan: Plan, single: SingleDraft) -> tuple[str, ...]:
    return (plan.hierarchy.target, *([single.model] if single.model else []))


def _exit_layers(name: str) -> int | None:
    """Layers of an early exit; the plan file is untrusted: anything but a number is no draft that runs anywhere."""
    found = re.fullmatch("early-exit:([1-9][0-9]{0,3})", name)
    return int(found[1]) if found else None


def _transformers_sampling(sampling: Sampling) -> list[str]:
    """Settings that are off are passed too: a model's own generation settings would otherwise fill them in."""
    settings = [f"do_sample={not sampling.greedy}"]
    if not sampling.greedy:
        settings += [f"temperature={sampling.temperature}", f"top_k={sampling.top_k}", f"top_p={sampling.top_p}", f"min_p={sampling.min_p}"]
    return [*settings, f"repetition_penalty={sampling.repetition_penalty}", f"no_repeat_ngram_size={sampling.no_repeat_ngram_size}"]


def _request_sampling(sampling: Sampling) -> dict[str, object]:
    """OpenAI-style request fields, with the extensions that vLLM and SGLang share."""
    fields: dict[str, object] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    fields |= {"top_k": sampling.top_k} if sampling.top_k else {}
    fields |= {"min_p": sampling.min_p} if sampling.min_p else {}
    fields |= {"repetition_penalty": sampling.repetition_penalty} if sampling.repetition_penalty != 1 else {}
    return fields


def _without_ngram_block(sampling: Sampling, tool: str) -> tuple[str, ...]:
    return (f"{tool} has no no_repeat_ngram_size; it is left out here.",) if sampling.no_repeat_ngram_size else ()
