"""cuBLASLt by ctypes: the library, its descriptors, and calls of `cublasLtMatmul` on the current stream.

Unlike the functions of cuBLAS it takes the stream and the scratch with every call, so that a call may be
captured and the plan owns the scratch. The heuristic is queried when a kernel is chosen, never in a capture.

cuBLASLt's matrices are column-major: a matrix that we store row-major as (rows, columns) with a pitch is, to
it, the matrix (columns, rows) with that leading dimension. So c = op(a) @ op(b) by rows is computed
transposed,

    c.T (n, m) = op(b).T @ op(a).T,   "A" is b and "B" is a, each transposed if and only if ours is,

and a bias for each of our columns is one for each row of its result, which is what its epilogues add.

Only deterministic algorithms are requested: partial sums of a split sum are kept in the compute
type and added up in a step of their own.

Source: NVIDIA, "cuBLAS", CUDA 13.0, "Using the cuBLASLt API", and cublasLt.h.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import Any

from ....core import config
from ....core.errors import DeviceError, MXLiteError
from ....core.process import forks
from ....core.record import record
from .libraries import candidates

NAMES = ("libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", "cublasLt64_13.dll", "cublasLt64_12.dll")
FOLDERS = ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu13/bin/x86_64", "nvidia/cublas/bin")

NUMBERS = {
    "CUDA_R_32F": 0,
    "CUDA_R_64F": 1,
    "CUDA_R_16F": 2,
    "CUDA_R_16BF": 14,
    "CUBLAS_COMPUTE_32F": 68,
    "CUBLAS_COMPUTE_64F": 70,
    "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
    "CUBLAS_OP_N": 0,
    "CUBLAS_OP_T": 1,
    "CUBLASLT_MATMUL_DESC_TRANSA": 3,
    "CUBLASLT_MATMUL_DESC_TRANSB": 4,
    "CUBLASLT_MATMUL_DESC_EPILOGUE": 7,
    "CUBLASLT_MATMUL_DESC_BIAS_POINTER": 8,
    "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER": 11,
    "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD": 12,
    "CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE": 13,
    "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE": 26,
    "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT": 5,
    "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET": 6,
    "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES": 1,
    "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK": 3,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES": 5,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES": 6,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES": 7,
    "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES": 8,
    "CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE": 2,
    "CUBLASLT_EPILOGUE_DEFAULT": 1,
    "CUBLASLT_EPILOGUE_RELU": 2,
    "CUBLASLT_EPILOGUE_BIAS": 4,
    "CUBLASLT_EPILOGUE_GELU": 32,
    "CUBLASLT_EPILOGUE_DGELU": 192,
    "CUBLASLT_EPILOGUE_BGRADB": 512,
    "CUBLAS_STATUS_SUCCESS": 0,
    "CUBLAS_STATUS_NOT_SUPPORTED": 15,
}
"""Constants of the headers; tests/backends/gpu/runtime/test_cublaslt.py compares them with an installed
cublasLt.h."""

TYPES = {"float32": "CUDA_R_32F", "float64": "CUDA_R_64F", "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF"}
SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
EPILOGUES = {
    "": "CUBLASLT_EPILOGUE_DEFAULT",
    "relu": "CUBLASLT_EPILOGUE_RELU",
    "gelu_tanh": "CUBLASLT_EPILOGUE_GELU",
}
SLOPES = {"gelu_tanh": "CUBLASLT_EPILOGUE_DGELU"}
"""Slopes taken from the activation's input. The rectifier's needs bits that only its own epilogue writes."""
EIGHT = 8  # elements that must divide the row length of the array that a slope is taken from


class Algorithm(ctypes.Structure):
    """cublasLtMatmulAlgo_t: eight words that only the library reads."""

    _fields_ = (("data", ctypes.c_uint64 * 8),)


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasError(DeviceError):
    """Failure of a function of cuBLASLt; the message has its name and the library's words."""


