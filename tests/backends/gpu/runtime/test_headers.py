"""Numbers, layouts and signatures that are written here, beside CUDA's own headers and libraries.

A wrong one would show on a GPU only. Each test runs where what it looks at is installed: the headers with
nvidia-cuda-runtime or a toolkit (MXLITE_TEST_CUDA_INCLUDE names another folder), CuPy, cuBLASLt.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sysconfig
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from mxlite.backends.gpu.runtime import cupy_driver, dlpack
from mxlite.backends.gpu.vendor import cublaslt
from tests.emulators.fake_cupy import CONSTANTS

COMPILER = shutil.which("g++")
SITE = Path(sysconfig.get_path("purelib"))
FOLDERS = [
    Path(f)
    for f in (
        *os.environ.get("MXLITE_TEST_CUDA_INCLUDE", "").split(":"),
        *(
            str(SITE / "nvidia" / name / "include")
            for name in ("cu13", "cuda_runtime", "cuda_nvrtc", "cublas")
        ),
        "/usr/local/cuda/include",
    )
    if f and Path(f).is_dir()
]


def header(name):
    """The path of a header; skips where there is none."""
    found = next((f / name for f in FOLDERS if (f / name).exists()), None)
    if found is None or COMPILER is None:
        pytest.skip(f"{name} or g++ is not installed")
    return found


def holds(folder, names, lines):
    """Whether g++ takes `lines` of static_assert behind those headers."""
    text = "".join(f"#include <{n}>\n" for n in ("cstddef", "cstdint", *names)) + "\n".join(lines)
    (folder / "checks.cpp").write_text(text)
    command = [str(COMPILER), "-std=c++17", "-w", "-fsyntax-only", *(f"-I{f}" for f in FOLDERS)]
    found = subprocess.run([*command, str(folder / "checks.cpp")], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[:3000]


RUNTIME = {
    "memcpyDefault": "cudaMemcpyDefault",
    "hostAllocPortable": "cudaHostAllocPortable",
    "streamNonBlocking": "cudaStreamNonBlocking",
    "eventDefault": "cudaEventDefault",
    "eventDisableTiming": "cudaEventDisableTiming",
    "streamCaptureModeThreadLocal": "cudaStreamCaptureModeThreadLocal",
}
"""CuPy's names of CONSTANTS, and CUDA's."""


def test_numbers_of_the_runtime_and_the_driver(tmp_path):
    header("cuda.h")
    lines = [f"static_assert({RUNTIME[name]} == {value});" for name, value in CONSTANTS.items()]
    driver = cupy_driver
    lines += [
        f"static_assert({name} == {value});"
        for name, value in (
            ("cudaErrorNotReady", driver._NOT_READY),
            ("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES", driver._SHARED_BYTES),
            ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", driver._MOST_DYNAMIC_SHARED),
        )
    ]
    errors = driver._LASTING | driver._MEMORY | driver._NOT_FOR_THIS
    errors |= {"cudaErrorNoDevice", "cudaErrorDevicesUnavailable"}
    lines += [f"static_assert({name} > 0);" for name in sorted(errors)]
    holds(tmp_path, ("cuda.h", "cuda_runtime_api.h"), lines)
    # As DLPack and __cuda_array_interface__ name streams.
    text = header("driver_types.h").read_text() + header("cuda_runtime_api.h").read_text()
    for name, number in (("cudaStreamLegacy", 1), ("cudaStreamPerThread", 2)):
        assert re.search(rf"#define {name}\s+\(\(cudaStream_t\)0x{number}\)", text)


def test_errors_after_which_a_process_must_end():
    """Those of which the headers say so."""
    for name, start in (("driver_types.h", "__ cudaError\n"), ("cuda.h", "typedef enum cudaError_enum {")):
        text = header(name).read_text()
        assert start in text, name
        text = text[text.index(start) :]
        found = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*(\w+)\s*=\s*\d+", text[: text.index("}")], re.S)
        said = {n for words, n in found if "must be terminated" in re.sub(r"\s*\*\s*", " ", words)}
        assert len(said) > 8 and said <= cupy_driver._LASTING, said - cupy_driver._LASTING


SIGNATURES = {
    "runtime": {
        "setDevice": "device",
        "getDeviceProperties": "device",
        "malloc": "size",
        "free": "ptr",
        "hostAlloc": "size flags",
        "freeHost": "ptr",
        "memcpyAsync": "dst src size kind stream",
        "memsetAsync": "ptr value size stream",
        "streamCreateWithFlags": "flags",
        "streamSynchronize": "stream",
        "eventCreateWithFlags": "flags",
        "eventRecord": "event stream",
        "streamWaitEvent": "stream event flags",
        "eventSynchronize": "event",
        "eventQuery": "event",
        "eventElapsedTime": "start end",
        "streamBeginCapture": "stream mode",
        "streamEndCapture": "stream",
        "graphInstantiate": "graph",
        "graphDestroy": "graph",
        "graphLaunch": "graphExec stream",
        "graphExecDestroy": "graphExec",
    },
    "driver": {
        "moduleLoadData": "image",
        "moduleGetFunction": "module funcname",
        "funcGetAttribute": "attribute f",
        "funcSetAttribute": "f attribute value",
        "launchKernel": "f grid_dim_x grid_dim_y grid_dim_z block_dim_x block_dim_y block_dim_z "
        "shared_mem_bytes stream kernel_params extra",
    },
}
"""What CupyDriver gives to CuPy's functions, in this order: all of it are whole numbers."""


