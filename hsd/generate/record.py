"""The trace file of a generation (design §6): every committed token and every round, and how they came about."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, get_args

from hsd.errors import BadInput
from hsd.generate.events import EndEvent, EndReason, NoticeEvent, Outcome, RoundEvent, TokenEvent
from hsd.records import SCHEMA, Environment, Hierarchy, Level, Sampling, read_fields

MAX_EVENTS = 200_000  # of a file that is read: it may come from anybody


@dataclass(frozen=True, slots=True)
class Run:
    """What one hierarchy generated; incomplete (`end` is None) when it was stopped before the first token or failed."""

    hierarchy: Hierarchy
    prompt: str
    prompt_tokens: int | None  # None where nobody counted
    sampling: Sampling
    tokens: tuple[TokenEvent, ...]
    rounds: tuple[RoundEvent, ...]
    notices: tuple[NoticeEvent, ...]
    end: EndEvent | None
    environment: Environment | None

    @property
    def models(self) -> tuple[str, ...]:
        """Smallest first, the target last."""
        return tuple(level.model for level in self.hierarchy.levels)

    @property
    def text(self) -> str:
        return self.end.text if self.end else "".join(token.text for token in self.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """Committed tokens by seconds of decoding, prefill excluded."""
        return len(self.end.token_ids) / self.end.decode_s if self.end and self.end.decode_s > 0 and self.end.token_ids else None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": "trace",
            "hierarchy": [asdict(level) for level in self.hierarchy.levels],
            "sampling": asdict(self.sampling),
            "environment": asdict(self.environment) if self.environment else None,
            "prompt": self.prompt,
            "prompt_tokens": self.prompt_tokens,
            "reason": self.end.reason if self.end else "stopped",
            "text": self.text,
            "seconds": {"prefill": self.end.prefill_s if self.end else 0.0, "decode": self.end.decode_s if self.end else 0.0},
            "tokens": [asdict(token) for token in self.tokens],
            "rounds": [asdict(round_) for round_ in self.rounds],
            "notices": [asdict(notice) for notice in self.notices],
        }

    @classmethod
    def from_json(cls, data: Any) -> Run:
        """Read untrusted JSON; raises `BadInput` that names the first thing that is wrong."""
        if not isinstance(data, dict) or data.get("kind") != "trace":
            raise BadInput("This is not a trace file; export one, or make one with `python -m hsd generate --trace FILE`.")
        if data.get("schema") != SCHEMA:
            raise BadInput(f"This trace file has schema {data.get('schema')!r}, this program reads {SCHEMA}; generate again.")
        try:
            return _read(data)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadInput(f"The trace file is damaged ({type(error).__name__}: {error}); generate again.") from error


def _read(data: dict[str, Any]) -> Run:
    hierarchy = Hierarchy(tuple(Level(str(level["model"]), level.get("threshold")) for level in data["hierarchy"]))
    models = tuple(level.model for level in hierarchy.levels)
    if len(data["tokens"]) + len(data["rounds"]) + len(data["notices"]) > MAX_EVENTS:
        raise BadInput(f"The trace file holds more than {MAX_EVENTS} tokens and rounds; load a shorter one.")
    tokens = tuple(_token(token, models) for token in data["tokens"])
    rounds = tuple(_round(round_, models) for round_ in data["rounds"])
    notices = tuple(_record(NoticeEvent, notice, "a notice") for notice in data["notices"])
    text, shown = str(data["text"]), "".join(token.text for token in tokens)
    if not text.startswith(shown):
        raise BadInput("The text of the trace file is not that of its tokens; generate again.")
    if data["reason"] not in get_args(EndReason):
        raise BadInput(f"“reason” in the trace file is {data['reason']!r}; it must be one of {', '.join(get_args(EndReason))}.")
    counted = data.get("prompt_tokens")
    if counted is not None and (isinstance(counted, bool) or not isinstance(counted, int) or counted < 0):
        raise BadInput(f"“prompt_tokens” in the trace file is {counted!r}; it is a whole number, 0 or more. Generate again.")
    prefill, decode = float(data["seconds"]["prefill"]), float(data["seconds"]["decode"])
    if not (0 <= prefill < float("inf") and 0 <= decode < float("inf")):
        raise BadInput("The seconds of the trace file are not numbers of seconds; generate again.")
    ids = tuple(token.token_id for token in tokens)
    end = EndEvent(data["reason"], text, text[len(shown) :], ids, prefill, decode)
    environment = None if data["environment"] is None else read_fields(Environment, data["environment"], "“environment”")
    sampling = read_fields(Sampling, data["sampling"], "“sampling”")
    prompt = str(data.get("prompt") or "")
    return Run(hierarchy, prompt, counted, sampling, tokens, rounds, notices, end, environment)


def _token(data: Any, models: tuple[str, ...]) -> TokenEvent:
    token = _record(TokenEvent, data, "a token")
    if token.generated_by not in models or token.outcome not in get_args(Outcome):
        raise BadInput(f"A token of the trace is {token.outcome!r} by {token.generated_by!r}; that model or outcome is not known.")
    if not 0 <= token.time_s < float("inf"):
        raise BadInput(f"A token of the trace has the time {token.time_s}; give seconds.")
    if token.probability is not None and not 0 <= token.probability <= 1:
        raise BadInput(f"A token of the trace has the probability {token.probability}; it must be from 0 to 1.")
    return token


def _round(data: Any, models: tuple[str, ...]) -> RoundEvent:
    round_ = _record(RoundEvent, data, "a round")
    if round_.model not in models or not 0 <= round_.level < len(models):
        raise BadInput(f"A round of the trace is of {round_.model!r}, which is not in its hierarchy.")
    texts = tuple(str(text) for text in round_.texts)
    if not 0 <= round_.accepted <= round_.drafted == len(texts) or not 0 <= round_.seconds < float("inf"):
        raise BadInput(f"A round of {round_.model} in the trace kept {round_.accepted} of {round_.drafted} tokens; that cannot be.")
    return replace(round_, texts=texts, token_ids=tuple(int(token_id) for token_id in round_.token_ids))


def _record(kind: type, data: Any, where: str) -> Any:
    """An event; fields that the file is too old to have take their defaults."""
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    return read_fields(kind, defaults | data, where)
