"""Attention as two matrix products over projections that are interleaved, head by head, in one array.

A row of `queries_keys_values` is, for each of `heads`, the query, the key and the value, D numbers each:

    (L, B, heads * 3 * D)  read as  (L, B, heads, 3, D)

and `keys_values` has 2 in place of 3. Scores and weights are (B * heads, query positions, key positions).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, ClassVar

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_rank, Shapes, with_parameters
from ..linalg.product import product, product_bytes


@record
class _Heads:
    heads: int

    def __post_init__(self) -> None:
        if self.heads < 1:
            raise OpAttributeError(f"heads must be at least 1, got {self.heads}.")


class _Interleaved(Op):
    """Base: one of the two products. `parts`: how many projections each of the first inputs holds."""

    abstract = True
    accepts = "float"
    Attrs = _Heads
    parts: ClassVar[tuple[int, ...]]

    def __init_subclass__(cls) -> None:
        makes = tuple(f"d_{n}" for n in cls.inputs)

        def forward(xp: Any, a: Any, *arrays: Any, out: Any, work: Any) -> None:
            if out is not None:
                cls.multiply(xp, a, arrays, out, work)

        def backward(xp: Any, a: Any, d_out: Any, *arrays: Any, work: Any, **made: Any) -> None:
            cls.differentiate(xp, a, d_out, arrays, [made[n] for n in makes], work)

        cls.forward = staticmethod(with_parameters(forward, cls.inputs, ("out",), ("work",)))
        cls.backward = staticmethod(with_parameters(backward, ("d_out", *cls.inputs), makes, ("work",)))
        super().__init_subclass__()

    @classmethod
    def multiply(cls, xp: Any, a: Any, arrays: Sequence[Any], out: Any, work: Any) -> None:
        """`forward` of the inputs `arrays`."""
        raise NotImplementedError

    @classmethod
    def differentiate(
        cls, xp: Any, a: Any, d_out: Any, arrays: Sequence[Any], made: Sequence[Any], work: Any
    ) -> None:
        """`backward` of the inputs `arrays`; `made`: their gradients, None where not wanted."""
        raise NotImplementedError

    @classmethod
    def projections(cls, a: Any, arrays: Sequence[Any]) -> list[Any]:
        """Query, key and value, as far as the inputs hold them, each (B, heads, L, D); None of a None."""
        return [
            x
            for array, parts in zip(arrays, cls.parts)
            for x in ([None] * parts if array is None else split_heads(array, a.heads, parts))
        ]

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        weights = outputs[0] if len(outputs[0]) == 3 and outputs[0] != inputs[0] else inputs[-1]
        return 2 * prod(weights) * max(1, inputs[0][2] // (3 * a.heads))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        sizes = [*(s[0] for s in (*inputs, *outputs)), *(s[1] for s in (*inputs, *outputs))]
        most = max([*sizes, inputs[0][2] // a.heads])
        return product_bytes(most, most, most, dtype)

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return cls.workspace(a, inputs, outputs, dtype)


class _Scores(_Interleaved):
    """Base: the scores of queries and keys."""

    abstract = True

    @classmethod
    def multiply(cls, xp: Any, a: Any, arrays: Sequence[Any], out: Any, work: Any) -> None:
        query, key, _ = cls.projections(a, arrays)
        _products(xp, query, key.swapaxes(2, 3), out.reshape(*query.shape[:3], key.shape[2]), work)
        xp.multiply(out, _scale(query), out=out)

    @classmethod
    def differentiate(
        cls, xp: Any, a: Any, d_out: Any, arrays: Sequence[Any], made: Sequence[Any], work: Any
    ) -> None:
        query, key, _ = cls.projections(a, arrays)
        d_query, d_key, d_value = cls.projections(a, made)
        if d_value is not None:
            d_value[...] = 0
        d = d_out.reshape(*query.shape[:3], key.shape[2])
        for grad, left, right in ((d_query, d, key), (d_key, d.swapaxes(2, 3), query)):
            if grad is not None:
                _products(xp, left, right, grad, work)
                for i in range(grad.shape[0]):
                    xp.multiply(grad[i], _scale(query), out=grad[i])


class _Weighted(_Interleaved):
    """Base: the values, weighted by `attention`, the last input."""

    abstract = True

    @classmethod
    def multiply(cls, xp: Any, a: Any, arrays: Sequence[Any], out: Any, work: Any) -> None:
        *_, value = cls.projections(a, arrays)
        _products(xp, _batched(arrays[1], a.heads), value, split_heads(out, a.heads, 1)[0], work)

    @classmethod
    def differentiate(
        cls, xp: Any, a: Any, d_out: Any, arrays: Sequence[Any], made: Sequence[Any], work: Any
    ) -> None:
        d = split_heads(d_out, a.heads, 1)[0]
        *_, value = cls.projections(a, arrays)
        *d_others, d_value = cls.projections(a, made)
        if made[1] is not None:
            _products(xp, d, value.swapaxes(2, 3), _batched(made[1], a.heads), work)
        if d_value is not None:
            for grad in d_others:
                grad[...] = 0
            _products(xp, _batched(arrays[1], a.heads).swapaxes(2, 3), d, d_value, work)


class ContribInterleavedMatmulSelfattQk(_Scores):
    """Scores of self-attention, ``out = query @ key.T / sqrt(D)`` for each head.

    queries_keys_values: (L, B, heads * 3 * D)  ->  out: (B * heads, L, L).
    """

    op_name = "_contrib_interleaved_matmul_selfatt_qk"
    inputs = ("queries_keys_values",)
    parts = (3,)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        n, b, _ = _checked(shapes[0], "queries_keys_values", 3 * a.heads)
        return shapes, ((b * a.heads, n, n),)  # type: ignore[return-value]


class ContribInterleavedMatmulSelfattValatt(_Weighted):
    """Weighted values of self-attention, ``out = attention @ value`` for each head.

    queries_keys_values: (L, B, heads * 3 * D);  attention: (B * heads, L, L)  ->  out: (L, B, heads * D).
    """

    op_name = "_contrib_interleaved_matmul_selfatt_valatt"
    inputs = ("queries_keys_values", "attention")
    parts = (3,)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        n, b, d = _checked(shapes[0], "queries_keys_values", 3 * a.heads)
        if shapes[1] != (b * a.heads, n, n):
            raise ShapeError(f"attention must be {(b * a.heads, n, n)}, got {shapes[1]}.")
        return shapes, ((n, b, a.heads * d),)  # type: ignore[return-value]


class ContribInterleavedMatmulEncdecQk(_Scores):
    """Scores of attention between two sequences, ``out = query @ key.T / sqrt(D)`` for each head.

    queries: (L, B, heads * D);  keys_values: (S, B, heads * 2 * D)  ->  out: (B * heads, L, S).
    """

    op_name = "_contrib_interleaved_matmul_encdec_qk"
    inputs = ("queries", "keys_values")
    parts = (1, 2)

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        n, b, d = _checked(shapes[0], "queries", a.heads)
        s, *rest = _checked(shapes[1], "keys_values", 2 * a.heads)
        if rest != [b, d]:
            raise ShapeError(f"keys_values must be (S, {b}, {2 * a.heads * d}), got {shapes[1]}.")
        return shapes, ((b * a.heads, n, s),)  # type: ignore[return-value]


class ContribInterleavedMatmulEncdecValatt(_Weighted):
    """Weighted values of attention between two sequences, ``out = attention @ value`` for each head.

    keys_values: (S, B, heads * 2 * D);  attention: (B * heads, L, S)  ->  out: (L, B, heads * D).
    """

    op_name = "_contrib_interleaved_matmul_encdec_valatt"
    inputs = ("keys_values", "attention")
    parts = (2,)

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        s, b, d = _checked(shapes[0], "keys_values", 2 * a.heads)
        attention = shapes[1]
        if len(attention) != 3 or attention[0] != b * a.heads or attention[2] != s:
            raise ShapeError(f"attention must be ({b * a.heads}, L, {s}), got {attention}.")
        return shapes, ((attention[1], b, a.heads * d),)


class _contrib_div_sqrt_dim(Op):
    """Divide by the root of the last axis' length, ``out = data / sqrt(data.shape[-1])``.

    data: (..., K)  ->  out: as data.
    """

    inputs = ("data",)
    accepts = "float"
    same_shape = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True

    @staticmethod
    def infer_shape(a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        require_rank(data, 1, "data")
        return (data,), (data,)

    @staticmethod
    def compute(t: Any, a: Any, data: Any) -> Any:
        return {"out": data * t.constant(1 / sqrt(max(1, data.shape[-1])))}

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any) -> None:
        if out is not None:
            xp.multiply(data, 1 / sqrt(max(1, data.shape[-1])), out=out)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
        if d_data is not None:
            xp.multiply(d_out, 1 / sqrt(max(1, d_out.shape[-1])), out=d_data)


def _checked(shape: Shape | None, name: str, parts: int) -> tuple[int, int, int]:
    """(L, B, D) of an array (L, B, parts * D)."""
    assert shape is not None
    if len(shape) != 3 or shape[2] % parts:
        raise ShapeError(f"{name} must be (positions, batch, a multiple of {parts}), got {shape}.")
    return shape[0], shape[1], shape[2] // parts


def split_heads(x: Any, heads: int, parts: int) -> list[Any]:
    """The interleaved arrays, each a view (B, heads, L, D)."""
    n, b, _ = x.shape
    every = x.reshape(n, b, heads, parts, x.shape[2] // (heads * parts))
    return [every[:, :, :, i].transpose(1, 2, 0, 3) for i in range(parts)]


def _batched(x: Any, heads: int) -> Any:
    return x.reshape(x.shape[0] // heads, heads, *x.shape[1:])


def _products(xp: Any, x: Any, y: Any, out: Any, work: Any) -> None:
    """out = x @ y for each of the leading two axes."""
    if x.dtype.itemsize > 2:
        xp.matmul(x, y, out=out)
        return
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            product(xp, x[i, j], y[i, j], out[i, j], work)


def _scale(query: Any) -> float:
    return 1 / sqrt(max(1, query.shape[3]))
