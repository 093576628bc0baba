"""Operator that updates a weight whose gradient is a matrix product, a band of rows at a time.

A weight's gradient has as many bytes as the weight. Computed as a whole it is written to memory and read back
by the update, and at the peak of a step it is live besides weight and states. An elementwise update
needs only the gradient's rows that it changes:

    for rows [a, b)    gradient = x[:, a:b].T @ y        a band, small enough to stay in the cache
                       weight[a:b], states[a:b] = step(weight[a:b], gradient, states[a:b])

The pass `passes/updates/product_updates.py` inserts the operator into a step; no user and no file ever sees
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.optim.update import CHUNK
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes

DEEP = 512
"""Products per element of the gradient from which on arithmetic, not memory, dominates the time."""

BAND_BYTES, DEEP_BAND_BYTES = 512 * 1024, 1024 * 1024
"""Bytes of the gradient's rows at a time, about: they stay in the cache with their weights and states. More
for a deep product: for each band a kernel copies all of y once."""

FEWEST = 6
"""Least number of bands: those of a smaller weight are smaller."""

_byte = np.dtype("uint8")
_MULTIPLE = 16  # rows: whole vectors, whether or not a kernel transposes the product


@dataclass(frozen=True)
class ProductUpdateAttrs:
    """`op` is the fused form of an elementwise step, `attrs` its parameters."""

    op: type[Op]
    attrs: Any


class JoinedUpdate(Op):
    """An optimizer's step that computes its gradient from `makers`; weight, states and `hyper` follow.

    The step is `op` and `attrs` of the attributes.
    """

    variadic = "args"
    recomputable = False
    makers: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        weight, _, *others = a.op.input_names(a.attrs)
        return (*cls.makers, weight, *others)

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        changed: tuple[str, ...] = a.op.mutated(a.attrs)
        return changed

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, ()

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, ()

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        return replace(a, attrs=a.op.timed_as(a.attrs))


class ProductUpdate(JoinedUpdate):
    """An optimizer's step, ``weight, states = step(weight, x.T @ y, states)``.

    x: N * R numbers read as (N, R);  y: N * C read as (N, C);  weight, states: (R, C);  then `hyper`, as in
    the step. Weight and states are updated. Cost: 2 * N * R * C flops and the step's.
    """

    op_name = "_product_update"
    makers = ("x", "y")
    Attrs = ProductUpdateAttrs

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        weight, *others = inputs[2:]
        step: int = a.op.flops(a.attrs, (weight, weight, *others), ())
        return 2 * depth(inputs) * prod(weight) + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        rows, columns = inputs[2]
        band = band_rows(rows, columns, depth(inputs), dtype)
        return scratch_bytes(_pieces(a, inputs, band, dtype))

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, work: Any) -> None:
        x, y, weight, *states, hyper = args
        rows, columns = weight.shape
        inputs = tuple(z.shape for z in args)
        count = depth(inputs)
        band = band_rows(rows, columns, count, x.dtype)
        x, y = x.reshape(count, rows), y.reshape(count, columns)
        gradient, rest = carve(work, _pieces(a, inputs, band, x.dtype))
        for begin in range(0, rows, band):
            part = slice(begin, min(begin + band, rows))
            made = gradient[: part.stop - begin]
            product(xp, x[:, part].T, y, made, rest)
            own = (weight[part], made, *(s[part] for s in states))
            a.op.forward(xp, a.attrs, *own, hyper, work=rest)


def depth(inputs: Shapes) -> int:
    """Rows of x and y, the summed length of the product."""
    return prod(inputs[0]) // inputs[2][0]


def band_rows(rows: int, columns: int, depth: int, dtype: DType) -> int:
    """Rows of a band, except the last one: bands are about equal, and have about the wanted size."""
    target = BAND_BYTES if depth < DEEP else DEEP_BAND_BYTES
    bands = max(FEWEST, round(rows * columns * dtype.itemsize / target))
    even = -(-rows // bands)
    return min(rows, -(-even // _MULTIPLE) * _MULTIPLE)


def _pieces(a: Any, inputs: Shapes, band: int, dtype: DType) -> list[Piece]:
    """Scratch: a band of the gradient, and scratch of the product and of the step."""
    columns = inputs[2][1]
    shape = (band, columns)
    nbytes = max(step_bytes(a, shape, dtype), product_bytes(band, depth(inputs), columns, dtype))
    return [(shape, dtype), ((nbytes,), _byte)]


def step_bytes(a: Any, shape: Shape, dtype: DType) -> int:
    """Scratch of the reference step on rows of this shape, if it has to cast a gradient of `dtype`."""
    wide = accumulator(dtype)
    nbytes: int = a.op.workspace(a.attrs, (shape,), (), wide)
    return nbytes + min(CHUNK, prod(shape)) * wide.itemsize
