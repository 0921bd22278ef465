"""Choose the device and its dtype, and name both for people."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import torch

from hsd import ranks
from hsd.errors import BadInput, DeviceUnsupported
from hsd.models import kernels
from hsd.records import Environment

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str = "auto") -> torch.device:
    """`auto` takes CUDA, then MPS, then CPU; under torchrun each process takes its own GPU. Raises `DeviceUnsupported` or
    `BadInput`."""
    name = name.strip().lower()
    if ranks.count() > 1:
        return _device_of_rank(name)
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdecimal()):
        raise BadInput(f"“{name}” is not a device; give auto, cpu, mps, cuda or cuda:<number>.")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not count:
            built = "" if torch.version.cuda or torch.version.hip else " (this torch was built without CUDA)"
            raise DeviceUnsupported(f"No CUDA device is usable here{built}; choose auto or cpu.")
        if int(index or 0) >= count:
            raise DeviceUnsupported(f"There is no {name}: this machine has {count} CUDA device(s), cuda:0 to cuda:{count - 1}.")
        return torch.device("cuda", int(index or 0))
    if kind == "mps" and not torch.backends.mps.is_available():
        raise DeviceUnsupported("Apple's MPS is not usable on this machine; choose auto or cpu.")
    return torch.device("cpu" if kind == "cpu" else "mps")


def _device_of_rank(name: str) -> torch.device:
    """The device on which this process holds its shard: transformers takes the machine's accelerator where there is one."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = "cuda" if gpus else "cpu"
    if torch.backends.mps.is_available():
        raise DeviceUnsupported("Apple's MPS cannot share a model between processes; run without torchrun.")
    if name not in ("auto", kind):
        hint = "; to use processors only, hide the GPUs with CUDA_VISIBLE_DEVICES=''" if gpus else ""
        raise BadInput(f"Under torchrun the processes here run on {kind}; leave --device {name} out{hint}.")
    if gpus and ranks.local_index() >= gpus:
        raise DeviceUnsupported(f"torchrun started more processes than the {gpus} GPU(s) of this machine; give --nproc-per-node {gpus}.")
    return torch.device("cuda", ranks.local_index()) if gpus else torch.device("cpu")


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto` takes bfloat16 where the device or this project's own products compute in it, else float32."""
    if name == "auto":
        return torch.bfloat16 if _computes_bfloat16(device) else torch.float32
    if name not in DTYPES:
        raise BadInput(f"“{name}” is not a dtype that models run in here; give auto, {', '.join(DTYPES)}.")
    return DTYPES[name]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def device_name(device: torch.device) -> str:
    """For people: `NVIDIA H200`, or `AMD EPYC 7B13, 2 threads`."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"{_cpu_model()} GPU"
    threads = torch.get_num_threads()
    return f"{_cpu_model()}, {threads} thread{'' if threads == 1 else 's'}"


def environment(device: torch.device, dtype: torch.dtype) -> Environment:
    """Stamp for every file and figure made with this device and dtype, now."""
    return Environment.stamp(str(device), device_name(device), dtype_name(dtype), kernels.label(device, dtype))


def available_devices() -> tuple[str, ...]:
    """Names that `choose_device` accepts on this machine, best first."""
    cuda = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return (*cuda, *mps, "cpu")


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    if torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return True
    found = kernels.load()
    return isinstance(found, kernels.Kernels) and found.has_products


@lru_cache(maxsize=1)
def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"
