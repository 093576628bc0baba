"""The driver's calls through CuPy's thin bindings of the CUDA runtime and driver.

Read against CuPy 14.2 (`cupy_backends/cuda/api/runtime.pyx`, `driver.pyx`). What is not plain there:

- The CUDA runtime is linked into CuPy, so its version is CuPy's and neither a toolkit nor a wheel of it is
  needed; libcuda.so.1, the driver, is loaded at the first call. Without it, functions of `runtime` raise
  CUDARuntimeError (cudaErrorInsufficientDriver), those of `driver` a RuntimeError without a status.
- Each function checks its arguments first, then releases Python's lock if it may take long.
- `eventQuery` returns the status and raises nothing.
- A transient error (no memory, say) is removed from CUDA's own record of the last error.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from ....core import config
from ....core.errors import DeviceError
from ..compiler import cubins, nvrtc
from ..compiler.source import KernelSource
from ..vendor import cublaslt, nccl
from .device import Arguments, Grid
from .driver import DriverError

OLDEST = (8, 0)  # compute capability of the oldest GPUs that the kernels support and are tested on

_LASTING = frozenset(
    """
    cudaErrorIllegalAddress cudaErrorLaunchFailure cudaErrorLaunchTimeout cudaErrorHardwareStackError
    cudaErrorIllegalInstruction cudaErrorMisalignedAddress cudaErrorInvalidAddressSpace cudaErrorInvalidPc
    cudaErrorAssert cudaErrorECCUncorrectable cudaErrorContained cudaErrorTensorMemoryLeak
    cudaErrorMpsClientTerminated cudaErrorExternalDevice CUDA_ERROR_ILLEGAL_ADDRESS
    CUDA_ERROR_LAUNCH_FAILED CUDA_ERROR_LAUNCH_TIMEOUT CUDA_ERROR_HARDWARE_STACK_ERROR
    CUDA_ERROR_ILLEGAL_INSTRUCTION CUDA_ERROR_MISALIGNED_ADDRESS CUDA_ERROR_INVALID_ADDRESS_SPACE
    CUDA_ERROR_INVALID_PC CUDA_ERROR_ASSERT CUDA_ERROR_ECC_UNCORRECTABLE CUDA_ERROR_CONTAINED
    CUDA_ERROR_TENSOR_MEMORY_LEAK CUDA_ERROR_MPS_CLIENT_TERMINATED CUDA_ERROR_EXTERNAL_DEVICE
    """.split()
)
"""Errors after which the device refuses everything until the process ends (`cudaError_t`)."""

_MEMORY = frozenset({"cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"})

_NOT_FOR_THIS = frozenset(
    """
    CUDA_ERROR_NO_BINARY_FOR_GPU CUDA_ERROR_INVALID_IMAGE CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    CUDA_ERROR_INVALID_SOURCE
    """.split()
)
"""Errors for machine code that the driver does not accept."""

_NOT_READY = 600  # cudaErrorNotReady: an event that is not done
_STATIC_SHARED = 48 * 1024  # bytes of shared memory that a kernel gets without opting in to more
_SHARED_BYTES = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: the kernel's static shared memory
_MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Bindings(NamedTuple):
    """CuPy's modules `cupy_backends.cuda.api.runtime` and `.driver`."""

    runtime: Any
    driver: Any


def bindings() -> Bindings:
    """CuPy's bindings. Raises DeviceError if CuPy is not installed, or does not load."""
    try:
        from cupy_backends.cuda.api import driver, runtime
    except ImportError as error:
        raise DeviceError(
            f"A GPU needs CuPy, which does not load here ({error}): pip install 'mxlite[gpu]' for a driver "
            f"of CUDA 13, 'mxlite[gpu12]' for one of CUDA 12."
        ) from None
    return Bindings(runtime, driver)


def version(number: int) -> str:
    """CUDA's version numbers in dotted form: 13020 is 13.2."""
    return f"{number // 1000}.{number % 1000 // 10}"


