"""The gradient of LayerNorm along the last axis as generated code.

Loop nests of the declared gradient take 1.1 times as long (512 rows of 1024 on two threads, 2026-11-26).
"""

from __future__ import annotations

from math import prod
from typing import Any

from .....core.dtype import float32
from .....ops.norm.layer_norm import LayerNorm
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...compiled import call, parts_for, storable, threads_for, usable
from ...compiled.norm.layer_norm import backward_code, NormForm
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _rows(r: Request) -> tuple[int, int] | None:
    shape, a = r.inputs[0], r.attrs
    if not usable() or 0 in shape or not {r.dtypes[0].name, r.dtypes[1].name} <= storable():
        return None
    axis = a.axis % len(shape)
    return (prod(shape[:axis]), shape[axis]) if prod(shape[axis + 1 :]) == 1 else None


def _backward(r: Request) -> ChosenKernel | None:
    size = _rows(r)
    if size is None or r.attrs.output_mean_var or not r.is_used("d_out"):
        return None
    rows, columns = size
    threads = threads_for(12 * prod(size))
    kinds = r.dtypes[0].name, r.dtypes[1].name
    wants = r.is_used("d_data"), r.is_used("d_gamma") or r.is_used("d_beta")
    backward_code(NormForm(*kinds, r.attrs.eps, wants_data=wants[0], wants_affine=wants[1]))
    parts = parts_for(12 * prod(size))
    pieces: list[Piece] = [((parts, 4, columns * wants[1]), float32), ((2, columns), r.dtypes[1])]

    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
    ) -> Run:
        sums, spare = carve(work, pieces)
        affine = d_gamma is not None or d_beta is not None
        form = NormForm(*kinds, a.eps, wants_data=d_data is not None, wants_affine=affine)
        if not (form.wants_data or form.wants_affine):
            return in_turn(())
        own = (spare[0] if d_gamma is None else d_gamma, spare[1] if d_beta is None else d_beta)
        arrays = (d_out, data, gamma, d_data, *own, sums)
        slots = [*(0 if x is None else address_of(x) for x in arrays), rows, columns, parts]
        return call(backward_code(form), "norm", slots, threads, keep=arrays)

    def like(
        xp: Any,
        a: Any,
        d_out: Any,
        d_mean: Any,
        d_std: Any,
        data: Any,
        gamma: Any,
        *,
        d_data: Any,
        d_gamma: Any,
        d_beta: Any,
        work: Any,
    ) -> Run:
        return connect(xp, a, d_out, data, gamma, d_data=d_data, d_gamma=d_gamma, d_beta=d_beta, work=work)

    return connected(like, scratch_bytes(pieces), "compiled layer norm, backward", bits=())


SERVES = ("ops.norm.layer_norm",)
ROWS = kernel_rows(GENERATED, {LayerNorm.grad_op: _backward})
