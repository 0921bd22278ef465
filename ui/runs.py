"""One generation as it is kept on the server: its events, so that the page can show it again and export its trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hsd.generate.events import EndEvent, NoticeEvent, RoundEvent, TokenEvent
from hsd.records import SCHEMA, Environment, Sampling


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
        """The trace file of design §6."""
        return {"schema": SCHEMA, "kind": "trace", **asdict(self)}


@dataclass(frozen=True, slots=True)
class RunPair:
    """A run through the hierarchy, and the same prompt with the target alone if the visitor asked for it."""

    stacked: Run
    alone: Run | None = None
