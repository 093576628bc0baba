"""Convolutions with their channels last as products with a column matrix (im2col), some samples at a time.

K. Chellapilla, S. Puri, P. Simard, 2006, "High performance convolutional neural networks for document
processing". It pays where products run on tensor cores and direct kernels do not: for two-byte floats. The
matrix is written once and read once; the data gradient scatters its columns back by gathering, one
thread for each element of data.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

from ....ops.nn.conv_kernels import Geometry
from ..compiler.kinds import wide
from ..compiler.source import assembled, KernelSource, NAMES, typedefs
from ..handwritten.each import launch
from ..matrix import gemm
from ..matrix.gemm import Product
from ..runtime.device import Device, InOrder, pointer, Run
from ..runtime.scratch import padded
from .by_cudnn import DATA, Tail, WEIGHT
from .numbers import fits, MOST, numbers, sides
from .pointwise import finished
from .tiles import blocks, THREADS
from .windowed import added

LIMIT = 64 << 20  # bytes of columns, unless one sample has more


def source(dtype: str) -> KernelSource:
    """The kernels "columns" and "images"."""
    bounds = f'extern "C" __global__ void __launch_bounds__({THREADS})'
    text = (
        f"{bounds} columns(Convolution g, const T *x, T *made, int64 first, int64 rows) {{\n"
        "    columns_of<T>(g, x, made, first, rows);\n}\n"
        f"{bounds} images(Convolution g, const T *made, const T *addend, T *y, int64 samples) {{\n"
        "    images_of<T, C>(g, made, addend, y, samples);\n}\n"
    )
    head = typedefs(T=NAMES[dtype], C=wide(dtype))
    return assembled("types", "index", "convolution", "depthwise", "columns", head, text, contract=True)


@dataclass(frozen=True)
class Columns:
    """One direction; arrays are passed as in Gather and Correlate."""

    device: Device
    kind: str
    g: Geometry
    tail: Tail
    limit: int

    @property
    def name(self) -> str:
        return f"columns and {gemm.kernel_name(self.device, self._product(self._samples(), False))}"

    @property
    def nbytes(self) -> int:
        return self._sums() + self._columns(self._samples()) + self._scratch()

    @property
    def launches(self) -> int:
        step = self._samples()
        each = 1 + gemm.launches(self.device, self._product(step, False))
        return -(-self.g.n // step) * each + (self.kind == WEIGHT)

    def fits(self) -> bool:
        """True if kernels can count rows, and there is a kernel for the product."""
        return fits(self.g) and self._width() <= MOST and gemm.fits(self._product(self._samples(), False))

    def connect(self, first: Any, second: Any, out: Any, work: Any, **tail: Any) -> Run:
        """The call."""
        g, at = self.g, self.device.address
        step, item = self._samples(), g.dtype.itemsize
        sums = at(work)
        matrix = sums + self._sums()
        scratch = matrix + self._columns(step) if self._scratch() else 0
        data, output = g.c * prod(g.size) * item, g.f * prod(g.out) * item
        more, plus = (0 if x is None else at(x) for x in (tail.get("bias"), tail.get("addend")))
        runs: list[Run] = []
        for i in range(0, g.n, step):
            m = min(step, g.n - i)
            p = self._product(m, i > 0)
            if self.kind == DATA:  # first: d_out, second: weight
                a, b, c = at(first) + i * output, at(second), matrix
                runs.append(gemm.product(self.device, p, a, b, c, 0, scratch))
                runs.append(self._images(at(out) + i * data, matrix, plus and plus + i * data, m))
                continue
            runs.append(self._gather(at(first) + i * data, matrix, m))
            if self.kind == WEIGHT:
                a, b, c = at(second) + i * output, matrix, sums
            else:
                a, b, c = matrix, at(second), at(out) + i * output
            addend_at = plus and plus + i * output
            runs.append(gemm.product(self.device, p, a, b, c, more, scratch, added=addend_at))
        if self.kind == WEIGHT:
            runs.append(added(self.device, str(g.dtype), sums, out, 1))
        return InOrder(runs)

    def _gather(self, x: int, matrix: int, samples: int) -> Run:
        n = numbers(self.g, *sides(self.g, True))
        rows = samples * prod(self.g.out)
        values = n, pointer(x), pointer(matrix), ctypes.c_int64(0), ctypes.c_int64(rows)
        return self._launch("columns", rows * self._width(), *values)

    def _images(self, y: int, matrix: int, addend: int, samples: int) -> Run:
        data, out = sides(self.g, True)
        n = numbers(self.g, out, data)
        n.transposed = True
        values = n, pointer(matrix), pointer(addend), pointer(y), ctypes.c_int64(samples)
        return self._launch("images", samples * data.sample, *values)

    def _launch(self, name: str, elements: int, *values: Any) -> Run:
        return launch(self.device, source(str(self.g.dtype)), name, blocks(elements), THREADS, *values)

    def _width(self) -> int:
        return self.g.c * self.g.taps

    def _samples(self) -> int:
        """Number of samples at a time; parts have equal size."""
        g = self.g
        most = max(1, self.limit // max(1, self._width() * prod(g.out) * g.dtype.itemsize))
        parts = -(-g.n // most)
        return -(-g.n // parts) if parts else 1

    def _columns(self, samples: int) -> int:
        return padded(samples * prod(self.g.out) * self._width() * self.g.dtype.itemsize)

    def _sums(self) -> int:
        """Bytes of the weight gradient's accumulator, which has the compute type."""
        return padded(self.g.f * self._width() * self.g.acc.itemsize) if self.kind == WEIGHT else 0

    def _scratch(self) -> int:
        some = {self._samples(), self.g.n % self._samples() or self._samples()}
        return max(
            gemm.workspace(self.device, self._product(m, more)) for m in some for more in (False, True)
        )

    def _product(self, samples: int, more: bool) -> Product:
        g, dtype, rows = self.g, str(self.g.dtype), samples * prod(self.g.out)
        if self.kind == WEIGHT:
            beta = 1.0 if more else 0.0
            return Product(g.f, self._width(), rows, dtype, out=str(g.acc), trans_a=True, beta=beta)
        if self.kind == DATA:
            return Product(rows, self._width(), g.f, dtype)
        return finished(Product(rows, g.f, self._width(), dtype, trans_b=True), self.tail)


def columns(device: Device, kind: str, g: Geometry, last: bool, tail: Tail) -> Columns | None:
    """The direction `kind` with columns, if that pays: for two-byte floats on cuBLASLt."""
    if not last or g.groups != 1 or (kind == DATA and (tail.bias or tail.relu)):
        return None
    if g.dtype.itemsize != 2 or 0 in (g.n, g.c, g.f, *g.out, *g.size):
        return None
    found = Columns(device, kind, g, tail, LIMIT)
    return found if found.fits() and found.name.endswith("cublasLt") else None
