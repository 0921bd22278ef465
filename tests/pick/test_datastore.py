"""What a target writes for the drafts that look tokens up: its own greedy answers, once, kept, and never half."""

import time
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

from hsd.errors import Cancelled
from hsd.generate.engine import generate
from hsd.generate.events import EndEvent
from hsd.models.retrieval import Retrieval, Successors
from hsd.pick import datastore, embedded
from hsd.pick.candidates import list_candidates
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


def test_writing_ends_with_its_time_in_the_middle_of_a_text(make_model, monkeypatch):
    """A large model on a CPU takes minutes for one question and its answer."""
    with Registry().lease(make_model("target"), **FLOAT32) as models:
        monkeypatch.setattr(datastore, "_QUESTION_TOKENS", 1)
        network, passes = models.networks[models.target], []
        forward = type(network).forward

        def slow(self, *given):
            passes.append(time.sleep(0.05))
            return forward(self, *given)

        monkeypatch.setattr(type(network), "forward", slow)
        started = time.perf_counter()
        texts = datastore.write(models, silent, lambda: False, seconds=0.5, tokens=10**9)
        assert time.perf_counter() - started < 2 and len(passes) < 30
        assert len(texts) == 1 and 0 < len(texts[0]) < datastore._ANSWER_TOKENS, "what was written until then is kept"


def test_a_target_that_writes_nothing_in_its_time_says_so(make_model, monkeypatch):
    monkeypatch.setattr(datastore, "SECONDS", 1e-9)
    target = make_model("target")
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert "wrote nothing" in models.notices["retrieval"] and "prompt-lookup" in models.notices["retrieval"]
    assert not datastore.file_of(target).exists()


def test_a_chat_template_is_filled_with_the_targets_own_question(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    assert datastore._turn(tokenizer, frozenset({1})) == ([0], [])
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_tokens([datastore._MARK])  # a vocabulary of bytes has it anyway
    assert datastore._turn(tokenizer, frozenset({1})) == ([3], [4, 5])
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} w2 {% endfor %}w3"  # as DialoGPT's: nothing before them
    assert datastore._turn(tokenizer, frozenset({1})) == ([0], [4, 5])
    without_place, refusing = "{{ 'w1 w2' }}", "{{ raise_exception('a system message is needed') }}"
    for template in (without_place, refusing, "{{ '' }}", "{% for %}"):
        tokenizer.chat_template = template
        assert datastore._turn(tokenizer, frozenset({1})) == ([0], [])


def test_a_target_writes_once_and_both_drafts_share_it(make_model, writings):
    target = make_model("target")
    with Registry().lease(target, ["retrieval", "bigram"], **FLOAT32) as models:
        first, second = models.networks["retrieval"], models.networks["bigram"]
        assert isinstance(first, Retrieval) and first.successors is second.successors and not models.notices
        assert models.memory_bytes["retrieval"] > 0 == models.memory_bytes["bigram"], "memory that is shared counts once"
    with Registry().lease(target, ["bigram", "retrieval"], **FLOAT32) as models:
        assert models.memory_bytes["bigram"] > 0 == models.memory_bytes["retrieval"]
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
        assert "HSD_HOME" in models.notices["retrieval"] and list(models.networks) == [target] and writings == []


def test_a_disk_that_fills_up_is_told_and_leaves_nothing_behind(make_model, monkeypatch):
    target = make_model("target")

    def full(columns, path):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(datastore, "save_file", full)
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert "No space left" in models.notices["retrieval"] and "HSD_HOME" in models.notices["retrieval"]
    assert list(datastore.file_of(target).parent.iterdir()) == []


def test_the_text_of_a_process_that_was_faster_stays(make_model):
    """Its draft looks in it, and its measurements are kept under it."""
    file = datastore.file_of(make_model("target"))
    file.parent.mkdir(parents=True, exist_ok=True)
    for texts in ([[5, 6, 7]], [[8, 9]]):
        datastore._keep(texts, file)
    assert load_file(file)["token_ids"].tolist() == [5, 6, 7]
    assert list(file.parent.iterdir()) == [file]


def columns(token_ids, lengths, kind=np.int64):
    return {"token_ids": np.array(token_ids, kind), "lengths": np.array(lengths, kind)}


BROKEN = {
    "empty": b"",
    "other": b"not a file of tensors",
    "columns": {"token_ids": np.zeros(3, np.int32)},
    "short": columns([5, 6, 7], [1, 1]),
    "long": columns([5, 6, 7], [3, 1]),
    "backwards": columns([5, 6, 7], [4, -1]),
    "fractions": columns([5, 6, 7], [1, 2], np.float32),
    "table": columns([[5, 6, 7]], [1]),
    "scalar": columns(5, 1),
    "negative": columns([5, 6, -7], [3]),
    "unknown": columns([5, 6, 64], [3]),
    "huge": columns([5, 6, 2**40], [3]),
}


def test_drafts_are_listed_without_a_cache_folder_that_can_be_looked_into(make_model, monkeypatch, tmp_path):
    monkeypatch.setenv("HSD_HOME", str(tmp_path / ("x" * 300)))  # fails as a locked folder does, for root too
    target = make_model("target")
    assert {"retrieval", "bigram"} <= {draft.name for draft in list_candidates(target, **FLOAT32) if "writes first" in draft.description}
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert "HSD_HOME" in models.notices["retrieval"]


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named_with_what_to_do(make_model, content):
    target = make_model("target")
    file = datastore.file_of(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        datastore.save_file(content, file)
    with Registry().lease(target, ["retrieval"], **FLOAT32) as models:
        assert str(file) in models.notices["retrieval"] and "delete it" in models.notices["retrieval"]


def test_the_defaults_text_comes_with_the_program():
    file = datastore.file_of(embedded.NAME)
    columns = load_file(file)
    assert file.stat().st_size < 1_000_000 and columns["lengths"].sum() == len(columns["token_ids"]) >= 150_000
    assert columns["token_ids"].min() >= 0 and columns["token_ids"].max() < 49_152
    assert isinstance(datastore._read(file, file.stat().st_mtime_ns, 49_152), Successors)
