"""One call of an elementwise operator as an expression on arrays that broadcast."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from ...graph.ir import Shape
from ...graph.opdef import DType
from ...te.expression import Expression, Writer
from ..base import Request
from .formula import is_elementwise, view_of, write

FLOATS = frozenset({"float32", "float16", "bfloat16"})


class Program(NamedTuple):
    """An operator call as an expression. `inputs` and `outputs` are names, `views` shapes."""

    expression: Expression
    constants: tuple[float, ...]
    inputs: tuple[str, ...]
    views: tuple[Shape, ...]
    outputs: tuple[str, ...]
    shape: Shape


def program(r: Request, known: frozenset[str], floats: frozenset[str] = FLOATS) -> Program | None:
    """The expression for a request; None if there is none.

    It requires outputs of one shape, inputs that broadcast to it, and dtypes that are `known`: those that
    the backend's code can load and store. Only `floats` are stored, which are also the compute types.
    """
    return _program(r, repr(r.attrs), known, floats)


@functools.lru_cache(maxsize=4096)
def _program(r: Request, spelled: str, known: frozenset[str], floats: frozenset[str]) -> Program | None:
    """`spelled` are the attributes as text: 0.0 and -0.0 are equal, but not the same constant."""
    op, a = r.op, r.attrs
    kinds = kinds_of(r)
    if not is_elementwise(op) or kinds is None:
        return None
    ignored = op.shape_only_names(a)
    inputs = tuple(n for n in op.input_names(a) if r.is_used(n) and n not in ignored)
    outputs = tuple(n for n in op.output_names(a) if r.is_used(n))
    made_types = [kinds[n][1] for n in outputs]
    if not outputs or not can_store([kinds[n][1] for n in inputs], made_types, known, floats):
        return None
    shape = kinds[outputs[0]][0]
    views = tuple(view_of(op, a, n, kinds[n][0], shape) for n in inputs)
    if any(kinds[n][0] != shape for n in outputs) or not all(broadcasts(v, shape) for v in views):
        return None
    w = Writer()
    made = write(w, op, a, {n: w.input() for n in inputs}, r.dtype)
    if made is None or any(n not in made for n in outputs):
        return None
    expression, constants = w.expression([made[n] for n in outputs])
    return Program(expression, constants, inputs, views, outputs, shape)


def kinds_of(r: Request) -> dict[str, tuple[Shape, DType]] | None:
    """Shape and dtype of every array that the request's operator may name; None if some are absent."""
    forward = r.op.forward_op or r.op
    ins, outs = forward.input_names(r.attrs), forward.output_names(r.attrs)
    if len(ins) != len(r.inputs):
        return None
    _, dtypes = forward.infer_type(r.attrs, *r.dtypes)
    kinds: dict[str, tuple[Shape, DType]] = {}
    for names, shapes, types in ((ins, r.inputs, r.dtypes), (outs, r.outputs, dtypes)):
        for name, shape, dtype in zip(names, shapes, types, strict=True):
            assert dtype is not None
            kinds[name] = kinds[f"d_{name}"] = (tuple(shape), dtype)
    return kinds


def can_store(
    inputs: Sequence[DType], outputs: Sequence[DType], known: frozenset[str], floats: frozenset[str] = FLOATS
) -> bool:
    """True if arrays of these types can be read and written."""
    return all(str(d) in known for d in inputs) and all(str(d) in known & floats for d in outputs)


def broadcasts(shape: Shape, whole: Shape) -> bool:
    """True if `shape` broadcasts to `whole`, which has elements, over few enough axes."""
    if len(shape) > len(whole) or 0 in whole:
        return False
    return all(d in (1, n) for d, n in zip(reversed(shape), reversed(whole)))


def collapsed(shape: Shape, inputs: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """(lengths of the fewest axes, strides of each input along them in elements, 0 where it is broadcast)."""
    rank = len(shape)
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in inputs]
    lengths: list[int] = []
    there: list[tuple[bool, ...]] = []  # for each remaining axis: which inputs have it
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        has = tuple(s[axis] == n for s in aligned)
        if there and there[-1] == has:
            lengths[-1] *= n
        else:
            lengths.append(n)
            there.append(has)
    if not lengths:
        lengths, there = [1], [(False,) * len(aligned)]
    strides = []
    for i in range(len(aligned)):
        step, own = 1, [0] * len(lengths)
        for axis in range(len(lengths) - 1, -1, -1):
            if there[axis][i]:
                own[axis], step = step, step * lengths[axis]
        strides.append(tuple(own))
    return tuple(lengths), tuple(strides)
