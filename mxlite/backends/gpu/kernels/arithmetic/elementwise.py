"""Elementwise operators, their gradients and fused chains: one pass over memory each, as generated CUDA.

The shapes of a call are collapsed to the fewest axes (see `collapse`). The last axis is read in packs of up
to four elements if its length and the addresses allow; a thread takes a pack, finds its row by division with
precomputed multipliers, and computes the expression for each element. One source serves all shapes with the
same number of axes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import DType
from .....te.expression import Expression, ExpressionValue, Writer
from ....base import ChosenKernel, Request
from ....elementwise.formula import elementwise_operators
from ....elementwise.program import can_store, collapsed, kinds_of, Program, program
from ....fused.elementwise import FusedElementwise, FusedElementwiseGradient
from ...compiler.kinds import floating, FLOATS, known, wide
from ...compiler.source import assembled, kernel, KernelSource, NAMES
from ...compiler.steps import step_lines, STEPS
from ...handwritten.each import spread, THREADS
from ...handwritten.layout import divisor, stretches
from ...rows import answer, table
from ...runtime.device import Device, nothing, one_after_other, pointer, Run

PACK = 4  # elements of a pack: 16 bytes of float32
MOST_AXES = 6
MOST_PACKS = 2**31 - 1  # the limit of exact division by multiplication

Formula = Callable[..., ExpressionValue]

KNOWN = frozenset(NAMES)


@functools.lru_cache(maxsize=4096)
def source(
    expression: Expression,
    inputs: tuple[tuple[str, bool], ...],
    outputs: tuple[str, ...],
    outer: int,
    pack: int,
) -> KernelSource:
    """The kernel "elementwise" for an expression.

    `inputs` are dtypes, each with True if the input has the last axis (else it is broadcast along it);
    `outer` axes come before the last. Parameters: inputs, outputs, constants, packs, packs of a row
    (divisor), then lengths of the outer axes but the first (divisors) and the outer strides of every input.
    """
    compute = wide(*(d for d, _ in inputs))
    parameters = [f"const {NAMES[d]} *in{i}" for i, (d, _) in enumerate(inputs)]
    parameters += [f"{NAMES[d]} *out{i}" for i, d in enumerate(outputs)]
    parameters += [f"double constant{i}" for i in range(expression.num_constants)]
    parameters.append("int64 packs")
    if outer:
        parameters += ["uint32 row", "uint32 row_m", "uint32 row_s"]
        for axis in range(1, outer):
            parameters += [f"uint32 n{axis}", f"uint32 n{axis}_m", f"uint32 n{axis}_s"]
        parameters += [f"int64 stride{i}_{axis}" for i in range(len(inputs)) for axis in range(outer)]
    body = [f"typedef {compute} C;", "MX_EACH(at, packs) {"]
    if outer:
        body += [
            "    uint32 rest = divided((uint32)at, row_m, row_s);",
            "    int64 column = at - (int64)rest * row;",
        ]
        for axis in range(outer - 1, 0, -1):
            body += [
                f"    uint32 left{axis} = divided(rest, n{axis}_m, n{axis}_s);",
                f"    uint32 x{axis} = rest - left{axis} * n{axis};",
                f"    rest = left{axis};",
            ]
        body.append("    uint32 x0 = rest;")
    for i, (dtype, last) in enumerate(inputs):
        where = " + ".join(f"x{axis} * stride{i}_{axis}" for axis in range(outer)) or "0"
        name = NAMES[dtype]
        if last:
            at = "column" if outer else "at"
            kind = f"Pack<{name}, {pack}>"
            body.append(f"    {kind} p{i} = *(const {kind} *)(in{i} + ({where}) + {at} * {pack});")
        else:
            body.append(f"    C s{i} = to<C>(in{i}[{where}]);")
    body += [f"    Pack<{NAMES[d]}, {pack}> q{i};" for i, d in enumerate(outputs)]
    body += ["    #pragma unroll", f"    for (int e = 0; e < {pack}; ++e) {{"]
    lines = _lines(expression, inputs)
    body += [f"        {line}" for line in lines]
    for i, (dtype, number) in enumerate(zip(outputs, expression.outputs)):
        body.append(f"        q{i}.at[e] = from<{NAMES[dtype]}>((C)v{number});")
    body.append("    }")
    body += [
        f"    *(Pack<{NAMES[d]}, {pack}> *)(out{i} + at * {pack}) = q{i};" for i, d in enumerate(outputs)
    ]
    body.append("}")
    return assembled("types", "math", "index", kernel("elementwise", parameters, body, THREADS))


def _lines(expression: Expression, inputs: Sequence[tuple[str, bool]]) -> list[str]:
    """A declaration for every number of the expression."""
    lines = [
        f"C v{i} = " + (f"to<C>(p{i}.at[e]);" if last else f"s{i};") for i, (_, last) in enumerate(inputs)
    ]
    first = expression.num_inputs
    lines += [f"C v{first + i} = (C)constant{i};" for i in range(expression.num_constants)]
    return lines + step_lines(expression)


class Loop:
    """The kernel of one expression, for shapes and types; `call` connects it to arrays."""

    def __init__(
        self, device: Device, expression: Expression, constants: Sequence[float], views: Sequence[Shape],
        dtypes: Sequence[DType], shape: Shape, made: Sequence[DType],
    ) -> None:  # fmt: skip
        """`views` and `dtypes` are those of the inputs, `shape` and `made` those of the outputs."""
        self.device, self.expression, self.constants = device, expression, constants
        self.lengths, self.strides = collapsed(shape, views)
        self.dtypes, self.made = [str(d) for d in dtypes], tuple(str(d) for d in made)
        self.items = [d.itemsize for d in (*dtypes, *made)]
        self.size = prod(shape)

    def call(self, *arrays: Any) -> Run:
        """The call for these arrays, inputs and then outputs, which are in C order."""
        if self.size == 0:
            return nothing
        addresses = [self.device.address(x) for x in arrays]
        if len(self.lengths) == 1:  # without a division
            return self._launch(addresses, self.lengths[0])
        first, each = self.lengths[0], prod(self.lengths[1:])
        steps = [strides[0] for strides in self.strides] + [each] * len(self.made)
        runs = []
        for start, count in stretches(first, each, MOST_PACKS):
            moved = [a + start * s * n for a, s, n in zip(addresses, steps, self.items)]
            runs.append(self._launch(moved, count * each))
        return one_after_other(runs)

    @property
    def fits(self) -> bool:
        """True if the kernel can count its elements."""
        return len(self.lengths) <= MOST_AXES and (
            len(self.lengths) == 1 or prod(self.lengths[1:]) <= MOST_PACKS
        )

    def _launch(self, addresses: Sequence[int], size: int) -> Run:
        device, outer = self.device, len(self.lengths) - 1
        pack = self._pack(addresses)
        packs, row = size // pack, self.lengths[-1] // pack
        values: list[Any] = [*map(pointer, addresses), *map(float, self.constants), ctypes.c_int64(packs)]
        if outer:
            for n in (row, *self.lengths[1:-1]):
                values += [ctypes.c_uint32(x) for x in (n, *divisor(n))]
            values += [ctypes.c_int64(s) for strides in self.strides for s in strides[:-1]]
        kinds = tuple((d, s[-1] != 0) for d, s in zip(self.dtypes, self.strides))
        text = source(self.expression, kinds, self.made, outer, pack)
        return spread(device, text, "elementwise", packs, *values)

    def _pack(self, addresses: Sequence[int]) -> int:
        """Number of elements read at once: a row is whole packs, and each pack is aligned to its size."""
        last = [True if i >= len(self.strides) else self.strides[i][-1] != 0 for i in range(len(addresses))]
        for pack in (PACK, 2, 1):
            if self.lengths[-1] % pack == 0 and all(
                a % (pack * n) == 0 for a, n, has in zip(addresses, self.items, last) if has
            ):
                return pack
        return 1


def loop(
    device: Device, f: Formula, views: Sequence[Shape], dtypes: Sequence[DType], shape: Shape, made: DType
) -> Loop | None:
    """`f(w, *values)` for every element of `shape`; None if there is no kernel for it."""
    w = Writer()
    expression, constants = w.expression([f(w, *(w.input() for _ in views))])
    # An input that the formula leaves out is still passed.
    made_loop = Loop(device, expression, constants, views, dtypes, shape, [made])
    return made_loop if made_loop.fits and known(*dtypes) and floating(made) else None


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
    if not loops.fits:
        return None

    def connect(a: Any, *inputs: Any, **outputs: Any) -> Run:
        return loops.call([inputs[i] for i in places], [outputs[n] for n in p.outputs])

    return answer(r, connect, 0, "cuda elementwise")


def _fused(device: Device, r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not can_store(r.dtypes, a.dtypes, KNOWN, FLOATS):
        return None
    p = Program(a.expression, a.constants, (), a.views, (), a.shape)
    loops = _Loops(device, p, r.dtypes, a.dtypes)
    if not loops.fits:
        return None

    def connect(a: Any, *args: Any, outs: Any) -> Run:
        return loops.call(args, outs)

    return answer(r, connect, 0, f"cuda {len(a.expression.steps)} steps")


class _Loops:
    """The kernels for one program, one for each set of outputs that a call wants."""

    def __init__(self, device: Device, p: Program, inputs: Sequence[DType], outputs: Sequence[DType]) -> None:
        self.device, self.p, self.inputs, self.outputs = device, p, inputs, outputs
        whole = Loop(device, p.expression, p.constants, p.views, inputs, p.shape, outputs)
        self.fits = whole.fits
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
