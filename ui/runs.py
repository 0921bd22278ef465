"""One generation as it is kept on the server, so that the page can show it again and export its trace."""

from __future__ import annotations

from dataclasses import dataclass

from hsd.generate.record import Run


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
