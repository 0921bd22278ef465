"""Kept measurements: reused only for the same conditions, safe with two writers and after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hsd.errors import Cancelled, HsdError, LevelFault
from hsd.measure import store as store_module
from hsd.measure.record import Acceptance, Measurement, PromptSetInfo
from hsd.measure.store import Conditions, Store, measure_or_find
from hsd.pick.revision import revision
from hsd.records import GREEDY, Environment, Estimate, Sampling

HERE = Environment("cpu", "a processor", "float32", "2.9", "5.20", "3.11", "2026-01-01T00:00:00+00:00")
PROMPTS = PromptSetInfo("default", "abc", 40)
CONDITIONS = Conditions(
    ("a", "b"), ("r1", "r2"), "b", "cpu", "a processor", "float32", "torch", "source", "2.9", "5.20", GREEDY, PROMPTS, False
)


def measured(cost_s: float = 1.0) -> Measurement:
    cost = {1: Estimate(cost_s, cost_s, cost_s, 9)}
    acceptance = {"a": {"b": Acceptance(0.5, 0.4, 0.6, 100, 4)}}
    return Measurement(("a", "b"), {"a": cost, "b": cost}, acceptance, {}, 0.0, 100, GREEDY, PROMPTS, HERE, {"a": 1, "b": 2})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "deep" / "kept.sqlite")


def test_a_measurement_comes_back_for_the_same_conditions(store):
    assert store.find(CONDITIONS) is None
    store.save(CONDITIONS, measured())
    assert store.find(CONDITIONS) == measured()


OTHER = {
    "models": ("a", "c"),
    "revisions": ("r1", "r3"),
    "target": "a",
    "device": "cuda:0",
    "device_name": "another processor",
    "dtype": "bfloat16",
    "kernels": "compiled",
    "program": "another source",
    "torch": "2.10",
    "transformers": "5.21",
    "sampling": Sampling(temperature=0.5),
    "prompts": PromptSetInfo("default", "abd", 40),
    "thorough": True,
}


def test_every_condition_is_tried():
    assert set(OTHER) == {field.name for field in fields(Conditions)}


@pytest.mark.parametrize("name", OTHER)
def test_any_other_condition_measures_anew(store, name):
    store.save(CONDITIONS, measured())
    assert store.find(replace(CONDITIONS, **{name: OTHER[name]})) is None


def test_measuring_again_replaces(store):
    store.save(CONDITIONS, measured(1.0))
    store.save(CONDITIONS, measured(2.0))
    assert store.find(CONDITIONS) == measured(2.0)
    assert store.count() == 1


def lent(monkeypatch, fallbacks=()):
    monkeypatch.setattr(store_module, "revision", lambda name, target: "r")
    return SimpleNamespace(target="b", networks={"a": None, "b": None}, environment=HERE, fallbacks=fallbacks, new_fallbacks=())


@pytest.mark.parametrize("stopped", [False, True])
def test_a_stopped_measurement_is_given_back_and_not_kept(store, monkeypatch, stopped):
    models, prompts = lent(monkeypatch), SimpleNamespace(info=PROMPTS)
    monkeypatch.setattr(store_module, "measure", lambda *args, **options: measured())
    assert measure_or_find(models, prompts, should_stop=lambda: stopped, store=store) == (measured(), False)
    assert store.count() == (0 if stopped else 1)


def test_models_of_which_some_run_without_graphs_are_measured_and_nothing_is_kept_or_found(store, monkeypatch):
    whole, prompts = lent(monkeypatch), SimpleNamespace(info=PROMPTS)
    monkeypatch.setattr(store_module, "measure", lambda *args, **options: measured(1.0))
    measure_or_find(whole, prompts, store=store)
    monkeypatch.setattr(store_module, "measure", lambda *args, **options: measured(2.0))
    assert measure_or_find(lent(monkeypatch, ("a: no graphs.",)), prompts, store=store) == (measured(2.0), False)
    assert measure_or_find(whole, prompts, store=store) == (measured(1.0), True)


@pytest.mark.parametrize("cancels", [False, True])
def test_a_measurement_in_which_graphs_were_lost_ends_and_is_not_kept(store, monkeypatch, cancels):
    """Passes were timed with them and without; before the first prompt is complete `measure` has nothing to return."""
    models = lent(monkeypatch)

    def measure(*args, should_stop, **options):
        assert not should_stop()
        models.fallbacks = models.new_fallbacks = ("a: no graphs.",)
        assert should_stop()
        if cancels:
            raise Cancelled("Stopped.")
        return measured()

    monkeypatch.setattr(store_module, "measure", measure)
    with pytest.raises(LevelFault, match=r"no graphs\. .* measure again"):
        measure_or_find(models, SimpleNamespace(info=PROMPTS), store=store)
    assert store.count() == 0


def _write(path: Path, worker: int) -> None:
    for number in range(20):
        Store(path).save(replace(CONDITIONS, device=f"{worker}-{number}"), measured())


def test_two_processes_write_at_once(store):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(store.path, worker)) for worker in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert store.count() == 40


def _die_while_writing(path: Path) -> None:
    store = Store(path)
    store.save(CONDITIONS, measured(1.0))
    with store._open() as database:
        database.execute("update kept_measurements set content = 'half'")
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_in_the_middle_of_writing_leaves_what_was_complete(store):
    writer = multiprocessing.get_context("spawn").Process(target=_die_while_writing, args=(store.path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    assert store.find(CONDITIONS) == measured(1.0)
    store.save(CONDITIONS, measured(2.0))  # and the next one can write
    assert store.find(CONDITIONS) == measured(2.0)


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "kept.sqlite"
    path.write_text("not a database, and long enough to be looked at" * 10)
    with pytest.raises(HsdError, match=r"kept\.sqlite cannot be used"):
        Store(path).count()


def test_a_damaged_row_is_an_error_and_not_a_wrong_measurement(store):
    store.save(CONDITIONS, measured())
    with sqlite3.connect(store.path) as database:
        content = json.dumps(measured().to_json() | {"models": []})
        database.execute("update kept_measurements set content = ?", (content,))
    with pytest.raises(HsdError):
        store.find(CONDITIONS)


def test_the_revision_of_a_folder_changes_with_its_weights(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    before = revision(str(tmp_path), str(tmp_path))
    assert revision("prompt-lookup", str(tmp_path)) == before
    (tmp_path / "model.safetensors").write_bytes(b"12345")
    assert revision(str(tmp_path), str(tmp_path)) != before
