"""`compare --paper`: the expressions are checked by simulation, and the comparison of the paper is run."""

from __future__ import annotations

import json

import pytest

from hsd.compare.command import describe
from hsd.compare.paper import CASES, check_case, reproduce, simulate

PUBLISHED = ((10.0432, 9.5353), (10.4712, 9.4519), (10.1747, 9.9484), (16.9260, 16.1512), (15.6372, 12.8426))  # design §4


@pytest.mark.parametrize(("case", "wanted"), list(zip(CASES, PUBLISHED, strict=True)))
def test_the_table_of_the_design_comes_out(case, wanted):
    found = check_case(*case, tokens=20_000)
    assert (found.paper, found.exact) == (pytest.approx(wanted[0], abs=1e-4), pytest.approx(wanted[1], abs=1e-4))
    assert found.simulated == pytest.approx(found.exact, rel=0.02)  # and so not the paper's figure in the last case


def test_the_simulation_of_one_draft_is_leviathans_formula():
    assert simulate((1.0, 10.0), (0.8,), (4,), 50_000) == pytest.approx((4 + 10) * (1 - 0.8) / (1 - 0.8**5), rel=0.01)
    assert simulate((1.0, 10.0), (0.0,), (4,), 100) == 14.0 and simulate((1.0, 10.0), (1.0,), (4,), 100) == pytest.approx(14 / 5)


def test_the_three_ways_of_the_paper_are_compared(models, plan_of, prompts):
    plan = plan_of("early-exit:1@2,near@4", "near@3")
    found = reproduce(models, plan, prompts, repeats=1, max_new_tokens=4, tokens=200)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert list(data["speedups"]) == ["target", "best-single", "hierarchy"] and data["speedups"]["target"] == 1
    assert data["kind"] == "paper" and len(data["cases"]) == len(CASES)
    text = describe(data)
    assert "Theorem 2.2" in text and "best-single" in text and "early-exit:1@2,near@4" in text
