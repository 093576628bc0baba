"""Plans for a GPU that is not here."""

from __future__ import annotations

import pytest

import mxlite as mx
from mxlite.backends.gpu import drivers_of, planning_backend
from mxlite.backends.gpu.runtime import autotune
from mxlite.core import DeviceError
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import emulated_gpus


def refused(index):
    raise DeviceError("There is no driver.")


def planned():
    net = mx.models.get("resnet20_cifar")
    optimizer = mx.optimizer.SGD(learning_rate=0.1, momentum=0.9)
    return net.memory_plan(
        mx.gpu(0),
        data=(2, 3, 16, 16),  # convolutions are measured there, by an emulator
        softmax_label=(2,),
        optimizer=optimizer,
        device=mx.memplan.Device(6e13, 4e12),
    )


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
def test_a_plan_without_the_gpu_is_the_one_with_it():
    with drivers_of(refused):
        without = planned()
    with emulated_gpus():
        with_it = planned()
    assert [t.kernel for t in without.problem.tasks] == [t.kernel for t in with_it.problem.tasks]
    assert without.offsets == with_it.offsets and without.peak_bytes == with_it.peak_bytes
    assert not [t.kernel for t in without.problem.tasks if t.kernel.startswith("host")]


def test_nothing_runs_there():
    with pytest.raises(DeviceError, match="no GPU here to run anything on"):
        planning_backend().empty(64)
    with drivers_of(refused), pytest.raises(DeviceError, match="There is no driver"):
        mx.nd.zeros((2,), ctx=mx.gpu(0))


def test_nothing_is_measured_there(tmp_path, monkeypatch, caplog):
    """Nor is anything told of it, or kept for later."""
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    net = mx.sym.Convolution(mx.sym.var("data"), kernel=(1, 1), num_filter=40, no_bias=True)  # in two ways
    with drivers_of(refused):
        assert net.memory_plan(mx.gpu(0), data=(3, 24, 11, 13)).peak_bytes
    assert caplog.records == [] and not (tmp_path / autotune.FOLDER).exists()
