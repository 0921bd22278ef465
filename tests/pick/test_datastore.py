"""What a target writes for the drafts that look tokens up: its own greedy answers, once, kept, and never half."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from hsd.errors import Cancelled
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent
from hsd.models.retrieval import Retrieval, Successors
from hsd.pick import datastore, embedded
from hsd.pick.registry import Registry
from hsd.records import GREEDY, Hierarchy, Level, Sampling

FLOAT32 = {"device": "cpu", "dtype": "float32"}
TEMPLATE = "{% for m in messages %}w1 {{ m['content'] }} w2 {% endfor %}w3"


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(datastore, "TOKENS", 300)


@pytest.fixture
def writings(monkeypatch):
    """How often a target wrote."""
    calls, original = [], datastore.write
    monkeypatch.setattr(
        datastore, "write", lambda models, *rest, **limits: calls.append(models.target) or original(models, *rest, **limits)
    )
    return calls


def text_of(models, drafts, prompt, sampling=GREEDY, limit=40):
    hierarchy = Hierarchy((*(Level(name, 4) for name in drafts), Level(models.target)))
    return next(
        e for e in generate(models, hierarchy, prompt, sampling=sampling, max_new_tokens=limit) if isinstance(e, EndEvent)
    ).token_ids


def silent(progress):
    pass


def test_the_texts_are_the_targets_own_answers_to_its_own_questions(make_model, monkeypatch):
    with Registry().lease(make_model("target"), **FLOAT32) as models:
        told, made, original = [], [], datastore._generate
        monkeypatch.setattr(datastore, "_generate", lambda *given: made.append((given, original(*given))) or made[-1][1])
        texts = datastore.write(models, told.append, lambda: False, seconds=60, tokens=200)
        assert sum(map(len, texts)) >= 200 > sum(map(len, texts[:-1])) and len(texts) > 1
        assert told[-1].done == told[-1].total and all(step.phase == "write datastore" for step in told)
        questions, answers = made[::2], made[1::2]
        assert [answer for _, answer in answers] == texts
        assert len({question for _, question in questions}) > 1, "each is drawn anew"
        for (_, question), ((_, _, prompt, sampling, *_), answer) in zip(questions, answers, strict=True):
            asked = question[:-1] if question[-1] in models.eos_token_ids else question
            assert prompt == [0, *asked] and answer == text_of(models, [], prompt, limit=datastore._ANSWER_TOKENS) and sampling == GREEDY


def test_writing_ends_with_its_time(make_model):
    with Registry().lease(make_model("target"), **FLOAT32) as models:
        assert len(datastore.write(models, silent, lambda: False, seconds=1e-9, tokens=10**9)) <= 1


def test_a_chat_template_is_filled_with_the_targets_own_question(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    assert datastore._turn(tokenizer, frozenset({1})) == ([0], [])
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_tokens([datastore._MARK])  # a vocabulary of bytes has it anyway
    assert datastore._turn(tokenizer, frozenset({1})) == ([3], [4, 5])
    tokenizer.chat_template = "{{ 'w1 w2' }}"  # one that has no place for the user's words
    assert datastore._turn(tokenizer, frozenset({1})) == ([0], [])


def test_a_target_writes_once_and_both_drafts_share_it(make_model, writings):
    target = make_model("target")
    with Registry().lease(target, ["retrieval", "bigram"], **FLOAT32) as models:
        first, second = models.networks["retrieval"], models.networks["bigram"]
        assert isinstance(first, Retrieval) and first._successors is second._successors and models.notices == ()
        assert models.memory_bytes["retrieval"] > 0
    with Registry().lease(target, ["retrieval"], **FLOAT32):
        assert writings == [target]
    kept = load_file(datastore.file_of(target))
    assert kept["lengths"].sum() == len(kept["token_ids"]) >= 300
    assert [path.name for path in datastore.file_of(target).parent.iterdir()] == [datastore.file_of(target).name]


def test_other_weights_write_anew(make_model, writings):
    target, other = make_model("target"), make_model("other")
    with Registry().lease(target, ["retrieval"], **FLOAT32), Registry().lease(other, ["retrieval"], **FLOAT32):
        assert writings == [target, other]
    before = datastore.digest(target)
    assert before != datastore.digest(other) and before != "unwritten"
    (Path(target) / "more.safetensors").write_bytes(b"")  # the folder's files are others now
    assert datastore.digest(target) == "unwritten"


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.0, seed=3)], ids=["greedy", "sampled"])
def test_drafts_that_look_tokens_up_draft_and_leave_the_greedy_text_alone(make_model, sampling):
    with Registry().lease(make_model("target"), ["retrieval", "bigram", "early-exit:1"], **FLOAT32) as models:
        for drafts in (["retrieval"], ["bigram"], ["retrieval", "early-exit:1"]):
            hierarchy = Hierarchy((*(Level(name, 4) for name in drafts), Level(models.target)))
            events = list(generate(models, hierarchy, [0, 5, 9], sampling=sampling, max_new_tokens=60))
            assert any(getattr(event, "model", "") == drafts[0] and event.drafted > 0 for event in events), "it proposed nothing"
            if sampling.greedy:
                assert events[-1].token_ids == text_of(models, [], [0, 5, 9], limit=60)


def test_stopping_the_writing_keeps_nothing(make_model):
    target, calls = make_model("target"), []
    with (
        pytest.raises(Cancelled, match="nothing of it was kept"),
        Registry().lease(target, ["retrieval"], **FLOAT32, should_stop=lambda: len(calls) > 20 or calls.append(1)),
    ):
        pass
    assert not datastore.file_of(target).exists()


def test_a_folder_that_cannot_be_written_is_told_before_the_writing(make_model, writings, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HSD_HOME", str(tmp_path / "file"))
    target = make_model("target")
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert "HSD_HOME" in models.notices[0] and list(models.networks) == [target] and writings == []


@pytest.mark.parametrize("content", [b"", b"not a file of tensors", None], ids=["empty", "other", "columns"])
def test_a_broken_file_is_named_with_what_to_do(make_model, content):
    target = make_model("target")
    file = datastore.file_of(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    if content is None:
        datastore.save_file({"token_ids": np.zeros(3, np.int32)}, file)
    else:
        file.write_bytes(content)
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert str(file) in models.notices[0] and "delete it" in models.notices[0]


def test_the_defaults_text_comes_with_the_program():
    file = datastore.file_of(embedded.NAME)
    columns = load_file(file)
    assert file.stat().st_size < 1_000_000 and columns["lengths"].sum() == len(columns["token_ids"]) >= 150_000
    assert columns["token_ids"].min() >= 0 and columns["token_ids"].max() < 49_152
    assert isinstance(datastore._read(file, file.stat().st_mtime_ns), Successors)
