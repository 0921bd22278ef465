"""The report stands alone, labels what is measured and what is predicted, and shows every text literally."""

import argparse
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hsd.errors import BadInput
from hsd.export import command
from hsd.export.comparison import read_comparison
from hsd.export.exporter import export
from hsd.export.html import write_html
from hsd.export.markdown import literal, write_markdown
from hsd.export.numbers import digits
from hsd.export.parts import Bars
from hsd.export.report import build_report
from hsd.records import Estimate, Sampling

HOSTILE = "<img src=x onerror=alert(1)>|`${x}`{{y}}\"'&amp;\n# heading [a](javascript:b)"


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def read(html: str) -> Page:
    page = Page()
    page.feed(html)
    return page


def test_the_report_names_prediction_measurement_device_and_verdict(plan, measurement, comparison):
    text = "".join(read(export("report", plan, measurement=measurement, comparison=comparison)).text)
    for part in (
        "predicted 3.00 times as fast",
        "measured 2.73 times (medians of 5 runs)",
        "output identical to the target: yes",
        "Test CPU, 2 threads · bfloat16, greedy",
        "prompt-lookup@3,quantized:int4@8,owner/big",
        "0.812",
        "0.770 to 0.850",
        "90.0 (85.5 to 94.5)",
        "a near-tie",
        "5 repeats",
        "owner/big alone",
        "at token 18, where the two logits differ by 0.0078: a near-tie.",
        "outside of rounds",
    ):
        assert part in text, part


def test_the_report_names_kernels_seed_and_unsteady_costs(plan, measurement, comparison):
    plan = replace(plan, sampling=Sampling(temperature=0.8, seed=42))
    text = export("report", plan, measurement=measurement, comparison=comparison, markdown=True)
    assert "temperature 0.8, seed 42" in text.replace("\\", "") and "| kernels | torch |" in text
    assert "predictions can be as far off" in text, "the costs of this measurement are known to 10 % only"


def test_one_run_has_no_spread(plan, comparison):
    once = replace(comparison.methods[0], tokens_per_s=Estimate(90.0, 90.0, 90.0, 1))
    text = export("report", plan, comparison=replace(comparison, methods=(once,)), markdown=True)
    assert "| 90.0 |" in text and "90.0 to 90.0" not in text


def test_counts_and_ranges_are_named_as_what_they_are(plan, measurement, comparison):
    report = build_report(plan, measurement, comparison)
    measured = report.sections[1]
    assert "prompts “default” (3 measured)" in measured.paragraphs[0]
    assert "prompts “default”." in build_report(plan, replace(measurement, traces=())).sections[1].paragraphs[0]
    assert measured.blocks[0].header[-2:] == ("95 % interval", "samples")
    html = {section.title: write_html(replace(report, sections=(section,))) for section in report.sections}
    markdown = {section.title: write_markdown(replace(report, sections=(section,))) for section in report.sections}
    for written in (html, markdown):
        assert "95 % interval" in written["Plan"] and "95 % interval" not in written["Comparison"]
        assert "spread over the repeats" in written["Comparison"]


def test_acceptance_over_four_prompts_has_no_interval(plan, measurement):
    few = {draft: {verifier: replace(rate, prompts=4) for verifier, rate in row.items()} for draft, row in measurement.acceptance.items()}
    told, untold = (write_html(build_report(plan, one)) for one in (measurement, replace(measurement, acceptance=few)))
    assert "0.770 to 0.850" in told and "0.770" not in untold and "0.812" in untold


def test_the_overheads_of_a_round_are_told_with_unit_and_count(plan, measurement):
    text = export("report", plan, measurement=measurement, markdown=True)
    assert "Time beside the passes in running hierarchies, over 57 target rounds\n\n| of | µs |" in text
    assert "| a target round, around all rounds in it | 150 |\n| a token | 20 |\n| a round of prompt-lookup | 0 |" in text
    untold = export("report", plan, measurement=replace(measurement, overhead_rounds=0), markdown=True)
    assert "running hierarchies\n" in untold  # older files do not tell the count


def test_a_measurement_of_other_models_than_the_plans_is_refused(make_plan, measurement, plan):
    for other in (make_plan((10, ("quantized:int4", 4))), make_plan((10, ("owner/small", 5)), target="owner/else")):
        with pytest.raises(BadInput, match=r"measurement is of prompt-lookup, .*, the plan of .* that the plan was made from"):
            export("report", other, measurement=measurement)
    shuffled = replace(plan, candidates=(*reversed(plan.candidates[:-1]), plan.candidates[-1]))  # as another measurement orders them
    assert "0.812" in export("report", shuffled, measurement=measurement)


def test_a_report_tells_which_modes_of_transformers_were_left_out_and_why(plan, comparison):
    why = "transformers' own modes that need owner/big are left out. There is no room."
    read_back = read_comparison(json.loads(json.dumps(replace(comparison, left_out=(why,)).to_json())))
    assert why in "".join(read(export("report", plan, comparison=read_back)).text)


def test_without_measurement_and_comparison_nothing_measured_is_claimed(plan):
    text = " ".join(read(export("report", plan)).text)
    assert "All figures here are predictions" in text and "Measured on" not in text and "identical" not in text


