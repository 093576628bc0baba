"""Optimizer steps as generated code, in all forms of each: one pass over weight, gradient and states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from .....graph.opdef import DType
from .....ops import ALL, lamb_update_phase1, lamb_update_phase2, mp_lamb_update_phase1, mp_lamb_update_phase2
from .....ops.optim.lamb_updates import moved, ratio_of
from .....ops.optim.update import settings
from ....base import ChosenKernel, connected, Request, Row
from ....fused.accumulated_state import RestOfUpdate
from ...compiled.update import update_step, UpdateStep
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run


def _step(r: Request, dtypes: tuple[DType, ...], master: bool = False, **how: bool) -> UpdateStep | None:
    """The code of a step; None if there is none for arrays of these types, or nothing to do."""
    if 0 in r.inputs[0]:
        return None
    step: Any = getattr(r.op, "step_of", lamb_update_phase1)
    return update_step(step.step, settings(step, r.attrs), dtypes, master, **how)


def _plain(r: Request) -> ChosenKernel | None:
    """One weight, whose rates are attributes."""
    op: Any = r.op
    made = _step(r, r.dtypes, op.has_master, skips=False)
    return None if made is None else _by_attributes(r, made, op.step_of, lambda arrays: arrays)


def _phase1(r: Request) -> ChosenKernel | None:
    """Its weight is the copy, which is not changed and has the type of the result."""
    made = _step(r, (r.dtypes[-1], *r.dtypes[1:-1]), skips=False)
    if made is None:
        return None
    return _by_attributes(r, made, lamb_update_phase1, lambda arrays: (arrays[-1], *arrays[1:-1]))


def _by_attributes(r: Request, made: UpdateStep, step: Any, arrays_of: Callable[..., Any]) -> ChosenKernel:
    def connect(xp: Any, a: Any, *arrays: Any, out: Any, work: Any = None) -> Run:
        own = made if out is not None else made.unread()
        rates = own.rates(1)
        own.set_rates(rates[0], *(getattr(a, n) for n in step.rates))
        arrays = arrays_of(arrays)
        return own.run(rates, [(arrays, arrays[0] if out is None else out)])

    return connected(connect, 0, f"compiled {step.op_name}", like=r.op.forward, mutates=True)


def _phase2(r: Request) -> ChosenKernel | None:
    """The learning rate is the product with the layer's factor, which its norms decide."""
    weight, g, _, _, *copy = r.dtypes
    kinds = (weight, g, *copy)
    made = None if 0 in r.inputs[0] else update_step(moved, None, kinds, bool(copy), skips=False)
    if made is None:
        return None

    def connect(
        xp: Any, a: Any, weight: Any, g: Any, r1: Any, r2: Any, *copy: Any, out: Any, work: Any = None
    ) -> Run:
        own = made if out is not None else made.unread()
        rates = own.rates(1)
        after = own.run(rates, [((weight, g, *copy), weight if out is None else out)])
        return in_turn([lambda: own.set_rates(rates[0], a.lr * ratio_of(a, r1, r2), 0.0), after])

    return connected(connect, 0, f"compiled {r.op.op_name}", like=r.op.forward, mutates=True)


def _by_hyper(r: Request) -> ChosenKernel | None:
    """One weight, or its rows with a flag, whose rates are a row of `hyper`."""
    op: Any = r.op
    flagged = op.form == "lazy"
    by_rows = flagged or r.tile.is_special
    names = op.input_names(r.attrs)[: -1 - flagged]
    if any((r.strides(n) or (1, 1))[1:] != (1,) for n in names):
        return None
    leads = [(r.strides(n) or (prod(r.inputs[0][1:]),))[0] for n in names]
    made = _step(r, r.dtypes[: len(names)], op.has_master, by_rows=by_rows, flagged=flagged)
    if made is None:
        return None

    def connect(xp: Any, a: Any, *arrays: Any, work: Any = None) -> Run:
        own, hyper, flags = arrays[: len(names)], arrays[-1], arrays[-2] if flagged else None
        before, rates = made.reads(hyper, a.row)
        run = made.run_by_rows(rates, own, leads, flags) if by_rows else made.run(rates, [(own, own[0])])
        return in_turn([*before, run])

    views = frozenset(names if r.tile.is_special else ())
    name = f"compiled {op.step_of.op_name}"
    return connected(connect, 0, name, like=op.forward, mutates=True, views=views)


