"""Elementwise operators, their gradients and fused chains: one pass over memory each, as a loop nest.

The shapes of a call are collapsed to the fewest axes (see `collapsed`), and the nest without reductions that
is left is printed as any other (`backends/gpu/nests/`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from .....core.cached import cached_property
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....te.expression import Expression, ExpressionValue, Writer
from ....base import ChosenKernel, Request
from ....elementwise.formula import elementwise_operators
from ....elementwise.program import can_store, collapsed, kinds_of, Program, program
from ....fused.elementwise import FusedElementwise, FusedElementwiseGradient
from ....nests.elementwise import elementwise_nests
from ...compiler.kinds import floating, FLOATS, known
from ...compiler.source import NAMES
from ...compiler.steps import STEPS
from ...nests import Launches
from ...rows import answer, table
from ...runtime.device import Device, nothing, Run

Formula = Callable[..., ExpressionValue]

KNOWN = frozenset(NAMES)


class Loop:
    """The kernel of one expression, for shapes and types; `call` connects it to arrays."""

    def __init__(
        self, device: Device, expression: Expression, constants: Sequence[float], views: Sequence[Shape],
        dtypes: Sequence[DType], shape: Shape, made: Sequence[DType],
    ) -> None:  # fmt: skip
        """`views` and `dtypes` are those of the inputs, `shape` and `made` those of the outputs."""
        self.device, self.expression, self.constants, self.size = device, expression, constants, prod(shape)
        self.lengths, self.strides = collapsed(shape, views)
        self.dtypes, self.made = dtypes, made

    @cached_property
    def launches(self) -> Launches:
        """The launch."""
        ins, outs = [str(d) for d in self.dtypes], [str(d) for d in self.made]
        masks = [tuple(step != 0 for step in steps) for steps in self.strides]
        number = "int64" if not FLOATS.issuperset(outs) else "float64" if "float64" in ins else "float32"
        given = self.expression, self.constants, self.lengths, masks, self.dtypes, self.made
        nests = elementwise_nests(*given, number)
        return Launches(self.device, nests, "elementwise")

    def call(self, *arrays: Any) -> Run:
        """The call for these arrays, inputs and then outputs, which are in C order."""
        return self.launches.call(arrays) if self.size else nothing


def loop(
    device: Device, f: Formula, views: Sequence[Shape], dtypes: Sequence[DType], shape: Shape, made: DType
) -> Loop | None:
    """`f(w, *values)` for every element of `shape`; None if there is no kernel for it."""
    w = Writer()
    expression, constants = w.expression([f(w, *(w.input() for _ in views))])
    # An input that the formula leaves out is still passed.
    made_loop = Loop(device, expression, constants, views, dtypes, shape, [made])
    is_whole = all(d.kind in "iub" for d in (*dtypes, made))
    return made_loop if known(*dtypes) and (floating(made) or is_whole) else None


def looped(
    r: Request, made: Loop | None, name: str, places: Sequence[int] | None = None
) -> ChosenKernel | None:
    """The kernel by which `made` computes the one output, of the inputs at `places`; None: of all."""

    def connect(a: Any, *inputs: Any, **rest: Any) -> Run:
        (out,) = (rest[n] for n in r.op.signature.makes)
        assert made is not None
        return made.call(*(inputs if places is None else [inputs[i] for i in places]), out)

    return None if made is None else answer(r, connect, 0, name)


def _single(device: Device, r: Request) -> ChosenKernel | None:
    return programmed(device, r, program(r, KNOWN, FLOATS))


def programmed(device: Device, r: Request, p: Program | None) -> ChosenKernel | None:
    """The kernel for a request that is this program."""
    if p is None or any(name not in STEPS for name, *_ in p.expression.steps):
        return None
    kinds = kinds_of(r)
    assert kinds is not None
    names = r.op.input_names(r.attrs) if r.op.variadic else r.op.signature.needs
    places = [names.index(n) for n in p.inputs]
    loops = _Loops(device, p, [kinds[n][1] for n in p.inputs], [kinds[n][1] for n in p.outputs])

    def connect(a: Any, *inputs: Any, **outputs: Any) -> Run:
        return loops.call([inputs[i] for i in places], [outputs[n] for n in p.outputs])

    return answer(r, connect, 0, "cuda elementwise")


def _fused(device: Device, r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not can_store(r.dtypes, a.dtypes, KNOWN, FLOATS):
        return None
    p = Program(a.expression, a.constants, (), a.views, (), a.shape)
    loops = _Loops(device, p, r.dtypes, a.dtypes)

    def connect(a: Any, *args: Any, outs: Any) -> Run:
        return loops.call(args, outs)

    return answer(r, connect, 0, f"cuda {len(a.expression.steps)} steps")


class _Loops:
    """The kernels for one program, one for each set of outputs that a call wants."""

    def __init__(self, device: Device, p: Program, inputs: Sequence[DType], outputs: Sequence[DType]) -> None:
        self.device, self.p, self.inputs, self.outputs = device, p, inputs, outputs
        self._some: dict[tuple[int, ...], Loop] = {}

    def call(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Run:
        wanted = tuple(i for i, y in enumerate(outputs) if y is not None)
        if not wanted:
            return nothing
        if wanted not in self._some:
            p, e = self.p, self.p.expression.only(wanted)
            made = [self.outputs[i] for i in wanted]
            self._some[wanted] = Loop(self.device, e, p.constants, p.views, self.inputs, p.shape, made)
        return self._some[wanted].call(*inputs, *(outputs[i] for i in wanted))


rows = table(
    *((op, _single, None) for op in elementwise_operators()),
    *((op, _fused, None) for op in (FusedElementwise, FusedElementwiseGradient)),
)
