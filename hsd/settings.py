"""Limits and defaults, each in one place."""

import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

DEFAULT_TARGET = "smollm2-135m"
DEFAULT_CANDIDATES = ("prompt-lookup", "retrieval", "quantized:int4", "quantized:int8", "early-exit:10")

MAX_DEPTH = 4  # drafts below the target
MAX_THRESHOLD = 16  # largest threshold the planner considers
MOST_GB = 1_000_000  # of a memory limit; beyond it the number is a mistake
MAX_PROMPT_CHARACTERS = 200_000
DEFAULT_MAX_NEW_TOKENS = 128
MAX_NEW_TOKENS = 4096

INT4_GROUP_SIZE = 32  # weights that share one scale and zero point


def cache_dir() -> Path:
    """Folder of downloaded and converted weights; `HSD_HOME` moves it."""
    home = os.environ.get("HSD_HOME")
    return Path(home) / "cache" if home else user_cache_path("hsd")


def data_dir() -> Path:
    """Folder of the measurements; `HSD_HOME` moves it."""
    home = os.environ.get("HSD_HOME")
    return Path(home) / "data" if home else user_data_path("hsd")


def make_writable(folder: Path) -> None:
    """Make `folder` if it is not there; raises `OSError` when no file can be written in it. Ask before work whose result goes there."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


def local_models() -> bool:
    """Whether a model may be named by a folder or file of this machine. A page that strangers see sets `HSD_LOCAL_MODELS=0`: what
    lies here is none of their business."""
    return os.environ.get("HSD_LOCAL_MODELS", "1") != "0"


def cuda_graphs() -> bool:
    """Whether narrow passes on CUDA are recorded as graphs; `HSD_CUDA_GRAPHS=0` switches that off."""
    return os.environ.get("HSD_CUDA_GRAPHS", "1") != "0"
