"""One generation as it is kept on the server: its events, so that the page can show it again and export its trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hsd.generate.events import EndEvent, NoticeEvent, RoundEvent, TokenEvent
from hsd.records import SCHEMA, Environment, Hierarchy, Sampling


@dataclass(frozen=True, slots=True)
class Run:
    """What one hierarchy generated; incomplete (`end` is None) when it was stopped before the first token or failed."""

    models: tuple[str, ...]  # smallest first, target last
    hierarchy: str
    prompt: str
    sampling: Sampling
    tokens: tuple[TokenEvent, ...]
    rounds: tuple[RoundEvent, ...]
    notices: tuple[NoticeEvent, ...]
    end: EndEvent | None
    environment: Environment | None

    @property
    def text(self) -> str:
        return self.end.text if self.end else "".join(token.text for token in self.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """Committed tokens by seconds of decoding, prefill excluded."""
        return len(self.end.token_ids) / self.end.decode_s if self.end and self.end.decode_s > 0 and self.end.token_ids else None

    def to_json(self) -> dict[str, Any]:
        """The trace file of design §6, in the form of `hsd.generate.trace` and with the prompt; `ui/trace_file.py` reads it."""
        target = self.models[-1]
        levels = Hierarchy.parse(self.hierarchy.removesuffix(target).removesuffix(","), target).levels
        return {
            "schema": SCHEMA,
            "kind": "trace",
            "hierarchy": [asdict(level) for level in levels],
            "sampling": asdict(self.sampling),
            "environment": asdict(self.environment) if self.environment else None,
            "prompt": self.prompt,
            "reason": self.end.reason if self.end else "stopped",
            "text": self.text,
            "seconds": {"prefill": self.end.prefill_s if self.end else 0.0, "decode": self.end.decode_s if self.end else 0.0},
            "tokens": [asdict(token) for token in self.tokens],
            "rounds": [asdict(round_) for round_ in self.rounds],
            "notices": [asdict(notice) for notice in self.notices],
        }


@dataclass(frozen=True, slots=True)
class RunPair:
    """A run through the hierarchy, and the same prompt with the target alone if the visitor asked for it."""

    stacked: Run
    alone: Run | None = None

    @property
    def speedup(self) -> float | None:
        """Rate through the hierarchy by the rate of the target alone, of this one run."""
        fast, slow = self.stacked.tokens_per_s, self.alone.tokens_per_s if self.alone else None
        return fast / slow if fast and slow else None