@record
class Multiplication:
    """One call: c = activation(alpha * op(a) @ op(b) + beta * added + bias) * slope; see gemm.Product.

    `align_*`: bytes to which every matrix of the batch is aligned; that of `c` also covers the array that the
    slope is taken from. `bias`: one for each column. `row_sums`: the sums of the rows of op(a) are computed
    too.
    """

    m: int
    n: int
    k: int
    dtype: str
    made: str
    trans_a: bool
    trans_b: bool
    lda: int
    ldb: int
    ldc: int
    count: int
    stride_a: int
    stride_b: int
    stride_c: int
    alpha: float
    beta: float
    bias: bool
    activation: str
    slope: str
    row_sums: bool
    tf32: bool
    align_a: int
    align_b: int
    align_c: int
    align_bias: int

    @property
    def is_known(self) -> bool:
        """True if cuBLASLt has types and an epilogue for it."""
        return (
            self.dtype in TYPES
            and self.made in (self.dtype, "float32")
            and (self.dtype != "float64" or self.made == "float64")
            and self.activation in EPILOGUES
            and (not self.slope or (self.slope in SLOPES and self.ldc % EIGHT == 0))
            and bool(self.bias or self.activation) + bool(self.slope) + self.row_sums <= 1
            and (not self.row_sums or self.count == 1)
            and min(self.m, self.n, self.k, self.count) > 0
            and max(self.m, self.n, self.k, self.count) < 2**31
        )

    @property
    def has_vector(self) -> bool:
        """True if it has a vector operand beside the matrices: a bias, or sums."""
        return self.bias or self.row_sums

    @property
    def epilogue(self) -> int:
        """Epilogue constant of the header: activations and biases are bits; without either, the default."""
        if self.slope:
            return NUMBERS[SLOPES[self.slope]]
        if self.row_sums:
            return NUMBERS["CUBLASLT_EPILOGUE_BGRADB"]
        bits = NUMBERS[EPILOGUES[self.activation]]
        if not self.bias:
            return bits
        return (bits if self.activation else 0) | NUMBERS["CUBLASLT_EPILOGUE_BIAS"]


@record
class Choice:
    """An algorithm for a multiplication and the scratch it needs."""

    algorithm: bytes
    workspace: int


class Library:
    """cuBLASLt, loaded from one file. `handle()` creates its context on the current GPU."""

    def __init__(self, path: str) -> None:
        """Raises OSError if the file is no library, AttributeError if it lacks a function."""
        self.path = path
        self.lib = lib = ctypes.CDLL(path)
        p, i, u, s, q = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int64
        for name, arguments in {
            "cublasLtCreate": [p],
            "cublasLtMatmulDescCreate": [p, i, i],
            "cublasLtMatmulDescDestroy": [p],
            "cublasLtMatmulDescSetAttribute": [p, i, p, s],
            "cublasLtMatrixLayoutCreate": [p, i, u, u, q],
            "cublasLtMatrixLayoutDestroy": [p],
            "cublasLtMatrixLayoutSetAttribute": [p, i, p, s],
            "cublasLtMatmulPreferenceCreate": [p],
            "cublasLtMatmulPreferenceDestroy": [p],
            "cublasLtMatmulPreferenceSetAttribute": [p, i, p, s],
            "cublasLtMatmulAlgoGetHeuristic": [p, p, p, p, p, p, p, i, p, p],
            "cublasLtMatmul": [p] * 14 + [s, p],
        }.items():
            function = getattr(lib, name)
            function.argtypes, function.restype = arguments, i
        lib.cublasLtGetVersion.argtypes, lib.cublasLtGetVersion.restype = [], s
        lib.cublasLtGetStatusString.argtypes, lib.cublasLtGetStatusString.restype = [i], ctypes.c_char_p
        self._handles: dict[int, int] = {}
        self._lock = forks.lock()

    @property
    def version(self) -> int:
        """Version as an integer, such as 130002 for 13.0.2."""
        return int(self.lib.cublasLtGetVersion())

    def handle(self, device: int) -> int:
        """The context for GPU number `device`, which is current. It lives as long as the process."""
        with self._lock:
            if device not in self._handles:
                self._handles[device] = self.create("cublasLtCreate")
            return self._handles[device]

    def create(self, name: str, *arguments: Any) -> int:
        """The object that a creating function returns."""
        made = ctypes.c_void_p()
        self.check(getattr(self.lib, name)(ctypes.byref(made), *arguments), name)
        assert made.value is not None
        return made.value

    def set(self, kind: str, object: int, attribute: str, value: Any) -> None:
        """Set an attribute, a ctypes number, of a descriptor ("MatmulDesc"), layout or preference."""
        name = f"cublasLt{kind}SetAttribute"
        status = getattr(self.lib, name)(
            object, NUMBERS[attribute], ctypes.byref(value), ctypes.sizeof(value)
        )
        self.check(status, f"{name}({attribute})")

    def check(self, status: int, call: str) -> None:
        if status:
            words = (self.lib.cublasLtGetStatusString(status) or b"").decode(errors="replace")
            raise CublasError(f"{call} failed with status {status}: {words}.")


