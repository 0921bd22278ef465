"""Run a helper program that reports while it works and stops when asked."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hsd.errors import Cancelled
from hsd.records import ShouldStop

_POLL_S = 0.2
_KEPT_LINES = 200


def run_until_done(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    tick: Callable[[], None],
    should_stop: ShouldStop,
    on_line: Callable[[str], None] = lambda line: None,
) -> tuple[int, str]:
    """Exit code and the last lines of output (both streams). Calls `tick` five times a second.

    The program is ended, and `Cancelled` raised, as soon as `should_stop()` is true.
    """
    lines: list[str] = []
    with subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:

        def read() -> None:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                del lines[:-_KEPT_LINES]
                on_line(lines[-1])

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while True:
                try:
                    process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if should_stop():
                        raise Cancelled("Stopped while a model was being fetched; nothing half-done was kept.") from None
                    tick()
        finally:
            if process.poll() is None:
                process.kill()
            reader.join(5)
    return process.returncode, "\n".join(lines)


def python_path() -> str:
    """PYTHONPATH under which a helper program finds this library."""
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), root)))


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`; files that vanish meanwhile count as nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(parent, name)).st_size
            except OSError:
                continue
    return total
