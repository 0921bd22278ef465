"""Planning without any model: costs and acceptances that were typed or pasted become a measurement like any other."""

from __future__ import annotations

import csv
import io
import platform
from collections.abc import Mapping
from datetime import UTC, datetime

from hsd.errors import BadInput
from hsd.measure.record import Acceptance, Measurement, PromptSetInfo
from hsd.records import NO_DEVICE, Environment, Estimate, Sampling


def typed_measurement(
    costs: Mapping[str, float | Mapping[int, float]],
    acceptance: Mapping[tuple[str, str], float],
    overhead_s: float = 0.0,
) -> Measurement:
    """A measurement out of typed numbers, with intervals of zero width.

    `costs`: seconds of one forward pass of each model, smallest first, target last; one number for every width, or seconds by
    width. `acceptance[draft, verifier]`: rate from 0 to 1 for every pair, draft before verifier in `costs`. Raises `BadInput` that
    names the first number that is missing or impossible.
    """
    models = tuple(costs)
    if any(not model for model in models):
        raise BadInput("A model has no name; name each.")
    if len(models) < 2:
        raise BadInput("Give the costs of at least two models, smallest first; the last one is the target.")
    if not 0 <= _number(overhead_s, "The overhead") < float("inf"):
        raise BadInput(f"The overhead is {overhead_s:g}; it is a number of seconds per target round, 0 or more.")
    cost_s = {}
    for model, given in costs.items():
        by_width = given if isinstance(given, Mapping) else {1: given}
        if 1 not in by_width:
            raise BadInput(f"The cost of {model} is missing; give the time of a pass of one token.")
        cost_s[model] = {width: _exactly(_number(cost, f"The cost of {model}")) for width, cost in by_width.items()}
        if any(cost.median < 0 for cost in cost_s[model].values()):
            raise BadInput(f"A cost of {model} is negative; a cost is a number of seconds, 0 or more.")
    for draft, verifier in acceptance:
        for name in (draft, verifier):
            if name not in costs:
                raise BadInput(f"The acceptance of {draft} at {verifier} is given, but {name} has no cost; give its cost as well.")
        if models.index(draft) >= models.index(verifier):
            raise BadInput(f"The acceptance of {draft} at {verifier} is given, but {draft} is not the smaller one; order by size.")
    rows: dict[str, dict[str, Acceptance]] = {}
    for i, draft in enumerate(models):
        for verifier in models[i + 1 :]:
            if (draft, verifier) not in acceptance:
                raise BadInput(f"The acceptance of {draft} at {verifier} is missing; give a number from 0 to 1 for every pair.")
            rate = _number(acceptance[draft, verifier], f"The acceptance of {draft} at {verifier}")
            if not 0 <= rate <= 1:
                raise BadInput(f"The acceptance of {draft} at {verifier} is {rate:g}; it must lie between 0 and 1.")
            rows.setdefault(draft, {})[verifier] = Acceptance(rate, rate, rate, 0, 0)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Measurement(
        models=models,
        cost_s=cost_s,
        acceptance=rows,
        block_gains={},
        overhead_s=overhead_s,
        context_tokens=0,
        sampling=Sampling(),
        prompts=PromptSetInfo("typed", "", 0),
        environment=Environment(NO_DEVICE, "typed numbers", "none", "", "", platform.python_version(), now),
        memory_bytes={},
    )


def from_csv(text: str) -> Measurement:
    """Read a pasted table: a header `model, cost, <names>`, one row per model, smallest first, target last.

    The cell of row i under the name of a larger model j is the acceptance of i at j. Costs are milliseconds of a pass of one token;
    a further column `cost 8` gives those of a pass of 8. Columns are split by commas, semicolons or tabs. Raises `BadInput`.
    """
    try:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text.strip()), delimiter=_delimiter(text))]
    except csv.Error as error:
        raise BadInput(f"The table cannot be read ({error}); write one row per model, cells split by commas.") from error
    rows = [row for row in rows if any(row)]
    if len(rows) < 3 or rows[0][0].lower() != "model":
        raise BadInput("The table needs a header (model, cost, names of the models) and a row for each of at least two models.")
    widths = {column: _width(name) for column, name in enumerate(rows[0]) if name.lower().startswith("cost")}
    costs: dict[str, dict[int, float]] = {}
    acceptance = {}
    for model, *cells in rows[1:]:
        if model in costs:
            raise BadInput(f"{model} has two rows in the table; give each model one.")
        costs[model] = {}
        for column, cell in enumerate(cells, start=1):
            if cell in ("", "-", "–"):
                continue
            if column in widths:
                costs[model][widths[column]] = _number(cell, f"The cost of {model}") / 1000
            elif column < len(rows[0]):
                verifier = rows[0][column]
                acceptance[model, verifier] = _number(cell, f"The acceptance of {model} at {verifier}")
            else:
                raise BadInput(f"The row of {model} has more cells than the header has names.")
    return typed_measurement(costs, acceptance)


def _width(header: str) -> int:
    digits = header[len("cost") :].strip() or "1"
    if not digits.isdecimal() or int(digits) < 1:
        raise BadInput(f"“{header}” is no cost column; write cost, or cost 8 for a pass of 8 tokens.")
    return int(digits)


def _delimiter(text: str) -> str:
    header = text.strip().partition("\n")[0]
    return max(",;\t", key=header.count)


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 0)


def _number(value: object, what: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise BadInput(f"{what} is {value!r}; give a number.") from None
    if number != number or number in (float("inf"), float("-inf")):
        raise BadInput(f"{what} is {value!r}; give a finite number.")
    return number