def count(cuda: Bindings | None = None) -> int:
    """Number of GPUs. Raises a DeviceError that says why none can be used."""
    runtime = (cuda or bindings()).runtime
    there, wanted = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if there == 0:
        raise DeviceError(
            "A GPU needs NVIDIA's driver, and there is none here (libcuda.so.1). In a container it has to be "
            "let in: docker run --gpus all."
        )
    if there // 1000 < wanted // 1000:
        helps = "A newer driver is needed: CUDA 12 is the oldest that mxlite works with."
        if there >= 12000:
            other = f"cupy-cuda{wanted // 1000}x"
            helps = f"A newer driver helps, or pip uninstall {other} and install 'mxlite[gpu12]'."
        raise DeviceError(
            f"The driver here is for CUDA {version(there)}, CuPy for CUDA {version(wanted)}. {helps}"
        )
    try:
        return int(runtime.getDeviceCount())
    except RuntimeError as error:
        if _name(error) == "cudaErrorNoDevice":
            return 0
        raise DeviceError(
            f"The driver (CUDA {version(there)}) does not work with CuPy's CUDA {version(wanted)}: {error}."
        ) from None


def why_none() -> str | None:
    """Reason why no GPU can be used here, in a sentence; None if one can. Opens none."""
    try:
        return None if count() else "The driver finds no GPU; CUDA_VISIBLE_DEVICES may hide some."
    except DeviceError as error:
        return str(error)


def _name(error: BaseException) -> str:
    """CUDA's name of an error; CuPy writes it before the first colon."""
    return str(error).partition(":")[0].strip()


