"""Rows and elements by index tuples: gather_nd, scatter_nd and their kin, and indices along many axes.

Positions are computed first, 8 bytes each, in scratch; then each element is read once and written once. Sums
are computed in the order of the indices, see gpu/handwritten/segments.py; among several updates the last one
wins, found as a maximum of integers. An index out of range gives nan, so arrays of integers are left to the
host, which raises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.index.elements import scatter_elements, take_along_axis
from .....ops.index.gather import gather_nd, scatter_nd, scatter_nd_update, ScatterSetNd
from .....ops.index.index import ravel_multi_index, unravel_index
from .....ops.index.take import ContribIndexCopy
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import each
from ...handwritten.fill import filled
from ...handwritten.layout import MOST
from ...handwritten.move import copied, of_units
from ...handwritten.segments import SegmentSums
from ...rows import answer, are_few, At, row, table, where
from ...runtime.device import Device, InOrder, Run

MOST_AXES = 8
_SIZES = (2, 4, 8)  # of elements
_INT64, _INT32 = np.dtype("int64"), np.dtype("int32")


_Axes: Any = structure("places", "Axes")


def _axes(lengths: Sequence[int], strides: Sequence[int] = ()) -> Any:
    made = _Axes()
    made.length[: len(lengths)] = lengths
    made.stride[: len(strides)] = strides
    return made


_BEGIN, _END = ("int64 n",), ("U *out", "uint32 inner", "uint64 nan")
SOURCE = assembled(
    "types",
    "index",
    "whole",
    "places",
    of_units("rows_at", [*_BEGIN, "const U *data", "const int64 *places", *_END], _SIZES),
    of_units("rows_won", [*_BEGIN, "const U *data", "const U *updates", "const int *winner", *_END], _SIZES),
    of_units("rows_spoilt", [*_BEGIN, "const int64 *places", *_END], _SIZES),
)


class Places:
    """`n` rows of `inner` elements selected by indices, from `length` rows of arrays of one type."""

    def __init__(self, device: Device, dtype: DType, n: int, length: int, inner: int) -> None:
        self.device, self.dtype, self.n, self.length, self.inner = device, dtype, n, length, inner
        self.nbytes = -(-8 * n // 256) * 256
        self.fits = floating(dtype) and 0 < n * inner <= MOST and 0 < length * inner <= MOST
        self.item = dtype.itemsize
        nan = np.full(1, np.nan, dtype).tobytes()
        self.end = ctypes.c_uint32(inner), ctypes.c_uint64(int.from_bytes(nan, "little"))
        self.sums = SegmentSums(device, dtype, 1, n, length, inner) if self.fits else None

    @property
    def winners_nbytes(self) -> int:
        return self.nbytes + 4 * self.length

    @property
    def sums_nbytes(self) -> int:
        assert self.sums is not None
        return self.nbytes + self.sums.workspace

    @property
    def adds(self) -> bool:
        return self.fits and self.sums is not None and self.sums.fits

    def read(self, data: Any, out: Any, work: Any) -> Run:
        """out = the selected rows of `data`."""
        name = f"rows_at_{self.item}"
        return each(self.device, SOURCE, name, out.size, data, work, out, *self.end)

    def write(self, data: Any, updates: Any, out: Any, work: Any) -> Run:
        """out = `data` with the selected rows replaced by those of `updates`; None stands for zeros."""
        winner = work[self.nbytes : self.nbytes + 4 * self.length]
        arrays = data, updates, winner, out
        return InOrder(
            [
                filled(self.device, winner, b"\xff"),
                each(self.device, SOURCE, "winners", self.n, work, winner),
                each(self.device, SOURCE, f"rows_won_{self.item}", out.size, *arrays, *self.end),
            ]
        )

    def add(self, data: Any, updates: Any, out: Any, work: Any) -> Run:
        """out = `data`, or zeros, with the rows of `updates` added in their order."""
        assert self.sums is not None
        device, runs = self.device, []
        if data is not None and device.address(data) != device.address(out):
            runs.append(copied(device, data, out))
        places = work[: 8 * self.n].view(_INT64)
        rest = work[self.nbytes : self.nbytes + self.sums.workspace]
        runs.append(self.sums.call(places, updates, out, rest, add=data is not None))
        name = f"rows_spoilt_{self.item}"
        return InOrder([*runs, each(device, SOURCE, name, self.n * self.inner, work, out, *self.end)])


class _Named(Places):
    """Rows selected by (depth, n) indices, in an array of `shape`."""

    def __init__(
        self, device: Device, dtype: DType, shape: Shape, indices: Shape, negative: bool = True
    ) -> None:
        depth, n = indices[0], prod(indices[1:])
        super().__init__(device, dtype, n, prod(shape[:depth]), prod(shape[depth:]))
        self.depth, self.negative = depth, negative
        self.fits = self.fits and depth <= MOST_AXES
        self.axes = _axes(shape[:depth] if self.fits else ())

    def find(self, indices: Any, work: Any) -> Run:
        numbers = kind(indices.dtype), self.depth, int(self.negative)
        return each(self.device, SOURCE, "places_of_rows", self.n, work, indices, *numbers, self.axes)


class _Along(Places):
    """Elements selected by an index along one axis of an array of `shape`."""

    def __init__(self, device: Device, dtype: DType, shape: Shape, indices: Shape, axis: int) -> None:
        super().__init__(device, dtype, prod(indices), prod(shape), 1)
        self.rank, self.axis = len(shape), axis % len(shape)
        self.along = shape[self.axis]
        self.fits = self.fits and self.rank <= MOST_AXES
        if self.fits:
            self.axes = _axes(indices, [prod(shape[i + 1 :]) for i in range(self.rank)])

    def find(self, indices: Any, work: Any) -> Run:
        numbers = kind(indices.dtype), self.rank, self.axis, self.along
        return each(self.device, SOURCE, "places_along", self.n, work, indices, *numbers, self.axes)


def _places(device: Device, r: Request) -> _Named | _Along | None:
    """Places of the operator that a request is for, or whose gradient it is for."""
    op = r.op.forward_op or r.op
    names = op.input_names(r.attrs)
    shapes, dtypes = dict(zip(names, r.inputs)), dict(zip(names, r.dtypes))
    made: _Named | _Along
    if op in (take_along_axis, scatter_elements):
        made = _Along(device, r.dtype, shapes["data"], shapes["indices"], r.attrs.axis)
        index = dtypes["indices"]
    elif op is ContribIndexCopy:
        index = dtypes["index_vector"]
        rows = (1, *shapes["index_vector"])
        made = _Named(device, r.dtype, shapes["old_tensor"], rows, negative=False)
    else:
        shape = r.attrs.shape if op in (scatter_nd, ScatterSetNd) else shapes["data"]
        made, index = _Named(device, r.dtype, shape, shapes["indices"]), dtypes["indices"]
    return made if made.fits and known(index) else None


def _in_order(op: type[Op], inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """(data or None, indices, updates)."""
    if op is scatter_nd:
        return None, inputs[1], inputs[0]
    if op is ScatterSetNd:
        return inputs[0], inputs[2], inputs[1]
    return inputs[0], inputs[1], inputs[2]


@row(_places, "cuda gather", lambda p: p.nbytes)
def _gather(p: _Named | _Along, a: Any, data: Any, indices: Any, *, out: Any, work: Any) -> Run:
    return InOrder([p.find(indices, work), p.read(data, out, work)])


def _sums(device: Device, r: Request) -> _Named | _Along | None:
    p = _places(device, r)
    return p if p is not None and p.adds else None


@row(_sums, "cuda sorted sums", lambda p: p.sums_nbytes)
def _gather_gradient(p: _Named | _Along, a: Any, d_out: Any, indices: Any, *, d_data: Any, work: Any) -> Run:
    return InOrder([p.find(indices, work), p.add(None, d_out, d_data, work)])


def _scatter(device: Device, r: Request) -> ChosenKernel | None:
    p = _places(device, r)
    how = getattr(r.attrs, "reduction", "none")
    if p is None or how not in ("none", "add") or (how == "add" and not p.adds):
        return None

    def connect(a: Any, *inputs: Any, out: Any, work: Any) -> Run:
        data, indices, updates = _in_order(r.op, inputs)
        way = p.add if how == "add" else p.write
        return InOrder([p.find(indices, work), way(data, updates, out, work)])

    nbytes = p.sums_nbytes if how == "add" else p.winners_nbytes
    return answer(r, connect, nbytes, "cuda scatter")


def _scatter_gradient(device: Device, r: Request) -> ChosenKernel | None:
    p = _places(device, r)
    how = getattr(r.attrs, "reduction", "none")
    if p is None or how not in ("none", "add"):
        return None
    named = {
        scatter_nd.grad_op: ("", "d_data"),
        ScatterSetNd.grad_op: ("d_lhs", "d_rhs"),
        ContribIndexCopy.grad_op: ("d_old_tensor", "d_new_tensor"),
    }.get(r.op, ("d_data", "d_updates"))
    order = {n: i for i, n in enumerate(r.op.signature.needs)}

    def connect(a: Any, *inputs: Any, work: Any, **made: Any) -> Run:
        d_out = inputs[order["d_out"]]
        indices = inputs[order["indices" if "indices" in order else "index_vector"]]
        d_data, d_updates = (made.get(n) for n in named)
        runs = [p.find(indices, work)]
        if d_updates is not None:
            runs.append(p.read(d_out, d_updates, work))
        if d_data is not None and how == "none":
            runs.append(p.write(d_out, None, d_data, work))
        elif d_data is not None and device.address(d_data) != device.address(d_out):
            runs.append(copied(device, d_out, d_data))
        return InOrder(runs)

    return answer(r, connect, p.winners_nbytes, "cuda scatter gradient")


@row(where(lambda r: len(r.attrs.shape) <= MOST_AXES and known(*r.dtypes) and are_few(r)), "cuda places")
def _numbered(at: At, a: Any, data: Any, *, out: Any) -> Run:
    name, n = ("ravelled", out.size) if at.r.op is ravel_multi_index else ("unravelled", prod(at.r.inputs[0]))
    numbers = kind(data.dtype), len(a.shape), _axes(a.shape)
    return each(at.device, SOURCE, name, n, data, out, *numbers)


_SCATTERING = (scatter_nd, scatter_nd_update, scatter_elements, ScatterSetNd, ContribIndexCopy)

rows = table(
    *((op, _numbered, None) for op in (ravel_multi_index, unravel_index)),
    *((op, _gather, _gather_gradient) for op in (gather_nd, take_along_axis)),
    *((op, _scatter, _scatter_gradient) for op in _SCATTERING),
)
