"""The helpers beside these tests (tiny models, checks, tables) are imported by name."""

import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Tiny matrices only lose by threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
