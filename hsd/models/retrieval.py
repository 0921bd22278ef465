"""Drafts that look tokens up in a datastore, as REST does (He et al. 2023, arXiv 2311.08252); here of text that the target wrote."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hsd.models.lookup import PromptLookup

Ints = NDArray[np.int64]
RETRIEVERS = ("retrieval", "bigram")

_LONGEST = 3  # tokens of an n-gram
_TOKEN_BITS = 21  # of a key; no vocabulary is larger
# Where to look, the best first, and how often what is found there is the next token (SmolLM2-135M on 60 prompts of Spec-Bench).
_LOOK: dict[str, tuple[tuple[Literal["text", "datastore"], int, float], ...]] = {
    "retrieval": (
        ("text", 3, 0.8),
        ("text", 2, 0.5),
        ("datastore", 3, 0.4),
        ("datastore", 2, 0.25),
        ("text", 1, 0.25),
        ("datastore", 1, 0.15),
    ),
    "bigram": (("datastore", 1, 0.15),),
}
_LEAST_CHANCE = 0.15  # of a token to be reached and right; below it, verifying costs more than it gains (10 to 20 % of a pass)


class Successors:
    """The most frequent successor of every n-gram of at most 3 tokens in some texts; the lowest token id among equals."""

    def __init__(self, texts: Iterable[Sequence[int]]) -> None:
        arrays = [np.asarray(text, np.int64) for text in texts]
        self._tables = [_count([text for text in arrays if len(text) > size], size) for size in range(1, _LONGEST + 1)]

    @property
    def memory_bytes(self) -> int:
        return sum(len(column) * column.itemsize for table in self._tables for column in table)

    def successor(self, gram: tuple[int, ...]) -> int | None:
        """The token that follows `gram` (1 to 3 tokens) most often; None where the texts do not hold it."""
        keys, tokens = self._tables[len(gram) - 1]
        key = 0
        for token_id in gram:
            key = key << _TOKEN_BITS | token_id
        place = bisect_left(keys, key)
        return tokens[place] if place < len(keys) and keys[place] == key else None


class Retrieval:
    """Proposes token after token: `retrieval` what followed the longest n-gram that the text so far or the datastore holds, of equal
    ones the text's, and of single tokens last; `bigram` the datastore's most frequent successor of the last token. A proposal ends
    where the next token would hardly be accepted."""

    def __init__(self, name: str, successors: Successors) -> None:
        self.name = name
        self.memory_bytes = successors.memory_bytes
        self.successors = successors  # shared by the drafts of one target
        self._text = PromptLookup(_LONGEST)

    def fresh(self) -> Retrieval:
        return Retrieval(self.name, self.successors)

    def propose(self, token_ids: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens, fewer where nothing is found or little hope is left."""
        self._text.follow(token_ids)
        tail, proposed, chance = tuple(token_ids[-_LONGEST:]), [], 1.0
        while len(proposed) < count:
            token_id, likely = self._next(tail)
            chance *= likely
            if token_id is None or chance < _LEAST_CHANCE:
                break
            proposed.append(token_id)
            tail = (*tail, token_id)[-_LONGEST:]
        return proposed

    def rollback(self, length: int) -> None:
        self._text.rollback(length)

    def _next(self, tail: tuple[int, ...]) -> tuple[int | None, float]:
        for where, size, likely in _LOOK[self.name]:
            source = self._text if where == "text" else self.successors
            if size <= len(tail) and (token_id := source.successor(tail[-size:])) is not None:
                return token_id, likely
        return None, 0.0


def _count(texts: Sequence[Ints], size: int) -> tuple[array[int], array[int]]:
    """Sorted keys of the n-grams of `size` tokens, and the most frequent successor of each."""
    keys, tokens = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if texts:
        keys = np.concatenate([sum(text[i : len(text) - size + i] << _TOKEN_BITS * (size - 1 - i) for i in range(size)) for text in texts])
        tokens = np.concatenate([text[size:] for text in texts])
        order = np.lexsort((tokens, keys))
        keys, tokens = keys[order], tokens[order]
        first = np.flatnonzero(np.concatenate([[True], (np.diff(keys) != 0) | (np.diff(tokens) != 0)]))  # of each pair
        counts = np.diff(np.append(first, len(keys)))
        keys, tokens = keys[first], tokens[first]
        order = np.lexsort((tokens, -counts, keys))
        keys, tokens = keys[order], tokens[order]
        best = np.concatenate([[True], np.diff(keys) != 0])
        keys, tokens = keys[best], tokens[best]
    return array("q", keys.tobytes()), array("i", tokens.astype(np.int32).tobytes())
