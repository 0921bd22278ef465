"""Weights are shared by all sessions, counted, and dropped only when nobody uses them and the memory is needed."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch

from hsd.errors import BadInput, Cancelled, HsdError, ModelUnavailable
from hsd.models.graphs import Steps
from hsd.models.network import Network
from hsd.pick import registry as registry_module
from hsd.pick.facts import facts_of
from hsd.pick.registry import Registry

FLOAT32 = {"device": "cpu", "dtype": "float32"}


@pytest.fixture
def loads(monkeypatch):
    """Names in the order in which weights were read."""
    names, original = [], registry_module.load

    def counted(name, **settings):
        names.append(name)
        return original(name, **settings)

    monkeypatch.setattr(registry_module, "load", counted)
    return names


def test_a_lease_holds_drafts_in_order_and_the_target_last(make_model):
    target, draft = make_model("target", layers=3), make_model("draft", layers=1)
    with Registry().lease(target, ["prompt-lookup", "early-exit:1", draft], **FLOAT32) as models:
        assert list(models.networks) == ["prompt-lookup", "early-exit:1", draft, target]
        assert isinstance(models.networks[target], Network) and models.target == target
        assert models.environment.dtype == "float32" and models.eos_token_ids == {1} and not models.notices
        assert models.memory_bytes["early-exit:1"] == models.memory_bytes["prompt-lookup"] == 0
        assert models.memory_bytes[target] > models.memory_bytes[draft] > 0
        logits = models.networks[draft].forward(torch.tensor([3, 4]), models.networks[draft].new_cache(8), 1)
        assert logits.shape == (1, 64)


def test_a_model_set_tells_why_its_passes_are_no_longer_recorded(make_model):
    with Registry().lease(make_model("target"), ["prompt-lookup", "early-exit:1"], **FLOAT32) as models:
        assert models.fallbacks == ()
        models.networks["early-exit:1"].steps = SimpleNamespace(problem="No graphs.")
        models.networks[models.target].steps = SimpleNamespace(problem="")
        assert models.fallbacks == models.new_fallbacks == ("No graphs.",)


def test_the_stamp_of_a_lease_names_graphs_only_where_every_model_has_them(make_model):
    registry, asked = Registry(), (make_model("target"), ["prompt-lookup", "early-exit:1"])
    with registry.lease(*asked, **FLOAT32) as models:
        steps = [SimpleNamespace(problem="") for _ in range(2)]
        models.networks["early-exit:1"].steps, models.networks[models.target].steps = steps
    with registry.lease(*asked, **FLOAT32) as models:
        assert models.environment.kernels == "cuda-graphs" and models.known_fallbacks == ()
        steps[0].problem = "No graphs."
        assert models.new_fallbacks == ("No graphs.",)
    with registry.lease(*asked, **FLOAT32) as models:
        assert models.environment.kernels == "torch" and models.fallbacks == ("No graphs.",) and models.new_fallbacks == ()


def test_two_sessions_share_the_weights_of_one_load(make_model, loads):
    target, draft = make_model("target"), make_model("draft", layers=1)
    registry = Registry()
    with registry.lease(target, [draft, "early-exit:1"], **FLOAT32) as one, registry.lease(target, ["early-exit:1"], **FLOAT32) as two:
        assert one.networks[target] is two.networks[target]
        assert one.networks["early-exit:1"] is two.networks["early-exit:1"]
    with registry.lease(target, [draft], **FLOAT32) as three:
        assert three.networks[draft] is one.networks[draft]
    assert loads == [target, draft]


def test_another_dtype_is_another_set_of_weights(make_model, loads):
    target, registry = make_model("target"), Registry()
    with registry.lease(target, **FLOAT32), registry.lease(target, device="cpu", dtype="bfloat16") as low:
        assert low.networks[target].dtype == torch.bfloat16
    assert loads == [target, target]


def test_visitors_who_come_at_once_wait_for_one_load(make_model, loads):
    target, registry, seen = make_model("target"), Registry(), []

    def visit():
        with registry.lease(target, ["early-exit:1"], **FLOAT32) as models:
            seen.append(models.networks[target])

    visitors = [threading.Thread(target=visit) for _ in range(8)]
    [visitor.start() for visitor in visitors]
    [visitor.join(60) for visitor in visitors]
    assert len(seen) == 8 and len(set(map(id, seen))) == 1 and loads == [target]


def test_a_draft_that_fails_is_left_out_with_a_notice_and_the_rest_serves(make_model, words, loads):
    target, other = make_model("target"), make_model("other", words=[*words[:2], *reversed(words[2:])])
    asked = [other, "nope/there", "early-exit:9", "prompt-lookup", "quantized:int5"]
    with Registry().lease(target, asked, **FLOAT32) as models:
        assert list(models.networks) == ["prompt-lookup", target]
    said = models.notices
    assert list(said) == [other, "nope/there", "early-exit:9", "quantized:int5"]
    assert all(name in notice and "left out" in notice for name, notice in said.items())
    assert "another vocabulary" in said[other] and "cannot be reached" in said["nope/there"] and "2 layers" in said["early-exit:9"]
    assert loads == [target]  # the weights of the draft with another vocabulary were never read


def test_an_unexpected_exception_in_a_draft_is_a_notice_too(make_model, monkeypatch):
    monkeypatch.setattr(registry_module, "derive", lambda *given: 1 / 0)
    target = make_model("target")
    with Registry().lease(target, ["early-exit:1"], **FLOAT32) as models:
        assert list(models.networks) == [target] and "ZeroDivisionError" in models.notices["early-exit:1"]


def test_a_target_that_fails_raises_and_nothing_stays_locked(make_model):
    registry, target = Registry(), make_model("target")
    with pytest.raises(HsdError), registry.lease("nope/there", **FLOAT32):
        pass
    with pytest.raises(BadInput), registry.lease(target, device="tpu"):
        pass
    with registry.lease(target, **FLOAT32) as models:
        assert models.networks


def test_a_waiting_visitor_is_told_and_can_stop(make_model, monkeypatch):
    target, registry, release, inside = make_model("target"), Registry(), threading.Event(), threading.Event()
    original = registry_module.load

    def slow(name, **settings):
        inside.set()
        release.wait(30)
        return original(name, **settings)

    monkeypatch.setattr(registry_module, "load", slow)

    def visit():
        with registry.lease(target, **FLOAT32):
            pass

    first = threading.Thread(target=visit)
    first.start()
    assert inside.wait(30)
    told, began = [], time.monotonic()
    with pytest.raises(Cancelled), registry.lease(target, **FLOAT32, report=told.append, should_stop=lambda: bool(told)):
        pass
    assert "another visitor" in told[0].message and time.monotonic() - began < 5
    release.set()
    first.join(60)
    with registry.lease(target, **FLOAT32):
        pass


def test_stopping_between_drafts_keeps_what_is_loaded(make_model):
    target, registry, calls = make_model("target"), Registry(), []

    def stop_late():
        calls.append(1)
        return target in registry.loaded()

    with pytest.raises(Cancelled), registry.lease(target, ["early-exit:1"], **FLOAT32, should_stop=stop_late):
        pass
    assert list(registry.loaded()) == [target]
    registry.clear()
    assert registry.loaded() == {}


@pytest.fixture
def room_for(monkeypatch):
    """Pretend that the device has room for `count` models of the tests' size beside none."""

    def limit(registry, count, size):
        monkeypatch.setattr(registry_module, "usable_bytes", lambda device: count * size - sum(registry.loaded().values()))

    return limit


