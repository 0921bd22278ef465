"""Runs on the page: stop, errors, lost connections, two visitors (pitfalls 20, 24, 26, 28)."""

import json
import re
import time

import gradio as gr
import pytest
from scripted import HOSTILE, STORY

pytestmark = pytest.mark.browser


def test_stop_ends_the_work_within_half_a_second_and_buttons_come_back(visit, served):
    page = visit()
    page.generate("long", 4000)
    page.streaming()
    assert page.page.is_disabled("#generate")
    served.engine.stopped_at = None
    clicked = time.time()
    page.page.click("#stop")
    said = page.finish("done")
    assert served.engine.stopped_at is not None and served.engine.stopped_at - clicked < 0.5
    assert served.engine.running == 0
    assert "Stopped" in said
    assert page.page.is_enabled("#generate")
    page.page.click("#stop")
    page.page.wait_for_selector("#notices >> text=Nothing of yours is running")
    assert page.status() == said, "what the run ended with stays readable"

    shown = page.pane()
    assert shown and shown == "".join(f"w{i} " for i in range(shown.count(" ")))
    page.tab("export")
    page.page.click("#export-kind input")
    page.page.click("text=Trace of the last generation")
    page.page.click("#export")
    page.page.wait_for_selector("#export-preview pre")
    with page.page.expect_download() as download:
        page.page.click("#download")
    trace = json.loads(download.value.path().read_text())
    assert trace["reason"] == "stopped"
    assert "".join(token["text"] for token in trace["tokens"]) == shown


def test_stopped_measurement_keeps_what_is_complete(visit):
    page = visit()
    page.tab("measure")
    page.page.check("text=Thorough")
    page.start("measure")
    page.page.wait_for_selector("#measure-facts :text('partial')")
    page.page.click("#stop")
    assert "what was complete is kept" in page.finish("done").lower()
    assert page.page.is_enabled("#measure")
    assert "Measured here" in page.page.inner_text("#hero")


def test_stop_before_anything_was_complete_goes_back_to_the_sample(visit):
    page = visit()
    page.tab("measure")
    page.page.check("text=Thorough")
    page.start("measure")
    page.page.click("#stop")
    assert "stopped" in page.finish("done").lower()
    page.page.uncheck("text=Thorough")
    assert "Recorded sample" in page.page.inner_text("#hero")
    assert page.measure().startswith("Measured")


def test_errors_are_sentences_and_the_page_goes_on(visit):
    page = visit()
    page.generate("broken")
    said = page.finish("error")
    assert "unexpected" in said and "secret" not in said and "/home" not in said
    assert page.page.is_enabled("#generate")
    page.generate("fault")
    assert "connect to the internet once" in page.finish("error")
    page.page.fill("#prompt textarea", "   ")
    page.page.click("#generate")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('prompt is empty')")
    page.page.fill("#hierarchy input, #hierarchy textarea", "prompt-lookup@0")
    page.page.fill("#prompt textarea", "hello")
    page.page.click("#generate")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('at least 1')")
    page.page.fill("#hierarchy input, #hierarchy textarea", "")
    page.generate("hello")
    page.finish("done")
    assert page.pane() == STORY
    page.page.click("#compare")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Plan first')")
    page.page.click("#plan")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Measure first')")
    page.tab("export")
    page.page.click("#export")
    page.page.wait_for_function("() => document.querySelector('#status').innerText.includes('plan first')")


def test_a_draft_that_drops_out_is_named_where_the_user_looks(visit):
    page = visit()
    page.generate("dropout")
    page.finish("done")
    told = page.page.inner_text("#generate-notices")
    assert "dropped out" in told and "could not be loaded" in told and "stays exact" in told
    assert page.page.get_attribute("#generate-notices [role]", "role") == "alert"
    assert page.pane() == STORY
    page.tab("measure")
    page.page.click("text=Your own prompts")
    page.fill("#own-prompts textarea", "dropout")
    page.page.click("#measure")
    page.page.wait_for_selector("#notices .notice")
    assert "early-exit:10 is left out" in page.page.inner_text("#notices")
    page.finish("done")


def test_a_number_out_of_range_is_named_and_the_buttons_come_back(visit):
    page = visit()
    page.tab("generate")
    page.fill("#max-new input", "-1")
    page.start("generate")
    assert "give a whole number from 1 to" in page.finish("error")
    assert page.page.is_enabled("#measure") and page.page.is_enabled("#generate")


