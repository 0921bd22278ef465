"""Acceptance by kind of prompt and by place in the text."""

from __future__ import annotations

import pytest

from hsd.measure.breakdown import PLACES, acceptance_by_category, acceptance_by_position, acceptance_rates
from hsd.measure.record import Trace


def trace(kind, values, offers=()):
    proposals = {"lookup": {"target": tuple(offers)}} if offers else {}
    return Trace(f"{kind} {len(values)}", kind, len(values), {"small": {"target": tuple(values)}}, proposals)


def test_each_kind_has_its_own_rate_and_interval():
    traces = [trace("chat", (1.0, 1.0)), trace("chat", (0.0, 0.0)), trace("code", (0.5, 0.7))]
    found = acceptance_by_category(traces)
    chat, code = found["chat"]["small"]["target"], found["code"]["small"]["target"]
    assert (chat.mean, chat.low, chat.high, chat.positions, chat.prompts) == (0.5, 0.0, 1.0, 4, 2)
    assert (code.mean, code.prompts) == (pytest.approx(0.6), 1)
    assert acceptance_rates(traces)["small"]["target"].positions == 6


def test_each_place_has_the_prompts_that_reach_it():
    traces = [trace("chat", (1.0,) * PLACES + (0.0,) * 4), trace("chat", (0.0,) * PLACES)]
    found = acceptance_by_position(traces)
    assert list(found) == [0, PLACES]
    assert (found[0]["small"]["target"].mean, found[0]["small"]["target"].prompts) == (0.5, 2)
    assert (found[PLACES]["small"]["target"].mean, found[PLACES]["small"]["target"].prompts) == (0.0, 1)


def test_a_lookup_counts_where_it_proposes():
    found = acceptance_by_category([trace("chat", (1.0,) * 4, offers=((0, 0), (3, 2), (2, 0), (1, 1)))])
    rate = found["chat"]["lookup"]["target"]
    assert (rate.mean, rate.positions) == (pytest.approx(2 / 3), 3)
    silent = acceptance_by_category([trace("chat", (1.0,) * 2, offers=((0, 0), (0, 0)))])
    assert silent["chat"]["lookup"] == {}


def test_nothing_recorded_is_nothing():
    assert acceptance_by_category([]) == {} and acceptance_by_position([]) == {} and acceptance_rates([]) == {}