@functools.cache
def library() -> Library | None:
    """The library of MXLITE_CUBLASLT_LIB, of this Python's wheels, or of the system, else None.

    Raises MXLiteError if the requested file is not such a library.
    """
    asked = config.cublaslt_lib()
    if asked:
        try:
            return Library(asked)
        except (OSError, AttributeError) as error:
            raise MXLiteError(f"MXLITE_CUBLASLT_LIB {asked!r} is no cuBLASLt: {error}.") from None
    for path in candidates(FOLDERS, NAMES):
        try:
            return Library(path)
        except (OSError, AttributeError):
            continue
    return None


class _Description:
    """The descriptor of an operation and the layouts of its matrices, destroyed with this object."""

    def __init__(self, lib: Library, x: Multiplication) -> None:
        made: list[tuple[str, int]] = []
        weakref.finalize(self, _destroy, lib, made)
        kind, out = NUMBERS[TYPES[x.dtype]], NUMBERS[TYPES[x.made]]
        if x.dtype == "float64":
            compute, scale = "CUBLAS_COMPUTE_64F", "CUDA_R_64F"
        else:
            fast = x.tf32 and x.dtype == "float32"
            compute = "CUBLAS_COMPUTE_32F_FAST_TF32" if fast else "CUBLAS_COMPUTE_32F"
            scale = "CUDA_R_32F"
        self.lib = lib
        self.operation = lib.create("cublasLtMatmulDescCreate", NUMBERS[compute], NUMBERS[scale])
        made.append(("MatmulDesc", self.operation))
        turns = ("CUBLAS_OP_N", "CUBLAS_OP_T")
        self._set("TRANSA", ctypes.c_int32(NUMBERS[turns[x.trans_b]]))
        self._set("TRANSB", ctypes.c_int32(NUMBERS[turns[x.trans_a]]))
        self._set("EPILOGUE", ctypes.c_uint32(x.epilogue))
        if x.has_vector:
            self._set("BIAS_DATA_TYPE", ctypes.c_int32(out))
            # The heuristic reads only its alignment.
            self.set_vector(x.align_bias)
        if x.slope:
            self._set("EPILOGUE_AUX_LD", ctypes.c_int64(x.ldc))
            if x.count > 1:
                self._set("EPILOGUE_AUX_BATCH_STRIDE", ctypes.c_int64(x.stride_c))
            self.set_known(x.align_c)

        def layout(kind: int, rows: int, columns: int, pitch: int, stride: int) -> int:
            one = lib.create("cublasLtMatrixLayoutCreate", kind, columns, rows, pitch)
            made.append(("MatrixLayout", one))
            if x.count > 1:
                lib.set("MatrixLayout", one, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT", ctypes.c_int32(x.count))
                offset = ctypes.c_int64(stride)
                lib.set("MatrixLayout", one, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", offset)
            return one

        a = (x.k, x.m) if x.trans_a else (x.m, x.k)
        b = (x.n, x.k) if x.trans_b else (x.k, x.n)
        self.a = layout(kind, *a, x.lda, x.stride_a)
        self.b = layout(kind, *b, x.ldb, x.stride_b)
        self.c = layout(out, x.m, x.n, x.ldc, x.stride_c)

    def _set(self, name: str, value: Any) -> None:
        self.lib.set("MatmulDesc", self.operation, f"CUBLASLT_MATMUL_DESC_{name}", value)

    def set_vector(self, address: int) -> None:
        self._set("BIAS_POINTER", ctypes.c_void_p(address))

    def set_known(self, address: int) -> None:
        self._set("EPILOGUE_AUX_POINTER", ctypes.c_void_p(address))


def _destroy(lib: Library, made: Sequence[tuple[str, int]]) -> None:
    for kind, one in made:
        getattr(lib.lib, f"cublasLt{kind}Destroy")(one)


def choices(lib: Library, handle: int, x: Multiplication, workspace: int, count: int = 8) -> list[Choice]:
    """At most `count` algorithms within `workspace` bytes, the one that should be fastest first."""
    if not x.is_known:
        return []
    description = _Description(lib, x)
    preference = lib.create("cublasLtMatmulPreferenceCreate")
    try:
        for name, value in {
            "MAX_WORKSPACE_BYTES": ctypes.c_uint64(workspace),
            "REDUCTION_SCHEME_MASK": ctypes.c_uint32(NUMBERS["CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE"]),
            "MIN_ALIGNMENT_A_BYTES": ctypes.c_uint32(x.align_b),
            "MIN_ALIGNMENT_B_BYTES": ctypes.c_uint32(x.align_a),
            "MIN_ALIGNMENT_C_BYTES": ctypes.c_uint32(x.align_c),
            "MIN_ALIGNMENT_D_BYTES": ctypes.c_uint32(x.align_c),
        }.items():
            lib.set("MatmulPreference", preference, f"CUBLASLT_MATMUL_PREF_{name}", value)
        found, returned = (Heuristic * count)(), ctypes.c_int()
        status = lib.lib.cublasLtMatmulAlgoGetHeuristic(
            handle, description.operation, description.b, description.a, description.c, description.c,
            preference, count, found, ctypes.byref(returned),
        )  # fmt: skip
    finally:
        lib.lib.cublasLtMatmulPreferenceDestroy(preference)
    if status == NUMBERS["CUBLAS_STATUS_NOT_SUPPORTED"]:
        return []
    lib.check(status, "cublasLtMatmulAlgoGetHeuristic")
    good = [h for h in found[: returned.value] if h.state == 0 and h.workspace <= workspace]
    return [Choice(bytes(h.algorithm), h.workspace) for h in good]


class CublasLtCall:
    """A run of one multiplication on the device's current stream: a single call of cublasLtMatmul."""

    def __init__(
        self,
        device: Any,
        lib: Library,
        handle: int,
        x: Multiplication,
        choice: Choice,
        addresses: tuple[int, int, int, int, int, int],
        work: int,
    ) -> None:
        """addresses: of a, b, c, bias or sums, the slope's input, and the operand of beta.

        work: `choice.workspace` bytes, aligned to 256.
        """
        a, b, c, vector, known, added = addresses
        self.device, self.lib, self.description = device, lib, _Description(lib, x)
        if x.has_vector:
            self.description.set_vector(vector)
        if x.slope:
            self.description.set_known(known)
        number = ctypes.c_double if x.dtype == "float64" else ctypes.c_float
        self.alpha, self.beta = number(x.alpha), number(x.beta)
        self.algorithm = Algorithm.from_buffer_copy(choice.algorithm)
        d = self.description
        self.arguments = (
            handle, d.operation, ctypes.addressof(self.alpha), b, d.b, a, d.a, ctypes.addressof(self.beta),
            added, d.c, c, d.c, ctypes.addressof(self.algorithm), work, choice.workspace,
        )  # fmt: skip
        self.function = lib.lib.cublasLtMatmul

    def __call__(self) -> None:
        status = self.function(*self.arguments, self.device.stream)
        if status:
            self.lib.check(status, "cublasLtMatmul")
