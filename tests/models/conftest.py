"""The tiny models are shared with the tests of decoding, and the architectures among the tests here."""

import sys
from collections.abc import Iterator
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


@pytest.fixture(scope="module", params=["native", "avx2"])
def products(request, compiled) -> Iterator[kernels.Kernels]:
    """The products for this processor, and those for AVX2 too where it has more."""
    if not compiled.has_products:
        pytest.skip("this processor has neither AVX-512 BF16 and VNNI nor AVX2")
    if request.param == "native":
        yield compiled
        return
    if compiled.vectors == "avx2":
        pytest.skip("the products for this processor are those for AVX2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_EXTRAS", (("-march=x86-64-v3", "-fopenmp", "-Wl,--as-needed"),))
        kernels.load.cache_clear()
        found = kernels.load()
        assert isinstance(found, kernels.Kernels) and found.vectors == "avx2"
        yield found
    kernels.load.cache_clear()
