"""Operators that declare a computation, and their gradients, as generated loop nests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from .....core.dtype import float32
from .....ops import ALL
from .....ops.scratch import carve, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....elementwise.formula import elementwise_operators, is_elementwise
from ....fused.computation import FusedComputation, FusedComputationGradient
from ....nests.nest import Nests
from ....nests.program import nests_for
from ...compiled import storable, usable
from ...compiled.nests import Loops
from ...kernel_row import GENERATED, kernel_rows, LATER
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _row(r: Request) -> ChosenKernel | None:
    if not usable():
        return None
    nests = nests_for(r, storable())
    if nests is None or (is_elementwise(r.op) and (r.op.forward_op is None or not nests.reduces)):
        return None  # which are kernels of elements
    loops: dict[frozenset[str], Loops] = {}

    def loops_for(present: frozenset[str]) -> Loops:
        """The loops for these arrays: some head gradients, and outputs that nothing reads, may be absent."""
        if present not in loops:
            found = nests if present == everything else _some(r, present)
            assert found is not None, f"{r.op.op_name} of {sorted(present)}"
            loops[present] = Loops(found)
        return loops[present]

    everything = frozenset(
        n for n in (*r.op.input_names(r.attrs), *r.op.output_names(r.attrs)) if r.is_used(n)
    )
    forward = r.op.forward_op or r.op
    check = forward.compute_check
    shapes = dict(zip(forward.input_names(r.attrs), r.inputs))
    nbytes = max(_scratch(r, some) for some in _subsets(everything, nests.outputs))
    loops_for(everything)
    is_variadic = bool(r.op.variadic)
    names = r.op.input_names(r.attrs) if is_variadic else r.op.signature.needs

    def connect(xp: Any, a: Any, *inputs: Any, work: Any = None, **outputs: Any) -> Run:
        if is_variadic:
            outputs = dict(zip(r.op.output_names(r.attrs), outputs["outs"]))
        given = {n: x for n, x in (*zip(names, inputs), *outputs.items()) if x is not None}
        if not any(n in given for n in nests.outputs):
            return in_turn(())
        chosen = loops_for(frozenset(given) & everything)
        own = carve(work, [((n,), float32) for n in chosen.scratch]) if chosen.scratch else []
        arrays = [*(given[n] for n in (*chosen.nests.inputs, *chosen.nests.outputs)), *own]
        run = chosen.call([address_of(x) for x in arrays], keep=arrays)
        return run if check is None else in_turn([partial(check, xp, a, shapes, given[forward.checked]), run])

    name = f"compiled {len(nests.nests)} loop nests" if len(nests.nests) > 1 else "compiled loop nest"
    own = r.op.signature
    like = replace(own, services=own.services | {"work"}) if nbytes else own
    return replace(connected(connect, nbytes, name, like=like, bits=()), is_computed=True)


def _subsets(everything: frozenset[str], outputs: Sequence[str]) -> Iterator[frozenset[str]]:
    """The arrays of a call that wants all outputs, or some."""
    for count in range(len(outputs)):
        for absent in combinations(outputs, count):
            yield everything.difference(absent)


def _some(r: Request, present: frozenset[str]) -> Nests | None:
    """The nests for a call with these arrays alone: an output has the bits that it has with others."""
    outputs = frozenset(n for n in r.op.output_names(r.attrs) if r.is_used(n))
    return nests_for(replace(r, used=present | outputs), storable(), present & outputs)


def _scratch(r: Request, present: frozenset[str]) -> int:
    """Bytes of scratch of the loops for these arrays: fewer outputs may want other nests, and more of it."""
    found = _some(r, present)
    return 0 if found is None else scratch_bytes(((n,), float32) for n in found.scratch)


_OPERATORS = [op for op in ALL if op.compute is not None]

SERVES = (
    "backends.fused.computation",
    "graph.gradient",
    "ops.elementwise",
    "ops.index",
    "ops.linalg.factorizations",
    "ops.loss",
    "ops.nn.interleaved",
    "ops.norm",
    "ops.reduce",
    "ops.optim.lars",
    "ops.shape.diagonal",
    "ops.shape.like",
    "ops.vision.box_targets",
    "ops.vision.boxes",
    "ops.vision.grid",
    "ops.vision.image",
    "ops.vision.resize",
    "ops.vision.sampler",
)
ROWS = kernel_rows(
    GENERATED,
    dict.fromkeys(
        [
            *_OPERATORS,
            *(op.grad_op for op in _OPERATORS if op.grad_op is not None),
            *elementwise_operators(),
            FusedComputation,
            FusedComputationGradient,
        ],
        _row,
    ),
    LATER,  # rows written by hand for one operator are asked before
)
