"""CuPy's two modules of CUDA bindings, as far as CupyDriver calls them, on an EmulatedDriver.

Names, arguments and errors are CuPy's: runtime/test_cupy_driver.py holds them against CuPy itself where that
is installed. `calls` keeps every call's arguments for that.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mxlite.backends.gpu import drivers_of
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.runtime import cupy_driver
from mxlite.backends.gpu.runtime.cupy_driver import Bindings, CupyDriver
from mxlite.backends.gpu.runtime.device import Arguments
from mxlite.backends.gpu.runtime.driver import DriverError
from tests.emulators.emulated_driver import EmulatedDriver

CONSTANTS = {
    "memcpyDefault": 4,
    "hostAllocPortable": 1,
    "streamNonBlocking": 1,
    "eventDefault": 0,
    "eventDisableTiming": 2,
    "streamCaptureModeThreadLocal": 1,
}
NOT_READY = 600


class FakeError(RuntimeError):
    """As CUDARuntimeError and CUDADriverError."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")


class Cuda:
    """What both modules stand on: `devices` emulated ones, and what to fail with."""

    def __init__(self, devices: int = 1, **how: Any) -> None:
        self.devices = [EmulatedDriver(i, **how) for i in range(devices)]
        self._chosen = threading.local()
        self.contexts: set[int] = set()  # devices that have one
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []
        self.fails: dict[str, FakeError] = {}
        self.driver_version, self.runtime_version = 13000, 13020
        self.capability = (9, 0)
        self.sources: dict[bytes, KernelSource] = {}
        self.modules: dict[int, Any] = {}
        self.arguments: weakref.WeakValueDictionary[int, Arguments] = weakref.WeakValueDictionary()
        self.own_shared = 0

    @property
    def current(self) -> int | None:
        """The device of this thread; None: it has none yet, and would make a context on the first."""
        return getattr(self._chosen, "device", None)

    @current.setter
    def current(self, index: int | None) -> None:
        self._chosen.device = index

    @property
    def device(self) -> EmulatedDriver:
        self.choose(self.current or 0)
        return self.devices[self.current or 0]

    def choose(self, index: int) -> None:
        self.current = index
        self.contexts.add(index)

    def bindings(self) -> Bindings:
        return Bindings(Runtime(self), Driver(self))


