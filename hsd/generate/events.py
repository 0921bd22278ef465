"""What a generation tells its listeners: the one event type of the dashboard, the benchmark and the export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["accepted", "corrected", "bonus"]
EndReason = Literal["eos", "stop_string", "max_new_tokens", "context_full", "stopped", "target_fault"]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One committed token."""

    token_id: int
    text: str  # complete characters only; a split character arrives with its last token
    generated_by: str  # model whose sampling produced the token
    outcome: Outcome  # at the target
    round: int  # target round, from 0
    time_s: float  # since the start of decoding (after the prefill)
    # Of the token at the target: what it was drawn with, and at temperature 0 the softmax of the row whose largest it is.
    probability: float | None = None  # None: not asked for


@dataclass(frozen=True, slots=True)
class RoundEvent:
    """One round of one level: a block from below plus one forward pass that verified it.

    A model with nothing below it, or nothing offered from below, takes an ordinary step: `drafted = 0` and the next
    token is its bonus. A draft without weights (prompt lookup) proposes in one round of width 0 that has no next token.
    """

    round: int  # target round it belongs to, from 0
    level: int  # place in the hierarchy as planned, 0 is the smallest model
    model: str
    drafted: int
    accepted: int
    seconds: float  # forward pass and rule of this level; the levels below report their own
    token_ids: tuple[int, ...]  # the block from below
    texts: tuple[str, ...]  # the block, for display
    next_token_id: int | None  # corrected or bonus token
    next_text: str
    outcome: Outcome | None  # of the next token
    width: int  # new tokens of the forward pass; 0 for a draft without weights


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """Something the user must know while the run goes on: a draft that dropped out, or passes that run slower, and why."""

    level: int
    model: str
    message: str
    dropped: bool = True  # False: the model still takes part


@dataclass(frozen=True, slots=True)
class EndEvent:
    """The last event of every run. `token_ids` holds committed tokens after the final cut."""

    reason: EndReason
    text: str  # the texts of all token events joined, and `tail`
    tail: str  # held back with the last tokens: the bytes of a character that never became complete
    token_ids: tuple[int, ...]
    prefill_s: float  # with making room for the keys and values
    decode_s: float
    message: str = ""  # what happened and what to do, for `target_fault`


Event = TokenEvent | RoundEvent | NoticeEvent | EndEvent
