"""Runs in their threads: order, batches, errors as sentences, turns, visitors who leave, and what browsers pull meanwhile."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hsd.errors import BadInput, Cancelled
from hsd.generate.events import TokenEvent
from ui import jobs, watched
from ui.recorder import Recorder


def drain(job: jobs.Job, work) -> list:
    return [item for batch in jobs.run(job, work) for item in batch]


def told(job: jobs.Job, work) -> Iterator[dict]:
    """What a page is told of the job: the batches so far."""
    job.told, job.updates = {"batches": 0}, ({"batches": place + 1} for place, _ in enumerate(jobs.run(job, work)))
    return jobs.follow(job)


def leave(job: jobs.Job, work) -> None:
    """Begin to follow the job, then leave."""
    page = told(job, work)
    assert [next(page), next(page)] == [{"batches": 1}] * 2  # the same mapping, updated
    page.close()


def test_a_job_hands_on_everything_in_order_in_few_batches():
    job = jobs.Job()

    def work() -> str:
        for i in range(500):
            job.items.put(i)
            time.sleep(0.001)
        return "result"

    batches = list(jobs.run(job, work))
    assert [item for batch in batches for item in batch] == [*range(500), jobs.Done("result")]
    assert len(batches) < 15


def test_errors_of_a_job_are_sentences_without_inner_details(caplog):
    def broken():
        raise RuntimeError("/secret/path")

    def mistaken():
        raise BadInput("Give a number.")

    def cancelled():
        raise Cancelled("Stopped.")

    assert "/secret" not in drain(jobs.Job(), broken)[-1].message and "/secret/path" in caplog.text
    assert drain(jobs.Job(), mistaken)[-1] == jobs.Failed("Give a number.", False)
    assert drain(jobs.Job(), cancelled)[-1] == jobs.Failed("Stopped.", True)


def test_work_goes_on_for_a_while_when_its_visitor_left_then_stops(monkeypatch):
    monkeypatch.setattr(jobs, "GRACE_S", 0.2)
    job, ended = jobs.Job(), threading.Event()

    def work() -> None:
        while not job.should_stop():
            job.items.put(0)
            time.sleep(0.01)
        ended.set()

    leave(job, work)
    assert not ended.wait(0.1)
    assert ended.wait(2)


def test_a_page_loaded_anew_goes_on_with_the_run_and_the_page_before_lets_go(monkeypatch):
    monkeypatch.setattr(jobs, "TICK_S", 0.01)
    job, go, seen = jobs.Job(), threading.Semaphore(0), []

    def work() -> str:
        for place in range(3):
            go.acquire()
            job.items.put(place)
        return "result"

    job.told, job.updates = {"seen": seen}, ({"seen": seen.extend(batch) or seen} for batch in jobs.run(job, work))
    before = jobs.follow(job)
    next(before)
    go.release()
    assert next(before)["seen"] == [0]
    after = jobs.follow(job)
    assert next(after)["seen"] == [0], "what was told before"
    with pytest.raises(StopIteration) as end:
        next(before)
    assert end.value.value is True and job.detached_at is None, "another page follows"
    go.release(2)
    for _ in after:
        pass
    assert seen == [0, 1, 2, jobs.Done("result")] and not job.is_abandoned()


def test_a_run_moves_to_the_page_loaded_anew_once_it_has_started():
    board = jobs.JobBoard()
    job = board.open("tab")
    assert board.move(job.ticket, "tab anew") is None, "Gradio forgets who waits in line"
    board.start("tab", job.ticket)
    assert board.move("another", "tab anew") is None
    assert board.move(job.ticket, "tab anew") is job
    assert board.of("tab", job.ticket) is None and board.of("tab anew", job.ticket) is job and board.of("tab anew", "") is None
    assert board.stop("tab") is None and board.stop("tab anew") == "running"
    job.ended.set()
    assert board.close("tab anew") is job and board.move(job.ticket, "later") is None


def pulled(runs: watched.WatchedRuns, *wanted) -> dict:
    """The answer to a pull, from a thread of its own: in this one the loop of an earlier test's browser may run."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, runs.more(list(wanted))).result()


def test_counters_of_a_run_without_a_new_token_are_told_when_the_wait_is_over(monkeypatch):
    monkeypatch.setattr(watched, "WAIT_S", 0.05)
    runs, run = (
        watched.WatchedRuns(),
        watched.Watched(Recorder("key", ("a",), ("a",)), lambda recorder: {"counters": recorder.counters.show(("a",), None)}),
    )
    with runs.shown(run):
        assert pulled(runs, "key", 0, False).get("parts", {}).keys() == {"counters"}
        run.put(TokenEvent(0, "word", "a", "bonus", 0, 0.1, None))
        assert pulled(runs, "key", 0, False)["parts"] == {}
    assert pulled(runs, "key", 0, False) == {"over": True}


def test_a_run_whose_visitor_left_keeps_the_device_to_itself():
    left, after, free, order = jobs.Job(), jobs.Job(), threading.Event(), []

    def first() -> None:
        left.items.put("begun")
        free.wait(5)
        order.append("first")

    leave(left, first)
    second = threading.Thread(target=drain, args=(after, lambda: order.append("second")))
    second.start()
    second.join(0.1)
    assert order == [] and jobs.DEVICE.locked()
    free.set()
    second.join(5)
    assert order == ["first", "second"] and not jobs.DEVICE.locked()


def test_a_job_stopped_while_it_waited_never_starts():
    board = jobs.JobBoard()
    job = board.open("tab")
    assert board.stop("tab") == "waiting" and board.stop("another tab") is None
    assert board.stop("tab") is None and board.start("tab", job.ticket) is None, "it is over"
    assert drain(job, lambda: pytest.fail("must not run"))[-1].cancelled


def test_the_turn_of_an_old_click_does_not_start_a_later_one():
    board = jobs.JobBoard()
    old = board.open("tab")
    board.stop("tab")
    new = board.open("tab")
    assert board.start("tab", old.ticket) is None and board.start("another tab", new.ticket) is None
    assert board.start("tab", new.ticket) is new and board.start("tab", new.ticket) is None
    assert board.close("tab") is None and board.stop("tab") == "running", "it still runs"
    new.ended.set()
    assert board.stop("tab") is None and board.close("tab") is new and board.close("tab") is None


@pytest.mark.parametrize("typed", ["x" * 100_000, "x y " * 25_000, "a@2," * 25_000])
def test_what_a_visitor_typed_comes_back_shortened_between_what_is_wrong_and_what_to_do(typed):
    said = jobs.explain(BadInput(f"The hierarchy “{typed}” is not known; choose another one.")).message
    assert len(said) <= jobs.LONGEST and "…" in said
    assert said.startswith("The hierarchy “") and said.endswith("; choose another one.")


def test_messages_of_an_ordinary_length_come_back_whole():
    said = "The plan is for HuggingFaceTB/SmolLM2-135M-Instruct@4,quantized:int4@8,HuggingFaceTB/SmolLM2-1.7B-Instruct; measure again."
    assert jobs.shortened(said) == said
