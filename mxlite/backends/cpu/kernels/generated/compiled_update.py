"""Optimizer steps of training programs as generated code: one pass over weight, gradient and states."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from .....core.dtype import float32
from .....core.machine_code import native
from .....graph.opdef import Op
from .....ops import ALL
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.update import code
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import Run
from ...onednn.primitive import address_of


def code_of(r: Request, in_rows: bool = False) -> native.Code | None:
    """The generated function for an update, see `compiled.update.code`; None if there is none."""
    if not usable() or 0 in r.inputs[0]:
        return None
    step: Any = r.op.step_of  # type: ignore[attr-defined]
    master: bool = r.op.has_master  # type: ignore[attr-defined]
    weight, grad, *states, _ = r.dtypes
    kinds = tuple(d.name for d in (weight, grad, *states))
    if not set(kinds) <= storable() or any(d != float32 for d in states):
        return None
    # A gradient may be narrower than its weight, see passes/precision/inline_gradient_casts.py.
    if not master and weight != float32:
        return None
    return code(step, replace(r.attrs, row=0), kinds, master, in_rows)


def _update(r: Request) -> ChosenKernel | None:
    in_rows = r.tile.is_special
    names = r.op.input_names(r.attrs)[:-1]
    leads = [(r.strides(n) or r.inputs[0][1:])[0] for n in names] if in_rows else []
    if in_rows and any((r.strides(n) or (1, 1))[1:] != (1,) for n in names):
        return None
    made = code_of(r, in_rows)
    if made is None:
        return None
    step: Any = r.op.step_of  # type: ignore[attr-defined]
    weight, grad, *states, _ = r.dtypes
    size = prod(r.inputs[0])
    nbytes = size * sum(d.itemsize for d in (weight, grad, *states))

    def connect(xp: Any, a: Any, *arrays: Any, work: Any = None) -> Run:
        *own, hyper = arrays
        slots = [address_of(hyper) + hyper.strides[0] * a.row]
        if in_rows:
            slots += [*r.inputs[0], *(s for x, lead in zip(own, leads) for s in (address_of(x), lead))]
        else:
            slots += [size, *(address_of(x) for x in own)]
        return call(made, "update", slots, threads_for(2 * nbytes), keep=(own, hyper))

    views = frozenset(names if in_rows else ())
    return connected(connect, 0, f"compiled {step.op_name}", like=r.op.forward, mutates=True, views=views)


def _steps() -> list[type[Op]]:
    """The fused steps that need only a learning rate and a weight decay."""
    fused = [op for op in ALL if getattr(op, "form", None) == "fused"]
    return [op for op in fused if op.step_of.rates == ("lr", "wd")]  # type: ignore[attr-defined]


SERVES = ("ops.optim",)
ROWS = kernel_rows(GENERATED, dict.fromkeys(_steps(), _update), tiles=True)
