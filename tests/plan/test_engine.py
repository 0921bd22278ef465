"""What the replay charges is what the engine does: passes and their widths, level by level."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hsd.generate.engine import generate
from hsd.generate.events import RoundEvent
from hsd.plan.trace import load, replay
from hsd.records import Hierarchy

TOKENS = 150


class Fed:
    """A cache that knows only its length."""

    def __init__(self):
        self.length = 0

    def crop(self, length):
        self.length = length


class ByPosition:
    """A network whose argmax depends on the position alone; the prompt is one token long."""

    vocab_size, max_context, device, dtype, memory_bytes = 60, 100_000, torch.device("cpu"), torch.float32, 0

    def __init__(self, name, table):
        self.name, self.table = name, table

    def new_cache(self, capacity):
        return Fed()

    def adopt(self, cache, other, other_cache):
        return False

    def forward(self, token_ids, cache, num_logits):
        cache.length += len(token_ids)
        ends = range(cache.length - num_logits, cache.length)
        return torch.nn.functional.one_hot(torch.tensor([int(self.table[end % TOKENS]) for end in ends]), self.vocab_size).float()


class Letters:
    """As much of a tokenizer as the engine shows tokens with."""

    def decode(self, token_ids, **options):
        return "".join(chr(65 + int(token_id)) for token_id in token_ids)

    def __getattr__(self, name):
        raise AttributeError(name)


@pytest.mark.parametrize("drafts", ["", "m0@1", "m0@5", "m0@3,m1@6", "m0@4,m1@2", "m0@1,m1@1", "m0@2,m1@4,m2@8", "m1@3,m2@3"])
def test_replay_charges_the_passes_of_the_engine(measured, with_traces, problem_of, drafts):
    random = np.random.default_rng(11)
    target = random.integers(0, 40, TOKENS)
    tables = [np.where(random.random(TOKENS) < agree, target, 40 + i) for i, agree in enumerate((0.7, 0.8, 0.9))] + [target]
    names = ["m0", "m1", "m2", "m3"]
    accept = {(i, j): [tables[i] == tables[j]] for j in range(4) for i in range(j)}
    cost = [{w: 1.0 + 0.1 * i + 0.01 * w**2 for w in range(1, 40)} for i in range(4)]
    measurement = with_traces(measured(cost, [[0.5] * 4] * 4), accept)
    problem, hierarchy = problem_of(measurement), Hierarchy.parse(drafts, "m3")

    networks = {name: ByPosition(name, table) for name, table in zip(names, tables, strict=True)}
    models = SimpleNamespace(target="m3", networks=networks, tokenizer=Letters(), eos_token_ids=frozenset())
    seconds, rounds = dict.fromkeys(names, 0.0), 0
    for event in generate(models, hierarchy, [7], max_new_tokens=TOKENS):
        if isinstance(event, RoundEvent) and event.width:
            seconds[event.model] += cost[names.index(event.model)][event.width]
            rounds = event.round + 1

    chain = problem.chain(hierarchy)
    replayed = replay(load(measurement, problem), problem, chain, hierarchy.thresholds)
    assert (replayed.rounds.sum(), replayed.tokens.sum()) == (rounds, TOKENS)
    assert replayed.seconds.sum(axis=0) == pytest.approx([seconds[names[model]] for model in chain])
