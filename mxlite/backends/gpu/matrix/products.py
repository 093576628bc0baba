"""Kernels that consist mainly of matrix products: the products to compute, and the layout of their matrices.

An operator lists for each output the `Term` that computes it; the kernel is the sequence of calls for the
requested outputs, over one shared scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from ....graph.opdef import Signature
from ...base import ChosenKernel, connected, Request
from ..runtime.device import Device, InOrder, Run
from ..runtime.rates import precision_of
from ..runtime.scratch import begin, room
from .gemm import fits, kernel_name, launches, Product, product, row_sums, row_sums_workspace, workspace


class Side(NamedTuple):
    """Matrices (rows, columns) in an array: `pitch` elements from one stored row to the next.

    `turned`: stored as (columns, rows). `batch` (outer, inner) of them, `strides` elements apart, the first
    `offset` elements after the array's begin.
    """

    rows: int
    columns: int
    pitch: int
    turned: bool = False
    batch: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (0, 0)
    offset: int = 0

    @staticmethod
    def dense(rows: int, columns: int, batch: int = 1) -> Side:
        """Contiguous matrices, one after the other."""
        return Side(rows, columns, columns, batch=(1, batch), strides=(0, rows * columns))

    @property
    def other(self) -> Side:
        """The transposed matrices, in the same place."""
        return self._replace(rows=self.columns, columns=self.rows, turned=not self.turned)


class Term(NamedTuple):
    """out = activation(alpha * x @ y + bias + beta * added) * slope(known): arrays by name, and their layout.

    The bias is a row. `added` has the layout of out, which it is unless another is named. `sums`: an output
    that gets the sums of x's rows, if it is wanted; see Product.
    """

    x: str
    y: str
    out: str
    sides: tuple[Side, Side, Side]
    bias: str = ""
    alpha: float = 1.0
    beta: float = 0.0
    activation: str = ""
    slope: str = ""
    known: str = ""
    sums: str = ""
    added: str = ""

    def product(self, dtype: str) -> tuple[Product, bool]:
        """The product to compute, and True if factors are swapped, which transposes the result."""
        x, y, out = self.sides
        bias = "columns" if self.bias else ""
        swapped = out.turned
        assert not (swapped and self.sums), "x is the right factor then, whose rows nobody adds up"
        if swapped:
            x, y, out, bias = y.other, x.other, out.other, "rows" if self.bias else ""
        made = Product(
            out.rows, out.columns, x.columns, dtype, trans_a=x.turned, trans_b=y.turned, lda=x.pitch,
            ldb=y.pitch, ldc=out.pitch, batch=out.batch, strides_a=x.strides, strides_b=y.strides,
            strides_c=out.strides, alpha=self.alpha, beta=self.beta, bias=bias, activation=self.activation,
            slope=self.slope, row_sums=bool(self.sums),
        )  # fmt: skip
        return made, swapped


Before = Callable[[Any, Mapping[str, Any], int], Sequence[Run]]


def products(
    device: Device,
    r: Request,
    terms: Sequence[Term],
    before: Before | None = None,
    scratch: int = 0,
    in_place: Mapping[str, tuple[str, ...]] | None = None,
) -> ChosenKernel | None:
    """The kernel of a request whose outputs are those of `terms`; None for types without a kernel.

    `before(attributes, arrays, address of scratch)`: calls that come first, for work that is no product, in
    `scratch` bytes; arrays by name, None if not wanted. An output may have several terms. `in_place`: see
    ChosenKernel.
    """
    if not r.dtypes or any(d != r.dtypes[0] for d in r.dtypes):
        return None
    dtype = str(r.dtypes[0])
    made = [(t, *t.product(dtype)) for t in terms if r.is_used(t.out)]
    if not all(fits(p) for _, p, _ in made):
        return None
    op, item = r.op, r.dtypes[0].itemsize
    ins = op.signature.needs

    def connect(xp: Any, a: Any, *inputs: Any, work: Any, **outs: Any) -> Run:
        arrays = {**dict(zip(ins, inputs)), **outs}
        at = begin(device, work)
        calls = list(before(a, arrays, at)) if before is not None else []
        for term, p, swapped in made:
            sums_wanted = bool(term.sums) and arrays[term.sums] is not None
            if arrays[term.out] is None:
                if sums_wanted:
                    x, sums = (device.address(arrays[name]) for name in (term.x, term.sums))
                    calls.append(row_sums(device, p, x + term.sides[0].offset * item, sums, at))
                continue
            if term.sums and not sums_wanted:
                p = replace(p, row_sums=False)
            sides = zip((term.x, term.y, term.out), term.sides)
            x, y, out = (device.address(arrays[name]) + side.offset * item for name, side in sides)
            beside = [
                device.address(arrays[name]) if name and arrays[name] is not None else 0
                for name in (term.bias, term.known, term.sums, term.added)
            ]
            if swapped:
                x, y = y, x
            bias, known, sums, added = beside
            calls.append(product(device, p, x, y, out, bias, at, known, sums, added))
        return InOrder(calls)

    nbytes = max([scratch, *(max(workspace(device, p), row_sums_workspace(p)) for _, p, _ in made)])
    count = (2 if before is not None else 0) + sum(launches(device, p) for _, p, _ in made)
    names = dict.fromkeys(kernel_name(device, p) for _, p, _ in made)
    called, precision = ", ".join(names) or "cuda gemm", precision_of(dtype)
    chosen = connected(connect, room(nbytes), called, in_place=in_place, precision=precision, launches=count)
    return replace(chosen, signature=Signature(ins, op.signature.makes, frozenset({"work"})))


def rows_along(shape: Sequence[int], axis: int = -2, turn: bool = False) -> Side:
    """Matrices in an array of at least two axes: rows along `axis`, columns along the last."""
    at = axis % len(shape)
    inner = prod(shape[at + 1 : -1])
    pitch = inner * shape[-1]
    side = Side(
        shape[at], shape[-1], pitch, batch=(prod(shape[:at]), inner), strides=(shape[at] * pitch, shape[-1])
    )
    return side.other if turn else side
