"""Sums over broadcast axes, and the gradients of broadcasting arithmetic.

The gradient of a broadcast input is reduced from the arrays themselves, each read once; that of an input with
the whole shape is elementwise. If nothing is broadcast, `movement` has a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.ir import Shape
from .....ops import find_op
from .....ops.scratch import carve, scratch_bytes
from .....te.computation import Computation, Tensor
from ....base import ChosenKernel, Request
from ....elementwise.formula import write
from ....nests.program import kinds_of
from ...compiler.kinds import floating
from ...handwritten.fold import ADD, Fold, folded, NEGATED, PLAIN, PRODUCT, SAME
from ...rows import answer, gradient_of, table
from ...runtime.device import Device, InOrder, Run
from .elementwise import Loop

_GRADIENTS: dict[str, tuple[tuple[int, int, tuple[str, ...]], tuple[int, int, tuple[str, ...]]]] = {
    "broadcast_add": ((SAME, PLAIN, ()), (SAME, PLAIN, ())),
    "broadcast_sub": ((SAME, PLAIN, ()), (SAME, NEGATED, ())),
    "broadcast_mul": ((PRODUCT, PLAIN, ("rhs",)), (PRODUCT, PLAIN, ("lhs",))),
}
"""Gradients of lhs and rhs from `d_out` and the operands: kind of reduction, its finish, and operands."""


def _aligned(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _sum_to(device: Device, r: Request, whole: Shape, target: Shape) -> ChosenKernel | None:
    """Kernel that sums the one input, of shape `whole`, to the one output."""
    fold = Fold(device, r.dtype, whole, _aligned(target, len(whole)))
    return folded(r, fold, "cuda sum") if floating(r.dtype) else None


def _to_input(device: Device, r: Request) -> ChosenKernel | None:
    return _sum_to(device, r, r.outputs[0], r.inputs[0])


def _to_output(device: Device, r: Request) -> ChosenKernel | None:
    return _sum_to(device, r, r.inputs[0], r.outputs[0])


def _written(r: Request, out: str, needs: Sequence[str], t: Computation, *given: Tensor) -> Tensor:
    """What a request's operator makes of its inputs."""
    made = write(t, r.op, r.attrs, dict(zip(needs, given)), r.dtype)
    assert made is not None
    return made[out]


def _gradient(device: Device, r: Request, name: str) -> ChosenKernel | None:
    kinds = kinds_of(r)
    if kinds is None or not prod(r.outputs[0]) or not floating(r.dtype):
        return None
    (whole,) = r.outputs
    views = {n: _aligned(s, len(whole)) for n, s in zip(("lhs", "rhs"), r.inputs)}
    needs = r.op.signature.needs
    parts: dict[str, Fold | Loop] = {}
    for (map, finish, names), out in zip(_GRADIENTS[name], ("lhs", "rhs")):
        if prod(views[out]) == prod(whole):
            shapes = [whole if n == "d_out" else views[n] for n in needs]
            formula = partial(_written, r, "d_" + out, needs)
            parts[out] = Loop(device, formula, shapes, [r.dtype] * len(needs), whole, r.dtype)
        else:
            others = [views[n] for n in names]
            fold = Fold(device, r.dtype, whole, views[out], map, ADD, finish, others=others)
            if not fold.fits:
                return None
            parts[out] = fold
    nbytes = [p.workspace for p in parts.values() if isinstance(p, Fold)]
    pieces = [((max(nbytes, default=0),), as_dtype("uint8"))]

    def connect(a: Any, *inputs: Any, d_lhs: Any, d_rhs: Any, work: Any) -> Run:
        have = dict(zip(needs, inputs))
        runs = []
        (scratch,) = carve(work, pieces)
        # An output that may overwrite d_out is computed last.
        for out, into, spec in sorted(
            zip(("lhs", "rhs"), (d_lhs, d_rhs), _GRADIENTS[name]), key=lambda x: isinstance(parts[x[0]], Loop)
        ):
            part = parts[out]
            if into is None:
                continue
            if isinstance(part, Fold):
                runs.append(part.call(have["d_out"], into, scratch, [have[n] for n in spec[2]]))
            else:
                runs.append(part.call(*inputs, into))
        return InOrder(runs)

    return answer(r, connect, scratch_bytes(pieces), "cuda elementwise sums")


_SPREADING = ("broadcast_to", "broadcast_axis", "broadcast_like")

rows = table(
    *((gradient_of(find_op(n)), partial(_gradient, name=n), None) for n in _GRADIENTS),
    *((gradient_of(find_op(n)), _to_input, None) for n in _SPREADING),
    (find_op("_sum_like"), _to_output, None),
)
