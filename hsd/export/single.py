"""Which part of a plan another tool can run: a hierarchy shrinks to the best single draft that the tool knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hsd.export.numbers import milliseconds
from hsd.models.build import is_derived
from hsd.pick import embedded
from hsd.plan.record import Alternative, Plan

LOOKUP = "prompt-lookup"
LOOKUP_NGRAM = 3  # longest n-gram of this project's own lookup


@dataclass(frozen=True, slots=True)
class SingleDraft:
    """One draft with its threshold, and what has to be said about it; `model` is None for the target alone."""

    model: str | None
    threshold: int
    notes: tuple[str, ...]


def choose_single(plan: Plan, tool: str, supported: Callable[[str], bool]) -> SingleDraft:
    """The best-ranked single draft of the plan that `tool` supports, with notes for the head of the snippet."""
    notes = [
        f"Planned by hsd: {plan.hierarchy}, predicted {milliseconds(plan.predicted_s_per_token.best)} ms a token "
        f"({plan.predicted_speedup:.2f} times as fast as the target alone).",
        f"{plan.origin}; in {tool} the speed will differ, so measure there.",
    ]
    if not plan.hierarchy.drafts:
        return SingleDraft(None, 0, (*notes, "The plan recommends no draft: the target alone is fastest."))
    ranked = sorted((a for a in plan.alternatives if len(a.hierarchy.drafts) == 1), key=lambda a: a.predicted_s_per_token.best)
    if plan.best_single_draft is not None:
        ranked.insert(0, plan.best_single_draft)
    chosen = next((a for a in ranked if supported(a.hierarchy.drafts[0].model)), None)
    if chosen is None:
        notes.append(f"{tool} has none of the plan's single drafts; this runs the target alone.")
        return SingleDraft(None, 0, tuple(notes))
    (draft,) = chosen.hierarchy.drafts
    assert draft.threshold is not None
    predicted, alone = chosen.predicted_s_per_token.best, plan.autoregressive_s_per_token
    if chosen.hierarchy != plan.hierarchy:
        lacks = f"{tool} takes one draft and no hierarchy" if len(plan.hierarchy.drafts) > 1 else f"{tool} does not have the planned draft"
        notes.append(f"{lacks}; {_rank(chosen, plan, tool)} is {chosen.hierarchy.drafts_label()},")
        notes.append(f"predicted {milliseconds(predicted)} ms a token, {alone / predicted:.2f} times as fast as the target alone.")
    if predicted >= alone:
        return SingleDraft(None, 0, (*notes, f"That gains nothing over {milliseconds(alone)} ms of the target alone, which this runs."))
    return SingleDraft(draft.model, draft.threshold, tuple(notes))


def is_own_model(name: str) -> bool:
    """A draft with weights of its own, which any tool can load."""
    return not is_derived(name)


def public_name(name: str) -> str:
    """The embedded default under the name that other tools find."""
    return embedded.HUB_ID if name == embedded.NAME else name


def embedded_note(names: tuple[str, ...]) -> tuple[str, ...]:
    """Said where the default's weights are replaced by the original ones."""
    if embedded.NAME not in names:
        return ()
    return (f"{embedded.HUB_ID} holds the original weights of {embedded.NAME}, whose own come from a 4-bit file.",)


def comment(notes: tuple[str, ...], mark: str = "#") -> str:
    """Notes as comment lines; control characters in a name cannot end a comment."""
    return "\n".join(f"{mark} {one_line(note)}" for note in notes)


def one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _rank(chosen: Alternative, plan: Plan, tool: str) -> str:
    return "the plan's best single draft" if chosen is plan.best_single_draft else f"the best single draft that {tool} has"
