"""Prompt lookup: the text's own n-grams as a draft that costs next to nothing (Saxena 2023)."""

from __future__ import annotations

from collections.abc import Sequence


class PromptLookup:
    """Proposes what followed the latest earlier occurrence of the longest matching suffix.

    The index grows with the text and is undone with it, so a call costs as much as the tokens that are new: the old ones are not
    even looked at, which after a pass of a network would fetch each of them from memory.
    """

    name = "prompt-lookup"

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        self.longest, self.shortest = longest, shortest
        self._text: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}  # n-gram -> where its occurrences end, the latest last

    def fresh(self) -> PromptLookup:
        return PromptLookup(self.longest, self.shortest)

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens that followed the latest earlier match; empty when nothing matches."""
        self.follow(token_ids)
        length = len(token_ids)
        for size in range(min(self.longest, length - 1), self.shortest - 1, -1):
            ends = self._ends[tuple(token_ids[length - size :])]
            if len(ends) > 1:  # the suffix itself is its own latest occurrence
                return list(token_ids[ends[-2] : ends[-2] + count])
        return []

    def successor(self, gram: tuple[int, ...]) -> int | None:
        """The token after the latest occurrence of `gram` in the text that is followed, if it goes on after one."""
        for end in self._ends.get(gram, ())[-1:-3:-1]:
            if end < len(self._text):
                return self._text[end]
        return None

    def follow(self, token_ids: Sequence[int]) -> None:
        """Add to the index what is new."""
        for token_id in token_ids[len(self._text) :]:
            self._text.append(token_id)
            for gram in self._grams():
                self._ends.setdefault(gram, []).append(len(self._text))

    def rollback(self, length: int) -> None:
        while len(self._text) > length:
            for gram in self._grams():
                ends = self._ends[gram]
                ends.pop()
                if not ends:
                    del self._ends[gram]
            self._text.pop()

    def _grams(self) -> list[tuple[int, ...]]:
        """The n-grams that end at the end of the indexed text."""
        text = self._text
        return [tuple(text[len(text) - size :]) for size in range(self.shortest, min(self.longest, len(text)) + 1)]
