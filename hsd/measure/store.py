"""Measurements kept in the user's data folder, and found again when everything they depend on is the same."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hsd.errors import Cancelled, HsdError, LevelFault
from hsd.measure.prompts import PromptSet
from hsd.measure.record import Measurement, PromptSetInfo
from hsd.measure.run import measure
from hsd.models.retrieval import RETRIEVERS
from hsd.pick import datastore
from hsd.pick.model_set import ModelSet
from hsd.pick.revision import revision
from hsd.records import GREEDY, Environment, Report, Sampling, ShouldStop
from hsd.settings import data_dir

SOURCES = ("*.py", "*.[ch]")  # of this program: what decides how a pass runs
_LOCK_WAIT_S = 30.0  # another process may be writing
_TABLE = """create table if not exists kept_measurements (
    key text primary key, made text not null, conditions text not null, content text not null)"""


@dataclass(frozen=True, slots=True)
class Conditions:
    """All that a measurement depends on; another value of any of them means another measurement."""

    models: tuple[str, ...]  # in alphabetical order
    revisions: tuple[str, ...]  # of the same
    target: str
    device: str
    device_name: str
    dtype: str
    kernels: str
    program: str  # digest of this program's own sources: another forward pass has other costs
    torch: str
    transformers: str
    sampling: Sampling
    prompts: PromptSetInfo
    thorough: bool

    @classmethod
    def of(
        cls,
        target: str,
        drafts: Sequence[str],
        environment: Environment,
        sampling: Sampling,
        prompts: PromptSetInfo,
        thorough: bool,
    ) -> Conditions:
        models = tuple(sorted({target, *drafts}))
        return cls(
            models=models,
            revisions=tuple(_revision(name, target) for name in models),
            target=target,
            device=environment.device,
            device_name=environment.device_name,
            dtype=environment.dtype,
            kernels=environment.kernels,
            program=_program(),
            torch=environment.torch,
            transformers=environment.transformers,
            sampling=sampling,
            prompts=prompts,
            thorough=thorough,
        )

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


def _revision(name: str, target: str) -> str:
    """Of the weights, and of the text that a draft looks tokens up in."""
    return revision(name, target) + (f" and text {datastore.digest(target)}" if name in RETRIEVERS else "")


@functools.cache
def _program() -> str:
    package = Path(__file__).parent.parent
    sources = sorted(path for pattern in SOURCES for path in package.rglob(pattern))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


class Store:
    """An SQLite file; several processes may read and write it at once."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_dir() / "measurements.sqlite"

    def save(self, conditions: Conditions, measurement: Measurement) -> None:
        """Keep a complete measurement, in place of an earlier one of the same conditions."""
        content = json.dumps(measurement.to_json(), ensure_ascii=False)
        row = (conditions.key, measurement.environment.time, json.dumps(asdict(conditions)), content)
        with self._open() as database:
            database.execute("insert or replace into kept_measurements values (?, ?, ?, ?)", row)

    def find(self, conditions: Conditions) -> Measurement | None:
        """The kept measurement of exactly these conditions, if there is one."""
        with self._open() as database:
            row = database.execute("select content from kept_measurements where key = ?", (conditions.key,)).fetchone()
        return None if row is None else Measurement.from_json(json.loads(row[0]))

    def count(self) -> int:
        with self._open() as database:
            return database.execute("select count(*) from kept_measurements").fetchone()[0]

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction; raises `HsdError` that names the file when it cannot be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(sqlite3.connect(self.path, timeout=_LOCK_WAIT_S)) as database, database:
                database.execute("pragma journal_mode = wal")
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise HsdError(
                f"The kept measurements in {self.path} cannot be used ({error}); move that file away, or set HSD_HOME to another folder."
            ) from error


def measure_or_find(
    models: ModelSet,
    prompts: PromptSet,
    *,
    sampling: Sampling = GREEDY,
    thorough: bool = False,
    again: bool = False,
    report: Report = lambda progress: None,
    should_stop: ShouldStop = lambda: False,
    on_partial: Callable[[Measurement], None] = lambda measurement: None,
    store: Store | None = None,
) -> tuple[Measurement, bool]:
    """The kept measurement of the same conditions (and True), or a new one (and False), kept when it is complete.

    `again` measures in any case. Where some models run without the graphs that they should have, nothing is kept or found, as no
    conditions name that. Raises as `measure` does, and `LevelFault` when graphs are lost meanwhile.
    """
    store = store or Store()
    drafts = [name for name in models.networks if name != models.target]
    conditions = Conditions.of(models.target, drafts, models.environment, sampling, prompts.info, thorough)
    found = None if again or models.fallbacks else store.find(conditions)
    if found is not None:
        on_partial(found)
        return found, True

    def stopped_or_mixed() -> bool:
        return should_stop() or bool(models.new_fallbacks)

    try:
        measurement = measure(
            models, prompts, sampling=sampling, thorough=thorough, report=report, should_stop=stopped_or_mixed, on_partial=on_partial
        )
    except Cancelled:
        _refuse_mixed(models)
        raise
    _refuse_mixed(models)
    if not should_stop() and not models.fallbacks:
        store.save(conditions, measurement)
    return measurement, False


def _refuse_mixed(models: ModelSet) -> None:
    for why in models.new_fallbacks:
        raise LevelFault(f"{why} Some of these passes were timed with graphs, others without: measure again.")
