"""A measurement file may come from anywhere: whatever is wrong with it is named in a sentence, and nothing else happens."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from hsd.console import read_json
from hsd.errors import BadInput
from hsd.measure.record import Acceptance, BlockGain, Measurement, PromptSetInfo, Trace
from hsd.records import Environment, Estimate, Sampling

COST = Estimate(0.02, 0.019, 0.022, 40)
RATE = Acceptance(0.8, 0.7, 0.9, 4, 1)
MEASUREMENT = Measurement(
    models=("prompt-lookup", "draft", "target"),
    cost_s={"prompt-lookup": {0: Estimate(1e-5, 1e-5, 2e-5, 8)}, "draft": {1: COST, 4: COST}, "target": {1: COST, 4: COST}},
    acceptance={"prompt-lookup": {"draft": RATE, "target": RATE}, "draft": {"target": RATE}},
    block_gains={"prompt-lookup": {"draft": (BlockGain(0, 0, 2), BlockGain(4, 3, 1)), "target": (BlockGain(0, 0, 2),)}},
    overhead_s=1e-4,
    context_tokens=300,
    sampling=Sampling(temperature=0.8, top_k=40, seed=7),
    prompts=PromptSetInfo("default", "0" * 64, 40),
    environment=Environment("cpu", "Test CPU", "bfloat16", "2.13.0", "5.24.0", "3.11.7", "2026-01-01T00:00:00+00:00"),
    memory_bytes={"target": 270_000_000, "draft": 70_000_000},
    context_cost_s={"draft": {20: {1: COST}, 900: {1: COST}}, "target": {900: {4: COST}}},
    token_overhead_s=2e-5,
    round_overhead_s={"draft": 3e-5},
    overhead_rounds=50,
    traces=(
        Trace(
            "p1",
            "chat",
            2,
            {"draft": {"target": (0.5, 1.0)}},
            {"prompt-lookup": {"draft": ((4, 3), (0, 0)), "target": ((2, 2), (1, 0))}},
            prompt_tokens=250,
        ),
    ),
)


def written():
    return json.loads(json.dumps(MEASUREMENT.to_json()))


def test_a_file_reads_back_as_it_was_written():
    assert Measurement.from_json(written()) == MEASUREMENT
    bare = replace(MEASUREMENT, traces=())
    assert Measurement.from_json(json.loads(json.dumps(bare.to_json()))) == bare
    assert (written()["schema"], written()["kind"]) == (1, "measurement")


def test_a_file_made_before_contexts_and_overheads_were_measured_still_loads():
    data = written()
    for field in ("context_cost_s", "token_overhead_s", "round_overhead_s", "overhead_rounds"):
        del data[field]
    del data["traces"][0]["prompt_tokens"]
    found = Measurement.from_json(data)
    assert (found.context_cost_s, found.token_overhead_s, found.round_overhead_s, found.overhead_rounds) == ({}, 0.0, {}, 0)
    assert found.traces[0].prompt_tokens is None and found.cost_s == MEASUREMENT.cost_s


def test_a_file_without_traces_is_fine():
    data = written()
    del data["traces"]
    assert Measurement.from_json(data) == replace(MEASUREMENT, traces=())


def paths(data, *, prefix=()):
    """Where every value of the file lies."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from paths(value, prefix=(*prefix, key))


def damaged(path, value):
    data = written()
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


class GONE:
    """The field is missing."""


ANYWHERE = list(paths(written()))
NEWER = {  # files made before lack them
    *(("context_cost_s",), ("token_overhead_s",), ("round_overhead_s",), ("overhead_rounds",)),
    ("traces", 0, "prompt_tokens"),
}
OPTIONAL = {("traces",), ("environment", "kernels"), *NEWER}


def sentence_of(data):
    with pytest.raises(BadInput) as caught:
        Measurement.from_json(data)
    sentence = str(caught.value)
    assert sentence.endswith(".") and 20 < len(sentence) < 400 and "\n" not in sentence, sentence
    return sentence


def fields_that_must_be_there():
    for path in ANYWHERE:
        holder_is_record = isinstance(path[-1], str) and path[0] not in ("memory_bytes",)
        in_map = (path[0] in ("acceptance", "block_gains") and len(path) in (2, 3)) or (path[0] == "cost_s" and len(path) == 3)
        in_map = in_map or path[0] == "round_overhead_s" or (path[0] == "context_cost_s" and len(path) in (2, 3, 4))
        in_trace_map = path[0] == "traces" and len(path) > 3
        if holder_is_record and not in_map and not in_trace_map and path not in OPTIONAL and path[:-1] != ("sampling",):
            yield path


@pytest.mark.parametrize("path", list(fields_that_must_be_there()), ids=lambda path: ".".join(map(str, path)))
def test_a_missing_field_is_named(path):
    assert path[-1] in sentence_of(damaged(path, GONE)) or path == ("schema",) or path == ("kind",)


