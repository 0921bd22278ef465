"""The status line: progress in words and as a bar, and what is said of a model that was added."""

import json

import pytest
from scripted import ScriptedEngine

from hsd.records import Progress


def test_a_count_that_the_message_tells_is_told_once():
    from ui.status import progress

    words = json.dumps(progress(Progress("cost", 0, 49, 26.0, "0 of 49 costs known to 2%"), 0.0), ensure_ascii=False)
    assert "Cost · 0 of 49 costs known to 2% · 26 s left" in words


def test_progress_reads_as_a_sentence_with_remaining_time():
    from ui.status import progress

    words = json.dumps(progress(Progress("fetch model", 1_000_000, 9_000_000, 75.0), 1 / 9), ensure_ascii=False)
    assert "Fetch model · 1 MB of 9 MB · 75 s left" in words and '"aria-valuenow": "11"' in words


@pytest.mark.parametrize(
    ("left", "words"), [(0.0, "under a second"), (0.3, "under a second"), (1.4, "1 s"), (119.6, "2 min 00 s"), (75, "75 s")]
)
def test_remaining_time_is_told_in_whole_seconds(left, words):
    from ui.status import progress

    assert f"{words} left" in json.dumps(progress(Progress("cost", 0, 49, left, "costs"), 0.0))


def test_the_bar_follows_time_where_the_count_stands_still_and_never_goes_back(monkeypatch):
    from ui import page

    now = iter((100.0, 110.0, 120.0, 121.0, 122.0, 123.0, 124.0, 125.0))
    monkeypatch.setattr(page.time, "monotonic", lambda: next(now))
    course = page.Course(told=page.time.monotonic())
    steps = [Progress("cost", known, 40, left) for known, left in ((0, 30.0), (0, 20.0), (0, 60.0), (40, 14.0))]
    assert [course.share(step) for step in steps] == pytest.approx([1 / 4, 1 / 2, 1 / 2, 1.0])
    assert course.share(Progress("acceptance", 0, 8)) == 0.0, "a new phase begins at its own start"
    each = [course.share(Progress("prepare draft", done, 1, None, name)) for done, name in ((1, "a"), (0, "b"))]
    assert each == [1.0, 0.0], "and so does each draft"


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        ("someone/good", "done", "someone/good is in the list."),
        ("<b>odd</b>", "error", "<b>odd</b> cannot be used: The vocabulary of <b>odd</b> differs."),
        ("target", "error", "target is the target itself"),
    ],
)
def test_adding_a_model_that_cannot_serve_is_an_error_with_its_reason(name, state, words):
    from ui.tabs.pick import said_of

    line = said_of(name, ScriptedEngine().candidates("target", (name,), "cpu", "auto"), "target")
    assert line[1]["data-state"] == state and line[2][2].startswith(words)