def test_the_least_recently_used_model_makes_room_and_its_derived_drafts_go_with_it(make_model, room_for):
    a, b, c = make_model("a"), make_model("b"), make_model("c")
    registry = Registry()
    with registry.lease(a, ["early-exit:1"], **FLOAT32):
        pass
    room_for(registry, 2.5, registry.loaded()[a])
    with registry.lease(b, **FLOAT32):
        pass
    assert set(registry.loaded()) == {a, f"early-exit:1 of {a}", b}
    with registry.lease(c, **FLOAT32):
        assert set(registry.loaded()) == {b, c}


def test_a_model_in_use_is_never_dropped_and_the_newcomer_is_told(make_model, room_for):
    a, b = make_model("a"), make_model("b")
    registry = Registry()
    with registry.lease(a, **FLOAT32):
        room_for(registry, 1.5, registry.loaded()[a])
        with pytest.raises(ModelUnavailable, match=r"needs .* of memory"), registry.lease(b, **FLOAT32):
            pass
        assert list(registry.loaded()) == [a]
    with registry.lease(b, **FLOAT32):
        assert list(registry.loaded()) == [b]


def test_texts_of_all_models_in_use_need_room_too(make_model, monkeypatch):
    """A draft that fits but leaves no room for its keys and values, or for the target's, would drop out of the first generation."""
    target, draft = make_model("target"), make_model("draft", layers=1)
    own, drafts = (facts_of(name).footprint(torch.float32) for name in (target, draft))
    both = own.total_bytes + drafts.total_bytes
    for asked, room in (([draft], both), (["early-exit:1", "prompt-lookup"], own.total_bytes + own.cache_bytes)):
        for short in (1, 0):
            registry = Registry()
            usable = lambda device, registry=registry, room=room - short: room - weights_of(registry)  # noqa: E731
            monkeypatch.setattr(registry_module, "usable_bytes", usable)
            with registry.lease(target, asked, **FLOAT32) as models:
                assert list(models.networks) == [*asked[short:], target], "what needs nothing is never left out"
                assert all("texts of all models in use included" in notice for notice in models.notices.values())


