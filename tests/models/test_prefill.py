"""A text fed in parts leaves the cache and the logits that one pass leaves."""

from __future__ import annotations

import pytest
import torch
from tiny_models import tiny_llama

from hsd.models.build import build_network
from hsd.models.prefill import PREFILL_CHUNK, feed

TEXT = [index % 50 for index in range(2 * PREFILL_CHUNK + 88)]


@pytest.fixture(scope="module")
def network():
    return build_network("target", tiny_llama(context=700))


@pytest.mark.parametrize("chunk", [None, 1, 7, PREFILL_CHUNK - 1])
def test_a_text_fed_in_parts_gives_the_logits_of_one_pass(network, chunk):
    whole, parts = network.new_cache(len(TEXT)), network.new_cache(len(TEXT))
    wanted = network.forward(torch.tensor(TEXT), whole, 1)
    torch.testing.assert_close(feed(network, parts, TEXT, chunk=chunk), wanted, rtol=1e-4, atol=1e-4)
    assert parts.length == len(TEXT)


def test_it_may_be_ended_before_every_pass(network):
    for allowed in range(3):
        cache, passes = network.new_cache(len(TEXT)), iter(range(allowed))
        with pytest.raises(StopIteration):
            feed(network, cache, TEXT, lambda left=passes: next(left))
        assert cache.length == allowed * PREFILL_CHUNK


def test_no_token_is_no_pass(network):
    cache = network.new_cache(4)
    assert feed(network, cache, []) is None and cache.length == 0