def test_the_headline_takes_nothing_from_a_comparison_of_another_hierarchy(make_plan, comparison):
    report = build_report(make_plan((10, ("quantized:int4", 4))), comparison=comparison)
    assert "predicted 3.00 times" in report.answer and "measured" not in report.answer and "identical" not in report.answer
    (section,) = (section for section in report.sections if section.title == "Comparison")
    assert any("ran here is prompt-lookup@3,quantized:int4@8,owner/big, not that of the plan" in text for text in section.paragraphs)
    assert not any(bar.emphasis for block in section.blocks if isinstance(block, Bars) for bar in block.bars)


def test_bars_are_as_long_as_their_figures_and_the_plan_stands_out(plan):
    page = read(export("report", plan))
    widths = [float(value) for name, value in page.attributes if name == "width" and value.replace(".", "").isdigit()]
    assert widths[:2] == [pytest.approx(100 * 10 / 36, abs=0.01), pytest.approx(100 * 12 / 36, abs=0.01)]
    assert [value for name, value in page.attributes if name == "class" and "plan" in value] == ["row plan"]


def hostile(plan, comparison):
    plan = replace(plan, environment=replace(plan.environment, device_name=HOSTILE))
    methods = (replace(comparison.methods[0], name=HOSTILE, hierarchy=HOSTILE), *comparison.methods[1:])
    return plan, replace(comparison, methods=methods)


def test_html_shows_hostile_text_literally_and_loads_nothing(plan, comparison):
    plan, comparison = hostile(plan, comparison)
    page = read(export("report", plan, comparison=comparison))
    assert not {"img", "script", "iframe", "link", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert HOSTILE in "".join(page.text)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_markdown_keeps_its_tables_whatever_the_names(plan, measurement, comparison):
    plan, comparison = hostile(plan, comparison)
    text = export("report", plan, measurement=measurement, comparison=comparison, markdown=True)
    assert "<img" not in text and "${" not in text and "](" not in text and "\n# heading" not in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "owner/big" in text and "0.812" in text
    assert literal("a|b\nc") == "a&#124;b c"


def arguments(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_the_command_writes_the_file_and_says_what_it_wrote(plan, measurement, comparison, tmp_path):
    files = {}
    for name, record in (("plan", plan), ("measurement", measurement), ("comparison", comparison)):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(json.dumps(record.to_json()))
    out = tmp_path / "report.md"
    result = command.run(
        arguments(files["plan"], "--to", "report", "--out", out, "--measurement", files["measurement"], "--comparison", files["comparison"])
    )
    assert out.read_text().startswith("# Hierarchical") and result["characters"] == len(out.read_text())
    assert str(out) in command.describe(json.loads(json.dumps(result)))
    command.run(arguments(files["plan"], "--to", "report", "--out", tmp_path / "report.html"))
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(BadInput, match="are for `--to report`"):
        command.run(arguments(files["plan"], "--to", "vllm", "--out", out, "--measurement", files["measurement"]))
    with pytest.raises(BadInput, match="not a plan file"):
        command.run(arguments(files["measurement"], "--to", "vllm", "--out", out))
    with pytest.raises(BadInput):
        command.run(arguments(files["plan"], "--to", "vllm", "--out", tmp_path))


def with_times(comparison):
    methods = (replace(one, times_target=Estimate(2.7, 2.6, 2.9, 5)) if one.name == "hierarchy" else one for one in comparison.methods)
    return replace(comparison, methods=tuple(methods))


def test_times_the_target_have_the_spread_over_the_repeats(plan, comparison):
    report = build_report(plan, comparison=with_times(comparison))
    assert "measured 2.70 times (2.60 to 2.90 over 5 runs)" in report.answer
    assert "2.70 (2.60 to 2.90)" in write_html(report) and "2.70" not in write_html(build_report(plan, comparison=comparison))


def test_a_comparison_file_is_read_back_as_it_was(comparison):
    for one in (comparison, with_times(comparison)):
        assert read_comparison(json.loads(json.dumps(one.to_json()))) == one
    older = json.loads(json.dumps(comparison.to_json()))
    for method in older["methods"]:
        del method["times_target"]
    del older["left_out"]
    assert read_comparison(older) == comparison


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "plan"},
        {"schema": 99},
        {"methods": 3},
        {"methods": [{"name": "x"}]},
        {"identical": "yes"},
        {"divergences": [{"method": 1}]},
        {"sampling": {}},
        {"repeats": "many"},
        {"left_out": "all"},
        {"left_out": [1]},
    ],
)
def test_a_damaged_comparison_file_is_refused_with_a_sentence(comparison, change):
    with pytest.raises(BadInput, match=r"compar|divergences|sampling"):
        read_comparison({**json.loads(json.dumps(comparison.to_json())), **change})


def test_numbers_have_three_digits_and_no_exponent():
    wanted = {
        0.00421: "0.00421",
        4.2: "4.2",
        12.34: "12.3",
        99.96: "100",
        1174.2: "1174",
        0.0: "0",
        1e-7: "0.0000001",
        10.0: "10",
        100.0: "100",
    }
    assert {value: digits(value) for value in wanted} == wanted