@pytest.mark.parametrize("module", SIGNATURES)
def test_cupys_functions_take_their_arguments_in_that_order(module):
    found = pytest.importorskip(f"cupy_backends.cuda.api.{module}")
    for name, wanted in SIGNATURES[module].items():
        first = getattr(found, name).__doc__.splitlines()[0]
        given = first[first.index("(") + 1 : first.rindex(")")]
        names = [part.split("=")[0].split()[-1] for part in given.split(",")]
        assert names == wanted.split(), first


PROTOTYPE = """
template <class T> constexpr int kind = std::is_pointer_v<T> ? -1 : (int)sizeof(T);
template <class R, class... A> constexpr bool takes(R (*)(A...), std::initializer_list<int> kinds) {
    int given[] = {kind<A>...}, i = 0;
    if (sizeof...(A) != kinds.size()) return false;
    for (int k : kinds) if (given[i++] != k) return false;
    return true;
}
"""


def kind(t):
    return -1 if t in (ctypes.c_void_p, ctypes.c_char_p) else ctypes.sizeof(t)


def test_cublaslts_functions_take_what_they_are_given(tmp_path):
    """Pointers and whole numbers of these sizes, by the prototypes."""
    header("cublasLt.h")
    wanted = {}

    class Noted:
        def __init__(self, path):
            pass

        def __getattr__(self, name):
            return wanted.setdefault(name, type("function", (), {})())

    library = cublaslt.ctypes.CDLL
    try:
        cublaslt.ctypes.CDLL = Noted
        cublaslt.Library("")
    finally:
        cublaslt.ctypes.CDLL = library
    assert len(wanted) > 12
    lines = [PROTOTYPE]
    for name, function in wanted.items():
        kinds = ", ".join(str(kind(t)) for t in function.argtypes)
        lines.append(f"static_assert(takes({name}, {{{kinds}}}));")
    holds(tmp_path, ("initializer_list", "type_traits", "cublasLt.h"), lines)


def test_nvrtcs_functions_take_what_they_are_given(tmp_path):
    """In the calls of nvrtc.py, numbers are ints where they are not behind a pointer."""
    header("nvrtc.h")
    wanted = {
        "nvrtcVersion": "-1, -1",
        "nvrtcGetNumSupportedArchs": "-1",
        "nvrtcGetSupportedArchs": "-1",
        "nvrtcCreateProgram": "-1, -1, -1, 4, -1, -1",
        "nvrtcCompileProgram": "-1, 4, -1",
        "nvrtcGetProgramLogSize": "-1, -1",
        "nvrtcGetProgramLog": "-1, -1",
        "nvrtcGetCUBINSize": "-1, -1",
        "nvrtcGetCUBIN": "-1, -1",
        "nvrtcDestroyProgram": "-1",
        "nvrtcGetErrorString": "4",
    }
    lines = [PROTOTYPE, *(f"static_assert(takes({name}, {{{kinds}}}));" for name, kinds in wanted.items())]
    holds(tmp_path, ("initializer_list", "type_traits", "nvrtc.h"), lines)


