"""A snippet that runs the whole planned hierarchy with this library."""

from __future__ import annotations

from dataclasses import fields

from hsd.export.numbers import milliseconds
from hsd.export.single import comment
from hsd.plan.record import Plan
from hsd.records import Sampling
from hsd.settings import DEFAULT_MAX_NEW_TOKENS


def python_snippet(plan: Plan) -> str:
    """A program that streams text through the plan's hierarchy; needs this repository on the Python path."""
    drafts = [f"({level.model!r}, {level.threshold})" for level in plan.hierarchy.drafts]
    default = Sampling()
    changed = [field.name for field in fields(Sampling) if getattr(plan.sampling, field.name) != getattr(default, field.name)]
    sampling = ", ".join(f"{name}={getattr(plan.sampling, name)!r}" for name in changed)
    notes = (
        f"Planned: {plan.hierarchy}, predicted {milliseconds(plan.predicted_s_per_token.best)} ms a token "
        f"({plan.predicted_speedup:.2f} times as fast as the target alone).",
        f"{plan.origin}. Run it in the folder of this project.",
    )
    device = plan.environment.device if plan.environment.measured else "auto"
    return f"""{comment(notes)}
from hsd.generate.engine import generate
from hsd.generate.events import NoticeEvent, TokenEvent
from hsd.generate.prompt import encode_prompt
from hsd.pick.registry import REGISTRY
from hsd.records import Hierarchy, Sampling

hierarchy = Hierarchy.of({", ".join([*drafts, f"target={plan.hierarchy.target!r}"])})
drafts = [level.model for level in hierarchy.drafts]
with REGISTRY.lease(hierarchy.target, drafts, device={device!r}, dtype={plan.dtype!r}) as models:
    for notice in models.notices.values():
        print(notice)
    prompt = encode_prompt(models.tokenizer, "Why is the sky blue?")
    for event in generate(models, hierarchy, prompt, sampling=Sampling({sampling}), max_new_tokens={DEFAULT_MAX_NEW_TOKENS}):
        if isinstance(event, TokenEvent):
            print(event.text, end="", flush=True)
        elif isinstance(event, NoticeEvent):
            print(event.message)
print()
"""