class CupyDriver:
    """Driver by CuPy's bindings."""

    def __init__(self, index: int, cuda: Bindings | None = None) -> None:
        self._index = index
        cuda = cuda or bindings()
        self._runtime, self._driver = runtime, _ = cuda
        self._granted: dict[int, int] = {}  # dynamic shared memory that a kernel was allowed
        number = count(cuda)
        if index >= number:
            hidden = "" if number else "; CUDA_VISIBLE_DEVICES may hide some"
            ranks = config.ranks_here()
            more = f" {ranks} ranks run here, and each needs a GPU of its own." if ranks > number else ""
            raise DeviceError(
                f"There is no gpu({index}): this machine has {number}, numbered from 0{hidden}.{more}"
            )
        properties = self._call(runtime.getDeviceProperties, index)
        major, minor = int(properties["major"]), int(properties["minor"])
        self.name = properties["name"].decode(errors="replace")
        if (major, minor) < OLDEST:
            raise DeviceError(
                f"gpu({index}), {self.name}, is of compute capability {major}.{minor}; mxlite's kernels need "
                f"{OLDEST[0]}.{OLDEST[1]} (Ampere) or later."
            )
        self.architecture = nvrtc.target(major, minor)
        self.multiprocessors = int(properties["multiProcessorCount"])
        self.shared_bytes = int(properties["sharedMemPerBlockOptin"])
        self._open()

    def _open(self) -> None:
        """Create the context, so that its memory is taken before anything is measured.

        This happens on a thread of its own, since the runtime records a current device for each thread: the
        caller's may be another one.
        """
        try:
            with ThreadPoolExecutor(1) as other:
                self._context = other.submit(self._made).result()
        except DriverError as error:
            if error.is_memory:
                raise DeviceError(
                    f"gpu({self._index}), {self.name}, has no room for a context, some hundreds of MB: other "
                    f"processes hold its memory (nvidia-smi lists them). {error}"
                ) from None
            if error.name == "cudaErrorDevicesUnavailable":
                raise DeviceError(
                    f"gpu({self._index}), {self.name}, is taken by another process, or refuses compute work "
                    f"(nvidia-smi -q -d COMPUTE). {error}"
                ) from None
            raise

    def _made(self) -> int:
        self._call(self._runtime.setDevice, self._index)
        self._call(self._runtime.free, 0)
        return int(self._call(self._driver.ctxGetCurrent))

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (RuntimeError, ImportError) as error:  # CuPy's two kinds, and that without a driver
            raise self._error(function.__name__, error) from None

    def _error(self, call: str, error: Exception) -> DriverError:
        name = _name(error)
        is_lasting = name in _LASTING
        whose = " It comes of what was launched before this call, a kernel as a rule." if is_lasting else ""
        return DriverError(
            f"{call} on gpu({self._index}): {str(error).rstrip('.')}.{whose}",
            name=name,
            is_memory=name in _MEMORY,
            is_lasting=is_lasting,
        )

    def _visit(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function for a finalizer, which may run on any thread at any point: a thread without a
        device would create a context on the first, and one of CuPy's or PyTorch's must get its own back.
        """
        before = self.activate()
        try:
            self._call(function, *arguments)
        finally:
            if before is not None:
                self.restore(before)

    def activate(self) -> int | None:
        # Each time: other drivers, CuPy or PyTorch may have set another device for this thread meanwhile. The
        # runtime follows the current context (CUDA Runtime API, "Interactions with the CUDA Driver API");
        # setDevice could not be undone for a thread without creating its context.
        before = int(self._call(self._driver.ctxGetCurrent))
        if before == self._context:
            return None
        self._call(self._driver.ctxSetCurrent, self._context)
        return before

    def restore(self, before: int) -> None:
        self._call(self._driver.ctxSetCurrent, before)

    def nccl(self) -> Any:
        return nccl.bindings()

    def place(self) -> tuple[str, int]:
        place = self._call(self._runtime.deviceGetPCIBusId, self._index)
        return place, self._call(self._runtime.getDeviceCount)

    def blas(self) -> cublaslt.Library | None:
        return cublaslt.library()

    def memory(self) -> tuple[int, int]:
        free, total = self._call(self._runtime.memGetInfo)
        return int(free), int(total)

    def malloc(self, nbytes: int) -> int:
        return int(self._call(self._runtime.malloc, nbytes))

    def free(self, address: int) -> None:
        self._visit(self._runtime.free, address)

    def host_malloc(self, nbytes: int) -> int:
        return int(self._call(self._runtime.hostAlloc, max(1, nbytes), self._runtime.hostAllocPortable))

    def host_free(self, address: int) -> None:
        self._visit(self._runtime.freeHost, address)

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
        status = int(self._call(self._runtime.eventQuery, event))
        if status not in (0, _NOT_READY):
            self._call(self._runtime.check_status, status)
        return status == 0

    def seconds(self, first: int, second: int) -> float:
        return float(self._call(self._runtime.eventElapsedTime, first, second)) * 1e-3

    def load(self, source: KernelSource) -> Any:
        cubin = cubins.compiled(source, self.architecture)
        try:
            return self._call(self._driver.moduleLoadData, cubin)
        except DriverError as error:
            if error.name not in _NOT_FOR_THIS:
                raise
            there = version(self._runtime.driverGetVersion())
            compiler = ".".join(map(str, nvrtc.version()))
            raise DriverError(
                f"The driver of gpu({self._index}), for CUDA {there}, does not take machine code of NVRTC "
                f"{compiler} for {self.architecture}; one no newer than the driver's CUDA is needed. {error}",
                name=error.name,
            ) from None

    def function(self, module: Any, name: str) -> int:
        function = int(self._call(self._driver.moduleGetFunction, module, name))
        # This makes CUDA load the kernel now, and not at its first launch, which may be in a capture.
        own = int(self._call(self._driver.funcGetAttribute, _SHARED_BYTES, function))
        self._granted[function] = max(0, _STATIC_SHARED - own)
        return function

    def launch(
        self, function: int, grid: Grid, block: Grid, shared: int, stream: int, arguments: Arguments
    ) -> None:
        if shared > self._granted[function]:
            self._call(self._driver.funcSetAttribute, function, _MOST_DYNAMIC_SHARED, shared)
            self._granted[function] = shared
        try:
            self._driver.launchKernel(function, *grid, *block, shared, stream, arguments.address, 0)
        except RuntimeError as error:
            raise self._error("launchKernel", error) from None

    def begin_capture(self, stream: int) -> None:
        # Only this thread's calls are checked: other threads may allocate while it captures.
        mode = self._runtime.streamCaptureModeThreadLocal
        self._call(self._runtime.streamBeginCapture, stream, mode)

    def end_capture(self, stream: int) -> int:
        graph = self._call(self._runtime.streamEndCapture, stream)
        try:
            return int(self._call(self._runtime.graphInstantiate, graph))
        finally:
            self._call(self._runtime.graphDestroy, graph)

    def upload_graph(self, graph: int, stream: int) -> None:
        self._call(self._runtime.graphUpload, graph, stream)

    def launch_graph(self, graph: int, stream: int) -> None:
        self._call(self._runtime.graphLaunch, graph, stream)

    def destroy_graph(self, graph: int) -> None:
        self._visit(self._runtime.graphExecDestroy, graph)
