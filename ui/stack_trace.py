"""Rounds of a run as nested trees, one per target round: the data of the paper's Figure 1 (drawn by `assets/stack.js`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hsd.generate.events import RoundEvent
from ui import palette

MAX_ROUNDS = 400  # target rounds kept in the browser


def unfold(events: Iterable[RoundEvent], models: Sequence[str]) -> list[dict[str, Any]]:
    """Trees of target rounds. Rounds arrive bottom first, so a round closes over the rounds below it that are still open.

    A node: `l` level, `k` tokens kept, `b` block as (text, level that generated it), `n` corrected or bonus token as
    (text, outcome) or None, `s` seconds, `c` rounds below, `r` target round.
    """
    trees: list[dict[str, Any]] = []
    open_below: list[dict[str, Any]] = []
    for event in events:
        level = models.index(event.model) if event.model in models else event.level
        below = [node for node in open_below if node["l"] < level]
        made = [pair for node in below for pair in _handed_up(node)]
        if len(made) == len(event.texts):
            block = [[text, maker] for text, (_, maker) in zip(event.texts, made, strict=True)]
        else:  # an autoregressive draft or a proposer made the block itself
            block = [[text, max(0, level - 1) if event.next_token_id is not None else level] for text in event.texts]
        node = {
            "l": level,
            "k": event.accepted,
            "b": block,
            "n": [event.next_text, event.outcome or "bonus"] if event.next_token_id is not None else None,
            "s": event.seconds,
            "c": below,
            "r": event.round,
        }
        if level == len(models) - 1:
            trees.append(node)
            open_below = []
        else:
            open_below = [other for other in open_below if other["l"] >= level] + [node]
    return trees


def _handed_up(node: dict[str, Any]) -> list[tuple[str, int]]:
    """What a round gave to the level above: the kept part of its block and its own token."""
    kept = [(text, maker) for text, maker in node["b"][: node["k"]]]
    return kept + ([(node["n"][0], node["l"])] if node["n"] else [])


def value(events: Iterable[RoundEvent], models: Sequence[str], palette_models: Sequence[str]) -> dict[str, Any]:
    rounds = unfold(events, models)[:MAX_ROUNDS]
    return {"models": list(models), "slots": [palette.slot_of(name, palette_models) for name in models], "rounds": rounds}
