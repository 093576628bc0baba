"""Sums over ranks refuse what they cannot do where the arrays are."""

from __future__ import annotations

import pytest

import mxlite as mx
from mxlite.dist import Sums, TwoBit
from tests.emulators.emulated_driver import emulated_gpus


def test_arrays_of_a_gpu_are_not_compressed_and_those_of_two_devices_not_summed():
    with emulated_gpus():
        there = mx.nd.zeros((4,), ctx=mx.gpu(0))
        with pytest.raises(mx.DeviceError, match=r"Arrays on gpu\(0\) in two bits each cannot be summed"):
            Sums([there], TwoBit(0.5))
        with pytest.raises(mx.DeviceError, match="Arrays from several devices cannot be summed"):
            Sums([mx.nd.zeros((4,)), there])
        Sums([there]).push()  # of one process
        mx.nd.waitall()
