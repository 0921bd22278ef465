"""Text out of tokens: whole characters only, every piece in place, and joined exactly what the tokenizer decodes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import byte_tokenizer, letter_tokenizer
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hsd.generate.text import TextStream, TokenTexts

TEXTS = [
    "plain words, then more",
    "   leading and trailing spaces   ",
    "lines\n\n\twith\r\ntabs\n",
    "naïve café – “quoted” …",
    "日本語の文字と漢字",
    "emoji 🎉🎊 family 👩‍👩‍👧 flag 🇨🇭 skin 👍🏽",
    "क्षि नमस्ते ข้อความ",
    "mixed 漢 a🎉b\n",
    "real � replacement characters �� here",
    "�",
    "<img onerror=alert(1)> ${x} {{y}} `z` \\u0041",
]


def decoded(tokenizer, token_ids):
    return tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def pieces(tokenizer, token_ids):
    stream = TextStream(tokenizer)
    given_out = [stream.push(token_id) for token_id in token_ids]
    tail = stream.finish()
    assert "".join(given_out) + tail == stream.text
    return given_out, tail


@pytest.fixture(scope="module")
def bytes_bpe():
    return byte_tokenizer()


@pytest.fixture(scope="module")
def sentencepiece():
    """A Llama-like tokenizer: ▁ for spaces, bytes as tokens of their own where a character is unknown."""
    vocab = {"<unk>": 0, "▁": 1, "▁a": 2, "a": 3, "b": 4, "▁bc": 5} | {f"<0x{byte:02X}>": 6 + byte for byte in range(256)}
    backend = Tokenizer(models.BPE(vocab, [("▁", "a")], byte_fallback=True, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(?!)"), "isolated")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_characters_and_join_to_the_text(bytes_bpe, text):
    token_ids = bytes_bpe(text)["input_ids"]
    given_out, tail = pieces(bytes_bpe, token_ids)
    assert "".join(given_out) + tail == text
    if "�" not in text:
        assert tail == "" and not any("�" in piece for piece in given_out)


def test_a_split_character_arrives_with_its_last_token(bytes_bpe):
    token_ids = [token for byte in "a🎉b".encode() for token in bytes_bpe.convert_tokens_to_ids([pre_tokenized(byte)])]
    assert pieces(bytes_bpe, token_ids) == (["a", "", "", "", "🎉", "b"], "")


def test_what_stands_before_a_split_character_is_not_held_back():
    """A token may hold a whole character and the start of the next: a stop string in the whole part counts at once."""
    backend = Tokenizer(models.WordLevel({"aĠð": 0, "ŁĺĤ": 1, "b": 2}, unk_token="b"))
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    stream = TextStream(tokenizer)
    assert stream.push(0) == "a " and stream.ends_with_any(["a"])
    assert stream.push(1) == "😂" and stream.text == decoded(tokenizer, [0, 1]) and not stream.ends_with_any(["a"])


def test_bytes_that_never_become_a_character_come_at_the_end(bytes_bpe):
    start = bytes_bpe.convert_tokens_to_ids([pre_tokenized(byte) for byte in "漢".encode()[:2]])
    assert pieces(bytes_bpe, [*bytes_bpe("ok")["input_ids"], *start])[1] == "�"


def pre_tokenized(byte: int) -> str:
    """The character by which a byte-level BPE writes `byte` (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return chr(byte) if byte in shown else chr(256 + [other for other in range(256) if other not in shown].index(byte))


@settings(deadline=None, derandomize=True, max_examples=300)
@given(token_ids=st.lists(st.integers(0, 399), max_size=60))
def test_any_tokens_of_a_byte_level_bpe_join_to_the_decoded_text(bytes_bpe, token_ids):
    given_out, tail = pieces(bytes_bpe, [token % len(bytes_bpe) for token in token_ids])
    assert "".join(given_out) + tail == decoded(bytes_bpe, [token % len(bytes_bpe) for token in token_ids])


@settings(deadline=None, derandomize=True, max_examples=200)
@given(start=st.integers(0, 40), values=st.lists(st.sampled_from([0xF0, 0x9F, 0x8E, 0x89, 0xE6, 0xBC, 0xA2, 0xFF, 0x61]), max_size=40))
def test_any_broken_bytes_join_to_the_decoded_text(bytes_bpe, start, values):
    """Long runs of bytes that are no characters, with real ones among them."""
    token_ids = bytes_bpe.convert_tokens_to_ids([pre_tokenized(byte) for byte in [*b"x" * start, *values]])
    given_out, tail = pieces(bytes_bpe, token_ids)
    assert "".join(given_out) + tail == decoded(bytes_bpe, token_ids)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(words=st.lists(st.sampled_from(["▁", "▁a", "a", "b", "▁bc", "漢", "🎉", "é"]), max_size=30))
def test_a_sentencepiece_tokenizer_with_byte_fallback_joins_too(sentencepiece, words):
    token_ids = []
    for word in words:
        known = sentencepiece.convert_tokens_to_ids(word)
        token_ids += [known] if known else [6 + byte for byte in word.encode()]
    given_out, tail = pieces(sentencepiece, token_ids)
    assert "".join(given_out) == decoded(sentencepiece, token_ids) and tail == ""


@settings(deadline=None, derandomize=True, max_examples=200)
@given(token_ids=st.lists(st.integers(0, 63), max_size=40), stop=st.text("abcd. ", min_size=1, max_size=4))
def test_a_stop_string_is_seen_with_the_token_that_completes_it(token_ids, stop):
    tokenizer = letter_tokenizer()
    stream = TextStream(tokenizer)
    for count, token_id in enumerate(token_ids, 1):
        stream.push(token_id)
        assert stream.ends_with_any([stop]) == (
            decoded(tokenizer, token_ids[:count]).find(stop) + len(stop) == count and stop in stream.text
        )
        if stop in stream.text:
            break


def test_special_tokens_are_text_like_any_other(bytes_bpe):
    bytes_bpe.add_special_tokens({"additional_special_tokens": ["<|tool|>"]})
    token_ids = bytes_bpe("a<|tool|> b")["input_ids"]
    given_out, _ = pieces(bytes_bpe, token_ids)
    assert "".join(given_out) == "a<|tool|> b"
    assert [TokenTexts(bytes_bpe)(token_id) for token_id in token_ids] == given_out


def test_a_long_text_costs_no_more_per_token(bytes_bpe):
    """Only the last few tokens are decoded again, however long the text is."""
    lengths = []

    class Counting:
        def decode(self, token_ids, **options):
            lengths.append(len(token_ids))
            return bytes_bpe.decode(token_ids, **options)

    token_ids = bytes_bpe("some text 漢字 🎉 and more. " * 40)["input_ids"]
    pieces(Counting(), token_ids)
    assert max(lengths) < 20
