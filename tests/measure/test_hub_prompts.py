"""Named hub data sets: rows from the viewer are untrusted, bounded, and their absence is said in one sentence."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlparse

import pytest

from hsd.errors import BadInput, ModelUnavailable
from hsd.measure import hub_prompts
from hsd.measure.hub_prompts import LONGEST_TEXT, PRESETS, fetch, load_named, load_preset


def answer(*texts, column="article", **more):
    return json.dumps(
        {"rows": [{"row_idx": n, "row": {column: text}, "truncated_cells": []} | more for n, text in enumerate(texts)]}
    ).encode()


@pytest.mark.parametrize("name", PRESETS)
def test_articles_become_prompts_below_an_instruction(name):
    asked = []
    preset = PRESETS[name]
    found = load_preset(name, count=2, get=lambda url: asked.append(url) or answer("One.", " Two. ", "Three.", column=preset.column))
    assert [prompt.prompt for prompt in found] == [f"{preset.instruction}\n\nOne.", f"{preset.instruction}\n\nTwo."]
    assert {prompt.category for prompt in found} == {"summarisation"} and found.name == name
    query = parse_qs(urlparse(asked[0]).query)
    assert (query["dataset"], query["config"], query["split"]) == ([preset.dataset], [preset.config], [preset.split])
    assert 0 < int(query["length"][0]) <= 100 and urlparse(asked[0]).scheme == "https"


def test_what_is_too_long_cut_off_or_empty_is_left_out():
    rows = json.loads(answer("x" * (LONGEST_TEXT + 1), "  ", "cut", "fine"))
    rows["rows"][2]["truncated_cells"] = ["article"]
    assert [prompt.prompt[-4:] for prompt in load_preset("cnn_dailymail", get=lambda url: json.dumps(rows).encode())] == ["fine"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"rows": 3}',
        b'{"rows": [3]}',
        b'{"rows": [{"row": {"article": 3}}]}',
        b'{"rows": [{"row": {}}]}',
        b"\xff",
    ],
)
def test_an_answer_without_rows_is_refused_in_a_sentence(data):
    with pytest.raises(ModelUnavailable, match=r"give a file of prompts\.$"):
        load_preset("cnn_dailymail", get=lambda url: data)


def test_no_usable_row_and_a_nul_character_are_named():
    for data in (answer(), answer("a\0b")):
        with pytest.raises(BadInput, match="cnn_dailymail"):
            load_preset("cnn_dailymail", get=lambda url, data=data: data)


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(BadInput, match="cnn_dailymail, xsum"):
        load_preset("pile")
    file = tmp_path / "own.txt"
    file.write_text("a prompt")
    assert [prompt.prompt for prompt in load_named(str(file))] == ["a prompt"]  # anything else is a file


@pytest.fixture
def server(monkeypatch):
    """A hub that answers as told, on this machine."""
    replies = {"body": answer("Over the wire."), "status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(replies["status"])
            self.end_headers()
            self.wfile.write(replies["body"])

        def log_message(self, *args):
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(hub_prompts, "_VIEWER", f"http://127.0.0.1:{running.server_port}/rows")
    yield replies
    running.shutdown()
    running.server_close()


def test_rows_come_over_the_network(server):
    assert load_named("cnn_dailymail").prompts[0].prompt.endswith("Over the wire.")


def test_a_refusal_of_the_hub_is_told(server):
    server["status"] = 503
    with pytest.raises(ModelUnavailable, match=r"status 503.*--prompts FILE"):
        load_preset("xsum")


def test_a_large_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(hub_prompts, "MAX_BYTES", 1000)
    server["body"] = b"x" * 300_000
    with pytest.raises(ModelUnavailable, match="sent more than"):
        load_preset("xsum")


def test_a_slow_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(hub_prompts.time, "monotonic", iter([0.0, 99.0]).__next__)
    with pytest.raises(ModelUnavailable, match="took longer"):
        fetch(hub_prompts._VIEWER)


def test_without_a_network_it_says_what_to_do(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(ModelUnavailable, match=r"cannot be reached.*--prompts FILE"):
        fetch("http://127.0.0.1:9/rows")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailable, match=r"HF_HUB_OFFLINE is set.*--prompts FILE"):
        fetch("http://127.0.0.1:9/rows")
