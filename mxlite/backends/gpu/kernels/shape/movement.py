"""Operators that only move elements, and their gradients: copies and fills traced from the reference.

Each copy reads and writes every element once, in a launch of its own or, if they are rows, one of several.
See gpu/handwritten/trace.py for the tracing, gpu/handwritten/move.py and gpu/handwritten/move_together.py for
the kernels. Gradients that sum (of tile, repeat, broadcast axes) have no row here.
"""

from __future__ import annotations

import itertools
from typing import Any

from .....graph.opdef import Signature
from .....ops import find_op
from ....base import ChosenKernel, Request
from ....call import bind_call
from ...handwritten.move_together import all_moved
from ...handwritten.trace import Move, Sheet, traced
from ...rows import answer, table
from ...runtime.device import Device, nothing, Run

OPERATORS = """
    transpose SwapAxis _channels_last _channels_first reverse roll depth_to_space space_to_depth
    Reshape Flatten expand_dims squeeze _reshape_to reshape_like _copy BlockGrad _identity_with_attr_like_rhs
    Concat stack SliceChannel _split_v2
    slice slice_axis slice_like _grow_like _slice_assign _slice_assign_scalar Crop _uncrop
    _adjoint_slice _adjoint_slice_axis _adjoint_tile _adjoint_repeat _unconcat
    tile repeat broadcast_to broadcast_axis broadcast_like _sum_like
    Pad _unpad SequenceReverse _rnn_param_concat
    IdentityAttachKLSparseReg
    diag _adjoint_diag _eye _linalg_extractdiag _linalg_makediag
    _zeros _ones _full _zeros_without_dtype zeros_like ones_like
""".split()


def _row(device: Device, r: Request) -> ChosenKernel | None:
    moves = _moves(r)
    if moves is None:
        return None
    moving = any(m.source is not None for m in moves)

    def connect(a: Any, *inputs: Any, shapes: Any = None, **rest: Any) -> Run:
        log: list[Move] = []
        arrays: dict[int, Any] = {}

        def sheet(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(sheet(y) for y in x)
            if not hasattr(x, "dtype"):
                return x
            arrays[len(arrays)] = x
            return Sheet.whole(len(arrays) - 1, x.shape, x.dtype, log)

        made = {n: sheet(x) for n, x in rest.items()}
        if not arrays:
            return nothing
        services = {"shapes": shapes, "work": None}
        made |= {n: services[n] for n in r.op.signature.services}
        given = [sheet(x) for x in inputs]
        found = traced(lambda xp: r.op.forward(xp, a, *given, **made), log)
        assert found is not None  # it was possible for all outputs
        return all_moved(device, found, arrays)

    return answer(r, connect, 0, "cuda copy" if moving else "cuda fill")


def _moves(r: Request) -> list[Move] | None:
    """Moves of a call with all outputs; None if it does more."""
    op, of = r.op, r.op.forward_op or r.op
    log: list[Move] = []
    if op.signature.services - {"shapes", "work"}:
        return None
    _, outs = of.infer_type(r.attrs, *r.dtypes)
    layout: dict[str, Any] = {}
    for names, shapes, dtypes in (
        (of.input_names(r.attrs), r.inputs, r.dtypes),
        (of.output_names(r.attrs), r.outputs, outs),
    ):
        for n, s, d in zip(names, shapes, dtypes):
            layout[n] = layout["d_" + n] = (s, d)
    count = itertools.count()
    ins, made = (
        [Sheet.whole(next(count), layout[n][0], layout[n][1], log) for n in names]
        for names in (op.input_names(r.attrs), op.output_names(r.attrs))
    )
    kernel = ChosenKernel(op.forward, 0, "", Signature.of(op.forward))

    def run(xp: Any) -> None:
        bind_call(kernel, xp, op, r.attrs, ins, made, shapes=(r.inputs, r.outputs))()

    return traced(run, log)


_MOVING = [find_op(name) for name in OPERATORS]

rows = table(*((op, _row, _row if op.grad_op is not None else None) for op in _MOVING))
