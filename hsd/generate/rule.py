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
    next_id = torch.multinomial(residual, 1, generator=generator)
    num_accepted, next_token = torch.cat([accepted[None], next_id]).tolist()
    return num_accepted, next_token


def verify_block(
    block_ids: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor, generator: torch.Generator
) -> tuple[int, int]:
    """Block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): keeps at least as many tokens on average.

    Shapes as in `verify_tokens`. A prefix is kept by its joint probability instead of token by token.
    """
    num_drafted = block_ids.shape[0]
    device = target_probs.device
    rows = torch.arange(num_drafted, device=device)
    ratios = (target_probs[rows, block_ids] / draft_probs[rows, block_ids]).tolist()
    uniform = torch.rand(num_drafted, generator=generator, device=device).tolist()
    accepted, joint_at_accepted, joint = 0, 1.0, 1.0
    for length in range(1, num_drafted + 1):
        joint = min(joint * ratios[length - 1], 1.0)
        keep = joint
        if length < num_drafted:
            surplus = (joint * target_probs[length] - draft_probs[length]).clamp(min=0).sum().item()
            keep = surplus / (surplus + 1 - joint) if surplus + 1 - joint > 0 else 1.0
        if uniform[length - 1] < keep:
            accepted, joint_at_accepted = length, joint
    row = target_probs[accepted]
    if accepted < num_drafted:
        residual = (joint_at_accepted * row - draft_probs[accepted]).clamp(min=0)
        row = residual if residual.sum() > 0 else row
    return accepted, int(torch.multinomial(row, 1, generator=generator))


RULES: dict[str, Rule] = {"token": verify_tokens, "block": verify_block}
