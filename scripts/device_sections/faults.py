"""Faults and rejected operations: error messages, and which work continues."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.runtime.device import Arguments
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.core import DeviceError

from .asking import ask
from .checks import Checks
from .nets import bound, mlp

NOWHERE = 'extern "C" __global__ void nowhere(int *at) { *at = 1; }'
CHILD = """
import sys
sys.path[:0] = {paths!r}
from device_sections.faults import {what}
{what}({emulated})
"""


def run(checks: Checks) -> None:
    gpu = mx.gpu(0)
    a = mx.nd.ones((100,), ctx=gpu)
    with checks.check("a kernel that writes nowhere, in a process of its own") as found:
        child(checks, fault, found, UNSEEN)
    with checks.check("and this process goes on") as found:
        assert float((a + 1).sum().asscalar()) == 200
    with checks.check("a process that ends in the middle of its steps") as found:
        words = child(checks, leave, found)
        assert "Traceback" not in words, words[-800:]
    with checks.check("a GPU that is not there") as found:
        number = 5 if checks.emulated else mx.context.num_gpus()
        if not checks.emulated:
            try:
                mx.nd.ones((1,), ctx=mx.gpu(number)).wait_to_read()
                raise AssertionError("it was not refused")
            except mx.MXLiteError as error:
                found["it said"] = str(error)
                assert f"There is no gpu({number})" in str(error), error
        found["number"] = number
    with checks.check("a kernel of the host where the GPU has none, and why it is not captured") as found:
        found["kernels"], found["it said"] = hosted(gpu)
        assert any(name.startswith("host: ") for name in found["kernels"]), "all of it has kernels by now"


UNSEEN = 120
"""Exit code of a process in which an operation failed that nobody waited for."""


def child(checks: Checks, what: Callable[[bool], None], found: dict[str, Any], *codes: int) -> str:
    """Call one of the functions below in a new process, which must end with 0 or one of `codes`; returns its
    error output."""
    root = Path(__file__).resolve().parents[2]
    paths = [str(root / "scripts"), str(root)]
    code = CHILD.format(paths=paths, what=what.__name__, emulated=checks.emulated)
    asked = ask([sys.executable, "-c", code], max(10, checks.left - 5))
    found["it said"] = asked.out.strip()[-800:]
    assert asked.code in (0, *codes), asked.end
    return asked.err


def hosted(gpu: Any) -> tuple[list[str], str]:
    """Name of an operator without a GPU kernel in a plan, and the reason why it is not captured."""
    x = mx.sym.var("data")
    net = mx.sym.sum(mx.sym.einsum(x * 2, x + 1, subscripts="ik,jk->ijk"))
    executor = net.simple_bind(gpu, data=(4, 9), grad_req="null")
    a = np.arange(36.0).reshape(4, 9)
    executor.arg_dict["data"][:] = a
    want = float(np.einsum("ik,jk->", 2 * a, a + 1))
    for _ in range(3):  # call by call, captured, replayed
        out = executor.forward()[0].asnumpy()
        assert float(out.sum()) == want, (out, want)
    said = [line.strip() for line in executor.debug_str().splitlines() if "outside of CUDA graphs" in line]
    assert said, "nothing is said of what is not captured"
    return [str(t.kernel) for t in executor.memory_plan.problem.tasks], said[0]


def _gpus(emulated: bool) -> AbstractContextManager[Any]:
    """Inside, mx.gpu(0) is the device to check."""
    if not emulated:
        return nullcontext()
    from tests.emulators.emulated_driver import emulated_gpus

    gpus: AbstractContextManager[Any] = emulated_gpus()
    return gpus


def leave(emulated: bool) -> None:
    """Push steps, and exit while streams, a graph, an arena and pinned memory are still in use."""
    guard = _gpus(emulated)
    guard.__enter__()  # never exited: that would wait
    net, shapes = mlp()
    executor = bound(net, shapes, mx.gpu(0))
    for _ in range(50):
        executor.forward(is_train=True)
        executor.backward()
    kept.append((guard, executor, mx.nd.ones((1 << 16,), ctx=mx.gpu(0)) + 1))
    print("50 steps were pushed")


kept: list[Any] = []  # objects that live until the interpreter's shutdown


def fault(emulated: bool) -> None:
    """Provoke a fault, and print later uses' errors. Exits with 0 if they are clear and the CPU works."""
    with _gpus(emulated):
        backend = backend_of(mx.gpu(0))
        device = backend.device
        b = mx.nd.ones((10,), ctx=mx.gpu(0))
        if emulated:
            device.driver.fault = DriverError(
                "an illegal memory access was encountered.", name="cudaErrorIllegalAddress", is_lasting=True
            )
        else:
            function = device.function(KernelSource(NOWHERE), "nowhere")
            values = Arguments([ctypes.c_void_p(0x10)])
            with device.active():
                device.launch(function, (1, 1, 1), (1, 1, 1), 0, values)()
        said = []
        for _ in range(2):
            try:
                (b + 1).asnumpy()
                said.append("nothing")
            except mx.MXLiteError as error:
                said.append(f"{type(error).__name__}: {error}")
        print(" // ".join(said))
        assert "illegal" in said[0] and "cannot be used any more" in said[1], said
        assert isinstance(device.fault, DeviceError)
        assert float((mx.nd.ones((3,)) * 2).asnumpy().sum()) == 6  # the host is not affected
        if emulated:
            device.driver.fault = None
