"""Run by runtime/test_cupy_driver.py with cuda_on_cpu/libcuda.cpp as libcuda.so.1: CuPy launches a kernel."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from cupy_backends.cuda.api import driver

from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.runtime import cupy_driver
from mxlite.backends.gpu.runtime.cupy_driver import Bindings, CupyDriver
from mxlite.backends.gpu.runtime.device import Arguments
from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators import emulated_device
from tests.emulators.fake_cupy import Cuda

TEXT = """
extern "C" __global__ void mixed(int *out, double a, signed char b, long long c, float d) {
    int at = (blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
    out[at] = (int)(a + b + c + d) + at;
}
"""


def path_as_image(source: KernelSource, architecture: str) -> bytes:
    """The file that the emulated device's compiler made, in the place of machine code."""
    made = []
    original = emulated_device._made

    def noted(*asked: Any) -> Path:
        made.append(original(*asked))
        return made[-1]

    emulated_device._made = noted
    emulated_device._library(source)
    emulated_device._made = original
    return str(made[-1]).encode() + b"\0"


nvrtc.target = lambda major, minor: "sm_90"
cupy_driver.cubins.compiled = path_as_image
device = CupyDriver(0, Bindings(Cuda().bindings().runtime, driver))
assert device.activate() is None  # CuPy's own ctxGetCurrent finds it
device.restore(0x5678)
function = device.function(device.load(KernelSource(TEXT)), "mixed")
out = np.zeros(24, np.int32)
values = [ctypes.c_void_p(out.ctypes.data), ctypes.c_double(0.5), ctypes.c_byte(-3), ctypes.c_longlong(2**20)]
arguments = Arguments([*values, ctypes.c_float(0.5)])
device.launch(function, (2, 3, 1), (4, 1, 1), 0, 0x1234, arguments)
device.launch(function, (2, 3, 1), (4, 1, 1), 100 * 1024, 0x1234, arguments)
assert np.array_equal(out, np.arange(24) + 2**20 - 2), out
try:
    device.launch(function, (2, 3, 1), (4, 1, 1), 0, 0x9999, arguments)
except DriverError as error:
    assert "launchKernel on gpu(0): CUDA_ERROR_UNKNOWN: it did not work." in str(error), error
    assert error.name == "CUDA_ERROR_UNKNOWN"
    print("ok")