def weights_of(registry):
    """Exactly, without the tables that a network keeps beside them."""
    return sum(entry.size.weight_bytes for entry in registry._entries.values() if entry.size)


def test_what_models_in_use_hold_idle_goes_before_another_is_refused(make_model, monkeypatch):
    """On a GPU the keys and values of earlier texts are kept with the graphs recorded over them."""
    target, draft = make_model("target"), make_model("draft", layers=1)
    registry = Registry()
    with registry.lease(target, ["early-exit:1"], **FLOAT32) as models:
        recorded = [models.networks[target], models.networks["early-exit:1"]]
        for network in recorded:
            network.steps = Steps(network, record=False)
        running = recorded[0].new_cache(8)  # stays with its generation
        for network in recorded:
            network.new_cache(8)  # gone at once: its slot is idle
        idle = lambda: sum(len(network.steps._idle) for network in recorded)  # noqa: E731
        assert idle() == 2 and running.slot
        monkeypatch.setattr(registry_module, "usable_bytes", lambda device: 10**9 * (idle() == 0))
        with registry.lease(target, [draft], **FLOAT32) as more:
            assert list(more.networks) == [draft, target] and not more.notices
        monkeypatch.setattr(registry_module, "usable_bytes", lambda device: 0)
        with registry.lease(target, [draft, make_model("other")], **FLOAT32) as more:
            assert list(more.networks) == [draft, target], "with nothing idle left it is refused"


def test_the_target_of_a_derived_draft_in_use_stays(make_model):
    registry, target = Registry(), make_model("target")
    with registry.lease(target, ["early-exit:1"], **FLOAT32):
        registry.clear()
        assert len(registry.loaded()) == 2
    registry.clear()
    assert registry.loaded() == {}


def test_a_model_stays_until_its_last_user_has_left(make_model):
    registry, target = Registry(), make_model("target")
    with registry.lease(target, **FLOAT32):
        with registry.lease(target, **FLOAT32):
            pass
        registry.clear()
        assert list(registry.loaded()) == [target]
        with registry.lease(target, **FLOAT32):
            registry.clear()
            assert list(registry.loaded()) == [target]
    registry.clear()
    assert registry.loaded() == {}