class Module:
    """A module whose functions are those of `_table`; each call is noted."""

    def __init__(self, cuda: Cuda, module: str, table: dict[str, Callable[..., Any]]) -> None:
        for name, function in table.items():
            setattr(self, name, self._noted(cuda, module, name, function))

    @staticmethod
    def _noted(cuda: Cuda, module: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            cuda.calls.append((module, name, arguments))
            if name in cuda.fails:
                raise cuda.fails[name]
            try:
                return function(*arguments)
            except DriverError as error:
                raise FakeError(error.name, str(error)) from None

        call.__name__ = name
        return call


class Runtime(Module):
    """`cupy_backends.cuda.api.runtime`."""

    def __init__(self, cuda: Cuda) -> None:
        def on_device(name: str) -> Callable[..., Any]:
            return lambda *arguments: getattr(cuda.device, name)(*arguments)

        table: dict[str, Callable[..., Any]] = {
            new: on_device(old)
            for new, old in {
                "memGetInfo": "memory",
                "malloc": "malloc",
                "freeHost": "host_free",
                "memsetAsync": "fill",
                "streamSynchronize": "synchronize",
                "eventRecord": "record",
                "streamWaitEvent": "wait",
                "eventSynchronize": "synchronize_event",
                "graphLaunch": "launch_graph",
                "graphUpload": "upload_graph",
                "graphExecDestroy": "destroy_graph",
                "streamEndCapture": "end_capture",
            }.items()
        }
        table |= {
            "driverGetVersion": lambda: cuda.driver_version,
            "runtimeGetVersion": lambda: cuda.runtime_version,
            "deviceGetPCIBusId": lambda i: f"0000:{i:02}:00.0",
            "getDeviceCount": lambda: len(cuda.devices),
            "getDeviceProperties": lambda i: {
                "name": b"fake",
                "major": cuda.capability[0],
                "minor": cuda.capability[1],
                "multiProcessorCount": 2,
                "sharedMemPerBlockOptin": 227 * 1024,
            },
            "setDevice": cuda.choose,
            "free": lambda address: cuda.device.free(address) if address else cuda.device.activate(),
            "hostAlloc": lambda nbytes, flags: cuda.device.host_malloc(nbytes),
            "memcpyAsync": lambda target, source, n, kind, stream: cuda.device.copy(
                target, source, n, stream
            ),
            "streamCreateWithFlags": lambda flags: cuda.device.stream(),
            "eventCreateWithFlags": lambda flags: cuda.device.event(flags == 0),
            "eventQuery": lambda event: self._query(cuda, event),
            "eventElapsedTime": lambda a, b: float(np.float32(cuda.device.seconds(a, b) * 1e3)),
            "check_status": self._check,
            "streamBeginCapture": lambda stream, mode: cuda.device.begin_capture(stream),
            "graphInstantiate": lambda graph: graph,  # the emulated graph is ready as it is
            "graphDestroy": lambda graph: None,
        }
        super().__init__(cuda, "runtime", table)
        for name, value in CONSTANTS.items():
            setattr(self, name, value)

    @staticmethod
    def _query(cuda: Cuda, event: int) -> int:
        if cuda.device.fault is not None:
            return 700  # cudaErrorIllegalAddress
        return 0 if cuda.device.has_come(event) else NOT_READY

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise FakeError("cudaErrorIllegalAddress", "an illegal memory access was encountered")


class Driver(Module):
    """`cupy_backends.cuda.api.driver`."""

    def __init__(self, cuda: Cuda) -> None:
        def load(image: bytes) -> int:
            handle = len(cuda.modules) + 1
            cuda.modules[handle] = cuda.device.load(cuda.sources[image])
            return handle

        def launch(function: int, *rest: int) -> None:
            grid, block, (shared, stream, parameters, extra) = rest[:3], rest[3:6], rest[6:]
            assert extra == 0
            # CUDA reads the values now; the emulated one does when it runs them, so they must live on.
            cuda.device.launch(function, grid, block, shared, stream, cuda.arguments[parameters])

        super().__init__(
            cuda,
            "driver",
            {
                "moduleLoadData": load,
                "moduleGetFunction": lambda m, name: cuda.device.function(cuda.modules[m], name),
                "funcGetAttribute": lambda attribute, function: cuda.own_shared,
                "funcSetAttribute": lambda function, attribute, value: None,
                "ctxGetCurrent": lambda: 0 if cuda.current is None else cuda.current + 1,
                "ctxSetCurrent": lambda ctx: setattr(cuda, "current", ctx - 1 if ctx else None),
                "launchKernel": launch,
            },
        )


@contextmanager
def fake_cupy(devices: int = 1, **how: Any) -> Iterator[Cuda]:
    """Inside, `mx.gpu(i)` is a CupyDriver on emulated devices made with `how`."""
    cuda = Cuda(devices, **how)
    was = cupy_driver.cubins.compiled, nvrtc.target, Arguments.__init__

    def compiled(source: KernelSource, architecture: str) -> bytes:
        image = b"\x7fELF" + str(len(cuda.sources)).encode()
        cuda.sources[image] = source
        return image

    @functools.wraps(Arguments.__init__)
    def noted(self: Arguments, values: Any) -> None:
        was[2](self, values)
        cuda.arguments[self.address] = self

    cupy_driver.cubins.compiled = compiled
    nvrtc.target = lambda major, minor: f"sm_{major}{minor}"
    Arguments.__init__ = noted  # type: ignore[method-assign]
    try:
        with drivers_of(lambda i: CupyDriver(i, cuda.bindings()), devices):
            yield cuda
    finally:
        cupy_driver.cubins.compiled, nvrtc.target, Arguments.__init__ = was  # type: ignore[method-assign]


def values_of(arguments: int, *kinds: Any) -> list[Any]:
    """What the parameters of a launch point to."""
    pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
    return [kind.from_address(pointers[i]).value for i, kind in enumerate(kinds)]
