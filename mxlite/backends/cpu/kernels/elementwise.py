"""Elementwise operators and their gradients, one pass over memory each, as generated code."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType, Op
from ...base import ChosenKernel, connected, Request
from ..compiled import elementwise, storable, usable
from ..compiled.expression import Expression, Writer
from ..compiled.fused import _fused_elementwise, _fused_elementwise_gradient
from ..compiled.rules import RULES, view_of, write
from ..threads import num_threads

LEAST = 1024  # elements from which on a call of machine code is shorter than one of the reference kernel
LEAST_SIMPLE = 32768  # the same for what is one call of numpy
MOST_SIMPLE = 2**18  # above, one thread of numpy is as fast as one of ours: both wait for memory

_ONE_CALL = frozenset({"add", "sub", "mul", "div", "neg", "abs", "max", "min", "sqrt", "exp", "log", "floor"})
"""Steps that numpy takes at the speed of memory."""


_FLOATS = frozenset({"float32", "float16", "bfloat16"})


class Program(NamedTuple):
    """One call of an operator as an expression. `inputs` and `outputs` are names, `views` shapes."""

    expression: Expression
    constants: tuple[float, ...]
    inputs: tuple[str, ...]
    views: tuple[Shape, ...]
    outputs: tuple[str, ...]
    shape: Shape


@functools.lru_cache(maxsize=4096)
def program(r: Request) -> Program | None:
    """The expression for a request; None where there is none.

    Wanted are outputs of one shape, inputs that broadcast to it, and types that can be loaded and stored.
    """
    op, a = r.op, r.attrs
    kinds = kinds_of(r)
    if op not in RULES or kinds is None:
        return None
    ignored = op.shape_only_names(a)
    inputs = tuple(n for n in op.input_names(a) if r.is_used(n) and n not in ignored)
    outputs = tuple(n for n in op.output_names(a) if r.is_used(n))
    if not outputs or not can_store([kinds[n][1] for n in inputs], [kinds[n][1] for n in outputs]):
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
    """Shape and dtype of everything that the request's operator may name; None where some are absent."""
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


def can_store(inputs: list[DType], outputs: list[DType]) -> bool:
    """Whether arrays of these types can be read and made; made are floats only, as it is computed in such."""
    known = storable()
    return all(str(d) in known for d in inputs) and all(str(d) in known & _FLOATS for d in outputs)


def broadcasts(shape: Shape, whole: Shape) -> bool:
    """Whether `shape` stretches to `whole`, which has elements, over few enough axes."""
    if len(shape) > len(whole) or 0 in whole:
        return False
    return all(d in (1, n) for d, n in zip(reversed(shape), reversed(whole)))


def is_worth_it(p: Program, dtypes: list[DType]) -> bool:
    """Whether generated code beats the reference kernel on it by more than a little."""
    size = prod(p.shape)
    steps = [s[0] for s in p.expression.steps]  # a number among them: a rectifier, which is several calls
    lengths, _ = elementwise.collapsed(p.shape, p.views)
    if len(lengths) > elementwise.MOST_AXES:
        return False
    simple = len(steps) <= 1 and set(steps) <= _ONE_CALL and all(d == float32 for d in dtypes)
    if simple and (len(lengths) == 1 or lengths[-1] >= 256):
        return size >= LEAST_SIMPLE and (num_threads() > 1 or size <= MOST_SIMPLE)
    return size >= LEAST


def _row(r: Request) -> ChosenKernel | None:
    if not usable():
        return None
    p = program(r)
    if p is None:
        return None
    kinds = kinds_of(r)
    assert kinds is not None
    if not is_worth_it(p, [kinds[n][1] for n in (*p.inputs, *p.outputs)]):
        return None
    names = r.op.input_names(r.attrs) if r.op.variadic else r.op.signature.needs
    places = [names.index(n) for n in p.inputs]
    loops = _Loops(p, [kinds[n][1] for n in p.inputs], [kinds[n][1] for n in p.outputs])

    def connect(xp: Any, a: Any, *inputs: Any, **outputs: Any) -> elementwise.Run:
        return loops.call([inputs[i] for i in places], [outputs[n] for n in p.outputs])

    kernel = connected(connect, 0, "compiled elementwise", like=r.op.forward)

    def run(xp: Any, a: Any, *inputs: Any, **outputs: Any) -> None:
        """An imperative call: in the usual case half as long as what `connected` makes of it."""
        ins, outs = [inputs[i] for i in places], [outputs[n] for n in p.outputs]
        for x in (*ins, *outs):
            if x is not None and not x.flags.c_contiguous:
                kernel.run(xp, a, *inputs, **outputs)
                return
        loops.call(ins, outs)()

    return replace(kernel, run=run)


def fused(r: Request) -> ChosenKernel | None:
    """The fused operators, whatever their size: their reference kernel is slow."""
    a = r.attrs
    if not usable() or not can_store(list(r.dtypes), list(a.dtypes)) or 0 in a.shape:
        return None
    loops = _Loops(Program(a.expression, a.constants, (), a.views, (), a.shape), r.dtypes, a.dtypes)

    def connect(xp: Any, a: Any, *args: Any, outs: Any) -> elementwise.Run:
        return loops.call(args, outs)

    return connected(connect, 0, f"compiled {len(a.expression.steps)} steps", like=r.op.forward)


class _Loops:
    """The loops for one program, one for each set of outputs that a call wants.

    When a node is computed again, the plan may have no room for what nobody reads any more.
    """

    def __init__(self, p: Program, inputs: Sequence[DType], outputs: Sequence[DType]) -> None:
        self.p, self.inputs, self.outputs = p, inputs, outputs
        self.whole = self._loop(range(len(outputs)))
        self._some: dict[tuple[int, ...], elementwise.Loop] = {}

    def call(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> elementwise.Run:
        if not any(y is None for y in outputs):
            return self.whole.call(*inputs, *outputs)
        wanted = tuple(i for i, y in enumerate(outputs) if y is not None)
        if not wanted:
            return _nothing
        if wanted not in self._some:
            self._some[wanted] = self._loop(wanted)
        return self._some[wanted].call(*inputs, *(outputs[i] for i in wanted))

    def _loop(self, wanted: Sequence[int]) -> elementwise.Loop:
        p, e = self.p, self.p.expression.only(wanted)
        made = [self.outputs[i] for i in wanted]
        return elementwise.Loop(e, p.constants, p.views, self.inputs, p.shape, made)


def _nothing() -> None:
    """What is done where nothing is wanted."""


ROWS: dict[type[Op], list[Any]] = {
    **{op: [_row] for op in RULES},
    _fused_elementwise: [fused],
    _fused_elementwise_gradient: [fused],
}
