"""Matrix products on the GPU: one interface to all implementations.

A kernel row describes each product it needs (`Product`), calls `workspace` when it is chosen, and `product`
for the call when it is connected:

    p = Product(m, n, k, "float32", trans_b=True, bias="columns")
    connected(connect, workspace(device, p), kernel_name(device, p))
    run = product(device, p, a, b, c, bias, work)   # addresses: device.address(x), plus bytes where needed

Several products of one row that run one after the other may share the same `work`.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ....core import config
from ....core.errors import OutOfMemoryError
from ..runtime import autotune
from ..runtime.device import Device, InOrder, Run
from ..runtime.memory import is_capturing
from ..vendor.cublaslt import CublasError
from . import blas_gemm, column_sum, tiled_gemm
from .blas_gemm import Addresses, GemmPlan

_log = logging.getLogger("mxlite")

Pair = tuple[int, int]


@dataclass(frozen=True)
class Product:
    """c = activation(alpha * op(a) @ op(b) + beta * added + bias) * slope(known), rows without gaps.

    op(a) is (m, k) and op(b) (k, n): `a` is stored as (m, k), with `trans_a` as (k, m); `b` as (k, n), with
    `trans_b` as (n, k). `lda`, `ldb`, `ldc`: elements from one stored row to the next; 0: rows without gaps.

    `batch` (outer, inner): number of products, `strides_x` elements apart along each of the two; 0 is
    one matrix for all, such as weights of a convolution. c must not overlap itself. `summed`: number of
    products added up into each c, `more_a` and `more_b` elements apart, as in the gradient of weights over
    samples.

    `dtype` is that of a and b, `out` that of c and bias (the same unless given). Sums are computed in float32
    for two-byte floats. `added` has the layout of c, and is c unless a call passes another; it is not read if
    beta is 0. `bias`: "columns", (n,), or "rows", (m,); one for the whole batch. `activation`: "relu", "gelu"
    (exact), "gelu_tanh". `slope`: the activation whose derivative multiplies the result; `known` has the
    layout of c and holds what the derivative is taken from: the rectifier's output, or the others' input.
    `row_sums`: the sums of the rows of op(a) are computed too, (m,) of the type of c, such as the gradient of
    a bias beside that of a weight; see `sums_rows`. `tf32`: True if float32 may be multiplied in 10 bits;
    None: as MXLITE_ALLOW_TF32 says. c may not overlap what is read, unless it is `added`.
    """

    m: int
    n: int
    k: int
    dtype: str
    out: str = ""
    trans_a: bool = False
    trans_b: bool = False
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    batch: tuple[int, int] = (1, 1)
    strides_a: tuple[int, int] = (0, 0)
    strides_b: tuple[int, int] = (0, 0)
    strides_c: tuple[int, int] = (0, 0)
    summed: int = 1
    more_a: int = 0
    more_b: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    bias: str = ""
    activation: str = ""
    slope: str = ""
    row_sums: bool = False
    tf32: bool | None = None

    @property
    def made(self) -> str:
        """The dtype of c."""
        return self.out or self.dtype

    @property
    def pitch_a(self) -> int:
        return self.lda or (self.m if self.trans_a else self.k)

    @property
    def pitch_b(self) -> int:
        return self.ldb or (self.k if self.trans_b else self.n)

    @property
    def pitch_c(self) -> int:
        return self.ldc or self.n

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.summed * self.batch[0] * self.batch[1]


def fits(p: Product) -> bool:
    """True if there is a kernel for the product; a kernel row answers None if there is none."""
    return tiled_gemm.fits(p) and (not p.row_sums or sums_rows(p))


def sums_rows(p: Product) -> bool:
    """True if this product can also yield the sums of the rows of op(a): `a` is one transposed matrix."""
    single = p.batch == (1, 1) and p.summed == 1
    dense = p.trans_a and p.pitch_a == p.m and p.made == p.dtype
    return single and dense and column_sum.fits(p.k, p.m, p.dtype)


def workspace(device: Device, p: Product) -> int:
    """Bytes of scratch that the call of this product needs, aligned to 256 bytes."""
    plan = _chosen(device, p)
    # Addresses may turn out to be less aligned than strides promise: then our own kernel takes over.
    return max(_own_workspace(p), plan.choice.workspace if plan else 0)


def launches(device: Device, p: Product) -> int:
    """Number of kernels of the call of this product."""
    plan = _chosen(device, p)
    sums = column_sum.launches(p.k, p.m) if p.row_sums else 0
    if plan is None:
        return tiled_gemm.launches(p) + sums
    return plan.calls + (plan.finish is not None) + (0 if plan.form.row_sums else sums)


def kernel_name(device: Device, p: Product) -> str:
    """Name of the kernel in a plan."""
    return "cuda gemm" if _chosen(device, p) is None else "cublasLt"


def product(
    device: Device,
    p: Product,
    a: int,
    b: int,
    c: int,
    bias: int = 0,
    work: int = 0,
    known: int = 0,
    sums: int = 0,
    added: int = 0,
) -> Run:
    """The call that computes it for matrices at these addresses.

    `work` is the address of `workspace(device, p)` bytes, 0 if it needs none; `known` that of the slope's
    input, `sums` that of the `row_sums`, `added` that of the operand of beta, 0 for c.
    """
    where = Addresses(a, b, c, bias, known, sums, added)
    plan = _chosen(device, p)
    if plan is not None:
        run = _by_library(device, p, plan, where, work, workspace(device, p))
        if run is not None:
            return _OrOwn(run, f"{p}", lambda: _own(device, p, where, work))
    return _own(device, p, where, work)


class _OrOwn:
    """cuBLASLt's call, replaced by our own kernel after the library refuses it once: its heuristic does not
    promise that what it offers can be run (cublasLt.h, of cublasLtMatmulAlgoCheck).

    If several calls compute a product they have one form, so that the first is refused, before any has
    changed what is added to.
    """

    def __init__(self, run: Run, name: str, own: Callable[[], Run]) -> None:
        self.run, self.name, self.own = run, name, own

    def __call__(self) -> None:
        try:
            self.run()
        except CublasError as error:
            if is_capturing():
                raise
            _log.warning("%s is made by mxlite's own kernel: %s", self.name, error)
            self.run = self.own()
            self.run()


def _own_workspace(p: Product) -> int:
    return max(tiled_gemm.workspace(p), row_sums_workspace(p))


def _own(device: Device, p: Product, where: Addresses, work: int) -> Run:
    """The whole product by our own kernels."""
    run = tiled_gemm.connect(device, p, where, work)
    return InOrder([run, row_sums(device, p, where.a, where.sums, work)]) if p.row_sums else run


def row_sums(device: Device, p: Product, a: int, sums: int, work: int) -> Run:
    """The call that computes the `row_sums` of `p` alone, in `row_sums_workspace(p)` bytes at `work`."""
    return column_sum.column_sum(device, a, p.k, p.m, p.dtype, sums, work)


def row_sums_workspace(p: Product) -> int:
    return column_sum.workspace(p.k, p.m, p.dtype) if p.row_sums else 0


def _by_library(
    device: Any, p: Product, plan: GemmPlan, where: Addresses, work: int, room: int
) -> Run | None:
    """cuBLASLt's call, followed by the epilogue it lacks; None if it cannot take these addresses."""
    run = blas_gemm.connect(device, plan, where, work, room)
    if run is None or not p.row_sums or plan.form.row_sums:
        return run
    return InOrder([run, row_sums(device, p, where.a, where.sums, work)])


