"""The device is chosen, named for people, and refused with a reason."""

import pytest
import torch

from hsd.errors import BadInput, DeviceUnsupported
from hsd.pick import device


def test_auto_prefers_cuda_then_mps_then_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose_device("auto") == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device.choose_device("auto") == torch.device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device.choose_device("auto") == torch.device("cpu")


def test_a_device_that_is_not_there_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "cuda:0", "mps"):
        with pytest.raises(DeviceUnsupported, match="choose auto or cpu"):
            device.choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device.choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceUnsupported, match=r"no cuda:2: this machine has 2"):
        device.choose_device("cuda:2")


@pytest.mark.parametrize("name", ["", "tpu", "gpu", "cuda:x", "cuda:-1", "meta"])
def test_what_is_no_device_is_bad_input(name):
    with pytest.raises(BadInput, match="not a device"):
        device.choose_device(name)


def test_dtypes_are_chosen_by_what_the_device_computes_natively(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(device, "_computes_bfloat16", lambda where: True)
    assert device.choose_dtype("auto", cpu) == torch.bfloat16
    monkeypatch.setattr(device, "_computes_bfloat16", lambda where: False)
    assert device.choose_dtype("auto", cpu) == torch.float32
    assert device.choose_dtype("float16", cpu) == torch.float16
    with pytest.raises(BadInput, match="int4"):
        device.choose_dtype("int4", cpu)


def test_the_stamp_names_processor_threads_and_dtype():
    stamp = device.environment(torch.device("cpu"), torch.bfloat16)
    assert stamp.device == "cpu" and stamp.dtype == "bfloat16"
    assert f"{torch.get_num_threads()} thread" in stamp.device_name
    assert "cpu" in device.available_devices()
