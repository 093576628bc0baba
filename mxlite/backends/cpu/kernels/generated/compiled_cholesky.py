"""Cholesky factors of many small matrices and their gradients, as generated code."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....core.errors import MXLiteError
from .....ops import find_op
from ....base import ChosenKernel, connected, Request
from ...compiled import call, threads_for, usable
from ...compiled.matrix.cholesky import factor_code, gradient_code, MOST, scratch_nbytes
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

_FLAG_NBYTES = 64


def _fits(r: Request) -> bool:
    shape = r.inputs[0]
    return usable() and r.dtype.name == "float32" and 0 < shape[-1] <= MOST and prod(shape) > 0


def _row(r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    shape = r.inputs[0]
    n, count = shape[-1], prod(shape[:-2])
    module, nbytes = factor_code(r.attrs.lower), scratch_nbytes(n)
    threads = threads_for(prod(shape) * n)

    def connect(xp: Any, a: Any, A: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        failed = work[:8].view("int64")
        args = [*map(address_of, (A, out, work[_FLAG_NBYTES:], failed)), count, n, nbytes]
        run = call(module, "factor", args, threads, keep=(A, out, work))
        return in_turn((partial(failed.fill, 0), run, partial(_check, failed)))

    return connected(connect, _FLAG_NBYTES + threads * nbytes, "compiled Cholesky", bits=())


def _gradient_row(r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    shape = r.inputs[0]
    n, count = shape[-1], prod(shape[:-2])
    module, nbytes = gradient_code(r.attrs.lower), scratch_nbytes(n)
    threads = threads_for(2 * prod(shape) * n)

    def connect(xp: Any, a: Any, d_out: Any, out: Any, *, d_A: Any, work: Any) -> Run:
        if d_A is None:
            return in_turn(())
        args = [*map(address_of, (out, d_out, d_A, work)), count, n, nbytes]
        return call(module, "gradient", args, threads, keep=(out, d_out, d_A, work))

    return connected(connect, 2 * threads * nbytes, "compiled Cholesky, backward", bits=())


def _check(failed: Any) -> None:
    if failed[0]:
        raise MXLiteError("a matrix is not positive definite.")


_POTRF = find_op("_linalg_potrf")
SERVES = ("ops.linalg.factorizations",)
ROWS = kernel_rows(GENERATED, {_POTRF: _row, _POTRF.grad_op: _gradient_row})
