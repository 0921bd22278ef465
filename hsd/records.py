"""Small frozen records that pass between the folders."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from hsd.errors import BadInput

SCHEMA = 1
NO_DEVICE = "none"  # of numbers that were typed in
LEAST_TEMPERATURE = 1e-6  # logits divided by less may no longer be numbers
_TEMPERATURES = f"0 (greedy) or a number from {LEAST_TEMPERATURE:g} to 10"

ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target samples; every level applies the same transforms (design: same processors, same order)."""

    temperature: float = 0.0  # 0 is greedy
    top_k: int = 0  # 0 is off
    top_p: float = 1.0  # 1 is off
    min_p: float = 0.0  # 0 is off
    repetition_penalty: float = 1.0  # 1 is off
    no_repeat_ngram_size: int = 0  # 0 is off
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "temperature": (self.temperature == 0 or LEAST_TEMPERATURE <= self.temperature <= 10, _TEMPERATURES),
            "top_k": (self.top_k >= 0 and self.top_k == int(self.top_k), "0 (off) or a whole number"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1 (off)"),
            "min_p": (0 <= self.min_p < 1, "from 0 (off) to below 1"),
            "repetition_penalty": (0 < self.repetition_penalty <= 10, "above 0, 1 is off"),
            "no_repeat_ngram_size": (self.no_repeat_ngram_size >= 0, "0 (off) or a whole number"),
            "seed": (abs(self.seed) < 2**63 and self.seed == int(self.seed), "a whole number of at most 63 bits"),
        }
        for name, (fine, wanted) in checks.items():
            if not fine:
                raise BadInput(f"{name} is {getattr(self, name)!r}; give {wanted}.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def of_run(self, number: int) -> Sampling:
        """The settings of the `number`-th of several runs, over prompts and repeats: a seed of its own, so that each text has luck of its
        own and the spread holds it. Greedy text is the same each time."""
        step = number if self.seed < 2**62 else -number  # seeds have 63 bits
        return self if self.greedy else replace(self, seed=self.seed + step)

    def label(self) -> str:
        """Short text for a chart or a table: `greedy`, or `temperature 0.8, top-k 40`."""
        parts = ["greedy" if self.greedy else f"temperature {self.temperature:g}"]
        parts += [f"top-k {self.top_k}"] if self.top_k and not self.greedy else []
        parts += [f"top-p {self.top_p:g}"] if self.top_p < 1 and not self.greedy else []
        parts += [f"min-p {self.min_p:g}"] if self.min_p and not self.greedy else []
        parts += [f"repetition penalty {self.repetition_penalty:g}"] if self.repetition_penalty != 1 else []
        parts += [f"no repeated {self.no_repeat_ngram_size}-gram"] if self.no_repeat_ngram_size else []
        return ", ".join(parts)


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class Environment:
    """Where numbers were made; stamped on every file and shown beside every figure."""

    device: str  # torch name: cpu, cuda:0, mps
    device_name: str  # for people: "AMD EPYC, 2 threads"
    dtype: str
    torch: str
    transformers: str
    python: str
    time: str  # ISO 8601, UTC
    kernels: str = "torch"  # how passes run: "compiled" for what vectors (hsd/models/*.c), "cuda-graphs" (hsd/models/graphs.py) or "torch"

    @classmethod
    def stamp(cls, device: str, device_name: str, dtype: str, kernels: str) -> Environment:
        import torch
        import transformers

        now = datetime.now(UTC).isoformat(timespec="seconds")
        versions = torch.__version__, transformers.__version__, platform.python_version()
        return cls(device, device_name, dtype, *versions, now, kernels)

    @property
    def measured(self) -> bool:
        """Whether the numbers were measured; those that were typed in are of no device."""
        return self.device != NO_DEVICE

    def label(self) -> str:
        return f"{self.device_name} · {self.dtype}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured quantity: median (or mean where said) with the bounds of its 95 % interval and its count."""

    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True)
class Level:
    """One model of a hierarchy; the threshold is `None` for the target alone."""

    model: str
    threshold: int | None = None


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Models from smallest to largest; the last is the target and has no threshold."""

    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise BadInput("A hierarchy needs at least its target model.")
        if self.levels[-1].threshold is not None:
            raise BadInput("The target, the last model of a hierarchy, takes no threshold.")
        names = [level.model for level in self.levels]
        if len(set(names)) < len(names):
            raise BadInput(f"A model stands twice in the hierarchy {self}; name each once.")
        for level in self.levels[:-1]:
            if not isinstance(level.threshold, int) or level.threshold < 1:
                raise BadInput(f"The threshold of {level.model} is {level.threshold!r}; give a whole number of at least 1.")

    @property
    def target(self) -> str:
        return self.levels[-1].model

    @property
    def drafts(self) -> tuple[Level, ...]:
        return self.levels[:-1]

    @property
    def thresholds(self) -> tuple[int, ...]:
        return tuple(level.threshold for level in self.levels[:-1])

    @property
    def longest_blocks(self) -> tuple[int, ...]:
        """Longest block each draft can hand up: B_0 = T_0, B_i = T_i + B_{i-1} (design §2)."""
        longest: list[int] = []
        for threshold in self.thresholds:
            longest.append(threshold + (longest[-1] if longest else 0))
        return tuple(longest)

    @classmethod
    def parse(cls, drafts: str, target: str) -> Hierarchy:
        """Read `"prompt-lookup@3,quantized:int4@8"` (smallest first) above which `target` stands."""
        levels = []
        for part in filter(None, (piece.strip() for piece in drafts.split(","))):
            name, at, threshold = part.rpartition("@")
            if not at or not name or not threshold.strip().isdecimal():
                raise BadInput(f"“{part}” is not a draft with its threshold; write for example prompt-lookup@3,quantized:int4@8.")
            levels.append(Level(name.strip(), int(threshold)))
        return cls((*levels, Level(target)))

    @classmethod
    def of(cls, *pairs: tuple[str, int], target: str) -> Hierarchy:
        return cls((*(Level(name, threshold) for name, threshold in pairs), Level(target)))

    def drafts_label(self) -> str:
        return ",".join(f"{level.model}@{level.threshold}" for level in self.drafts)

    def __str__(self) -> str:
        return ",".join([*(f"{level.model}@{level.threshold}" for level in self.drafts), self.target])


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of a long job, for a progress bar."""

    phase: str
    done: int
    total: int
    seconds_left: float | None = None
    message: str = ""


Report = Callable[[Progress], None]


def is_text(words: str) -> bool:
    """Whether `words` can be written as UTF-8: bytes of a command line or escapes of a file that are no characters cannot."""
    try:
        words.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_fields(record: type, data: Any, where: str) -> Any:
    """Build a flat dataclass from untrusted JSON; names what is missing or of another type."""
    if not isinstance(data, dict):
        raise BadInput(f"{where} must be an object with {', '.join(f.name for f in fields(record))}.")
    kinds = {"str": str, "int": int, "float": (int, float), "bool": bool}
    values = {}
    for field in fields(record):
        if field.name not in data:
            raise BadInput(f"{where} lacks “{field.name}”; export the file again with this program.")
        value = data[field.name]
        kind = kinds.get(str(field.type))
        if kind and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise BadInput(f"“{field.name}” in {where} is {type(value).__name__}, expected {field.type}.")
        values[field.name] = value
    return record(**values)
