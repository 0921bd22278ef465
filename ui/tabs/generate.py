"""Step 4: text streamed through the hierarchy, each token in the colour of the model that generated it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from hsd.errors import BadInput
from hsd.records import Hierarchy
from hsd.settings import DEFAULT_MAX_NEW_TOKENS, MAX_NEW_TOKENS, MAX_PROMPT_CHARACTERS
from ui import format as fmt
from ui import stack_trace, text, token_pane
from ui.engine import GenerateRequest
from ui.generating import Generating, colours, dropped
from ui.jobs import Failed, Job
from ui.nodes import Node, el, json_html, nodes
from ui.page import Ids, Page, Updates
from ui.planning import check_whole
from ui.recorder import replayed
from ui.runs import RunPair
from ui.sample import PROMPT, UNPLANNED
from ui.sidebar import Sidebar, read_sampling, read_setup
from ui.status import done, failure


def create_generate(page: Page, side: Sidebar) -> None:
    async def more(wanted: Any) -> dict[str, Any]:  # Gradio marks it, which a bound method does not allow
        return await page.watched.more(wanted)

    with gr.Tab(text.GENERATE, id="generate", elem_id="tab-generate", render_children=True):
        prompt = gr.Textbox(PROMPT, label=text.PROMPT, lines=2, max_lines=12, elem_id="prompt", max_length=MAX_PROMPT_CHARACTERS)
        with gr.Row(elem_classes="inline-form"):
            drafts = gr.Textbox(UNPLANNED, label=text.HIERARCHY, info=text.HIERARCHY_INFO, elem_id="hierarchy", scale=4, min_width=280)
            limit = gr.Number(
                DEFAULT_MAX_NEW_TOKENS,
                label=text.MAX_NEW,
                elem_id="max-new",
                scale=1,
                min_width=120,
            )
            beside = gr.Checkbox(False, label=text.ALONE, scale=2, min_width=230, elem_id="beside")
        with gr.Accordion(text.MORE_SETTINGS, open=False, elem_id="more-settings"):
            system = gr.Textbox("", label=text.SYSTEM, lines=2, max_length=MAX_PROMPT_CHARACTERS)
            raw = gr.Checkbox(False, label=text.RAW)
            rules = [(label, name) for name, label in text.RULES.items()]
            rule = gr.Radio(rules, value="token", label=text.VERIFICATION, info=text.VERIFICATION_INFO, elem_id="rule")
        notices = nodes(elem_id="generate-notices")
        legend = nodes(elem_id="legend")
        with gr.Row(equal_height=False):
            with gr.Column(min_width=320):
                gr.Markdown(text.PANE_TITLE, elem_classes="caption")
                pane = token_pane.pane("token-pane", text.PANE_LABEL, text.PANE_EMPTY, more)
                token_pane.clock("token-pane")
            with gr.Column(min_width=320, elem_id="alone-column"):  # shows once its pane has a run (assets/app.css)
                gr.Markdown(text.ALONE_TITLE, elem_classes="caption")
                alone_pane = token_pane.pane("alone-pane", text.ALONE_LABEL, text.ALONE_EMPTY, more)
                token_pane.clock("alone-pane")
        gr.HTML(
            value="", html_template=f'<p id="token-detail" class="muted small" aria-live="polite">{text.DETAIL_HINT}</p>', js_on_load=None
        )
        with gr.Row(elem_classes="actions"):
            replay = gr.Button(text.REPLAY, size="sm", elem_id="replay", scale=0, min_width=200)
            slow = gr.Button(text.REPLAY_SLOW, size="sm", elem_id="replay-slow", scale=0, min_width=160)
        counters = nodes(elem_id="counters")
        gr.Markdown(f"**{text.STACK}** {text.STACK_HELP}", elem_classes="section")
        stack = json_html(
            html_template=f'<div class="hsd-slot stack" data-empty="{text.STACK_EMPTY}"></div>',
            js_on_load="window.hsd.stack(element, props, watch);",
            elem_id="stack",
        )

    button = page.actions["generate"]
    page.run_buttons.append(button)
    page.form += [prompt, drafts, limit, beside, system, raw, rule]
    outputs = [notices, legend, pane, alone_pane, counters, stack, drafts]

    def draw(pair: RunPair, ids: Ids, recorded: bool) -> Updates:
        recorder = replayed(pair.stacked, "shown", colours(page, pair.stacked.models, ids))
        return {
            notices: _notices(pair, recorded),
            legend: token_pane.legend(recorder.models, recorder.palette_models, (text.CUE_CORRECTED, text.CUE_BONUS)),
            pane: recorder.pane,
            counters: recorder.counters.show(
                recorder.palette_models, page.sample.measurement if recorded else page.measurement(ids), pair.speedup
            ),
            stack: stack_trace.value(pair.stacked.rounds, recorder.models, recorder.palette_models),
            alone_pane: replayed(pair.alone, "alone", recorder.palette_models).pane if pair.alone else "",
        }

    def show(ids: Ids) -> Updates:
        pair, plan = page.run(ids), page.plan(ids)
        updates: Updates = {}
        if pair:
            updates = draw(pair, ids, False)
        elif not ids.measurement and page.sample and page.sample.run:
            updates = draw(page.sample.run, ids, True)
        known = plan or (page.sample.plan if page.sample and not ids.measurement else None)
        return updates | ({drafts: known.hierarchy.drafts_label()} if known else {})

    page.shows.append(show)
    page.outputs += outputs

    def generate(
        job: Job, ids: Ids, prompt: str, drafts_label: str, limit: Any, beside: bool, system: str, raw: bool, rule: str, *settings: Any
    ) -> Iterator[Updates]:
        setup, sampling = read_setup(*settings[:4]), read_sampling(*settings[4:])
        if not str(prompt).strip():
            raise BadInput("The prompt is empty; write what the model should answer or continue.")
        hierarchy = Hierarchy.parse(str(drafts_label or ""), setup.target)
        tokens = check_whole(limit, text.MAX_NEW, 1, MAX_NEW_TOKENS)
        request = GenerateRequest(hierarchy, prompt, system, bool(raw), sampling, tokens, str(rule))
        made = Generating.of(page, job, ids, setup, request, beside)

        def on_done(pair: RunPair, now: Ids) -> Updates:
            new = replace(now, run=made.key)
            end = pair.stacked.end
            words = text.END_REASONS[end.reason] if end else ""
            if end and end.reason == "target_fault":
                return {page.ids: new, page.status: failure(Failed(f"{words} {end.message}", False))} | finish(new)
            rate = f"{fmt.rate(pair.stacked.tokens_per_s)} · " if pair.stacked.tokens_per_s else ""
            return {page.ids: new, page.status: done(f"{words} {rate}{text.RUN_ID.format(key=made.key)}")} | finish(new)

        def finish(new: Ids) -> Updates:
            if (pair := made.kept()) is None:
                return {}
            whole = made.stacked.gathered()
            return {
                notices: _notices(pair, False),
                pane: whole.pane,
                alone_pane: made.alone.gathered().pane if beside else "",
                stack: stack_trace.value(pair.stacked.rounds, made.models, made.palette_models),
                counters: whole.counters.show(made.palette_models, page.measurement(new), pair.speedup),
                page.hero: page.hero_of(new),
            }

        def on_failed(failed: Failed, now: Ids) -> Updates:
            new = replace(now, run=made.key)
            return {page.ids: new} | finish(new) if made.stacked.gathered().tokens else {}

        with page.watched.shown(made.stacked, made.alone):
            yield {
                notices: None,
                legend: token_pane.legend(made.models, made.palette_models, (text.CUE_CORRECTED, text.CUE_BONUS)),
                pane: made.stacked.recorder.pane,
                alone_pane: made.alone.recorder.pane if beside else "",
                counters: None,
                stack: None,
                page.status: _running(made.key),
            }
            yield from page.stream(job, made.work, lambda begun: {page.status: _running(made.key)} if begun else {}, on_done, on_failed)

    inputs = [page.ids, prompt, drafts, limit, beside, system, raw, rule, *side.setup, *side.sampling]
    page.wire.append(lambda _: page.on_device(button, generate, inputs, outputs[:-1], []))
    for again, speed in ((replay, 1), (slow, 0.25)):
        again.click(None, None, None, js=f"() => {{ window.hsd.replay(['token-pane', 'alone-pane'], {speed}); }}")


def _running(key: str) -> Node:
    return el("div", el("p", f"Generating · {text.RUN_ID.format(key=key)}", cls="status-words"), cls="status running", data_state="running")


def _notices(pair: RunPair, recorded: bool) -> Node | None:
    parts: list[Node] = []
    if told := dropped(pair.stacked.notices):
        parts.append(told)
    if recorded:
        parts.append(el("p", el("span", "recorded sample", cls="pill download"), f" “{pair.stacked.prompt}”", cls="small muted"))
    if pair.alone and pair.alone.end and pair.stacked.end and pair.stacked.sampling.greedy:
        same = pair.alone.end.token_ids == pair.stacked.end.token_ids
        parts.append(el("p", text.SAME_TEXT if same else text.OTHER_TEXT, cls="small good" if same else "small bad"))
    return el("div", *parts) if parts else None
