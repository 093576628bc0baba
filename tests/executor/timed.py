"""What tests of timed kernels have in common: a cache of their own, and a small chain of layers."""

from __future__ import annotations

from importlib import import_module

import pytest

import mxlite as mx

calibration = import_module("mxlite.executor.measure.calibration")
trials = import_module("mxlite.executor.measure.trials")
Turns, Place, settled = calibration.Turns, calibration.TimedPlace, calibration.settled


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    monkeypatch.setattr("mxlite.executor.measure.timings._made", {})
    monkeypatch.setattr(calibration, "cache_bytes", lambda: 2**20)  # what they do has tests of its own
    monkeypatch.setattr(calibration, "others_bytes_per_s", lambda cache, looks: 1e9)
    return tmp_path


def chain(layers=6, width=32):
    net = mx.sym.Variable("data")
    for i in range(layers):
        net = mx.sym.FullyConnected(net, num_hidden=width, name=f"fc{i}")
        net = mx.sym.Activation(net, act_type="tanh", name=f"act{i}")
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(net)))
