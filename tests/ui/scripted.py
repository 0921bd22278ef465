"""An engine without torch whose results are tables and whose text is scripted: the page is tested on this."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hsd.compare.record import Comparison, Divergence, LosslessReport, MethodResult, SamplingCheck, Sweep, SweepPoint
from hsd.errors import BadInput, Cancelled, ModelUnavailable
from hsd.generate.events import EndEvent, Event, NoticeEvent, RoundEvent, TokenEvent
from hsd.measure.record import Acceptance, BlockGain, Measurement, PromptSetInfo
from hsd.plan.record import Plan
from hsd.records import Environment, Estimate, Hierarchy, Progress, Report, Sampling, ShouldStop
from ui.engine import CandidateRow, CompareRequest, DeviceRow, GenerateRequest, MeasureRequest, MemoryRow, Notify, Setup, TargetRow
from ui.planning import Limits, make_plan
from ui.recorder import collect
from ui.runs import RunPair
from ui.sample import Sample

TARGET = "smollm2-135m"
DRAFTS = ("prompt-lookup", "early-exit:10", "quantized:int4", "quantized:int8")
STAMP = Environment("cpu", "Scripted CPU, 2 threads", "float32", "2.13.0", "5.24.0", "3.11", "2026-01-02T03:04:05+00:00")
STORY = (
    "The sky is blue because air scatters short waves of sunlight more than long ones. This is Rayleigh scattering.\n\n"
    "At sunset the light crosses more air, so that red is left.  Two spaces, a tab\there, 漢字 and 🙂 stay as they are."
)
HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    "${window.hacked=2}",
    "{{value}}",
    "`",
    "\\u0041",
    "</div><script>window.hacked=3</script>",
    "&amp;",
)


def estimate(ms: float, spread: float = 0.04, samples: int = 12) -> Estimate:
    return Estimate(ms / 1e3, ms * (1 - spread) / 1e3, ms * (1 + spread) / 1e3, samples)


def make_measurement(drafts: Sequence[str] = DRAFTS, sampling: Sampling = Sampling()) -> Measurement:  # noqa: B008
    ms = {"early-exit:10": 7.5, "quantized:int4": 9.2, "quantized:int8": 11.5, TARGET: 20.5}
    slope = {"early-exit:10": 0.15, "quantized:int4": 0.7, "quantized:int8": 0.8, TARGET: 0.4}
    rate = {("early-exit:10", "quantized:int4"): 0.55, ("early-exit:10", "quantized:int8"): 0.56, ("early-exit:10", TARGET): 0.56}
    rate |= {("quantized:int4", "quantized:int8"): 0.9, ("quantized:int4", TARGET): 0.91, ("quantized:int8", TARGET): 0.985}
    models = (*(name for name in DRAFTS if name in drafts), *(name for name in drafts if name not in DRAFTS), TARGET)
    costs = {
        name: {0: estimate(0.04)}
        if name == "prompt-lookup"
        else {w: estimate(ms.get(name, 5) + slope.get(name, 0.3) * (w - 1)) for w in (1, 2, 4, 8, 16)}
        for name in models
    }
    acceptance, gains = {}, {}
    for i, draft in enumerate(models):
        for verifier in models[i + 1 :]:
            mean = rate.get((draft, verifier), 0.42)
            acceptance.setdefault(draft, {})[verifier] = Acceptance(mean, mean - 0.03, min(1.0, mean + 0.03), 1200, 40)
            if draft == "prompt-lookup":
                blocks = (BlockGain(0, 0, 300), BlockGain(4, 0, 90), BlockGain(4, 2, 60), BlockGain(4, 4, 110))
                gains.setdefault(draft, {})[verifier] = blocks
    memory = {name: {"prompt-lookup": 0, TARGET: 269 << 20}.get(name, 110 << 20) for name in models}
    return Measurement(models, costs, acceptance, gains, 4e-4, 300, sampling, PromptSetInfo("built-in", "0" * 64, 40), STAMP, memory)


def stamp_of(setup: Setup) -> Environment:
    """The stamp of a run under these settings; `auto` is the device of the tables."""
    return replace(STAMP, dtype=STAMP.dtype if setup.dtype == "auto" else setup.dtype)


def words_of(text: str) -> list[str]:
    """Tokens that are pieces of about four characters, so that words break inside and spaces stay where they are."""
    return [text[at : at + 4] for at in range(0, len(text), 4)]


class ScriptedEngine:
    """`rate` tokens a second; a prompt may ask for something special: hostile, long, slow, broken, dropout, fault."""

    def __init__(self, rate: float = 200.0, step_s: float = 0.02) -> None:
        self.rate = rate
        self.step_s = step_s
        self.ended_at: float | None = None  # time.time() when the last generation ended
        self.stopped_at: float | None = None
        self.running = 0
        self.most_running = 0

    def targets(self) -> Sequence[TargetRow]:
        return (TargetRow(TARGET, "embedded default"), TargetRow("Qwen/Qwen2.5-0.5B-Instruct", "hub model"))

    def devices(self) -> Sequence[DeviceRow]:
        return (DeviceRow("cuda:0", "Scripted GPU"), DeviceRow("cpu", "Scripted CPU, 2 threads"))

    def memory(self, setup: Setup) -> MemoryRow:
        needed = (269 << 20) + sum(110 << 20 for name in setup.drafts if name != "prompt-lookup")
        return MemoryRow(needed, 8 << 30, True, f"{needed / 1e6:.0f} MB in all, 8.6 GB free on cpu: fits.")

    def candidates(self, target: str, names: Sequence[str], device: str, dtype: str) -> Sequence[CandidateRow]:
        if target == "nobody/knows-this":
            raise ModelUnavailable("nobody/knows-this is not on the hub; check the spelling, or give a folder with weights.")
        made = "made from the target"
        rows = [
            CandidateRow("prompt-lookup", "free", "ready", "", None, 0, "Copies what followed the same words earlier in the text."),
            CandidateRow("early-exit:10", "derived", "ready", "", None, 0, f"The first 10 layers, {made}."),
            CandidateRow("quantized:int4", "derived", "ready", "", 134_515_008, 90 << 20, f"A 4-bit copy, {made}."),
            CandidateRow("quantized:int8", "derived", "ready", "", 134_515_008, 140 << 20, f"An 8-bit copy, {made}."),
        ]
        if device == "cuda:0":
            rows[2:] = [replace(row, status="unusable", reason="Weight-only copies run on CPU kernels, not on cuda.") for row in rows[2:]]
        rows += [
            CandidateRow(name, "model", "download", "Downloads 300 MB.", 90_000_000, 180 << 20, "Added.")
            for name in names
            if "good" in name
        ]
        odd = [name for name in names if "good" not in name]
        rows += [CandidateRow(name, "model", "unusable", f"The vocabulary of {name} differs.", None, 0, "Added.") for name in odd]
        words = "Its vocabulary differs from the target's (50257 against 49152 tokens)."
        return (*rows, CandidateRow("gpt2", "model", "unusable", words, 124_439_808, 249 << 20, "Another model."))

    def measure(
        self,
        setup: Setup,
        request: MeasureRequest,
        report: Report,
        notify: Notify,
        on_partial: Callable[[Measurement], None],
        should_stop: ShouldStop,
    ) -> tuple[Measurement, bool]:
        if "early-exit:10" in setup.drafts and request.prompts and "dropout" in request.prompts:
            notify("The draft early-exit:10 is left out. Its layers could not be loaded.")
        steps = 400 if request.thorough else 12
        for step in range(steps):
            if should_stop():
                raise Cancelled("Measuring was stopped.")
            time.sleep(self.step_s)
            report(Progress("Acceptance", step + 1, steps, (steps - step) * self.step_s))
            if step == min(steps // 3, 130):
                on_partial(make_measurement(setup.drafts, request.sampling))
        found = make_measurement(setup.drafts, request.sampling)
        return found, bool(request.prompts and "kept" in request.prompts and not request.again)

    def generate(
        self,
        setup: Setup,
        request: GenerateRequest,
        report: Report,
        should_stop: ShouldStop,
        on_environment: Callable[[Environment], None],
    ) -> Iterator[Event]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            on_environment(stamp_of(setup))
            yield from self._generate(request, report, should_stop)
        finally:
            self.running -= 1

    def _generate(self, request: GenerateRequest, report: Report, should_stop: ShouldStop) -> Iterator[Event]:
        prompt, models = request.prompt, [level.model for level in request.hierarchy.levels]
        report(Progress("prepare draft", 1, 1, None, "quantized:int4"))
        if "broken" in prompt:
            raise RuntimeError("secret detail in /home/someone/weights.bin")
        if "fault" in prompt:
            raise ModelUnavailable("The weights of the target are not here; connect to the internet once, or pick another target.")
        if "hostile" in prompt:
            pieces = list(HOSTILE)
        elif "echo" in prompt:
            pieces = words_of(prompt)
        elif "long" in prompt:
            pieces = [f"w{i} " for i in range(request.max_new_tokens)]
        else:
            pieces = words_of(STORY)[: request.max_new_tokens]
        start, made, round_ = time.perf_counter(), 0, 0
        if "dropout" in prompt and len(models) > 1:
            yield NoticeEvent(0, models[0], "its weights could not be loaded.")
        reason = "eos"
        while made < len(pieces):
            if should_stop():
                reason = "stopped"
                self.stopped_at = time.time()
                break
            block = pieces[made : made + 4]
            kept = len(block) - 1 if round_ % 3 else max(0, len(block) - 2)
            yield from self._rounds(models, block, kept, round_)
            for place, piece in enumerate(block[: kept + 1]):
                drafted = place < kept and len(models) > 1
                outcome = "accepted" if drafted else "bonus" if kept == len(block) - 1 else "corrected"
                maker = models[(made + place) % (len(models) - 1)] if drafted else models[-1]
                made_at = start + (made + place + 1) / self.rate
                time.sleep(max(0.0, made_at - time.perf_counter()))
                yield TokenEvent(made + place, piece, maker, outcome, round_, time.perf_counter() - start, 1 / (2 + place))
            made += kept + 1
            round_ += 1
        self.ended_at = time.time()
        tail = "\ufffd" if "cut" in prompt else ""
        yield EndEvent(reason, "".join(pieces[:made]) + tail, tail, tuple(range(made)), 0.05, time.perf_counter() - start)

    def _rounds(self, models: list[str], block: list[str], kept: int, round_: int) -> Iterator[Event]:
        draft = tuple(block[:kept]) + (("wrong",) if kept < len(block) - 1 else ())
        ids = tuple(range(len(draft)))
        for level, model in enumerate(models[:-1]):
            if level == 0:
                yield RoundEvent(round_, 0, model, len(draft), len(draft), 0.001, ids, draft, None, "", None, 0)
            else:
                inner = draft[:-1]
                yield RoundEvent(
                    round_, level, model, len(inner), len(inner), 0.004, ids[:-1], inner, 9, draft[-1] if draft else "", "bonus", len(draft)
                )
        if len(models) == 1:
            for piece in block[: kept + 1]:
                yield RoundEvent(round_, 0, models[0], 0, 0, 0.02, (), (), 1, piece, "bonus", 1)
            return
        outcome = "corrected" if kept < len(draft) else "bonus"
        yield RoundEvent(round_, len(models) - 1, models[-1], len(draft), kept, 0.02, ids, draft, 1, block[kept], outcome, len(draft) + 1)

    def compare(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Comparison:
        for step in range(6):
            if should_stop():
                raise Cancelled("Comparing was stopped.")
            time.sleep(self.step_s)
            report(Progress("Comparing", step + 1, 6, None, "target alone"))
        return make_comparison(request.plan, request.repeats, request.max_new_tokens)

    def check_lossless(
        self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop
    ) -> LosslessReport:
        check = SamplingCheck(str(request.plan.hierarchy), 400, 9, 7.1, 8, 0.53)
        near = Divergence(str(request.plan.hierarchy), "chat-1", 11, 0.002, True)
        return LosslessReport(24, 23, 1, 0, (near,), (check,), STAMP)

    def sweep(self, setup: Setup, request: CompareRequest, report: Report, notify: Notify, should_stop: ShouldStop) -> Sweep:
        points = []
        for one in request.plan.alternatives:
            predicted = one.predicted_s_per_token
            measured = estimate(1e3 * predicted.best * 1.04, samples=request.repeats)
            points.append(
                SweepPoint(
                    str(one.hierarchy), "chat", predicted.best, predicted.low, predicted.high, predicted.paper, predicted.exact, measured
                )
            )
        return Sweep(tuple(points), request.repeats, request.max_new_tokens, request.plan.sampling, STAMP)

    def export(self, kind: str, plan: Plan, measurement: Measurement | None, comparison: Comparison | None) -> str:
        if kind == "vllm" and len(plan.hierarchy.drafts) > 1:
            raise BadInput("vLLM takes one draft only; export the best single draft.")
        return f"# {kind} for {plan.hierarchy}\n"


def make_comparison(plan: Plan, repeats: int = 5, max_new_tokens: int = 64) -> Comparison:
    alone = 1 / plan.autoregressive_s_per_token

    def speed(ratio: float) -> Estimate:
        return Estimate(alone * ratio, alone * ratio * 0.96, alone * ratio * 1.03, repeats)

    def times(ratio: float) -> Estimate:
        return Estimate(ratio, ratio * 0.98, ratio * 1.02, repeats)

    single = plan.best_single_draft.hierarchy if plan.best_single_draft else Hierarchy.parse("", plan.hierarchy.target)
    planned = plan.predicted_speedup
    models = {"paper": 1 / plan.predicted_s_per_token.paper, "exact": 1 / plan.predicted_s_per_token.exact, "trace": None}
    methods = (
        MethodResult("transformers", "", speed(0.62), None, None, False, None),
        MethodResult("transformers-prompt-lookup", "", speed(0.98), None, None, False, None),
        MethodResult("target", plan.hierarchy.target, speed(1.0), alone, 1.0, True, 0.03),
        MethodResult("best-single", str(single), speed(planned * 0.9), alone * planned * 0.92, 2.4, True, 0.03),
        MethodResult("hierarchy", str(plan.hierarchy), speed(planned * 0.97), alone * planned, 3.6, True, 0.035, models),
    )
    methods = tuple(replace(one, times_target=times(one.tokens_per_s.median / alone) if one.name != "target" else None) for one in methods)
    return Comparison(methods, True, (), repeats, 10, max_new_tokens, plan.sampling, STAMP)


def make_sample() -> Sample:
    """A recorded sample with everything in it, as the program records one."""
    measurement = make_measurement()
    plan = make_plan(measurement, Limits())
    setup = Setup(TARGET, DRAFTS)
    alone = replace(plan.hierarchy, levels=plan.hierarchy.levels[-1:])
    engine = ScriptedEngine(rate=100_000)
    requests = [GenerateRequest(hierarchy, "Why is the sky blue?", "", False, Sampling(), 96) for hierarchy in (plan.hierarchy, alone)]
    return Sample(measurement, plan, RunPair(*(collect(engine, setup, request) for request in requests)), make_comparison(plan))