def test_layouts_of_dlpack(tmp_path):
    spec = find_spec("cupy")
    if spec is None or COMPILER is None:
        pytest.skip("CuPy, which has dlpack.h, or g++ is not installed")
    path = Path(spec.submodule_search_locations[0]) / "_core/include/cupy/_dlpack/dlpack.h"
    names = {
        dlpack._Device: ("DLDevice", {"type": "device_type", "id": "device_id"}),
        dlpack._DataType: ("DLDataType", {}),
        dlpack._Tensor: ("DLTensor", {}),
        dlpack._Managed: ("DLManagedTensor", {"tensor": "dl_tensor", "context": "manager_ctx"}),
    }
    text = path.read_text()
    if "DLManagedTensorVersioned" in text:
        other = {"major": "version.major", "minor": "version.minor", "context": "manager_ctx"}
        names[dlpack._Versioned] = ("DLManagedTensorVersioned", {**other, "tensor": "dl_tensor"})
    lines = []
    for ours, (theirs, renamed) in names.items():
        lines.append(f"static_assert(sizeof({theirs}) == {ctypes.sizeof(ours)});")
        for name, *_ in ours._fields_:
            place = getattr(ours, name).offset
            lines.append(f"static_assert(offsetof({theirs}, {renamed.get(name, name)}) == {place});")
    numbers = {"kDLCPU": dlpack.CPU, "kDLCUDA": dlpack.CUDA, "kDLBfloat": dlpack._BFLOAT}
    numbers |= {"kDLInt": dlpack._CODES["i"], "kDLUInt": dlpack._CODES["u"], "kDLFloat": dlpack._CODES["f"]}
    if "kDLBool" in text:
        numbers["kDLBool"] = dlpack._CODES["b"]
    if "DLPACK_FLAG_BITMASK_READ_ONLY" in text:
        numbers["DLPACK_FLAG_BITMASK_READ_ONLY"] = dlpack.READ_ONLY
    lines += [f"static_assert({name} == {value});" for name, value in numbers.items()]
    holds(tmp_path, (str(path),), lines)


def real_cublaslt():
    """cuBLASLt itself, wherever a program would find it."""
    cublaslt.library.cache_clear()
    return cublaslt.library()


@pytest.mark.skipif(real_cublaslt() is None, reason="cuBLASLt is not installed")
def test_cublaslt_itself_takes_every_description():
    """It looks at sizes and values of attributes, and needs no GPU for that."""
    lib, count = real_cublaslt(), 0
    with pytest.raises(cublaslt.CublasError, match="status 7"):
        lib.set(
            "MatmulDesc",
            lib.create("cublasLtMatmulDescCreate", 68, 0),
            "CUBLASLT_MATMUL_DESC_TRANSA",
            ctypes.c_int64(0),
        )
    no, activations, slopes = (False, True), cublaslt.EPILOGUES, ("", *cublaslt.SLOPES)
    for dtype, batch, *rest in product(cublaslt.TYPES, (1, 3), no, no, no, activations, slopes, no, no):
        trans_a, trans_b, bias, activation, slope, row_sums, tf32 = rest
        for made in {dtype, "float32"}:
            x = cublaslt.Multiplication(
                16, 32, 8, dtype, made, trans_a, trans_b, 32, 32, 32, batch, 512, 512, 512, 1.0, 0.0, bias,
                activation, slope, row_sums, tf32, 16, 16, 16, 16,
            )  # fmt: skip
            if x.is_known:
                cublaslt._Description(lib, x)
                count += 1
    assert count > 300
