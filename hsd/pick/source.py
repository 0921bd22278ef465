"""Where a model's files are: the embedded default, a local folder, a local GGUF file or the hub."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hsd.errors import BadInput, HsdError, ModelUnavailable
from hsd.pick import embedded, hub
from hsd.records import Report, ShouldStop
from hsd.settings import local_models

Kind = Literal["embedded", "folder", "gguf", "hub"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_PROBE_TIMEOUT_S = 3.0
_PROBE_VALID_S = 60.0
_last_probe: tuple[float, str | None] | None = None  # monotonic time, reason why the hub cannot be reached


@dataclass(frozen=True, slots=True)
class Source:
    """`location` and `options` are what transformers' `from_pretrained` takes."""

    name: str
    kind: Kind
    location: str
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, object]:
        """Arguments shared by every `from_pretrained`: no remote code ever, no network for local files."""
        local = self.kind != "hub" or _is_cached(self.location) or hub_problem() is not None
        gguf = {"gguf_file": self.gguf_file} if self.gguf_file else {}
        return {"trust_remote_code": False, "local_files_only": local, **gguf}


def find_source(name: str) -> Source:
    """Classify a model name without fetching anything. Raises `BadInput` or `ModelUnavailable`."""
    name = name.strip()
    if not name:
        raise BadInput("The model name is empty; give smollm2-135m, a hub id such as Qwen/Qwen2.5-0.5B-Instruct, or a folder.")
    if name == embedded.NAME:
        return Source(name, "embedded", str(embedded.folder()))
    if local_models() and (local := _local(name)):
        return local
    # transformers takes a folder of that name for the model, also where no folder may be opened.
    if _HUB_ID.fullmatch(name) and "--" not in name and ".." not in name and not Path(name).is_dir():
        return Source(name, "hub", name)
    looks_local = name.startswith((".", "/", "~")) or "\\" in name
    if not local_models():
        hint = "it is no hub id of the form owner/name, and this page opens no folders or files (HSD_LOCAL_MODELS=1 would let it)"
    elif looks_local:
        hint = "no such folder is here"
    else:
        hint = "it is neither a folder here nor a hub id of the form owner/name"
    raise ModelUnavailable(f"“{name[:80]}” cannot be found: {hint}; check its spelling.")


def _local(name: str) -> Source | None:
    """A model on this machine; None where no such folder or file is. Raises as `find_source`."""
    try:
        path = Path(name).expanduser()
        is_dir, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError, RuntimeError):
        raise BadInput(f"“{name[:80]}” cannot be a path or a hub id; check its spelling.") from None
    if is_dir:
        _check_folder(path)
        return Source(name, "folder", str(path))
    if is_file and path.suffix.lower() == ".gguf":
        return Source(name, "gguf", str(path.parent), path.name)
    if is_file:
        raise BadInput(f"“{name}” is a file; give the folder of a model, or a .gguf file.")
    return None


def prepare(source: Source, report: Report | None, should_stop: ShouldStop | None) -> None:
    """Bring the files of the embedded model, or of a hub model, onto this machine on first use."""
    if source.kind == "embedded":
        embedded.ensure(report, should_stop)
    elif source.kind == "hub" and not _is_cached(source.location):
        problem = hub_problem()
        if problem:
            raise ModelUnavailable(
                f"{source.name} is not on this machine and {problem}; go online, or choose {embedded.NAME} or a local folder."
            )
        hub.fetch(source.location, report, should_stop)


@dataclass(frozen=True, slots=True)
class Availability:
    ready: bool  # everything is on this machine
    files: bool  # configuration and tokenizer are on this machine
    problem: str  # why it can be neither loaded nor fetched; empty when it can


def availability(name: str) -> Availability:
    """Where a model stands, without fetching it."""
    try:
        source = find_source(name)
    except HsdError as error:
        return Availability(False, False, str(error))
    if source.kind == "embedded":
        ready = embedded.is_ready()
        return Availability(ready, ready, "")
    if source.kind != "hub":
        return Availability(True, True, "")
    if _is_cached(source.location):
        return Availability(True, True, "")
    problem = hub_problem()
    return Availability(False, False, f"It is not on this machine and {problem}." if problem else "")


def _is_cached(hub_id: str) -> bool:
    """Configuration and every safetensors file of a hub model are in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    def cached(file: str) -> str | None:
        path = try_to_load_from_cache(hub_id, file)
        return path if isinstance(path, str) else None

    if not cached("config.json"):
        return False
    index = cached("model.safetensors.index.json")
    if not index:
        return cached("model.safetensors") is not None
    try:
        shards = set(json.loads(Path(index).read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return False
    return all(cached(shard) for shard in shards)


def hub_problem() -> str | None:
    """None when the hub answers, else why not. Asked at most once a minute and for at most three seconds, since
    huggingface_hub itself retries for more than twenty."""
    global _last_probe
    now = time.monotonic()
    if _last_probe is None or now - _last_probe[0] > _PROBE_VALID_S:
        _last_probe = (now, _probe())
    return _last_probe[1]


def _probe() -> str | None:
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.is_offline_mode():
        return "offline mode is on (HF_HUB_OFFLINE)"
    try:
        get_session().head(constants.ENDPOINT, timeout=_PROBE_TIMEOUT_S)
    except Exception as error:  # any transport error of any HTTP library means the same here
        return f"{constants.ENDPOINT} cannot be reached ({str(error)[:100] or type(error).__name__})"
    return None


def _check_folder(path: Path) -> None:
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        hint = f"; it holds {ggufs[0].name}, name that file itself" if ggufs else "; give the folder that save_pretrained wrote"
        raise ModelUnavailable(f"The folder {path} has no config.json{hint}.")
    if any(path.glob("*.safetensors")):
        return
    if any(path.glob("*.bin")) or any(path.glob("*.pt")) or any(path.glob("*.pth")):
        raise ModelUnavailable(f"The folder {path} holds pickled weights only, which can run code; convert them to safetensors first.")
    raise ModelUnavailable(f"The folder {path} has a configuration but no weights (*.safetensors); copy or download the model again.")
