"""Any hierarchy of any drafts, thresholds, prompt, end and settings writes what the target alone writes."""

from __future__ import annotations

import os

import pytest
from decoding_checks import decode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_models import SMALL_DRAFTS, byte_tokenizer, model_set, small_set
from watching import watched

from hsd.generate.rule import verify_block, verify_tokens
from hsd.records import Hierarchy, Sampling

ALONE = Hierarchy.parse("", "target")
TOKENS = st.integers(0, 63)


@st.composite
def hierarchies(draw) -> Hierarchy:
    names = draw(st.lists(st.sampled_from(SMALL_DRAFTS), unique=True, max_size=4))
    names.sort(key=lambda name: name != "prompt-lookup")  # it cannot verify others
    return Hierarchy.of(*((name, draw(st.integers(1, 7))) for name in names), target="target")


@st.composite
def penalties(draw) -> dict:
    return draw(
        st.sampled_from(
            [{}, {}, {"repetition_penalty": 1.4}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 0.8, "no_repeat_ngram_size": 3}]
        )
    )


@pytest.fixture(scope="module")
def small():
    return small_set()


@pytest.fixture(scope="module")
def tokenizers(small):
    return [small.tokenizer, byte_tokenizer()]


COMMON = settings(
    deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=50, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)


@COMMON
@given(
    hierarchy=hierarchies(),
    prompt=st.lists(TOKENS, min_size=1, max_size=12) | st.lists(st.integers(3, 5), min_size=80, max_size=95),
    length=st.integers(1, 24),
    eos=st.frozensets(TOKENS, max_size=3),
    stop=st.lists(st.text("abcdefgh", min_size=1, max_size=2), max_size=2),
    penalty=penalties(),
    bytes_of_characters=st.booleans(),
)
def test_greedy_text_is_the_targets(small, tokenizers, hierarchy, prompt, length, eos, stop, penalty, bytes_of_characters):
    sampling = Sampling(**penalty)
    ending = model_set(small.networks, eos=eos, tokenizer=tokenizers[bytes_of_characters])
    wanted = decode(ending, ALONE, prompt, sampling=sampling, max_new_tokens=length, stop=stop)
    networks = watched(small.networks, [level.model for level in hierarchy.levels])
    models = model_set(networks, eos=eos, tokenizer=tokenizers[bytes_of_characters])
    got = decode(models, hierarchy, prompt, sampling=sampling, max_new_tokens=length, stop=stop)
    assert got.notices == (), "a level's cache is not what it should be"
    assert (got.token_ids, got.end.text, got.end.reason) == (wanted.token_ids, wanted.end.text, wanted.end.reason)


@COMMON
@given(
    hierarchy=hierarchies(),
    prompt=st.lists(TOKENS, min_size=1, max_size=12),
    length=st.integers(1, 24),
    eos=st.frozensets(TOKENS, max_size=3),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.sampled_from([0, 1, 5, 1000]),
        top_p=st.sampled_from([1.0, 0.5]),
        min_p=st.sampled_from([0.0, 0.2]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        seed=st.integers(0, 1000),
    ),
    rule=st.sampled_from([verify_tokens, verify_block]),
)
def test_a_sampled_run_holds_all_identities_and_repeats_with_its_seed(small, hierarchy, prompt, length, eos, sampling, rule):
    networks = watched(small.networks, [level.model for level in hierarchy.levels])
    runs = [decode(model_set(networks, eos=eos), hierarchy, prompt, sampling=sampling, max_new_tokens=length, rule=rule) for _ in range(2)]
    assert runs[0].notices == () and runs[0].token_ids == runs[1].token_ids
    assert runs[0].end.reason == ("eos" if runs[0].token_ids[-1] in eos else "max_new_tokens")
    assert len(runs[0].token_ids) == length or runs[0].end.reason == "eos"
    if sampling.top_k == 1:
        greedy = decode(
            model_set(small.networks, eos=eos),
            ALONE,
            prompt,
            sampling=Sampling(repetition_penalty=sampling.repetition_penalty),
            max_new_tokens=length,
        )
        assert runs[0].token_ids == greedy.token_ids
