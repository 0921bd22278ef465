"""One process of several: `torchrun --nproc-per-node N -m hsd generate …` shards the target over N devices.

Every rank runs the same generation with the same seeds. The sharded target's collective operations give every rank the
same logits, so that all take the same decisions; rank 0 speaks and writes.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def count() -> int:
    """Processes that torchrun started together; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def index() -> int:
    """This process among them; 0 speaks."""
    return int(os.environ.get("RANK", "0"))


def local_index() -> int:
    """This process among those of its machine: the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def leave() -> None:
    """End the group of processes, where one was formed."""
    if count() == 1:
        return
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def exit(status: int) -> NoReturn:
    """End this process; one of several without taking the interpreter down.

    gloo's threads may still hold a tensor, and aborted a process that had done its work when they wanted to release it while the
    interpreter went (PyTorch's pull request 179291 tells of it).
    """
    if count() == 1:
        sys.exit(status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
