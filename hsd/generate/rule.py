"""The verification rule: which tokens of a block are kept, and which token follows. Pure functions.

Speculative sampling of Leviathan et al. 2023 (arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318), token by
token; design §2. A draft without a distribution of its own (prompt lookup, any greedy draft) is one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

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
    draft_row = torch.cat([draft_probs, draft_probs.new_zeros(1, vocab)])[accepted]
    target_row = target_probs[accepted]
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
    draft_rows = torch.cat([draft_probs, draft_probs.new_zeros(1, vocab)])  # zeros: what follows a whole block has no draft
    surplus = (joint[:, None] * target_probs - draft_rows).clamp(min=0)  # (n + 1, vocab)
    mass = surplus.sum(-1)
    chance = torch.where(mass + 1 - joint > 0, mass / (mass + 1 - joint), 1.0)  # of keeping a prefix rather than a shorter one
    chance = torch.cat([chance[1:-1], joint[-1:]])[:num_drafted]  # (n,): of 1 to n tokens
    kept = torch.rand(num_drafted, generator=generator, device=device) < chance
    accepted = (kept * (rows + 1)).amax() if num_drafted else rows.sum()  # (), the longest prefix that is kept
    residual = torch.where(mass[accepted] > 0, surplus[accepted], target_probs[accepted])  # equal rows up to rounding
    num_accepted, next_token = torch.stack([accepted, draw(residual, generator)]).tolist()
    return num_accepted, next_token


def draw(weights: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """An index () drawn in proportion to `weights` (vocab,), which need not add up to 1.

    What `torch.multinomial` does, without its checks, each of which waits for the device.
    """
    return (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax()


RULES: dict[str, Rule] = {"token": verify_tokens, "block": verify_block}
