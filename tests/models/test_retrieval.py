"""Drafts that look tokens up propose what a naive search finds, first in the text so far, then in the datastore."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsd.models.retrieval import _LEAST_CHANCE, _LOOK, RETRIEVERS, Retrieval, Successors

TEXTS = st.lists(st.lists(st.integers(0, 4), max_size=30), max_size=5)


def most_frequent(texts: list[list[int]], gram: tuple[int, ...]) -> int | None:
    found = Counter(text[i + len(gram)] for text in texts for i in range(len(text) - len(gram)) if tuple(text[i : i + len(gram)]) == gram)
    return min(found, key=lambda token_id: (-found[token_id], token_id), default=None)


def latest(text: list[int], gram: tuple[int, ...]) -> int | None:
    ends = [end for end in range(len(gram), len(text)) if tuple(text[end - len(gram) : end]) == gram]
    return text[ends[-1]] if ends else None


def naive(name: str, texts: list[list[int]], text: list[int], count: int) -> list[int]:
    proposed, chance = [], 1.0
    while len(proposed) < count:
        tail = [*text, *proposed]
        found = []
        for where, size, likely in _LOOK[name]:
            if size <= len(tail):
                gram = tuple(tail[-size:])
                found.append((latest(text, gram) if where == "text" else most_frequent(texts, gram), likely))
        token_id, likely = next((pair for pair in found if pair[0] is not None), (None, 0.0))
        chance *= likely
        if chance < _LEAST_CHANCE:
            return proposed
        proposed.append(token_id)
    return proposed


@settings(deadline=None, derandomize=True, max_examples=200)
@given(texts=TEXTS, gram=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_a_successor_is_the_most_frequent_one(texts, gram):
    assert Successors(texts).successor(tuple(gram)) == most_frequent(texts, tuple(gram))


def test_no_n_gram_reaches_over_the_end_of_a_text():
    assert Successors([[1, 2], [3, 4]]).successor((2,)) is None
    assert Successors([[1, 2], [2, 3, 4]]).successor((2,)) == 3


def test_the_largest_vocabularies_fit_into_a_key():
    last = 2**21 - 1
    table = Successors([[last, last, last, 7, last - 1, last, last, 9]])
    assert table.successor((last, last, last)) == 7 and table.successor((last - 1, last, last)) == 9


def test_a_text_without_an_n_gram_and_no_text_at_all_are_tables_too():
    for texts in ([], [[]], [[4]]):
        assert Successors(texts).successor((4,)) is None and Successors(texts).memory_bytes == 0


# As for prompt lookup: a step cuts the text to a share of its length and appends tokens of a small alphabet.
STEPS = st.lists(st.tuples(st.floats(0, 1), st.lists(st.integers(0, 4), max_size=8), st.integers(0, 9)), min_size=1, max_size=8)


@pytest.mark.parametrize("name", RETRIEVERS)
@settings(deadline=None, derandomize=True, max_examples=200)
@given(texts=TEXTS, steps=STEPS)
def test_proposals_are_those_of_the_naive_search_after_any_rollbacks(name, texts, steps):
    draft = Retrieval(name, Successors(texts))
    text = [0]
    for keep, added, count in steps:
        kept = max(1, round(keep * len(text)))
        draft.rollback(kept)
        text = [*text[:kept], *added]
        before = list(text)
        assert draft.propose(text, count) == naive(name, texts, text, count)
        assert text == before, "a proposer must not alter the text"


def test_the_text_so_far_comes_before_the_datastore_and_a_longer_match_before_a_shorter():
    draft = Retrieval("retrieval", Successors([[1, 2, 3, 8], [2, 3, 9], [2, 3, 9], [5, 6]]))
    assert draft.fresh().propose([1, 2, 3, 4, 1, 2, 3], 1) == [4]
    assert draft.fresh().propose([7, 1, 2, 3], 1) == [8], "three tokens in the datastore before two"
    assert draft.fresh().propose([3, 4, 2, 3], 1) == [9], "two in the datastore before one in the text"
    assert draft.fresh().propose([4, 5], 3) == [6], "nothing follows in either"
    assert draft.fresh().propose([4], 3) == []


def test_a_copied_passage_is_proposed_at_length_and_a_guess_is_not_built_upon():
    passage = list(range(20, 40))
    draft = Retrieval("retrieval", Successors([[1, 2], [2, 3], [3, 4]]))
    assert draft.fresh().propose([*passage, 50, *passage[:3]], 8) == passage[3:11]
    assert draft.fresh().propose([60, 1], 8) == [2], "a guess from one token is followed by no second one"


def test_a_fresh_copy_remembers_the_datastore_and_no_text():
    draft = Retrieval("retrieval", Successors([[8, 9]]))
    draft.propose([1, 2, 3, 1, 2], 2)
    assert draft.fresh().propose([1, 2], 2) == [] and draft.fresh().propose([8], 1) == [9]
    assert draft.fresh().memory_bytes == draft.memory_bytes > 0
