"""What can be exported, and the suffix of its file; apart from the exporter, so that the page knows them without torch."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["transformers", "vllm", "llama.cpp", "sglang", "python", "report"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SUFFIXES: dict[Kind, str] = {"transformers": ".py", "vllm": ".sh", "llama.cpp": ".sh", "sglang": ".sh", "python": ".py", "report": ".html"}
