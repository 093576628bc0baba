"""The driver's calls through CuPy's thin bindings of the CUDA runtime and driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ...core.errors import DeviceError
from . import nvrtc
from .device import Arguments, Grid
from .driver import DriverError
from .source import Source

_LASTING = frozenset(
    {
        "cudaErrorIllegalAddress",
        "cudaErrorLaunchFailure",
        "cudaErrorLaunchTimeout",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalInstruction",
        "cudaErrorMisalignedAddress",
        "cudaErrorInvalidAddressSpace",
        "cudaErrorInvalidPc",
        "cudaErrorAssert",
        "cudaErrorECCUncorrectable",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
    }
)
"""After these the device refuses everything until the process ends (CUDA runtime API, `cudaError_t`)."""

_MEMORY = frozenset({"cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"})

_STATIC_SHARED = 48 * 1024  # bytes of shared memory that a kernel gets without asking for more
_MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CupyDriver:
    """See Driver."""

    def __init__(self, index: int) -> None:
        try:
            from cupy_backends.cuda.api import driver, runtime
        except ImportError as error:
            raise DeviceError(
                f"gpu({index}) needs CuPy, which is not here ({error}): pip install 'mxlite[gpu]' for "
                f"CUDA 13, 'mxlite[gpu12]' for CUDA 12."
            ) from None
        self._runtime: Any = runtime
        self._driver: Any = driver
        self._errors = (runtime.CUDARuntimeError, driver.CUDADriverError)
        self._index = index
        self._thread = threading.local()
        self._granted: dict[int, int] = {}  # dynamic shared memory that a kernel may ask for
        count = self._call(runtime.getDeviceCount)
        if index >= count:
            raise DeviceError(f"There is no gpu({index}): this machine has {count}, numbered from 0.")
        self.activate()
        properties = self._call(runtime.getDeviceProperties, index)
        self.name = properties["name"].decode()
        self.architecture = f"sm_{properties['major']}{properties['minor']}"
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_bytes = int(properties["sharedMemPerBlockOptin"])
        self._call(runtime.free, 0)  # makes the context: what it takes is taken before anything is measured

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._errors as error:
            raise self._error(function.__name__, error) from None

    def _error(self, call: str, error: Exception) -> DriverError:
        name = str(error).partition(":")[0].strip()
        return DriverError(
            f"{call} on gpu({self._index}): {error}.",
            name=name,
            is_memory=name in _MEMORY,
            is_lasting=name in _LASTING,
        )

    def activate(self) -> None:
        if getattr(self._thread, "is_active", False):
            return
        self._call(self._runtime.setDevice, self._index)
        self._thread.is_active = True

    def memory(self) -> tuple[int, int]:
        free, total = self._call(self._runtime.memGetInfo)
        return int(free), int(total)

    def malloc(self, nbytes: int) -> int:
        return int(self._call(self._runtime.malloc, nbytes))

    def free(self, address: int) -> None:
        self._call(self._runtime.free, address)

    def host_malloc(self, nbytes: int) -> int:
        return int(self._call(self._runtime.hostAlloc, max(1, nbytes), self._runtime.hostAllocPortable))

    def host_free(self, address: int) -> None:
        self._call(self._runtime.freeHost, address)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self._call(self._runtime.memcpyAsync, target, source, nbytes, self._runtime.memcpyDefault, stream)

    def fill(self, target: int, byte: int, nbytes: int, stream: int) -> None:
        self._call(self._runtime.memsetAsync, target, byte, nbytes, stream)

    def stream(self) -> int:
        return int(self._call(self._runtime.streamCreateWithFlags, self._runtime.streamNonBlocking))

    def synchronize(self, stream: int) -> None:
        self._call(self._runtime.streamSynchronize, stream)

    def finish(self) -> None:
        self._call(self._runtime.deviceSynchronize)

    def event(self, timed: bool = False) -> int:
        flags = self._runtime.eventDefault if timed else self._runtime.eventDisableTiming
        return int(self._call(self._runtime.eventCreateWithFlags, flags))

    def record(self, event: int, stream: int) -> None:
        self._call(self._runtime.eventRecord, event, stream)

    def wait(self, stream: int, event: int) -> None:
        self._call(self._runtime.streamWaitEvent, stream, event)

    def synchronize_event(self, event: int) -> None:
        self._call(self._runtime.eventSynchronize, event)

    def has_come(self, event: int) -> bool:
        return bool(self._call(self._runtime.eventQuery, event) == 0)

    def seconds(self, first: int, second: int) -> float:
        return float(self._call(self._runtime.eventElapsedTime, first, second)) * 1e-3

    def load(self, source: Source) -> Any:
        cubin, _ = nvrtc.compile(source, self.architecture)
        return self._call(self._driver.moduleLoadData, cubin)

    def function(self, module: Any, name: str) -> int:
        return int(self._call(self._driver.moduleGetFunction, module, name))

    def launch(
        self, function: int, grid: Grid, block: Grid, shared: int, stream: int, arguments: Arguments
    ) -> None:
        if shared > _STATIC_SHARED and self._granted.get(function, 0) < shared:
            self._call(self._driver.funcSetAttribute, function, _MOST_DYNAMIC_SHARED, shared)
            self._granted[function] = shared
        try:
            self._driver.launchKernel(function, *grid, *block, shared, stream, arguments.address, 0)
        except self._errors as error:
            raise self._error("cuLaunchKernel", error) from None

    def begin_capture(self, stream: int) -> None:
        # Only this thread's calls are looked at: other threads may allocate while it captures.
        mode = self._runtime.streamCaptureModeThreadLocal
        self._call(self._runtime.streamBeginCapture, stream, mode)

    def end_capture(self, stream: int) -> int:
        graph = self._call(self._runtime.streamEndCapture, stream)
        try:
            return int(self._call(self._runtime.graphInstantiate, graph))
        finally:
            self._call(self._runtime.graphDestroy, graph)

    def launch_graph(self, graph: int, stream: int) -> None:
        self._call(self._runtime.graphLaunch, graph, stream)

    def destroy_graph(self, graph: int) -> None:
        self._call(self._runtime.graphExecDestroy, graph)
