"""A head of 4 bits that is exact for the tokens that may be the most likely one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tensors import rows

from hsd.models.blocked import BlockedInt4Linear, BlockedLinear
from hsd.models.linear import DenseLinear
from hsd.models.shortlist import ShortlistHead, serves_as_shortlist

VOCAB, HIDDEN = 3000, 96  # three parts of 1024 scores, the last one short


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "with bias"])
def exact(request, products) -> BlockedLinear:
    return BlockedLinear(products, rows(VOCAB, HIDDEN, seed=1), rows(VOCAB, seed=2) if request.param else None, None)


def test_the_most_likely_token_is_the_exact_heads_and_the_tail_the_rough_ones(exact):
    x = rows(200, HIDDEN)
    scores, rough, full = ShortlistHead(exact, None)(x), BlockedInt4Linear(exact.kernels, exact.weight, exact.bias, None)(x), exact(x)
    assert (rough.argmax(-1) != full.argmax(-1)).sum() > 10, "rounding the head must matter here, or nothing is shown"
    # Equal up to the order of sums: within a rounding of bfloat16 two scores may change places.
    chosen = full.gather(1, scores.argmax(-1, keepdim=True))[:, 0]
    torch.testing.assert_close(chosen.float(), full.amax(-1).float(), rtol=2**-7, atol=0)
    anew = scores != rough
    assert 200 < anew.sum() < 0.1 * scores.numel()
    torch.testing.assert_close(scores[anew].float(), full[anew].float(), rtol=2**-7, atol=0.02)
    margin = rough.amax(-1, keepdim=True) - rough
    assert margin[anew].max() < margin[~anew].median(), "those near the top are the ones computed anew"


def test_a_row_has_the_same_bits_in_any_company(exact):
    head, x = ShortlistHead(exact, None), rows(9, HIDDEN, seed=3)
    single = torch.cat([head(x[i : i + 1]) for i in range(9)])
    for width in (2, 3, 5, 9):
        assert torch.equal(head(x[:width]), single[:width])


def test_rows_without_a_largest_score_end(exact):
    x = rows(3, HIDDEN)
    x[0] = 0  # all scores the same, or the bias
    x[1, 5] = float("nan")
    scores = ShortlistHead(exact, None)(x)
    wanted = torch.zeros(VOCAB) if exact.bias is None else exact.bias.float()
    assert torch.equal(scores[0].float(), wanted)
    assert scores[1].isnan().all() and scores[2].isfinite().all()


def test_only_a_copy_with_4_bits_of_a_blocked_head_gets_one(exact):
    assert serves_as_shortlist(exact, 4) and not serves_as_shortlist(exact, 8)
    assert not serves_as_shortlist(DenseLinear(rows(64, HIDDEN)), 4)
    assert not serves_as_shortlist(BlockedLinear(exact.kernels, rows(64, 48), None, None), 4), "its inputs do not fill groups"
    assert ShortlistHead(exact, None).nbytes < 0.33 * F.pad(exact.weight, (0, 0, 0, 8)).nbytes
