"""The trace file of a generation (design §6): every committed token and every round, with identities that must hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hsd.generate.collect import Generation
from hsd.records import SCHEMA, Environment, Hierarchy, Sampling


def trace_json(
    generation: Generation, hierarchy: Hierarchy, sampling: Sampling, environment: Environment, prompt_tokens: int
) -> dict[str, Any]:
    """The trace as JSON types."""
    return {
        "schema": SCHEMA,
        "kind": "trace",
        "hierarchy": [asdict(level) for level in hierarchy.levels],
        "sampling": asdict(sampling),
        "environment": asdict(environment),
        "prompt_tokens": prompt_tokens,
        "reason": generation.end.reason,
        "text": generation.end.text,
        "seconds": {"prefill": generation.end.prefill_s, "decode": generation.end.decode_s},
        "tokens": [asdict(token) for token in generation.tokens],
        "rounds": [asdict(round_) for round_ in generation.rounds],
        "notices": [asdict(notice) for notice in generation.notices],
    }


def broken_identities(generation: Generation, hierarchy: Hierarchy) -> list[str]:
    """The counting identities of design §6 that do not hold, in words; empty when all do."""
    broken = []
    tokens, rounds = generation.tokens, generation.rounds
    committed = len(generation.token_ids)
    if len(tokens) != committed:
        broken.append(f"{committed} tokens were committed, {len(tokens)} told")
    by_model = {level.model: sum(token.generated_by == level.model for token in tokens) for level in hierarchy.levels}
    if sum(by_model.values()) != committed:
        broken.append(f"committed tokens {committed} are not the sum over models {by_model}")
    for round_ in rounds:
        if not 0 <= round_.accepted <= round_.drafted == len(round_.token_ids):
            broken.append(f"a round of {round_.model} accepted {round_.accepted} of {round_.drafted} tokens")
        if round_.outcome is not None and (round_.outcome == "bonus") != (round_.accepted == round_.drafted):
            broken.append(
                f"a round of {round_.model} that accepted {round_.accepted} of {round_.drafted} calls its next token {round_.outcome}"
            )
    target_rounds = [round_ for round_ in rounds if round_.model == hierarchy.target]
    gained = sum(round_.accepted + 1 for round_ in target_rounds)
    surplus = gained - committed  # what the final cut took away, less than the last round's gain
    last = target_rounds[-1].accepted + 1 if target_rounds else 0
    if not 0 <= surplus < max(1, last):
        broken.append(f"the target's rounds gained {gained} tokens, {committed} were committed")
    return broken
