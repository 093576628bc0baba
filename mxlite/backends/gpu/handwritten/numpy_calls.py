"""Tracing of a reference kernel's numpy calls into launches.

A reference kernel whose control flow depends on shapes alone (recurrent layers: loops over steps, products,
elementwise functions) runs once, when it is connected, on *ghosts*: numpy arrays over the device's addresses,
which can be sliced, transposed and broadcast but whose elements are never read. The module `xp` that it gets
records what it would have computed. The result is a list of launches, always the same: it can be captured.

Every call is a launch of its own, products by `gemm`; a critical step has a kernel of its own, inserted
with `Calls.launch`.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

import numpy as np

from ....graph.opdef import DType
from ....ops.rnn.rnn_cells import CELLS
from ..compiler.kinds import wide
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..matrix import column_sum, gemm
from ..runtime.array import Addresses
from ..runtime.device import Device, InOrder, pointer, Run
from .each import spread, THREADS

MOST_AXES = 3

_OPERATIONS = {
    "add": "x + y",
    "subtract": "x - y",
    "multiply": "x * y",
    "maximum": "mx_max(x, y)",
    "minimum": "mx_min(x, y)",
    "fmax": "x != x ? y : y != y ? x : x > y ? x : y",
    "fmin": "x != x ? y : y != y ? x : x < y ? x : y",
    "tanh": "mx_tanh(x)",
    "copy": "x",
    "sign": "x > C(0) ? C(1) : x < C(0) ? C(-1) : x",  # of nan nan
    "greater": "x > y ? C(1) : C(0)",
    "less": "x < y ? C(1) : C(0)",
    "less_equal": "x <= y ? C(1) : C(0)",
    "logical_not": "x != C(0) ? C(0) : C(1)",
}


class Unsupported(Exception):
    """A call that has no launch: then the operator cannot be traced."""


def ghost(device: Device, x: Any) -> Any:
    """`x` as an array whose elements are never read; None stays None."""
    return None if x is None else ghost_at(device.address(x) if x.size else 256, tuple(x.shape), x.dtype)


def ghost_at(address: int, shape: tuple[int, ...], dtype: DType) -> Any:
    """A ghost at an address."""
    flat = np.asarray(Addresses(address, (prod(shape) * dtype.itemsize,), 1)).view(np.uint8)
    return flat.view(dtype).reshape(shape)


@functools.lru_cache(maxsize=64)
def source(out: str, x: str, y: str) -> KernelSource:
    """The kernel "apply", out = operation(x, y) where `where` is true, for elements of these types."""
    parameters = [f"{NAMES[out]} *out", f"const {NAMES[x]} *first", f"const {NAMES[y]} *second"]
    parameters += ["const bool *where", "double number0", "double number1", "int operation"]
    parameters += [f"int64 n{axis}" for axis in range(MOST_AXES)]
    parameters += [f"int64 {name}{axis}" for name in ("o", "a", "b", "w") for axis in range(MOST_AXES)]

    def at(name: str) -> str:
        return " + ".join(f"i{axis} * {name}{axis}" for axis in range(MOST_AXES))

    cases = [f"        case {i}: z = {text}; break;" for i, text in enumerate(_OPERATIONS.values())]
    body = [
        f"typedef {wide(out, x, y)} C;",
        "MX_EACH(at, n0 * n1 * n2) {",
        "    int64 i2 = at % n2, i1 = at / n2 % n1, i0 = at / n2 / n1;",
        f"    if (where && !where[{at('w')}]) continue;",
        f"    C x = first ? to<C>(first[{at('a')}]) : (C)number0;",
        f"    C y = second ? to<C>(second[{at('b')}]) : (C)number1, z = 0;",
        "    switch (operation) {",
        *cases,
        "    }",
        f"    out[{at('o')}] = from<{NAMES[out]}>(z);",
        "}",
    ]
    return KernelSource(shared("types", "math", "index") + kernel("apply", parameters, body, THREADS))


class Calls:
    """Stand-in for numpy while a reference kernel is traced; `runs` are the recorded launches.

    Without `launches` only `workspace` is computed, the scratch in bytes that products and sums need,
    which lies at `work`, and `count`, the number of kernels.
    """

    def __init__(self, device: Device, work: int = 0, launches: bool = True) -> None:
        self.device, self.work, self.launches = device, work, launches
        self.workspace = self.count = 0
        self.cells: Any = CELLS  # see ops/rnn/rnn_cells.py
        self.runs: list[Run] = []
        for name in _OPERATIONS:
            if name not in ("add", "copy"):
                setattr(self, name, functools.partial(self._apply, name))
        self.add = _Add(self)

    def run(self) -> Run:
        """All recorded launches as one call."""
        return InOrder(self.runs)

    def copyto(self, target: Any, value: Any, casting: str = "", where: Any = None) -> None:
        """Counterpart of numpy.copyto."""
        self._apply("copy", value, out=target, where=where)

    def launch(self, text: KernelSource, name: str, elements: int, values: list[Any]) -> None:
        """Record a kernel with a thread for each of so many elements."""
        self.count += bool(elements)
        if not self.launches or not elements:
            return
        self.runs.append(spread(self.device, text, name, elements, *values))

    def _apply(
        self, name: str, x: Any, y: Any = None, *, out: Any, where: Any = None, casting: str = ""
    ) -> Any:
        operands = [x, y, where]
        views = [np.broadcast_to(v, out.shape) if isinstance(v, np.ndarray) else None for v in operands]
        if out.ndim > MOST_AXES:
            raise Unsupported(f"{name} of {out.ndim} axes")
        kinds = [out.dtype] + [out.dtype if v is None else v.dtype for v in views[:2]]
        if any(k.name not in NAMES for k in kinds):
            raise Unsupported(f"{name} of {kinds}")
        if not self.launches:
            self.count += bool(out.size)
            return out
        numbers = [0.0 if v is None or isinstance(v, np.ndarray) else float(v) for v in operands[:2]]
        values: list[Any] = [pointer(0 if v is None else v.ctypes.data) for v in (out, *views)]
        values += [*map(ctypes.c_double, numbers), ctypes.c_int(list(_OPERATIONS).index(name))]
        lengths = (1,) * (MOST_AXES - out.ndim) + out.shape
        values += [ctypes.c_int64(n) for n in lengths]
        for v in (out, *views):
            steps = () if v is None else tuple(s // v.itemsize for s in v.strides)
            values += [ctypes.c_int64(s) for s in (0,) * (MOST_AXES - len(steps)) + steps]
        self.launch(source(*(k.name for k in kinds)), "apply", out.size, values)
        return out

    def matmul(self, a: Any, b: Any, out: Any) -> Any:
        """The product of two matrices, each of which may be row-major or column-major."""
        (m, k), n = a.shape, b.shape[1]
        if not m or not n:
            return out
        if not k:
            return self._apply("copy", 0.0, out=out)
        trans_a, lda = _lie(a)
        trans_b, ldb = _lie(b)
        trans_c, ldc = _lie(out)
        if trans_c or a.dtype != b.dtype or b.dtype != out.dtype:
            raise Unsupported("a product into columns")
        p = gemm.Product(m, n, k, a.dtype.name, trans_a=trans_a, trans_b=trans_b, lda=lda, ldb=ldb, ldc=ldc)
        if not gemm.fits(p):
            raise Unsupported(f"{p}")
        self.workspace = max(self.workspace, gemm.workspace(self.device, p))
        self.count += gemm.launches(self.device, p)
        if self.launches:
            where = [x.ctypes.data for x in (a, b, out)]
            self.runs.append(gemm.product(self.device, p, where[0], where[1], where[2], work=self.work))
        return out

    def column_sum(self, x: Any, out: Any) -> Any:
        """out[j] = sum of x[:, j]."""
        rows, columns = x.shape
        if not rows or not columns:
            return self._apply("copy", 0.0, out=out)
        kind = x.dtype.name
        if _lie(x) == (False, columns) and column_sum.fits(rows, columns, kind):
            self.workspace = max(self.workspace, column_sum.workspace(rows, columns, kind))
            self.count += column_sum.launches(rows, columns)
            if self.launches:
                where = x.ctypes.data, rows, columns, kind, out.ctypes.data, self.work
                self.runs.append(column_sum.column_sum(self.device, *where))
            return out
        values: list[Any] = [pointer(x.ctypes.data), pointer(out.ctypes.data)]
        values += [ctypes.c_int64(v) for v in (rows, columns, x.strides[0] // x.itemsize)]
        self.launch(_strided_sum(kind), "strided_column_sum", columns, values)
        return out


class Drops:
    """The random stream of a traced kernel: only its masks are recorded, as launches.

    `state` is the address of (seed, step) in device memory.
    """

    def __init__(self, calls: Calls, state: int, stream: int) -> None:
        self._calls, self._state, self._stream = calls, state, stream

    def drop(self, x: Any, start: int, p: float, scale: float) -> None:
        """x *= (number start + i of the stream >= p) * scale, element by element."""
        values: list[Any] = [pointer(x.ctypes.data), ctypes.c_int64(x.size), pointer(self._state)]
        values += [ctypes.c_uint32(self._stream), ctypes.c_int64(start)]
        values += [ctypes.c_float(p), ctypes.c_double(scale)]
        self._calls.launch(_masking(x.dtype.name), "mask", x.size, values)


@functools.cache
def _masking(kind: str) -> KernelSource:
    """The kernel "mask". The numbers are those of RandomStream.fill_uniform in float32."""
    c = NAMES[kind]
    parameters = [f"{c} *x", "int64 size", "const uint64 *state", "uint32 stream", "int64 start", "float p"]
    body = [
        "MX_EACH(i, size) {",
        "    int64 at = start + i;",
        "    Four bits = drawn(state, stream, at >> 2);",
        "    uint32 low = at & 1 ? bits.at[1] : bits.at[0], high = at & 1 ? bits.at[3] : bits.at[2];",
        "    uint32 word = at & 2 ? high : low;",
        f"    x[i] = x[i] * ({c})(uniform24(word) >= p ? 1 : 0) * ({c})scale;",
        "}",
    ]
    text = kernel("mask", [*parameters, "double scale"], body, THREADS)
    return KernelSource(shared("types", "index", "philox") + text)


class _Add:
    """Counterpart of numpy.add, which is called and has a reduction."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def __call__(self, *args: Any, **how: Any) -> Any:
        return self.calls._apply("add", *args, **how)

    def reduce(self, x: Any, axis: int, out: Any) -> Any:
        """The sum over the first of two axes."""
        if x.ndim != 2 or axis != 0:
            raise Unsupported("a sum over other axes")
        return self.calls.column_sum(x, out)


@functools.lru_cache(maxsize=4)
def _strided_sum(kind: str) -> KernelSource:
    """A kernel in which a thread adds up a column, from the first row to the last."""
    t = NAMES[kind]
    parameters = [f"const {t} *x", f"{t} *out", "int64 rows", "int64 columns", "int64 pitch"]
    body = [
        "MX_EACH(j, columns) {",
        f"    {t} sum = 0;",
        "    for (int64 i = 0; i < rows; ++i) sum += x[i * pitch + j];",
        "    out[j] = sum;",
        "}",
    ]
    return KernelSource(shared("types", "index") + kernel("strided_column_sum", parameters, body, THREADS))


def _lie(x: Any) -> tuple[bool, int]:
    """(True if a matrix is column-major, elements from one stored row to the next)."""
    (rows, columns), (down, right) = x.shape, (s // x.itemsize for s in x.strides)
    if columns == 1 or right == 1:
        return False, down if rows > 1 else columns
    if rows == 1 or down == 1:
        return True, right if columns > 1 else rows
    raise Unsupported("a matrix with gaps")
