"""Read a comparison file for a report; it may come from anywhere, so everything is checked."""

from __future__ import annotations

from typing import Any

from hsd.compare.record import Comparison, Divergence, MethodResult
from hsd.errors import BadInput
from hsd.records import SCHEMA, Environment, Estimate, Sampling, read_fields


def read_comparison(data: Any) -> Comparison:
    """A `Comparison` from untrusted JSON; raises `BadInput` that names the first thing that is wrong."""
    if not isinstance(data, dict) or data.get("kind") != "comparison":
        raise BadInput("This is not a comparison file; make one with `python -m hsd compare --plan P --out DIR`.")
    if data.get("schema") != SCHEMA:
        raise BadInput(f"This comparison file has schema {data.get('schema')!r}, this program reads {SCHEMA}; compare again.")
    try:
        return Comparison(
            methods=tuple(_method(method) for method in data["methods"]),
            identical=_truth(data["identical"], "“identical”"),
            divergences=tuple(map(Divergence.from_json, data["divergences"])),
            repeats=int(data["repeats"]),
            prompts=int(data["prompts"]),
            max_new_tokens=int(data["max_new_tokens"]),
            sampling=read_fields(Sampling, data["sampling"], "“sampling”"),
            environment=read_fields(Environment, data["environment"], "“environment”"),
            ranked_by=str(data.get("ranked_by", "exact")),
            left_out=_sentences(data.get("left_out", [])),  # older files have none
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"The comparison file is damaged ({type(error).__name__}: {error}); compare again.") from error


def _method(data: Any) -> MethodResult:
    predicted = data["predicted_tokens_per_s"]
    per_pass, share = data["tokens_per_target_pass"], data["outside_forward_share"]
    times = data.get("times_target")  # older files have none
    return MethodResult(
        name=str(data["name"]),
        hierarchy=str(data["hierarchy"]),
        tokens_per_s=read_fields(Estimate, data["tokens_per_s"], "“tokens_per_s”"),
        predicted_tokens_per_s=None if predicted is None else float(predicted),
        tokens_per_target_pass=None if per_pass is None else float(per_pass),
        identical=_truth(data["identical"], "“identical” of a method"),
        outside_forward_share=None if share is None else float(share),
        predicted_by_model={str(k): None if v is None else float(v) for k, v in data.get("predicted_by_model", {}).items()},
        times_target=None if times is None else read_fields(Estimate, times, "“times_target”"),
    )


def _sentences(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(sentence, str) for sentence in value):
        raise BadInput(f"“left_out” in the comparison file is {value!r}; it must be a list of sentences. Compare again.")
    return tuple(value)


def _truth(value: Any, where: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{where} in the comparison file is {value!r}; it must be true, false or null. Compare again.")
    return value
