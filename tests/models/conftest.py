"""The tiny models are shared with the tests of decoding, and the architectures among the tests here."""

import sys
from pathlib import Path

import pytest

from hsd.models import kernels

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "generate"), str(HERE.parent.parent)]


@pytest.fixture(scope="module")
def compiled() -> kernels.Kernels:
    found = kernels.load()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def products(compiled) -> kernels.Kernels:
    if not compiled.has_products:
        pytest.skip("this processor has neither AVX-512 BF16 and VNNI nor AVX2")
    return compiled
