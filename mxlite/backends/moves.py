"""The moves of a request: what an operator copies and fills, and the arrays of a call by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..graph.opdef import Signature
from ..ops import find_op
from ..te.moves import Move, Sheet, traced
from .base import ChosenKernel, Request
from .call import bind_call

MOVING = """
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
    _image_flip_left_right _image_flip_top_bottom _image_crop
""".split()
"""Operators that only move elements, at least for some requests or in one direction."""


class Moves:
    """Moves of a request, between sheets named as the arrays. `names`: those of a call, as it has them."""

    def __init__(self, r: Request, moves: list[Move], names: tuple[Any, Mapping[str, Any]]) -> None:
        self.all, self._request = moves, r
        self._given, self._made = names

    def call(self, inputs: Any, rest: Mapping[str, Any]) -> tuple[list[Move], dict[str, Any]]:
        """The moves of a call, which may lack some of the arrays, and its arrays by name."""
        pairs = [*_pairs(self._given, inputs)]
        for parameter, names in self._made.items():
            pairs += _pairs((names,), (rest[parameter],))
        arrays = {n: x for n, x in pairs if x is not None}
        moves = [m for m in self.all if m.target.of in arrays]
        if all(m.source is None or m.source.of in arrays for m in moves):
            return moves, arrays
        less = moves_of(replace(self._request, used=frozenset(arrays)))
        assert less is not None, "what moves all arrays moves some of them"
        return [m for m in less.all if m.target.of in arrays], arrays


def _pairs(names: Any, arrays: Any) -> Iterator[tuple[str, Any]]:
    for name, x in zip(names, arrays):
        if isinstance(name, tuple):
            yield from _pairs(name, x)
        elif name is not None:
            yield name, x


def moves_of(r: Request) -> Moves | None:
    """The moves of a call that makes all of its outputs; None if it does more."""
    op, a, of = r.op, r.attrs, r.op.forward_op or r.op
    signature = Signature.of(op.forward)
    if signature.services - {"shapes", "work"}:
        return None
    log: list[Move] = []
    layout: dict[str, Any] = {}
    _, outs = of.infer_type(a, *r.dtypes)
    for names, shapes, dtypes in (
        (of.input_names(a), r.inputs, r.dtypes),
        (of.output_names(a), r.outputs, outs),
    ):
        for n, s, d in zip(names, shapes, dtypes):
            layout[n] = layout["d_" + n] = (s, d)
    ins = [n if r.is_used(n) else None for n in op.input_names(a)]
    there = [n for n in (*ins, *op.output_names(a)) if n is not None]
    sheets = {n: Sheet.whole(n, layout[n][0], layout[n][1], log) for n in there}
    kernel = ChosenKernel(op.forward, 0, "", signature)

    def bound(xp: Any, values: Mapping[Any, Any], link: Any = None) -> Any:
        given, made = ([values.get(n) for n in names] for names in (ins, op.output_names(a)))
        return bind_call(kernel, xp, op, a, given, made, shapes=(r.inputs, r.outputs), link=link)

    moves = traced(lambda xp: bound(xp, sheets)(), log)
    if moves is None:
        return None
    given, rest = bound(None, {n: n for n in sheets}, lambda _, xp, a, *given, **rest: (given, rest))
    return Moves(r, [m for m in moves if m.target.size], (given, {n: rest[n] for n in signature.makes}))


OPERATORS = [find_op(name) for name in MOVING]
