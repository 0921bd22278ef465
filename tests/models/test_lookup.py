"""Prompt lookup proposes what a naive search finds, however the text was rolled back before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsd.models.lookup import PromptLookup


def naive(text: list[int], count: int, longest: int = 3, shortest: int = 1) -> list[int]:
    """What followed the latest earlier occurrence of the longest suffix that occurs earlier."""
    for size in range(min(longest, len(text) - 1), shortest - 1, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                return text[end : end + count]
    return []


def test_the_naive_search_is_understood():
    assert naive([1, 2, 3, 9, 1, 2, 3], 2) == [9, 1]
    assert naive([1, 2, 7, 1, 2, 8, 1, 2], 1) == [8], "the latest occurrence counts"
    assert naive([5, 2, 3, 9, 4, 3, 8, 2, 3], 3) == [9, 4, 3], "the longest suffix counts, not the latest"
    assert naive([4, 4], 3) == [4] and naive([1, 2, 3], 3) == [] and naive([1], 3) == []


# A step cuts the text to a share of its length and appends tokens of a small alphabet, so that n-grams recur.
STEPS = st.lists(
    st.tuples(st.floats(0, 1), st.lists(st.integers(0, 3), max_size=12), st.integers(1, 6)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(steps=STEPS, longest=st.integers(1, 4))
def test_proposals_are_those_of_the_naive_search_after_any_rollbacks(steps, longest):
    lookup = PromptLookup(longest=longest)
    text: list[int] = [0]
    for keep, added, count in steps:
        kept = max(1, round(keep * len(text)))
        lookup.rollback(kept)
        text = [*text[:kept], *added]
        before = list(text)
        assert lookup.propose(text, count) == naive(text, count, longest)
        assert text == before, "a proposer must not alter the text"


def test_a_rollback_over_a_repeated_token_is_undone_fully():
    """Two occurrences pushed and undone again, then the first one: this once lost count and failed."""
    lookup = PromptLookup()
    for text in ([7, 7, 7], [7], [7, 7, 7, 7], [8, 7]):
        lookup.rollback(1 if text[0] == 7 else 0)
        assert lookup.propose(text, 4) == naive(text, 4)


def test_a_fresh_copy_remembers_nothing():
    lookup = PromptLookup()
    lookup.propose([1, 2, 3, 1, 2], 2)
    assert lookup.fresh().propose([1, 2], 2) == []


@pytest.mark.parametrize("length", [2_000])
def test_following_a_text_costs_what_is_new(length):
    """The index holds each position once per n-gram size: no growth beyond the text, also with rollbacks."""
    lookup = PromptLookup()
    text = [(i * i) % 17 for i in range(length)]
    for end in range(10, length, 10):
        lookup.propose([*text[:end], 3, 3, 3], 4)
        lookup.rollback(end)
        lookup.propose(text[:end], 4)
    assert sum(map(len, lookup._ends.values())) <= 3 * length
