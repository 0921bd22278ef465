"""A plan, a measurement and a comparison with known figures."""

import pytest

from hsd.compare.record import Comparison, Divergence, MethodResult
from hsd.measure.record import Acceptance, Measurement, PromptSetInfo, Trace
from hsd.plan.record import Alternative, Plan, Prediction
from hsd.records import Environment, Estimate, Hierarchy, Level, Sampling

ENVIRONMENT = Environment("cpu", "Test CPU, 2 threads", "bfloat16", "2.13.0", "5.24.0", "3.11.7", "2026-01-01T00:00:00+00:00")
TARGET = "owner/big"


def hierarchy(*drafts, target=TARGET) -> Hierarchy:
    return Hierarchy((*(Level(model, threshold) for model, threshold in drafts), Level(target)))


def alternative(ms: float, *drafts, target=TARGET) -> Alternative:
    models = [*(model for model, _ in drafts), target]
    prediction = Prediction(ms * 1.1e-3, ms * 1e-3, ms * 0.9e-3, ms * 1.2e-3)
    return Alternative(hierarchy(*drafts, target=target), prediction, {model: ms * 1e-3 / len(models) for model in models}, 1e-4)


@pytest.fixture
def make_plan():
    """A plan whose alternatives are the given (ms, drafts…), best first; "no draft" at 30 ms comes last."""

    def make(*alternatives, target=TARGET, sampling=None, environment=ENVIRONMENT) -> Plan:
        ranked = [alternative(ms, *drafts, target=target) for ms, *drafts in alternatives] + [alternative(30, target=target)]
        singles = [entry for entry in ranked if len(entry.hierarchy.drafts) == 1]
        models = dict.fromkeys(level.model for entry in ranked for level in entry.hierarchy.drafts)
        return Plan(
            hierarchy=ranked[0].hierarchy,
            predicted_s_per_token=ranked[0].predicted_s_per_token,
            autoregressive_s_per_token=0.030,
            best_single_draft=singles[0] if singles else None,
            alternatives=tuple(ranked),
            candidates=(*models, target),
            sampling=sampling or Sampling(),
            environment=environment,
            context_tokens=512,
        )

    return make


@pytest.fixture
def plan(make_plan):
    return make_plan(
        (10, ("prompt-lookup", 3), ("quantized:int4", 8)),
        (12, ("quantized:int4", 4)),
        (13, ("owner/small", 5)),
        (14, ("prompt-lookup", 6)),
        (15, ("early-exit:4", 2)),
    )


@pytest.fixture
def measurement():
    passes = {"quantized:int4": 8, "early-exit:4": 9, "owner/small": 4, TARGET: 30}
    cost = {model: {1: Estimate(ms / 1e3, ms / 1.1e3, ms / 0.9e3, 40)} for model, ms in passes.items()}
    return Measurement(
        models=("prompt-lookup", *passes),
        cost_s=cost | {"prompt-lookup": {0: Estimate(1e-5, 1e-5, 2e-5, 40)}},
        acceptance={"owner/small": {TARGET: Acceptance(0.8123, 0.77, 0.85, 900, 12)}},
        block_gains={},
        overhead_s=1.5e-4,
        token_overhead_s=2e-5,
        round_overhead_s={"prompt-lookup": 0.0, "owner/small": 3.1e-5},
        overhead_rounds=57,
        context_tokens=512,
        sampling=Sampling(),
        prompts=PromptSetInfo("default", "0" * 64, 40),  # of which three were measured in time
        environment=ENVIRONMENT,
        memory_bytes={},
        traces=tuple(Trace(f"chat-{number}", "chat", 4, {"owner/small": {TARGET: (0.5,) * 4}}, {}) for number in range(3)),
    )


@pytest.fixture
def comparison():
    def method(name, rate, predicted, levels=""):
        return MethodResult(name, levels, Estimate(rate, rate * 0.95, rate * 1.05, 5), predicted, 2.5, True, 0.03)

    return Comparison(
        methods=(
            method("target", 33.0, 33.3, TARGET),
            method("hierarchy", 90.0, 100.0, f"prompt-lookup@3,quantized:int4@8,{TARGET}"),
            method("transformers", 25.0, None),
        ),
        identical=True,
        divergences=(Divergence("transformers", "chat-1", 17, 0.0078, True),),
        repeats=5,
        prompts=8,
        max_new_tokens=64,
        sampling=Sampling(),
        environment=ENVIRONMENT,
    )
