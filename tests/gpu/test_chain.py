"""The whole data path on CUDA with a tiny model: measure, plan, generate, compare."""

from __future__ import annotations

import json

from saved_models import save_model

from hsd.__main__ import main
from hsd.measure import run as measure_run
from hsd.measure.run import Effort


def test_measure_plan_generate_compare(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure_run, "QUICK", Effort(prompts=3, max_new_tokens=16, cost_budget_s=3.0, widths=(1, 2, 4, 9, 17)))
    target, draft = save_model(tmp_path / "target", layers=2, seed=0, context=600), save_model(tmp_path / "draft", layers=1, seed=1)
    (tmp_path / "prompts.txt").write_text("abc abc abc abc\none two three\nthe same the same\n")
    where = ["--device", "cuda", "--dtype", "float32"]
    measured, planned = str(tmp_path / "m.json"), str(tmp_path / "p.json")

    def hsd(*words):
        capsys.readouterr()
        status = main([*words, "--json"])
        out, err = capsys.readouterr()
        assert status == 0, err
        return json.loads(out)

    candidates = f"prompt-lookup,early-exit:1,{draft}"
    words = ["measure", "--target", target, "--candidates", candidates, "--out", measured, "--quick"]
    measurement = hsd(*words, "--prompts", str(tmp_path / "prompts.txt"), *where)
    assert measurement["environment"]["device"] == "cuda:0" and measurement["environment"]["kernels"] == "cuda-graphs"
    assert not measurement["notices"]
    hsd("plan", measured, "--out", planned)
    generated = hsd("generate", "--plan", planned, "--prompt", "abc abc abc", "--max-new-tokens", "32", *where)
    assert generated["token_ids"] and not generated["notices"]
    words = ["compare", "--plan", planned, "--prompts", str(tmp_path / "prompts.txt"), "--repeats", "2", "--max-new-tokens", "24"]
    compared = hsd(*words, *where)
    assert {"target", "hierarchy", "transformers"} <= {method["name"] for method in compared["methods"]}
    assert compared["identical"] and not any(divergence["near_tie"] is False for divergence in compared["divergences"])


def test_a_hierarchy_over_a_processor_and_a_gpu_writes_the_targets_text():
    """Two devices at once: distributions move to where they are compared."""
    from decoding_checks import decode, transformers_text
    from tiny_models import model_set, perturbed, tiny_llama

    from hsd.models.build import build_network
    from hsd.records import Hierarchy, Sampling

    module = tiny_llama()
    wanted = transformers_text(module, [11, 4, 60], 30)
    draft = build_network("draft", perturbed(module, 0.03))
    models = model_set({"draft": draft, "target": build_network("target", module.to("cuda"))})
    hierarchy = Hierarchy.parse("draft@3", "target")
    assert list(decode(models, hierarchy, [11, 4, 60], max_new_tokens=30).token_ids) == wanted
    sampled = decode(models, hierarchy, [11, 4, 60], max_new_tokens=30, sampling=Sampling(temperature=1.0))
    assert len(sampled.token_ids) == 30