@pytest.mark.parametrize(
    "value",
    [None, True, "x", [], [1], {}, {"a": 1}, float("nan"), float("inf"), -float("inf"), -1, 1e300, 10**400],
    ids=lambda value: str(value)[:8],
)
def test_no_value_anywhere_does_more_than_be_refused(value):
    """Every value of the file in turn becomes something else: it is refused with a sentence, or it is a fine value there."""
    for path in ANYWHERE:
        data = damaged(path, copy.deepcopy(value))
        try:
            found = Measurement.from_json(data)
        except BadInput as error:
            assert str(error).endswith(".") and len(str(error)) < 600, (path, str(error))
        else:
            assert Measurement.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found, path


@pytest.mark.parametrize(("path", "value", "wanted"), [
    (("schema",), 2, "schema 2, this program reads 1"),
    (("kind",), "plan", "not a measurement file"),
    (("models",), ["draft", "draft"], "distinct model names"),
    (("models",), [], "distinct model names"),
    (("models",), "target", "“models” must list"),
    (("models",), ["draft", 3], "distinct model names"),
    (("models",), ["draft", "else"], "No cost was measured for else"),
    (("cost_s", "draft"), {}, "No cost was measured for draft"),
    (("cost_s", "draft", "1", "median"), -0.1, "cost of draft at width 1 is -0.1"),
    (("cost_s", "draft", "1", "median"), float("nan"), "cost of draft at width 1 is nan"),
    (("cost_s", "draft", "1", "high"), float("inf"), "cost of draft at width 1"),
    (("cost_s", "draft", "1", "low"), 0.5, "cost of draft at width 1"),
    (("cost_s", "draft", "1", "median"), "fast", "“median” in cost_s of draft is str, expected float"),
    (("cost_s", "draft", "x"), {}, "damaged"),
    (("cost_s", "draft", "-3"), {"median": 1, "low": 1, "high": 1, "samples": 1}, "width -3"),
    (("acceptance", "draft", "target", "mean"), 1.01, "acceptance of draft at target is 1.01"),
    (("acceptance", "draft", "target", "mean"), float("nan"), "acceptance of draft at target is nan"),
    (("acceptance", "draft", "target", "low"), -0.5, "acceptance of draft at target"),
    (("acceptance", "draft", "target", "high"), float("nan"), "acceptance of draft at target"),
    (("acceptance", "draft", "target", "positions"), 4.5, "“positions” in acceptance of draft at target is float, expected int"),
    (("overhead_s",), float("nan"), "overhead"),
    (("overhead_s",), -1, "overhead"),
    (("token_overhead_s",), -1, "overhead per committed token"),
    (("round_overhead_s", "draft"), float("nan"), "overhead per round of draft"),
    (("context_cost_s", "draft", "20", "1", "median"), -2, "cost of draft at width 1"),
    (("context_cost_s", "draft", "-20"), {}, "negative context"),
    (("overhead_rounds",), 1.5, "overhead_rounds"),
    (("traces", 0, "prompt_tokens"), -1, "prompt_tokens"),
    (("context_tokens",), float("inf"), "context_tokens"),
    (("sampling", "temperature"), -1, "temperature is -1"),
    (("sampling", "top_p"), float("nan"), "top_p is nan"),
    (("block_gains", "prompt-lookup", "target", 0, "accepted"), 9, "block of prompt-lookup at target"),
    (("block_gains", "prompt-lookup", "target", 0, "count"), -2, "block of prompt-lookup at target"),
    (("traces", 0, "accept", "draft", "target", 0), 1.5, "p1"),
    (("traces", 0, "accept", "draft", "target", 0), float("nan"), "p1"),
    (("traces", 0, "proposals", "prompt-lookup", "target", 0), [1, 2], "p1"),
    (("traces", 0, "proposals", "prompt-lookup", "target", 0), [1], "damaged"),
], ids=str)  # fmt: skip
def test_what_is_wrong_is_said(path, value, wanted):
    assert wanted in sentence_of(damaged(path, value))


@pytest.mark.parametrize(
    "data", [None, 3, "measurement", [], [MEASUREMENT.to_json()], {}, {"kind": "plan", "schema": 1}], ids=lambda d: type(d).__name__
)
def test_other_json_is_no_measurement_file(data):
    assert "not a measurement file" in sentence_of(data)


def test_a_huge_list_is_refused_soon():
    for path in [("models",), ("traces",), ("traces", 0, "accept", "draft", "target"), ("block_gains", "prompt-lookup", "target")]:
        sentence_of(damaged(path, [2] * 1_000_000))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000, b"nothing"], ids=lambda content: str(content[:4])
)
def test_what_is_no_json_is_said(tmp_path, content):
    path = tmp_path / "m.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"m\.json is not JSON .* give the file that `hsd` wrote|m\.json is not JSON"):
        read_json(path, "hsd")


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            read_json(path, "hsd")
