"""A round waits for the device once. On a CPU the logits stand for a device's: every look at their numbers is counted.

tests/gpu asks CUDA itself, which also sees the ways up to the device.
"""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch
from decoding_checks import decode
from tiny_models import model_set, small_set
from torch.utils._python_dispatch import TorchDispatchMode

from hsd.generate.rule import RULES, verify_tokens
from hsd.models.network import Network
from hsd.records import Hierarchy, Sampling

T = torch.Tensor
LOOKS = {T.tolist, T.cpu, T.numpy, T.nonzero, torch.nonzero}
CHECKED_BY_TORCH = {torch.multinomial, T.multinomial}  # looks at the numbers itself, out of sight
HIERARCHIES = ["", "near@3", "prompt-lookup@3,near@4", "other@1,far@2,near@5"]
SETTINGS = {
    "greedy": Sampling(),
    "sampled": Sampling(temperature=1.0),
    "cut": Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.02),
    "penalties": Sampling(repetition_penalty=1.3, no_repeat_ngram_size=3),
}


class OnDevice(torch.Tensor):
    """What is computed from it is on the device as well, until it was brought to the host."""

    looks = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        brings = func is T.to and "cpu" in args
        if func in LOOKS or func in CHECKED_BY_TORCH or (brings and not kwargs.get("non_blocking")):
            OnDevice.looks += 1
        result = super().__torch_function__(func, types, args, kwargs)
        return result.as_subclass(torch.Tensor) if brings else result


class CountsNumbers(TorchDispatchMode):
    """Counts single numbers that are taken from a tensor: by `item`, `int`, `if`, and by `rows[index]` too."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        OnDevice.looks += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


class Far:
    """A network whose logits are on the device."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __getattr__(self, name: str):
        return getattr(self.network, name)

    def new_cache(self, capacity):
        return self.network.new_cache(capacity)

    def adopt(self, cache, other, other_cache):
        return self.network.adopt(cache, other.network, other_cache)

    def forward(self, token_ids, cache, num_logits):
        before = OnDevice.looks
        logits = self.network.forward(token_ids, cache, num_logits).as_subclass(OnDevice)
        OnDevice.looks = before  # a pass on this CPU is no pass on a device
        return logits


@pytest.fixture(scope="module")
def small():
    models = small_set()
    networks = {name: Far(model) if isinstance(model, Network) else model for name, model in models.networks.items()}
    return model_set(MappingProxyType(networks))


def looks_a_pass(models, drafts, **settings):
    OnDevice.looks = 0
    with CountsNumbers():
        generation = decode(models, Hierarchy.parse(drafts, "target"), [11, 4, 60, 4, 11], max_new_tokens=24, **settings)
    return OnDevice.looks / sum(round_.width > 0 for round_ in generation.rounds)


@pytest.mark.parametrize("drafts", HIERARCHIES)
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("rule", RULES)
def test_every_round_of_every_level_waits_once(small, drafts, name, rule):
    assert looks_a_pass(small, drafts, sampling=SETTINGS[name], rule=RULES[rule]) == 1


def test_a_second_look_would_be_counted(small):
    def with_a_look(block_ids, draft_probs, target_probs, generator):
        assert target_probs.sum() > 0
        return verify_tokens(block_ids, draft_probs, target_probs, generator)

    def by_torch(block_ids, draft_probs, target_probs, generator):
        accepted, _ = verify_tokens(block_ids, draft_probs, target_probs, generator)
        return accepted, int(torch.multinomial(target_probs[accepted], 1, generator=generator))

    def by_index(block_ids, draft_probs, target_probs, generator):
        assert target_probs[torch.zeros((), dtype=torch.long)].shape == (target_probs.shape[1],)
        return verify_tokens(block_ids, draft_probs, target_probs, generator)

    for rule in (with_a_look, by_index):
        assert looks_a_pass(small, "near@3", sampling=SETTINGS["sampled"], rule=rule) == 2
    assert looks_a_pass(small, "near@3", sampling=SETTINGS["sampled"], rule=by_torch) >= 3


def test_numbers_that_are_not_finite_are_still_found_when_sampling(small):
    class Broken(Far):
        def forward(self, token_ids, cache, num_logits):
            logits = super().forward(token_ids, cache, num_logits).clone()
            logits[..., 5] = float("nan")
            return logits

    models = model_set(MappingProxyType(dict(small.networks) | {"near": Broken(small.networks["near"].network)}))
    generation = decode(models, Hierarchy.parse("near@3", "target"), [11, 4, 60], max_new_tokens=8, sampling=SETTINGS["sampled"])
    assert [(notice.model, notice.dropped) for notice in generation.notices] == [("near", True)]
    assert "not finite" in generation.notices[0].message and len(generation.token_ids) == 8
