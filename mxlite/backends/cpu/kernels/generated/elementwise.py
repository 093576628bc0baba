"""Elementwise operators and their gradients, one pass over memory each, as generated code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from .....graph.opdef import DType
from ....base import ChosenKernel, connected, Request
from ....elementwise.formula import elementwise_operators
from ....elementwise.program import can_store, kinds_of, Program, program
from ....fused.elementwise import FusedElementwise, FusedElementwiseGradient
from ...compiled import elementwise, storable, usable
from ...kernel_row import GENERATED, kernel_rows

LEAST = 1024  # elements below which an imperative call runs the reference kernel


def _row(r: Request) -> ChosenKernel | None:
    if not usable():
        return None
    p = program(r, storable())
    if p is None:
        return None
    kinds = kinds_of(r)
    assert kinds is not None
    leads = _leads(r, p, p.inputs, p.outputs) if r.tile.is_special else None
    if r.tile.is_special and leads is None:
        return None
    names = r.op.input_names(r.attrs) if r.op.variadic else r.op.signature.needs
    places = [names.index(n) for n in p.inputs]
    loops = _Loops(p, [kinds[n][1] for n in p.inputs], [kinds[n][1] for n in p.outputs], leads)
    views = frozenset((*p.inputs, *p.outputs) if leads else ())

    def connect(xp: Any, a: Any, *inputs: Any, **outputs: Any) -> elementwise.Run:
        return loops.call([inputs[i] for i in places], [outputs[n] for n in p.outputs])

    # All inputs are read, vector by vector, before an output is written.
    whole = tuple(n for n, v in zip(p.inputs, p.views) if v == p.shape) if not r.op.variadic else ()
    over = dict.fromkeys(p.outputs, whole)
    kernel = connected(connect, 0, "compiled elementwise", like=r.op.forward, in_place=over, views=views)

    def run(xp: Any, a: Any, *inputs: Any, **outputs: Any) -> None:
        """Imperative call: in the usual case it takes half the time of `connected`'s."""
        ins, outs = [inputs[i] for i in places], [outputs[n] for n in p.outputs]
        for x in (*ins, *outs):
            if x is not None and not x.flags.c_contiguous:
                kernel.run(xp, a, *inputs, **outputs)
                return
        loops.call(ins, outs)()

    return replace(kernel, run=run, bound_only=leads is None and prod(p.shape) < LEAST)


def fused(r: Request) -> ChosenKernel | None:
    """Kernel of the fused operators at any size: their reference kernel is slow."""
    a = r.attrs
    if not usable() or not can_store(r.dtypes, a.dtypes, storable()) or 0 in a.shape:
        return None
    p = Program(a.expression, a.constants, (), a.views, (), a.shape)
    names, views, leads = (r.op.input_names(a), r.op.output_names(a)), frozenset[str](), None
    if r.tile.is_special:
        leads, views = _leads(r, p, *names), frozenset(("args", "outs", *names[0], *names[1]))
        if leads is None:
            return None
    loops = _Loops(p, r.dtypes, a.dtypes, leads)

    def connect(xp: Any, a: Any, *args: Any, outs: Any) -> elementwise.Run:
        return loops.call(args, outs)

    name = f"compiled {len(a.expression.steps)} steps"
    return connected(connect, 0, name, like=r.op.forward, views=views)


def _leads(r: Request, p: Program, inputs: Sequence[str], outputs: Sequence[str]) -> list[int] | None:
    """Elements from row to row of each array, in a tile of matrices; None if the tile is none."""
    if r.tile.adds or r.tile.dtypes or len(p.shape) != 2 or set(p.views) != {p.shape}:
        return None
    strides = [r.strides(n) or (p.shape[1], 1) for n in (*inputs, *outputs)]
    return [s[0] for s in strides] if all(s[1] == 1 for s in strides) else None


class _Loops:
    """The loops for one program, one for each set of outputs that a call requests.

    A recomputed node may have no buffer for outputs that are not read any more.
    """

    def __init__(
        self,
        p: Program,
        inputs: Sequence[DType],
        outputs: Sequence[DType],
        leads: Sequence[int] | None = None,
    ) -> None:
        self.p, self.inputs, self.outputs, self.leads = p, inputs, outputs, leads
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
        count = len(self.inputs)
        leads = self.leads and [*self.leads[:count], *(self.leads[count + i] for i in wanted)]
        return elementwise.Loop(e, p.constants, p.views, self.inputs, p.shape, made, leads)


def _nothing() -> None:
    """Do nothing: the run without requested outputs."""


SERVES = (
    "ops.elementwise",
    "backends.fused.elementwise",
    "graph.gradient",
    "ops.index.index",
    "ops.loss.loss",
    "ops.optim.lars",
    "ops.shape.like",
)
ROWS = kernel_rows(
    GENERATED,
    {
        **dict.fromkeys(elementwise_operators(), _row),
        FusedElementwise: fused,
        FusedElementwiseGradient: fused,
    },
    tiles=True,
)
