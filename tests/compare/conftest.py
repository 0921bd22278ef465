"""Plans for tiny models; the models themselves are shared with the tests of decoding."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "generate"), str(HERE.parent.parent)]

from tiny_models import small_set  # noqa: E402

from hsd.measure.prompts import Prompt, PromptSet  # noqa: E402
from hsd.plan.record import Alternative, Plan, Prediction  # noqa: E402
from hsd.records import GREEDY, Environment, Hierarchy, Sampling  # noqa: E402


@pytest.fixture(scope="session")
def models():
    """A tiny target with a draft of every kind."""
    return small_set(context=400)


@pytest.fixture
def prompts():
    texts = ("abcabcabcabc", "the same words the same words", "one two three")
    return PromptSet("own", tuple(Prompt(f"p{number}", "chat", text) for number, text in enumerate(texts)))


@pytest.fixture
def plan_of():
    """A plan that ranks the given drafts, such as `near@4`, in this order; "no draft" comes last."""

    def make(*drafts: str, target: str = "target", sampling: Sampling = GREEDY) -> Plan:
        ranked = [alternative(Hierarchy.parse(written, target), 0.002 * (1 + rank)) for rank, written in enumerate((*drafts, ""))]
        singles = [entry for entry in ranked if len(entry.hierarchy.drafts) == 1]
        names = dict.fromkeys(level.model for entry in ranked for level in entry.hierarchy.drafts)
        return Plan(
            hierarchy=ranked[0].hierarchy,
            predicted_s_per_token=ranked[0].predicted_s_per_token,
            autoregressive_s_per_token=ranked[-1].predicted_s_per_token.best,
            best_single_draft=singles[0] if singles else None,
            alternatives=tuple(ranked),
            candidates=(*names, target),
            sampling=sampling,
            environment=Environment("cpu", "", "float32", "", "", "", ""),
            context_tokens=20,
        )

    return make


def alternative(hierarchy: Hierarchy, seconds: float) -> Alternative:
    prediction = Prediction(paper=seconds * 1.2, exact=seconds * 1.1, low=seconds * 0.9, high=seconds * 1.2, trace=seconds)
    return Alternative(hierarchy, prediction, {level.model: seconds / len(hierarchy.levels) for level in hierarchy.levels})
