"""Two vocabularies are compared by what each id means."""

from hsd.pick.load import load_tokenizer
from hsd.pick.vocabulary import compare


def test_equal_vocabularies_match_whatever_the_padding_of_the_matrix(make_model):
    one = load_tokenizer(make_model("one"))
    padded = load_tokenizer(make_model("padded", rows=128))
    match = compare(one, padded)
    assert match.compatible and match.explain("padded", "one") == ""


def test_two_tokens_exchanged_are_found_and_named(tiny_tokenizer, words):
    other = words.copy()
    other[9], other[10] = other[10], other[9]
    match = compare(tiny_tokenizer(words), tiny_tokenizer(other))
    assert [difference.token_id for difference in match.differences] == [9, 10]
    sentence = match.explain("draft", "target")
    assert "2 of 64 token ids differ" in sentence and "9 (“w7” / “w8”)" in sentence


def test_ordinary_tokens_beyond_the_smaller_vocabulary_count_as_different(tiny_tokenizer, words):
    match = compare(tiny_tokenizer(words), tiny_tokenizer(words[:60]))
    assert [difference.draft_token for difference in match.differences] == [None] * 4
    assert "none" in match.explain("draft", "target")


def test_special_tokens_that_only_one_side_has_are_no_obstacle(tiny_tokenizer, words):
    plain, thinking = tiny_tokenizer(words), tiny_tokenizer(words, added=["<think>", "</think>"])
    assert compare(plain, thinking).compatible and compare(thinking, plain).compatible
    other = tiny_tokenizer(words, added=["<tool>", "</think>"])
    assert [difference.token_id for difference in compare(thinking, other).differences] == [64]


def test_many_differences_are_counted_not_listed(tiny_tokenizer, words):
    sentence = compare(tiny_tokenizer(words), tiny_tokenizer([*words[:2], *reversed(words[2:])])).explain("draft", "target")
    assert "62 of 64" in sentence and "and 59 more" in sentence and len(sentence) < 300
