"""The verification rule: which tokens of a block are kept, and which token follows. Pure functions.

Speculative sampling of Leviathan et al. 2023 (arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318), token by
token; design §2. A draft without a distribution of its own (prompt lookup, any greedy draft) is one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

_PART = 256  # about the root of a large vocabulary

# (block_ids (n,), draft_probs (n, vocab), target_probs (n + 1, vocab), generator) -> (accepted, next token)
Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Generator], tuple[int, int]]


def stack_rows(block: Sequence[int], rows: Sequence[torch.Tensor | None], like: torch.Tensor) -> torch.Tensor:
    """Draft distributions (n, vocab) on the verifier's device and vocabulary; `None` stands for one-hot."""
    stacked = like.new_zeros(len(block), like.shape[1])
    for position, (token_id, row) in enumerate(zip(block, rows, strict=True)):
        if row is None:
            stacked[position, token_id] = 1.0
        else:
            stacked[position, : row.shape[0]] = row[: like.shape[1]].to(like.device)
    return stacked


def verify_greedily(block_ids: list[int], choices: list[int]) -> tuple[int, int]:
    """Accepted tokens of a block of n, and the next one; `choices` holds the verifier's n + 1 argmaxes."""
    accepted = 0
    while accepted < len(block_ids) and block_ids[accepted] == choices[accepted]:
        accepted += 1
    return accepted, choices[accepted]


def verify_tokens(
    block_ids: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor, generator: torch.Generator
) -> tuple[int, int]:
    """Token-wise verification of a sampled block.

    block_ids (n,) int64; draft_probs (n, vocab) float32, the distribution each token was drawn from; target_probs
    (n + 1, vocab) float32. Token j is kept with probability min(1, target/draft); the first rejection draws from
    norm(max(0, target − draft)), a fully kept block draws from the target's last row. One device synchronisation.
    """
    num_drafted, vocab = draft_probs.shape
    rows = torch.arange(num_drafted, device=target_probs.device)
    uniform = torch.rand(num_drafted, generator=generator, device=target_probs.device)
    kept = uniform * draft_probs[rows, block_ids] < target_probs[rows, block_ids]  # (n,)
    accepted = kept.long().cumprod(0).sum()  # (), the number before the first rejection
    # A row of zeros stands for "no draft": the residual of a fully kept block is the target's own row.
    draft_row = _row(torch.cat([draft_probs, draft_probs.new_zeros(1, vocab)]), accepted)
    target_row = _row(target_probs, accepted)
    residual = (target_row - draft_row).clamp(min=0)
    residual = torch.where(residual.sum() > 0, residual, target_row)  # equal rows up to rounding
    num_accepted, next_token = torch.stack([accepted, draw(residual, generator)]).tolist()
    return num_accepted, next_token


def verify_block(
    block_ids: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor, generator: torch.Generator
) -> tuple[int, int]:
    """Block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): keeps at least as many tokens on average.

    Shapes as in `verify_tokens`. A prefix is kept by its joint probability instead of token by token. One device
    synchronisation.
    """
    num_drafted, vocab = draft_probs.shape
    device = target_probs.device
    rows = torch.arange(num_drafted, device=device)
    ratios = target_probs[rows, block_ids] / draft_probs[rows, block_ids]  # (n,)
    joints = [ratios.new_ones(())]  # of the prefixes of 0 to n tokens
    for ratio in ratios:
        joints.append((joints[-1] * ratio).clamp(max=1))
    joint = torch.stack(joints)  # (n + 1,)
    # A row at a time: all at once they would not fit into a processor's cache.
    surplus = [(joints[row] * target_probs[row] - draft_probs[row]).clamp_(min=0).sum() for row in range(1, num_drafted)]
    mass = torch.stack([*surplus, joint.new_zeros(())])[:num_drafted]  # (n,)
    rest = mass + 1 - joint[1:]
    # Of keeping a prefix of 1 to n tokens rather than a shorter one; the whole block by its joint probability.
    chances = torch.where(rest > 0, mass / rest, 1.0)
    chances = torch.where(rows == num_drafted - 1, joint[1:], chances)
    kept = torch.rand(num_drafted, generator=generator, device=device) < chances
    accepted = (kept * (rows + 1)).amax() if num_drafted else rows.sum()  # (), the longest prefix that is kept
    # A row of zeros stands for "no draft": what follows a whole block is drawn from the target's own row.
    draft_row = _row(torch.cat([draft_probs, draft_probs.new_zeros(1, vocab)]), accepted)
    target_row = _row(target_probs, accepted)
    residual = (_row(joint, accepted) * target_row - draft_row).clamp_(min=0)
    residual = torch.where(residual.sum() > 0, residual, target_row)  # equal rows up to rounding
    num_accepted, next_token = torch.stack([accepted, draw(residual, generator)]).tolist()
    return num_accepted, next_token


def draw(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """An index () drawn in proportion to `weights` (vocab,), which need not add up to 1; nothing waits for the device.

    `torch.multinomial` draws an exponential number for every token: a GPU does so at once, a processor takes longer than
    for the rest of a round.
    """
    return (draw_by_parts if weights.device.type == "cpu" else draw_by_race)(weights, generator)


def draw_by_race(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every index arrives after an exponential time at its own rate; the first one wins."""
    return (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax()


def draw_by_parts(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Inverse of the cumulated weights in two steps, a part and an index within it: sums of few numbers stay exact enough
    for the least likely token."""
    if weights.shape[0] <= _PART:
        return _invert(weights, generator)
    padded = F.pad(weights, (0, -weights.shape[0] % _PART)).view(-1, _PART)
    part = _invert(padded.sum(-1), generator)
    return part * _PART + _invert(_row(padded, part), generator)


def _invert(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """An index () drawn in proportion to `weights` (n,), one of positive weight."""
    sums = weights.cumsum(0)
    # 1 - u lies in (0, 1]: the first sum that reaches it ends with a weight above zero, also at the largest.
    height = (1 - torch.rand((), generator=generator, device=weights.device)) * sums[-1]
    return torch.searchsorted(sums, height).clamp(max=len(sums) - 1)  # beyond the end only for NaN


def _row(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The row at index (); `rows[index]` would wait for the device to learn the number."""
    return rows.index_select(0, index[None])[0]


RULES: dict[str, Rule] = {"token": verify_tokens, "block": verify_block}


class RuleFailed(BaseException):
    """What a rule of the caller's own raised, its cause; no `Exception`, which would be taken for a level's fault."""


def accountable(rule: Rule) -> Rule:
    """The rule; one of the caller's own raises `RuleFailed` from whatever it raises."""
    if rule in RULES.values():
        return rule

    def verify(*rows: torch.Tensor | torch.Generator) -> tuple[int, int]:
        try:
            accepted, next_id = rule(*rows)
        except Exception as error:
            raise RuleFailed from error
        return accepted, next_id

    return verify
