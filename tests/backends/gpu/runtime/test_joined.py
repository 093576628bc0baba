"""GPUs of ranks are joined, or every rank hears why not."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu.ranks.joined import joined
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.vendor import nccl
from mxlite.comm import Alone
from tests.emulators.emulated_driver import EmulatedDriver
from tests.emulators.emulated_nccl import Communicator, EmulatedNccl, Mailboxes


class Other(Alone):
    """A job of two ranks, of which this one is number 0: the other has the facts `changed` of its own."""

    size = 2

    def __init__(self, **changed):
        self.changed = changed

    def all_gather(self, array, parts):
        rows = array.view(np.int64).reshape(2, -1)
        rows[1] = rows[0]
        for place, name in enumerate(("version", "gpus", "machine", "place")):
            rows[1, place] = self.changed.get(name, rows[1, place])
        return super().all_gather(array, parts)


def gpu(version=22803):
    driver = EmulatedDriver()
    if version:
        EmulatedNccl(driver, 0, Mailboxes(), version)
    return CudaDevice(driver, 0)


def test_gpus_of_one_machine_and_of_two_are_joined():
    for other in ({"place": 5}, {"machine": 5}):
        peers = joined(gpu(), Other(**other))
        assert (peers.rank, peers.size, peers.library) == (0, 2, "NCCL 2.28.3")


@pytest.mark.parametrize(
    "version, other, said",
    [
        (0, {}, "NCCL is not emulated here."),
        (22803, {"version": 0}, "There is no NCCL on rank 1, whose own error says what is missing."),
        (22803, {"version": 22705}, "of version 2.28.3 on rank 0 and 2.27.5 on rank 1"),
        (21003, {}, "NCCL 2.10.3 on rank 0 is too old: messages inside of CUDA graphs need 2.11.0"),
        (
            22803,
            {},
            "Ranks 0 and 1 have one GPU, but each needs one of its own: their machine has 1, for 2 ranks.",
        ),
    ],
)
def test_what_is_missing_is_named(version, other, said):
    with pytest.raises(mx.DeviceError) as caught:
        joined(gpu(version), Other(**other))
    assert said in str(caught.value), str(caught.value)


def test_cupy_without_nccl_is_told_what_to_install(monkeypatch):
    module = pytest.importorskip("cupy.cuda.nccl")
    monkeypatch.setattr(module, "available", False)
    with pytest.raises(mx.DeviceError, match="pip install nvidia-nccl-cu13"):
        nccl.bindings()


def test_the_emulated_module_has_the_calls_of_cupys():
    """What is called of it, its parameters, and what they are."""
    real = pytest.importorskip("cupy_backends.cuda.libs.nccl", exc_type=ImportError)
    assert real.NCCL_UINT8 == EmulatedNccl.NCCL_UINT8 and real.get_version() > nccl.OLDEST
    assert len(nccl.new_identity(real)) == nccl.ID_BYTES
    for name in ("send", "recv"):
        text = getattr(real.NcclCommunicator, name).__doc__
        named = list(inspect.signature(getattr(Communicator, name)).parameters)
        assert re.findall(r"(\w+)[,)]", text.splitlines()[0]) == named, text
    real.groupStart()
    real.groupEnd()
