"""Sequences by their lengths, and triangles of matrices: each element is read and written at most once."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.index.sequence import SequenceLast, SequenceMask, SequenceReverse
from .....ops.shape.diagonal import tril, triu
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import addresses, each
from ...handwritten.layout import MOST
from ...handwritten.move import copied, of_units
from ...rows import answer, are_few, table
from ...runtime.device import Device, nothing, Run

_TRIANGLE = "rows columns k lower".split()

_Sequences: Any = structure("parts", "Sequences")


SOURCE = assembled(
    "types",
    "index",
    "whole",
    "parts",
    *(of_units(name, ["int64 n", "Sequences s"]) for name in ("masked", "last_of", "to_last", "turned")),
    of_units("triangle", ["int64 n", "const U *data", "U *out", *(f"int {n}" for n in _TRIANGLE)]),
)


def _sequence(device: Device, r: Request, name: str) -> ChosenKernel | None:
    shape, (made,) = r.inputs[0], r.op.output_names(r.attrs)
    if not known(*r.dtypes) or not are_few(r):
        return None

    def connect(a: Any, given: Any, lengths: Any = None, **rest: Any) -> Run:
        out = rest[made]
        if lengths is None and name == "masked":
            return nothing if device.address(given) == device.address(out) else copied(device, given, out)
        s = _Sequences(**addresses(device, data=given, lengths=lengths, out=out))
        s.kind = 0 if lengths is None else kind(lengths.dtype)
        if r.op is SequenceMask:
            s.value = _pattern(a.value, out.dtype)
        s.steps, s.samples, s.rest = shape[a.axis], shape[1 - a.axis], prod(shape[2:])
        s.samples_first = a.axis
        return each(device, SOURCE, f"{name}_{out.dtype.itemsize}", out.size, s)

    return answer(r, connect, 0, "cuda sequences")


def _pattern(value: float, dtype: DType) -> int:
    """Bytes of a number as the reference converts it."""
    with np.errstate(all="ignore"):
        return int.from_bytes(np.asarray(value).astype(dtype).tobytes(), "little")


def _triangle(device: Device, r: Request, lower: bool) -> ChosenKernel | None:
    shape: Shape = r.inputs[0]
    (made,) = r.op.output_names(r.attrs)
    if not known(*r.dtypes) or not are_few(r) or abs(r.attrs.k) > MOST:
        return None

    def connect(a: Any, given: Any, **rest: Any) -> Run:
        out = rest[made]
        name = f"triangle_{out.dtype.itemsize}"
        return each(device, SOURCE, name, out.size, given, out, *shape[-2:], a.k, int(lower))

    return answer(r, connect, 0, "cuda triangle")


def _both(row: Any, **how: Any) -> tuple[Any, Any]:
    """The same row forward and backward."""
    return partial(row, **how), partial(row, **how)


rows = table(
    (SequenceMask, *_both(_sequence, name="masked")),
    (SequenceLast, partial(_sequence, name="last_of"), partial(_sequence, name="to_last")),
    (SequenceReverse, *_both(_sequence, name="turned")),
    (tril, *_both(_triangle, lower=True)),
    (triu, *_both(_triangle, lower=False)),
)
