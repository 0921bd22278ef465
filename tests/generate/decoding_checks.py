"""What must hold in every run: the target's own text, the counting identities, caches that follow the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from hsd.generate.collect import Generation, collect
from hsd.generate.engine import generate
from hsd.pick.model_set import ModelSet
from hsd.records import Hierarchy


def decode(models: ModelSet, hierarchy: Hierarchy, prompt_ids: Sequence[int], *, allow_fault: bool = False, **settings: Any) -> Generation:
    """Run to the end and check everything that must hold whatever the models are."""
    generation = collect(generate(models, hierarchy, prompt_ids, **settings), allow_fault=allow_fault)
    assert broken_identities(generation, hierarchy) == []
    check_story(generation, hierarchy)
    assert "".join(token.text for token in generation.tokens) + generation.end.tail == generation.end.text
    shown = [token_id for token_id in generation.token_ids if token_id not in models.eos_token_ids]
    assert generation.end.text == models.tokenizer.decode(shown, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return generation


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


def check_story(generation: Generation, hierarchy: Hierarchy) -> None:
    """The rounds tell how the text came about: blocks go up as they were made, and the target's rounds are the text."""
    names = [level.model for level in hierarchy.levels]
    told: list[int] = []
    made: dict[int, list[int]] = {}  # level -> tokens kept since a level above verified
    for round_ in generation.rounds:
        assert round_.model == names[round_.level]
        # A level that dropped out leaves its kept tokens and, after them, the block it was about to verify.
        handed_up = [token for level in sorted(made, reverse=True) if level < round_.level for token in made.pop(level)]
        if round_.width == 0:  # a proposer
            assert round_.next_token_id is None
            made[round_.level] = list(round_.token_ids)
            continue
        assert list(round_.token_ids) == handed_up, "a block changed on its way up"
        kept = [*round_.token_ids[: round_.accepted], round_.next_token_id]
        if round_.level == len(names) - 1:
            told += kept
        else:
            made[round_.level] = made.get(round_.level, []) + kept
    assert tuple(told[: len(generation.token_ids)]) == generation.token_ids
    assert [token.token_id for token in generation.tokens] == list(generation.token_ids)
    assert [token.round for token in generation.tokens] == sorted(token.round for token in generation.tokens)


@torch.inference_mode()
def greedy_alone(module: PreTrainedModel, prompt_ids: Sequence[int], count: int) -> list[int]:
    """The reference: transformers' forward over the whole text for every token, without any cache."""
    text = list(prompt_ids)
    for _ in range(count):
        logits = module(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
        text.append(int(logits.argmax()))
    return text[len(prompt_ids) :]


def transformers_text(module: PreTrainedModel, prompt_ids: Sequence[int], count: int, **settings: Any) -> list[int]:
    """New tokens of transformers' own `generate`, greedy unless `settings` say otherwise."""
    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "use_cache": True} | settings
    text = module.generate(torch.tensor([list(prompt_ids)]), max_new_tokens=count, **settings)
    return text[0, len(prompt_ids) :].tolist()
