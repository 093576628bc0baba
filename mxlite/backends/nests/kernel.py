"""The kernel of a request that is loop nests, in whatever code these are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from ...core.dtype import as_dtype
from ...ops.scratch import carve, Piece, scratch_bytes
from ...te.operator import by_name
from ..base import ChosenKernel, connected, Request, Run
from ..fused.computation import FUSED
from .nest import Nests
from .program import Arrays, is_chain, nests_for

Linked = Callable[[Sequence[Any]], Run]
"""Gives the call of some nests for their arrays: inputs, outputs, scratch."""


def nest_kernel(
    r: Request,
    how: Arrays,
    nests: Nests,
    written: Callable[[Nests], Linked],
    in_turn: Callable[[Sequence[Run]], Run],
    kind: str,
    **facts: Any,
) -> ChosenKernel:
    """The kernel for a request whose `nests` these are. A call may want some of the outputs, which then have
    the bits that they have with the others.

    `written` writes the code of nests, `in_turn` makes one call of several; `kind` and the number of nests
    are the kernel's name.
    """
    codes: dict[frozenset[str], tuple[Nests, Linked]] = {}

    def code_for(present: frozenset[str]) -> tuple[Nests, Linked]:
        """The code for these arrays: some head gradients, and outputs that nothing reads, may be absent."""
        if present not in codes:
            found = nests if present == everything else _some(r, how, present)
            assert found is not None, f"{r.op.op_name} of {sorted(present)}"
            codes[present] = found, written(found)
        return codes[present]

    everything = frozenset(
        n for n in (*r.op.input_names(r.attrs), *r.op.output_names(r.attrs)) if r.is_used(n)
    )
    forward = r.op.forward_op or r.op
    check = forward.compute_check
    shapes = dict(zip(forward.input_names(r.attrs), r.inputs))
    some = _subsets(everything, nests.outputs) if nests.reduces else ()
    nbytes = max((_scratch(r, how, present) for present in some), default=0)
    code_for(everything)
    is_variadic = bool(r.op.variadic)
    names = r.op.input_names(r.attrs) if is_variadic else r.op.signature.needs

    def connect(xp: Any, a: Any, *inputs: Any, work: Any = None, **outputs: Any) -> Run:
        arrays = by_name(forward, r.attrs, (*zip(names, inputs), *outputs.items()))
        given = {n: x for n, x in arrays.items() if x is not None}
        present = everything.intersection(given)
        if present.isdisjoint(nests.outputs):
            return in_turn(())
        chosen, linked = code_for(present)
        own = carve(work, _pieces(chosen)) if chosen.scratch else []
        run = linked([*(given[n] for n in (*chosen.inputs, *chosen.outputs)), *own])
        return run if check is None else in_turn([partial(check, xp, a, shapes, given[forward.checked]), run])

    name = f"{kind} {_name(r, nests)}"
    own = r.op.signature
    like = replace(own, services=own.services | {"work"}) if nbytes else own
    if r.tile.is_special:
        facts["views"] = frozenset(("args", "outs", *r.op.input_names(r.attrs), *r.op.output_names(r.attrs)))
    kernel = connected(connect, nbytes, name, like=like, **facts)
    return replace(kernel, is_computed=True, in_place=nests.in_place)


def _name(r: Request, nests: Nests) -> str:
    """What the kernel is, besides its kind."""
    if is_chain(r, nests):
        return f"{len(nests.nests[0].nest.steps)} steps" if r.op in FUSED else "elementwise"
    return f"{len(nests.nests)} loop nests" if len(nests.nests) > 1 else "loop nest"


def _subsets(everything: frozenset[str], outputs: Sequence[str]) -> Iterator[frozenset[str]]:
    """The arrays of a call that wants all outputs, or some."""
    for count in range(len(outputs)):
        for absent in combinations(outputs, count):
            yield everything.difference(absent)


def _some(r: Request, how: Arrays, present: frozenset[str]) -> Nests | None:
    """The nests for a call with these arrays alone: an output has the bits that it has with others."""
    outputs = frozenset(n for n in r.op.output_names(r.attrs) if r.is_used(n))
    return nests_for(replace(r, used=present | outputs), how, present & outputs)


def _scratch(r: Request, how: Arrays, present: frozenset[str]) -> int:
    """Bytes of scratch of the code for these arrays: fewer outputs may want other nests, and more of it."""
    found = _some(r, how, present)
    return 0 if found is None else scratch_bytes(_pieces(found))


def _pieces(nests: Nests) -> list[Piece]:
    """The scratch of nests, as arrays."""
    return [((n,), as_dtype(nests.number)) for n in nests.scratch]
