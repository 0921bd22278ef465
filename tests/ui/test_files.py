"""No path that a visitor gives comes back as a file (pitfall 27); what is exported and fetched by an id."""

import json
import secrets
import urllib.error
import urllib.request

import gradio as gr
import pytest
from scripted import ScriptedEngine, make_measurement, make_sample

from hsd.errors import BadInput
from ui.actions import create_actions
from ui.nodes import nodes
from ui.page import Ids, Page
from ui.planning import Limits, make_plan
from ui.tabs import export
from ui.tabs.plan import create_plan


@pytest.fixture(scope="module")
def page():
    from visits import Served

    server = Served(ScriptedEngine(), make_sample())
    yield server
    server.close()


def fetch(url: str, data: dict | None = None) -> tuple[int, bytes]:
    body = json.dumps(data).encode() if data is not None else None
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("path", ["/etc/passwd", "app.py", "ui/build.py", "../../../../etc/passwd", "assets/app.css", "/proc/self/environ"])
def test_files_of_the_server_are_not_served(page, path):
    for route in ("gradio_api/file=", "gradio_api/file/", "file="):
        status, body = fetch(f"{page.url}{route}{path}")
        assert status in (400, 403, 404, 405), (route, status)
        assert b"root:" not in body and b"import gradio" not in body


def test_no_event_gives_back_a_file_named_in_its_input(page, tmp_path):
    """Every event is called with a path wherever it takes something; none answers with what the file holds."""
    secret = secrets.token_hex(12)
    file = tmp_path / "secret.json"
    file.write_text(json.dumps({"kind": "plan", "note": secret}))
    configuration = json.loads(fetch(f"{page.url}config")[1])
    given = {"path": str(file), "meta": {"_type": "gradio.FileData"}, "orig_name": "x.json"}
    tried = 0
    for event in configuration["dependencies"]:
        for value in (given, str(file)):
            call = {"fn_index": event["id"], "data": [value] * len(event["inputs"]), "session_hash": secrets.token_hex(5)}
            status, body = fetch(f"{page.url}gradio_api/queue/join", call)
            tried += 1
            if status == 200:
                status, body = fetch_stream(page.url, call["session_hash"])
            assert secret.encode() not in body, event
    assert tried > 20
    for where in (tmp_path, file):
        assert fetch(f"{page.url}gradio_api/file={where}")[0] in (400, 403, 404)


def fetch_stream(url: str, session: str) -> tuple[int, bytes]:
    """What the queue answers to that session, until it closes the stream."""
    body = b""
    with urllib.request.urlopen(f"{url}gradio_api/queue/data?session_hash={session}", timeout=20) as answer:
        for line in answer:
            body += line
            if b"process_completed" in line or b"close_stream" in line or b"unexpected_error" in line:
                break
    return 200, body


@pytest.fixture
def steps():
    """The tabs Plan and Export over results in the store, and the handler of “Fetch”."""
    page = Page(ScriptedEngine(), None)
    with gr.Blocks() as demo:
        page.ids, page.hero, page.status = gr.State(Ids()), nodes(), nodes()
        page.actions, page.stop = create_actions()
        create_plan(page)
        export.create_export(page)
        for connect in page.wire:
            connect(page.outputs)
    (fetch_again,) = (function.fn for function in demo.fns.values() if function.name == "fetch_again")
    return page, fetch_again


def test_a_plan_is_fetched_without_the_measurement_of_other_drafts(steps):
    page, fetch_again = steps
    older, newer = make_measurement(), make_measurement(("prompt-lookup",))
    key = page.store.put(make_plan(older, Limits()))
    ids = page.keep(Ids(), measurement=newer, plan=make_plan(newer, Limits()))
    updates = fetch_again(ids, f" {key} ")
    assert updates[page.ids] == Ids(plan=key) and f"Fetched plan {key}" in updates[page.status]
    for kind in ("measurement", "comparison"):
        kept = ids.measurement if kind == "measurement" else page.store.put(make_sample().comparison)
        assert getattr(fetch_again(ids, kept)[page.ids], kind) == kept


def test_fetching_explains_what_goes_wrong(steps, monkeypatch):
    page, fetch_again = steps
    assert "No result with that id" in fetch_again(Ids(), "unknown")[page.status]
    monkeypatch.setattr(Page, "show", lambda *_: 1 / 0)
    assert "error" in fetch_again(Ids(), page.store.put(make_sample().plan))[page.status]


def test_an_exported_comparison_is_refused_in_the_words_of_the_list(steps):
    page, _ = steps
    kept = page.keep(Ids(), comparison=make_sample().comparison)
    with pytest.raises(BadInput, match=r"A comparison .* is not read again: only a measurement, a plan or a trace"):
        export.read_upload(page, Ids(), export.content_of(page, kept, "comparison").encode())
    with pytest.raises(BadInput, match="only those three are read again"):
        export.read_upload(page, Ids(), b'{"kind": "else"}')


@pytest.mark.parametrize(
    ("kind", "name"), [("vllm", "hsd-vllm.sh"), ("report-markdown", "hsd-report-markdown.md"), ("plan", "hsd-plan.json")]
)
def test_exports_have_the_suffix_of_what_they_hold_and_older_ones_go(tmp_path, kind, name):
    files = [export._write(tmp_path, kind, str(number)) for number in range(export.KEPT + 3)]
    assert {file.name for file in files} == {name}
    assert [file.exists() for file in files] == [False] * 3 + [True] * export.KEPT
    assert len(list(tmp_path.iterdir())) == export.KEPT
