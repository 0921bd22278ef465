"""Plans from typed numbers."""

import pytest

from hsd.errors import BadInput
from hsd.plan.calculator import from_csv, typed_measurement
from hsd.plan.planner import plan


def test_example_where_a_third_model_lowers_the_latency(examples):
    found = plan(from_csv(examples[0]))
    assert [level.model for level in found.hierarchy.levels] == ["small", "medium", "large"]
    assert found.predicted_s_per_token.best < 0.95 * found.best_single_draft.predicted_s_per_token.best


def test_example_where_a_third_model_does_not(examples):
    found = plan(from_csv(examples[1]))
    assert [level.model for level in found.hierarchy.levels] == ["small", "large"]


def test_example_with_wide_passes_plans_shorter_blocks(examples):
    narrow, wide = plan(from_csv(examples[0])), plan(from_csv(examples[2]))
    assert sum(wide.hierarchy.thresholds) < sum(narrow.hierarchy.thresholds)
    assert wide.predicted_s_per_token.exact > narrow.predicted_s_per_token.exact


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_table_means_what_it_says(delimiter):
    text = "model,cost,cost 4,b,c\n\na,1,1.5,0.5,0.25\nb,3,3,,.75\nc,9,12,,\n".replace(",", delimiter)
    assert from_csv(text).cost_s["a"][4].median == pytest.approx(0.0015)
    typed = typed_measurement(
        {"a": {1: 0.001, 4: 0.0015}, "b": {1: 0.003, 4: 0.003}, "c": {1: 0.009, 4: 0.012}},
        {("a", "b"): 0.5, ("a", "c"): 0.25, ("b", "c"): 0.75},
    )
    assert from_csv(text).acceptance == typed.acceptance and from_csv(text).models == typed.models


def test_typed_numbers_have_no_interval_and_say_so(examples):
    found = plan(from_csv(examples[0]))
    predicted = found.predicted_s_per_token
    assert [predicted.low, predicted.high] == pytest.approx([predicted.exact] * 2, rel=1e-12)
    assert found.environment.device_name == "typed numbers"


@pytest.mark.parametrize(("text", "sentence"), [
    ("", "needs a header"),
    ("model,cost,b\na,1,.5", "needs a header"),
    ("a,1,.5\nb,2,\nc,3,", "needs a header"),
    ("model,cost,b\na,1,1.5\nb,2,", "acceptance of a at b is 1.5"),
    ("model,cost,b\na,1,x\nb,2,", "acceptance of a at b is 'x'; give a number"),
    ("model,cost,b\na,-1,.5\nb,2,", "cost of a is negative"),
    ("model,cost,b\na,,.5\nb,2,", "cost of a is missing"),
    ("model,cost,b\na,nan,.5\nb,2,", "give a finite number"),
    ("model,cost,b\na,1,\nb,2,", "acceptance of a at b is missing"),
    ("model,cost,b\na,1,.5\na,2,", "a has two rows"),
    ("model,cost,b\na,1,.5,3\nb,2,", "more cells than the header"),
    ("model,cost,b\na,1,.5\nb,2,\n,2,", "no name"),
    ("model,cost,b,a\na,1,.5\nb,2,,.3", "b is not the smaller one"),
    ("model,cost,b,z\na,1,.5,.4\nb,2,,.3", "z has no cost"),
    ("model,cost x,b\na,1,.5\nb,2,", "no cost column"),
])  # fmt: skip
def test_bad_tables_are_named(text, sentence):
    with pytest.raises(BadInput, match=sentence):
        from_csv(text)
