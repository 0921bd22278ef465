"""Compiles the C sources beside it once on this machine and calls them: the layers of a bfloat16 model on a CPU.

Without a C compiler everything runs on torch's own operations, to the same effect and slower; `problem` says why.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from hsd.settings import cache_dir

_SOURCES = tuple(Path(__file__).with_name(name) for name in ("kernels.c", "products.c", "attention.c", "layers.c", "ends.c"))
_HEADERS = tuple(Path(__file__).with_name(name) for name in ("bf16.h", "vectors.h", "layers.h"))
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (
    "-O3",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-ffp-contract=fast",
)
_EXTRAS = (("-march=native", "-fopenmp", "-Wl,--as-needed"), ("-march=native",), ())  # the first that this compiler takes
_TIMEOUT_S = 120.0
_PAGE = 1 << 21
CACHE_LINE = 64
_MADV_HUGEPAGE = 14  # Linux
MAX_HEAD_DIM = 256  # as in the source

_POINTER, _COUNT, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class Product(ctypes.Structure):
    """Where a weight lies, in blocks as `products.c` says: by address, so that its tensors must be kept alive beside it."""

    _counts = ("inputs", "outputs", "bits", "group")
    _fields_ = (("weight", _POINTER), ("scales", _POINTER), ("bias", _POINTER), *((name, _COUNT) for name in _counts))

    @classmethod
    def of(
        cls, weight: torch.Tensor, scales: torch.Tensor | None, bias: torch.Tensor | None, inputs: int, outputs: int, bits: int, group: int
    ) -> Product:
        """`group` is the number of inputs that share a scale of x, 0 where x is not rounded."""
        return cls(weight.data_ptr(), _address(scales), _address(bias), inputs, outputs, bits, group)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Operations on contiguous bfloat16 tensors in main memory; shapes as in the source."""

    code: ctypes.CDLL

    @property
    def vectors(self) -> str:
        """What the matrix products run on: AVX-512 (with BF16 and VNNI), AVX2, or nothing where the processor has neither."""
        return {512: "avx512", 256: "avx2", 0: ""}[self.code.hsd_vector_bits()]

    @property
    def has_products(self) -> bool:
        """Whether this processor has what the matrix products need."""
        return bool(self.vectors)

    def linear(self, x: torch.Tensor, product: Product) -> torch.Tensor:
        """x (q, inputs) @ weight (outputs, inputs).T + bias, (q, outputs)."""
        out = x.new_empty(x.shape[0], product.outputs)
        scratch = torch.empty(self.code.hsd_product_bytes(*x.shape, product.group), dtype=torch.uint8)
        self.code.hsd_linear(ctypes.addressof(product), x.data_ptr(), out.data_ptr(), scratch.data_ptr(), x.shape[0])
        return out

    def shortlist(self, x: torch.Tensor, rough: Product, exact: Product, deviation: float) -> torch.Tensor:
        """x (q, inputs) @ rough.T, (q, outputs), with the exact weight where that may be the largest of its row."""
        out = x.new_empty(x.shape[0], rough.outputs)
        scratch = torch.empty(self.code.hsd_product_bytes(*x.shape, rough.group), dtype=torch.uint8)
        weights = ctypes.addressof(rough), ctypes.addressof(exact)
        self.code.hsd_shortlist(*weights, x.data_ptr(), out.data_ptr(), scratch.data_ptr(), deviation, x.shape[0])
        return out

    def rows(self, indices: torch.Tensor, product: Product) -> torch.Tensor:
        """Rows of a 16 bit weight (outputs, inputs), (q,) int64 -> (q, inputs)."""
        out = torch.empty(indices.shape[0], product.inputs, dtype=torch.bfloat16)
        self.code.hsd_rows(ctypes.addressof(product), indices.data_ptr(), out.data_ptr(), indices.shape[0])
        return out

    def maxima(self, rows: torch.Tensor) -> tuple[list[float], list[int]]:
        """The largest value of each row (n, count) and its first place; what is no number counts as largest."""
        values, places = (_FLOAT * len(rows))(), (_COUNT * len(rows))()
        self.code.hsd_maxima(rows.data_ptr(), ctypes.addressof(values), ctypes.addressof(places), *rows.shape, rows.stride(0))
        return list(values), list(places)

    def add_norm(self, x: torch.Tensor, delta: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Add `delta` to `x` (q, hidden) in place, and return its RMS norm times `weight`, (q, hidden)."""
        out = torch.empty_like(x)
        self.code.hsd_add_norm(x.data_ptr(), _address(delta), weight.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1], eps)
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """(q, 2 * inner) -> silu(first half) * second half, (q, inner)."""
        width, inner = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(width, inner)
        self.code.hsd_silu_mul(gate_up.data_ptr(), out.data_ptr(), width, inner)
        return out

    def attend(
        self, qkv: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, start: int, heads: int
    ) -> torch.Tensor:
        """qkv (q, (heads + 2 kv_heads) * dim), keys and values (kv_heads, capacity, dim) of one layer, written from `start`
        on; cos and sin (q, dim) of the new positions. Returns (q, heads * dim)."""
        width = qkv.shape[0]
        kv_heads, capacity, dim = keys.shape
        out = qkv.new_empty(width, heads * dim)
        # fmt: off
        self.code.hsd_attend(
            qkv.data_ptr(), keys.data_ptr(), values.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr(),
            width, start, capacity, heads, kv_heads, dim, dim**-0.5,
        )
        # fmt: on
        return out


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@functools.cache
def load() -> Kernels | str:
    """The compiled kernels, or one sentence that says why there are none."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), *_COMPILERS))), None)
    if compiler is None:
        return (
            "No C compiler (cc, gcc or clang) was found, so that small operations run on torch, slower; install one to speed decoding up."
        )
    path = cache_dir() / "kernels" / f"{_fingerprint(compiler)}.so"
    try:
        if not path.exists():
            _compile(compiler, path)
        code = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        return f"{compiler} could not compile the kernels ({type(error).__name__}), so that small operations run on torch, slower."
    code.hsd_maxima.argtypes = [_POINTER] * 3 + [_COUNT] * 3
    code.hsd_add_norm.argtypes = [_POINTER] * 4 + [_COUNT] * 2 + [_FLOAT]
    code.hsd_silu_mul.argtypes = [_POINTER] * 2 + [_COUNT] * 2
    code.hsd_attend.argtypes = [_POINTER] * 6 + [_COUNT] * 6 + [_FLOAT]
    if code.hsd_vector_bits():
        code.hsd_linear.argtypes, code.hsd_linear.restype = [_POINTER] * 4 + [_COUNT], None
        code.hsd_shortlist.argtypes, code.hsd_shortlist.restype = [_POINTER] * 5 + [_FLOAT, _COUNT], None
        code.hsd_rows.argtypes = [_POINTER] * 3 + [_COUNT]
        code.hsd_product_bytes.argtypes, code.hsd_product_bytes.restype = [_COUNT] * 3, _COUNT
    code.hsd_add_norm.restype = code.hsd_silu_mul.restype = None
    return Kernels(code)


class LargePages:
    """One block of memory in pages of 2 MB where the system grants them: weights, keys and values stream from it without a page
    walk each 4 kB. Elsewhere it is memory like any other."""

    def __init__(self, nbytes: int) -> None:
        self._block = torch.empty(nbytes + 2 * _PAGE, dtype=torch.uint8)
        self._next = -self._block.data_ptr() % _PAGE
        if sys.platform == "linux":
            madvise = ctypes.CDLL(None).madvise
            madvise.argtypes = [_POINTER, ctypes.c_size_t, ctypes.c_int]
            madvise(self._block.data_ptr() + self._next, nbytes // _PAGE * _PAGE, _MADV_HUGEPAGE)  # advice only: may fail

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of `tensor` in the block, on a cache line of its own."""
        return self._take(tensor.shape, tensor.dtype).copy_(tensor)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of zeros in the block, on a cache line of its own."""
        return self._take(shape, dtype).zero_()

    def _take(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        start, nbytes = self._next, math.prod(shape) * dtype.itemsize
        self._next += -(-nbytes // CACHE_LINE) * CACHE_LINE
        return self._block[start : start + nbytes].view(dtype).view(shape)


def applicable(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cpu" and dtype == torch.bfloat16


def label(device: torch.device, dtype: torch.dtype) -> str:
    """Which operations run between the matrix products: for the stamp beside every figure."""
    found = load() if applicable(device, dtype) else None
    return "-".join(filter(None, ("compiled", found.vectors))) if isinstance(found, Kernels) else "torch"


def _compile(compiler: str, path: Path) -> None:
    """Whole or not at all: a killed compiler leaves nothing at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        part = Path(folder) / path.name
        for position, extra in enumerate(_EXTRAS):
            run = functools.partial(_run, must=position == len(_EXTRAS) - 1)
            openmp = _openmp_of_torch() if "-fopenmp" in extra else []
            objects = [str(part.with_suffix(f".{source.stem}.o")) for source in _SOURCES]
            steps = [[compiler, *_FLAGS, *extra, "-c", str(source), "-o", target] for source, target in zip(_SOURCES, objects, strict=True)]
            steps.append([compiler, "-shared", *extra, *objects, *openmp, "-o", str(part), "-lm"])
            if all(run(step) for step in steps):
                break
        os.replace(part, path)


def _run(command: list[str], must: bool) -> bool:
    """Whether the command succeeded; raises when it `must` and did not."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=must).returncode == 0


def _openmp_of_torch() -> list[str]:
    """The OpenMP library that torch has loaded: a second one would wait on threads of its own for the same cores."""
    maps = Path("/proc/self/maps")
    mapped = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line} if maps.exists() else set()
    return sorted(mapped)[:1]


def _fingerprint(compiler: str) -> str:
    """Changes with the source, the flags, the compiler and the processor that `-march=native` stands for."""
    processor = platform.processor() + platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        processor += next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    sources = [source.read_text() for source in (*_SOURCES, *_HEADERS)]
    settings = [*_FLAGS, str(_EXTRAS), *_openmp_of_torch(), compiler, processor]
    content = "\n".join([*sources, *settings])
    return hashlib.sha256(content.encode()).hexdigest()[:24]
