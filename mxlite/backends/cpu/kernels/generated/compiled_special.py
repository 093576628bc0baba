"""The gamma function and its kin, and the inverse of the error function, as generated code."""

from __future__ import annotations

from math import prod
from typing import Any

from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.special import code, FORMULAS, inputs_of, SpecialForm
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

LEAST = 512  # elements from which on compiling code pays
COST = 64  # bytes that could be moved in the time of one element


def _row(r: Request) -> ChosenKernel | None:
    known = (storable() & {"float32", "float16", "bfloat16"}) | {"float64"}
    size = prod(r.inputs[0])
    if not usable() or r.dtype.name not in known or size < LEAST:
        return None
    op = r.op.forward_op or r.op
    form = SpecialForm(op, r.op.forward_op is not None, getattr(r.attrs, "n", 0), r.dtype.name)
    made, threads = code(form), threads_for(size * COST)
    reads = inputs_of(form)
    places = [r.op.signature.needs.index(n) for n in reads]

    def connect(xp: Any, a: Any, *inputs: Any, **outputs: Any) -> Run:
        (out,) = outputs.values()
        if out is None:
            return in_turn(())
        arrays = (*(inputs[k] for k in places), out)
        return call(made, "special", [size, *map(address_of, arrays)], threads, keep=arrays)

    return connected(connect, 0, "compiled formula", like=r.op.forward)


SERVES = ("ops.elementwise.error_function", "ops.elementwise.gamma_function")
ROWS = kernel_rows(
    GENERATED, {op: _row for forward in FORMULAS for op in (forward, forward.grad_op) if op is not None}
)