def _chosen(device: Device, p: Product) -> GemmPlan | None:
    """cuBLASLt's plan for it; None: our own kernel."""
    tf32 = config.allow_tf32() if p.tf32 is None else p.tf32
    key: Any = device
    return _choose(key, replace(p, tf32=tf32), config.gpu_tuning())


@functools.lru_cache(maxsize=4096)
def _choose(device: Any, p: Product, tunes: bool) -> GemmPlan | None:
    plans = blas_gemm.plans(device, p)
    if not plans:
        return None
    if not tunes or not hasattr(device, "time"):
        return plans[0]
    ways: list[GemmPlan | None] = [*plans, *([None] if tiled_gemm.fits(p) else [])]
    names = ["ours" if w is None else _name(p, w) for w in ways]
    facts = (device.name, device.architecture, f"cuBLASLt {device.blas.version}")
    try:
        stage = _Stage(device, p, max(_own_workspace(p), *(w.choice.workspace for w in plans)))
    except OutOfMemoryError:
        return plans[0]
    return ways[autotune.fastest(repr((*facts, p)), names, lambda i: stage.seconds(ways[i]))]


def _name(p: Product, plan: GemmPlan) -> str:
    """Name of a plan among those for one product."""
    apart = "+sums" if p.row_sums and not plan.form.row_sums else ""
    return hashlib.sha256(plan.choice.algorithm).hexdigest()[:16] + apart


class _Stage:
    """Arrays to measure a product with, allocated at the first measurement."""

    MOST = 1 << 30  # bytes

    def __init__(self, device: Any, p: Product, scratch: int) -> None:
        """Raises OutOfMemoryError if it would take too much."""
        self.device, self.p, self.scratch = device, p, scratch
        item, made = tiled_gemm.SIZE[p.dtype], tiled_gemm.SIZE[p.made]
        a = (p.k, p.m) if p.trans_a else (p.m, p.k)
        b = (p.n, p.k) if p.trans_b else (p.k, p.n)
        self.nbytes = (
            _extent(a, p.pitch_a, p.strides_a, p.batch, p.more_a, p.summed) * item,
            _extent(b, p.pitch_b, p.strides_b, p.batch, p.more_b, p.summed) * item,
            _extent((p.m, p.n), p.pitch_c, p.strides_c, p.batch, 0, 1) * made,
            max(p.m, p.n) * made,
            p.m * made if p.row_sums else 0,
            scratch,
        )
        if sum(self.nbytes) > self.MOST:
            raise OutOfMemoryError(f"{sum(self.nbytes)} bytes to measure a product with.")
        self.arrays: list[Any] = []

    def seconds(self, way: GemmPlan | None) -> float:
        """Seconds of one run; infinite if it cannot be run."""
        if not self.arrays:
            self.arrays = [self.device.empty(n) for n in self.nbytes]
        a, b, c, bias, sums, work = (self.device.address(x) for x in self.arrays)
        where = Addresses(a, b, c, bias, c, sums)  # `known` is read where the result is: as many bytes
        run: Run | None
        if way is None:
            run = _own(self.device, self.p, where, work)
        else:
            run = _by_library(self.device, self.p, way, where, work, self.scratch)
        return float("inf") if run is None else float(self.device.time(run))


def _extent(shape: Pair, pitch: int, strides: Pair, batch: Pair, more: int, summed: int) -> int:
    """Elements from the first to the last of all matrices."""
    (rows, columns), (outer, inner) = shape, batch
    steps = ((rows, pitch), (outer, strides[0]), (inner, strides[1]), (summed, more))
    return columns + sum((n - 1) * s for n, s in steps)
