"""Matrix products on the GPU: one way to ask for them, whoever computes them.

A row describes each product it needs (`Product`), asks `workspace` when it is chosen, and `product` for the
call when it is connected:

    p = Product(m, n, k, "float32", trans_b=True, bias="columns")
    connected(connect, workspace(device, p), kernel_name(device, p))
    run = product(device, p, a, b, c, bias, work)   # addresses: device.address(x), plus bytes where needed

Several products of one row that run one after the other may share the same `work`.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import blas_gemm, tiled_gemm
from .device import Device, Run


@dataclass(frozen=True)
class Product:
    """c = activation(alpha * op(a) @ op(b) + beta * c + bias), of matrices whose rows are contiguous.

    op(a) is (m, k) and op(b) (k, n): `a` is stored as (m, k), with `trans_a` as (k, m); `b` as (k, n), with
    `trans_b` as (n, k). `lda`, `ldb`, `ldc`: elements from one stored row to the next; 0: rows without gaps.

    `batch` (outer, inner): so many products at once, `strides_x` elements apart along each of the two; 0 is
    one matrix for all, as weights of a convolution. c must not overlap itself. `summed`: so many products are
    added up into each c, `more_a` and `more_b` elements apart, as the gradient of weights over samples.

    `dtype` is that of a and b, `out` that of c and bias (the same unless given). Sums are made in float32 for
    two-byte floats. Nothing of c is read where beta is 0. `bias`: "columns", (n,), or "rows", (m,); one for
    the whole batch. `activation`: "relu", "gelu" (exact), "gelu_tanh". `tf32`: whether float32 may be
    multiplied in 10 bits; None: as MXLITE_ALLOW_TF32 says. c may not overlap a or b.
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
    """Whether there is a kernel for the product; a row answers None where there is none."""
    return tiled_gemm.fits(p)


def workspace(device: Device, p: Product) -> int:
    """Bytes of scratch that the call of this product needs, aligned to 256 bytes."""
    # Addresses may turn out to be less aligned than strides promise: then our own kernel takes over.
    return max([tiled_gemm.workspace(p), *(plan.choice.workspace for plan in blas_gemm.plans(device, p)[:1])])


def kernel_name(device: Device, p: Product) -> str:
    """What to call it in a plan."""
    return "cublasLt" if blas_gemm.plans(device, p) else "cuda gemm"


def product(device: Device, p: Product, a: int, b: int, c: int, bias: int = 0, work: int = 0) -> Run:
    """The call that computes it for matrices at these addresses.

    `work` is the address of `workspace(device, p)` bytes, 0 where it needs none.
    """
    for plan in blas_gemm.plans(device, p)[:1]:
        run = blas_gemm.connect(device, plan, a, b, c, bias, work, workspace(device, p))
        if run is not None:
            return run
    return tiled_gemm.connect(device, p, a, b, c, bias, work)
