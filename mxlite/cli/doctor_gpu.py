"""The report of `mxlite doctor` on GPUs: driver, libraries, devices, and substitutes for what is absent."""

from __future__ import annotations

import importlib.metadata

from ..backends import backend_of
from ..backends.gpu import num_gpus, planning_backend
from ..backends.gpu.compiler import nvrtc
from ..backends.gpu.runtime.cupy_driver import bindings, version, why_none
from ..backends.gpu.vendor import cublaslt, cudnn
from ..core import gpu
from ..core.bytesize import format_bytes
from ..core.errors import DeviceError, MXLiteError
from ..ops import ALL

Rows = list[tuple[str, object]]
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def rows() -> Rows:
    """Pairs (what, found). Opens every GPU: each takes some hundreds of MB while this process lives."""
    number = num_gpus()
    report: Rows = [("GPUs", number if number else f"none: {why_none()}"), *_cupy(), *_libraries()]
    for i in range(number):
        report += _device(i)
    with_kernels = {op.forward_op or op for op in planning_backend().kernels} & set(ALL)
    rest = len(ALL) - len(with_kernels)
    report.append(("operators with GPU kernels", f"{len(with_kernels)}; {rest} run on the host, on copies"))
    return report


def _cupy() -> Rows:
    installed = [f"{name} {v}" for name in CUPY if (v := _version(name)) is not None]
    if len(installed) > 1:
        return [("CuPy", f"{' and '.join(installed)}: only one may be installed")]
    if not installed:
        return [("CuPy", "absent; pip install 'mxlite[gpu]' (CUDA 13) or 'mxlite[gpu12]' (CUDA 12)")]
    try:
        runtime = bindings().runtime
    except DeviceError as error:
        return [("CuPy", f"{installed[0]}: {error}")]
    driver = runtime.driverGetVersion()
    return [
        ("CuPy", f"{installed[0]}, for CUDA {version(runtime.runtimeGetVersion())}"),
        ("NVIDIA's driver", f"for CUDA {version(driver)}" if driver else "absent"),
    ]


def _libraries() -> Rows:
    """Compilers and libraries of kernels."""
    if nvrtc.available():
        known = nvrtc.architectures()
        compiler = ".".join(map(str, nvrtc.version()))
        report: Rows = [("NVRTC", f"{compiler}, for sm_{known[0]} to sm_{known[-1]}")]
    else:
        report = [("NVRTC", "absent: no kernel can be compiled; pip install 'mxlite[gpu]' brings it")]
    report.append(("cuBLASLt", _cublaslt()))
    report.append(("cuDNN", _cudnn()))
    return report


def _cudnn() -> str:
    front = _version("nvidia-cudnn-frontend")
    library = cudnn.library()
    if library is not None:
        return f"{library.backend_version()}, front end {front}"
    what = "absent" if front is None else f"front end {front}, which does not load ({cudnn.why_not_loaded()})"
    return f"{what}: mxlite's own kernels are used; pip install 'mxlite[gpu]' or 'mxlite[gpu12]' brings it"


def _cublaslt() -> str:
    try:
        library = cublaslt.library()
    except MXLiteError as error:
        return f"ERROR: {error}"
    if library is None:
        return "absent: mxlite's own matrix products are used; pip install 'mxlite[gpu]' brings it"
    number = library.version
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}, {library.path}"


def _device(index: int) -> Rows:
    try:
        device = backend_of(gpu(index)).device  # type: ignore[attr-defined]  # a GPUBackend
        free, total = device.memory()
    except DeviceError as error:
        return [(f"gpu({index})", f"cannot be used: {error}")]
    what = f"{device.name}, {device.architecture}, {device.multiprocessors} multiprocessors"
    return [(f"gpu({index})", f"{what}, {format_bytes(free)} of {format_bytes(total)} free")]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