def _rest(r: Request) -> ChosenKernel | None:
    """The rest of a step whose gradient is in its state."""
    step = r.attrs.op.step_of
    made = (
        None
        if 0 in r.inputs[0]
        else update_step(step.rest, settings(step, r.attrs.attrs), r.dtypes[:2], gradient=False)
    )
    if made is None:
        return None

    def connect(xp: Any, a: Any, weight: Any, state: Any, hyper: Any, *, work: Any = None) -> Run:
        before, rates = made.reads(hyper, a.attrs.row)
        return in_turn([*before, made.run(rates, [((weight, state), weight)])])

    return connected(connect, 0, f"compiled {step.op_name}", like=r.op.forward, mutates=True)


def _many(r: Request) -> ChosenKernel | None:
    """Many weights, whose rates are attributes or, at the end, arrays: a call for each layout."""
    op: Any = r.op
    step, a = op.step_of, r.attrs
    each = len(step.inputs) + op.has_master
    kinds = [r.dtypes[i * each : (i + 1) * each] for i in range(a.num_weights)]
    own = settings(step, a)
    found = {k: update_step(step.step, own, k, op.has_master, skips=False) for k in dict.fromkeys(kinds)}
    if None in found.values():
        return None
    times = getattr(a, op.counts) if op.counts else ()

    def connect(xp: Any, a: Any, *args: Any, outs: Any, work: Any = None) -> Run:
        layouts: dict[Any, list[int]] = {}
        for i, out in enumerate(outs):
            layouts.setdefault((kinds[i], out is None), []).append(i)
        calls: list[Run] = []
        for (kind, unread), of_layout in layouts.items():
            made: Any = found[kind].unread() if unread else found[kind]  # type: ignore[union-attr]
            arrays = [args[i * each : (i + 1) * each] for i in of_layout]
            rates = made.rates(len(of_layout))
            if op.is_preloaded:
                calls.append(partial(_load, made.dtype, rates, args[-2:], of_layout))
            else:
                for row, i in zip(rates, of_layout):
                    made.set_rates(row, a.lrs[i], a.wds[i], *times[i : i + 1])
            calls.append(
                made.run(rates, [(x, x[0] if unread else outs[i]) for x, i in zip(arrays, of_layout)])
            )
        return in_turn(calls)

    return connected(connect, 0, f"compiled {step.op_name}", like=op.forward, mutates=True)


def _load(dtype: DType, rates: Any, arrays: Sequence[Any], places: Sequence[int]) -> None:
    """Read learning rates and decays from arrays, rounded to a type."""
    for column, x in enumerate(arrays):
        rates[:, column] = x[places].astype(dtype)


_FORMS: Mapping[str, Row] = {
    "plain": _plain, "mixed": _plain, "fused": _by_hyper, "lazy": _by_hyper, "many": _many
}  # fmt: skip
_FORMULAS: list[Any] = [op for op in ALL if hasattr(op, "step_of") and "whole" not in vars(op.step_of)]
_PHASES = {mp_lamb_update_phase1: _phase1, lamb_update_phase2: _phase2, mp_lamb_update_phase2: _phase2}
_ROWS = {op: _FORMS[op.form] for op in _FORMULAS} | _PHASES

SERVES = ("backends.fused.accumulated_state", "ops.optim")
ROWS = {
    **kernel_rows(GENERATED, {RestOfUpdate: _rest}),
    **kernel_rows(GENERATED, {op: row for op, row in _ROWS.items() if row is _by_hyper}, tiles=True),
    **kernel_rows(GENERATED, {op: row for op, row in _ROWS.items() if row is not _by_hyper}),
}
