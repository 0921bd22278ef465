"""The project's own prompts, and what a user's file may look like."""

import json

import pytest

from hsd.errors import BadInput
from hsd.measure import prompts
from hsd.measure.prompts import load_default, load_file


def test_the_own_set_has_forty_prompts_of_eight_kinds_with_long_articles():
    own = load_default()
    assert len(own) == 40 and len({prompt.id for prompt in own}) == 40
    assert set(own.categories) == {
        "summarisation",
        "chat",
        "question answering",
        "code",
        "translation",
        "mathematics",
        "stories",
        "extraction",
    }
    articles = own.only("summarisation")
    assert len(articles) >= 8
    assert all(300 <= len(prompt.prompt.split()) <= 650 for prompt in articles)


def test_the_hash_follows_the_content_and_not_the_format():
    text = load_file(b"one\ntwo\n", "a.txt")
    lines = load_file(b'{"prompt": "one"}\n{"prompt": "two"}\n', "b.jsonl")
    table = load_file(b"prompt\none\ntwo\n", "c.csv")
    assert text.sha256 == lines.sha256 == table.sha256 != load_file(b"one\nthree\n", "a.txt").sha256
    assert (text.info.name, text.info.count) == ("a.txt", 2)


def test_a_small_sample_takes_the_categories_in_turn():
    sample = load_default().spread(8)
    assert len(sample) == 8 and len(set(sample.categories)) == 8
    assert load_default().spread(1000) == load_default()


@pytest.mark.parametrize(
    ("data", "name", "column", "wanted"),
    [
        (b"one\ntwo", "a.txt", None, ["one", "two"]),
        (b"one\nmore of one\n\n\ntwo\n", "a.txt", None, ["one\nmore of one", "two"]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", "A.TXT", None, ["one", "two"]),
        ('"ein Satz"\n\n{"prompt": "漢字", "category": "x"}'.encode(), "a.jsonl", None, ["ein Satz", "漢字"]),
        (b'{"article": "one"}', "a.jsonl", "article", ["one"]),
        (b'id,text\n1,"one, with comma\nand line"\n2,two\n', "a.csv", "text", ["one, with comma\nand line", "two"]),
        (b"article\none\n\ntwo\n", "a.csv", None, ["one", "two"]),
    ],
)
def test_files_of_each_format_are_read(data, name, column, wanted):
    assert [prompt.prompt for prompt in load_file(data, name, column=column)] == wanted


def test_a_file_is_read_from_its_path_and_named_without_its_folder(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps({"prompt": "hello", "category": "greetings"}))
    loaded = load_file(file)
    assert loaded.name == "mine.jsonl" and loaded.prompts[0].category == "greetings"


@pytest.mark.parametrize(
    ("data", "name", "column", "said"),
    [
        (b"", "a.txt", None, "holds no prompt"),
        (b"\n \n", "a.txt", None, "holds no prompt"),
        (b"\xff\xfe\x00", "a.txt", None, "not UTF-8"),
        (b"a\x00b", "a.txt", None, "NUL"),
        (b"x", "a.pdf", None, "not a prompt file"),
        (b"x", "noending", None, "not a prompt file"),
        (b"{", "a.jsonl", None, "line 1: this is not JSON"),
        (b'{"prompt": "a"}\n{"text": "b"}', "a.jsonl", None, "line 2: there is no text field “prompt”; it has text"),
        (rb'{"prompt": "\ud800 hi"}', "a.jsonl", None, "line 1: the prompt holds half of a surrogate pair"),
        (b'{"prompt": 5}', "a.jsonl", None, "no text field"),
        (b"[" * 100_000, "a.jsonl", None, "not JSON"),
        (b"a,b\n1,2\n", "a.csv", None, "choose one of a, b"),
        (b"", "a.csv", None, "none (the file is empty)"),
        (b"prompt\n" + b"x" * 200_001, "a.csv", None, "line"),
        (b"x" * 200_001, "a.txt", None, "200,001 characters"),
        (b"x\n" * 2_001, "a.txt", None, "more than 2,000"),
    ],
)
def test_bad_files_are_explained(data, name, column, said):
    with pytest.raises(BadInput, match=r".") as raised:
        load_file(data, name, column=column)
    assert said in str(raised.value)


def test_missing_and_oversized_files_are_explained(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="cannot be read"):
        load_file(tmp_path / "nope.txt")
    with pytest.raises(BadInput, match="cannot be read"):
        load_file(tmp_path)
    monkeypatch.setattr(prompts, "MAX_FILE_BYTES", 3)
    (tmp_path / "big.txt").write_text("four")
    for source in (tmp_path / "big.txt", b"four"):
        with pytest.raises(BadInput, match="may have"):
            load_file(source, "big.txt")


def test_an_unknown_category_is_named():
    with pytest.raises(BadInput, match="no category “poems”"):
        load_default().only("poems")