def test_gradio_checks_no_number_itself(served):
    """It would end the event between the buttons' going off and the run, which then never ends; and it rounds in silence."""
    numbers = [block for block in served.demo.blocks.values() if isinstance(block, gr.Number)]
    assert len(numbers) > 8
    assert all((block.minimum, block.maximum, block.precision) == (None, None, None) for block in numbers)


def test_two_visitors_do_not_mix_and_take_turns(visit, served):
    first, second = visit(), visit()
    served.engine.most_running = 0
    first.generate("long", 300)
    second.generate("hostile")
    assert second.state() in ("waiting", "running")
    first.streaming()
    assert first.finish("done") and second.finish("done")
    assert first.pane() == "".join(f"w{i} " for i in range(300))
    assert second.pane() == "".join(HOSTILE)
    assert served.engine.most_running == 1, "one run at a time uses the device"
    first.measure()
    assert "Measured here" in first.page.inner_text("#hero")
    assert "Recorded sample" in second.page.inner_text("#hero")


def test_the_status_line_stops_telling_of_loading_when_tokens_come(visit):
    page = visit()
    page.generate("long", 300)
    page.streaming()
    page.page.wait_for_function("() => document.querySelector('#status').innerText.startsWith('Generating · run ')", timeout=1_200)
    page.finish("done")


def test_a_run_whose_visitor_left_is_waited_for(visit, served):
    first, second = visit(), visit()
    served.engine.most_running = 0
    first.generate("long", 400)
    first.streaming()
    first.page.context.close()
    second.page.wait_for_timeout(300)
    second.generate("echo of it")
    assert second.state() == "waiting"
    second.page.click("#stop")
    assert "Stopped before it started" in second.finish("done")
    second.generate("echo of it")
    second.finish("done")
    assert second.pane() == "echo of it" and served.engine.most_running == 1


def test_stop_of_one_visitor_leaves_the_other_alone(visit):
    first, second = visit(), visit()
    first.generate("long", 400)
    first.streaming()
    second.page.click("#stop")
    second.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Nothing of yours is running')")
    second.generate("long", 50)
    second.page.wait_for_selector("#status [data-state=waiting]")
    second.page.click("#stop")
    assert "Stopped before it started" in second.finish("done")
    assert second.page.is_enabled("#generate") and first.state() == "running", "the buttons are back before the device is free"
    second.generate("long", 60)
    first.finish("done")
    assert first.page.locator("#token-pane .tk").count() == 400
    second.finish("done")
    assert second.pane() == "".join(f"w{i} " for i in range(60)), "only the second click ran, with what it was given"


def test_a_run_is_fetched_again_by_its_id_after_the_connection_broke(visit):
    page = visit()
    page.generate("long", 300)
    page.streaming()
    key = re.search(r"run (\S+)", page.status())[1]
    page.page.context.close()  # in the middle of the run
    time.sleep(2.0)
    again = visit()
    again.tab("export")
    again.page.fill("#fetch-id input, #fetch-id textarea", key)
    again.page.click("#fetch")
    again.page.wait_for_function("() => document.querySelector('#status').innerText.includes('Fetched run')")
    again.tab("generate")
    assert again.pane() == "".join(f"w{i} " for i in range(300)), "the run went on without its visitor"
    again.tab("export")
    again.page.fill("#fetch-id input, #fetch-id textarea", "../../etc/passwd")
    again.page.click("#fetch")
    assert "No result with that id" in again.finish("error")


def test_ten_visitors_one_generating_nine_browsing_at_once(visit, served):
    """Nine pages that are open together change tabs while a run streams to the tenth, which shows every token of it."""
    visitors = [visit() for _ in range(9)]
    runner = visit()
    runner.generate("long", 4000)
    runner.streaming()
    for tab in ("generate", "plan"):
        for page in visitors:
            page.tab(tab)
    shown = [page.pane() for page in visitors]
    assert served.engine.running and runner.state() == "running", "all of them browsed while the run went on"
    assert all(text and not text.startswith("w0 ") for text in shown), "everyone sees the sample, nobody the run of another"
    seen = runner.page.locator("#token-pane .tk").count()
    runner.page.wait_for_function("seen => document.querySelectorAll('#token-pane .tk').length > seen", arg=seen)
    runner.page.click("#stop")
    runner.finish("done")
    count = runner.page.locator("#token-pane .tk").count()
    assert runner.pane() == "".join(f"w{i} " for i in range(count)) and count > seen
    assert [page.errors for page in (runner, *visitors)] == [[]] * 10
