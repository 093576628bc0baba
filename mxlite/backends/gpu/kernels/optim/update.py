"""Optimizer steps, in all forms that `ops/optim/update.py` derives from a formula: one pass over memory each.

The kernel (see `step_source.py`) reads gradient, weight (for 16 bits: its float32 copy) and states once and
writes weight and states once. One launch updates many weights (see `weights.py`); each block reads its own
rates, from the arguments or, inside a program, from device memory, so that a schedule or a loss scale
invalidates no capture. A learning rate of nan leaves the weight and its states as they are.

Roundings are numpy's: nothing is contracted, and 16-bit weights without a copy are computed as numpy
does it, operation by operation. Powers of the number of updates are the device's, which differ from
the host's by at most one rounding of double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import DType
from .....ops import ALL
from ....base import ChosenKernel, Request
from ....elementwise.update import trace_both
from ....fused.update_group import FusedUpdates
from ...compiler.kinds import FLOATS
from ...handwritten.step_source import numbers, source
from ...handwritten.weights import capacity_for, is_packed, launches, Weight
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run


class UpdateStep:
    """A formula with its numbers, for weights of these types; those of equal `kind` may share a launch."""

    def __init__(
        self, device: Device, step: Any, attrs: Any, dtypes: tuple[DType, ...], master: bool, rates: str
    ) -> None:
        """dtypes: those of weight, gradient, states and copy."""
        wide = dtypes[-1] if master else dtypes[0]
        self.device, self.master, self.rates = device, master, rates
        self.both = trace_both(step, attrs, wide)
        self.dtypes = tuple(d.name for d in dtypes)
        self.items = [d.itemsize for d in (*dtypes, dtypes[0])]
        self.kind = (self.both, self.dtypes, master, rates)

    def weight(self, arrays: Sequence[Any], out: Any, **rates: Any) -> Weight:
        """One weight. `arrays` are in the order of `dtypes`; `out` may be None."""
        device = self.device
        addresses = [device.address(x) for x in arrays] + [0 if out is None else device.address(out)]
        return Weight(tuple(addresses), arrays[0].size, is_packed(addresses, self.items), **rates)

    def run(self, weights: Sequence[Weight], work: Any = None) -> Run:
        """The call that updates these weights."""
        decaying, plain = self.both
        more = [numbers(decaying, plain)]
        capacity = capacity_for(len(self.dtypes) + 1, len(weights), more)
        made = source(decaying.shape, plain.shape, self.dtypes, self.master, self.rates, capacity)
        return Updates(self, weights, launches(self.device, made, "update", weights, capacity, *more))

    @staticmethod
    def workspace(sizes: Sequence[int]) -> int:
        """Bytes of scratch for weights of so many elements."""
        return 0


class Updates:
    """A call that updates weights. Calls of one `kind` can be merged."""

    def __init__(self, step: UpdateStep, weights: Sequence[Weight], run: Run) -> None:
        self.step, self.weights, self._run = step, tuple(weights), run

    @property
    def kind(self) -> Any:
        return self.step.kind

    @property
    def addresses(self) -> set[int]:
        """Addresses of the arrays of its weights."""
        return {a for w in self.weights if w.size for a in w.arrays if a}

    def __call__(self) -> None:
        self._run()

    @staticmethod
    def joined(calls: Sequence[Updates]) -> Run:
        """One call for several of the same kind."""
        return calls[0].step.run([w for c in calls for w in c.weights])


Maker = Callable[[Device, Any, Any, tuple[DType, ...], bool, str], Any]
"""Factory of a `UpdateStep`, or of a class that works like it, with its arguments."""


def _is_elementwise(step: Any) -> bool:
    """True if the formula is the whole step."""
    return "whole" not in vars(step)


def group_row(device: Device, r: Request, maker: Maker, fits: Callable[[Any], bool]) -> ChosenKernel | None:
    """Updates of several weights of a program; `fits` says if `maker` is for their step."""
    a = r.attrs
    kinds, base, master = r.dtypes[: a.each], a.op.step_of, a.op.has_master
    step = _step(device, maker, base, a.attrs, kinds, master) if fits(base) else None
    return None if step is None else _by_rows(device, r, step, f"cuda {len(a.rows)} x {base.op_name}")


def _by_rows(device: Device, r: Request, step: Any, name: str) -> ChosenKernel:
    """Kernel for weights whose rates are rows of `hyper`, the last input."""
    rows = getattr(r.attrs, "rows", None) or (r.attrs.row,)
    each = (len(r.inputs) - 1) // len(rows)

    def connect(a: Any, *args: Any, work: Any = None) -> Run:
        weights = []
        for i, row in enumerate(rows):
            own = args[i * each : (i + 1) * each]
            weights.append(step.weight(own, own[0], rates_at=row_of(device, args[-1], row)))
        made: Run = step.run(weights, work)
        return made

    nbytes = step.workspace([prod(s) for s in r.inputs[:-1:each]])
    return answer(r, connect, nbytes, name, mutates=True)


def storable(dtypes: Sequence[DType], master: bool) -> bool:
    """True if there is a kernel for a weight of these types: weight, gradient, states and copy."""
    weight, grad, *states = dtypes
    wide = np.dtype("float32") if master else weight
    return {weight.name, grad.name} <= FLOATS and all(d == wide for d in states)


def _step(device: Device, maker: Maker, base: Any, attrs: Any, kinds: tuple[DType, ...], master: bool) -> Any:
    """The step for a weight of these types, with rates in float64; None if there is no kernel for it."""
    return maker(device, base, attrs, kinds, master, "float64") if storable(kinds, master) else None


def _name(r: Request) -> str:
    return f"cuda {r.op.step_of.op_name}"  # type: ignore[attr-defined]


def _single(device: Device, r: Request, maker: Maker) -> ChosenKernel | None:
    """Kernel for one weight, whose rates are attributes."""
    base, master = r.op.step_of, r.op.has_master  # type: ignore[attr-defined]
    step = _step(device, maker, base, r.attrs, r.dtypes, master)
    if step is None:
        return None
    found = [float(getattr(r.attrs, n)) for n in base.rates]
    rates = found[0], found[1], found[2] if len(found) > 2 else 1.0

    def connect(a: Any, *arrays: Any, out: Any, work: Any = None) -> Run:
        made: Run = step.run([step.weight(arrays, out, rates=rates)], work)
        return made

    nbytes = step.workspace([prod(r.inputs[0])])
    return answer(r, connect, nbytes, _name(r), mutates=True)


def _fused(device: Device, r: Request, maker: Maker) -> ChosenKernel | None:
    """Kernel for one weight, whose rates are a row of `hyper`."""
    kinds, op = r.dtypes[:-1], r.op
    base, master = op.step_of, op.has_master  # type: ignore[attr-defined]
    step = _step(device, maker, base, r.attrs, kinds, master)
    return None if step is None else _by_rows(device, r, step, _name(r))


def row_of(device: Device, hyper: Any, row: int) -> tuple[int, int, int]:
    """Addresses of the numbers in one row of `hyper`; a missing count has an arbitrary one."""
    columns = hyper.shape[1]
    first = device.address(hyper) + 8 * columns * row
    return first, first + 8, first + 8 * min(2, columns - 1)


def _many(device: Device, r: Request, maker: Maker) -> ChosenKernel | None:
    """Kernel for many weights, whose rates are attributes or, at the end, arrays."""
    op: Any = r.op
    a, each, count = r.attrs, len(op.step_of.inputs) + op.has_master, r.attrs.num_weights
    kinds = [r.dtypes[i * each : (i + 1) * each] for i in range(count)]
    loaded = r.dtypes[count * each :]
    if not all(storable(k, op.has_master) for k in kinds):
        return None
    if loaded and (loaded[0] != loaded[1] or loaded[0].name not in ("float32", "float64")):
        return None
    rates_in = loaded[0].name if loaded else "float64"
    steps = {k: maker(device, op.step_of, a, k, op.has_master, rates_in) for k in dict.fromkeys(kinds)}
    if None in steps.values():
        return None
    times = getattr(a, op.counts) if op.counts else (1,) * count
    sizes = {k: [prod(s) for s, other in zip(r.outputs, kinds) if other == k] for k in steps}
    scratch = {k: steps[k].workspace(sizes[k]) for k in steps}

    def connect(a: Any, *args: Any, outs: Any, work: Any = None) -> Run:
        found: dict[Any, list[Weight]] = {k: [] for k in steps}
        for i, (kind, out) in enumerate(zip(kinds, outs)):
            rates: dict[str, Any]
            if loaded:
                lr, wd = (device.address(x) + i * loaded[0].itemsize for x in args[-2:])
                rates = {"rates_at": (lr, wd, lr)}
            else:
                rates = {"rates": (float(a.lrs[i]), float(a.wds[i]), float(times[i]))}
            found[kind].append(steps[kind].weight(args[i * each : (i + 1) * each], out, **rates))
        runs, at = [], 0
        for kind, weights in found.items():
            runs.append(steps[kind].run(weights, work[at : at + scratch[kind]]))
            at += scratch[kind]
        return InOrder(runs)

    return answer(r, connect, sum(scratch.values()), _name(r), mutates=True)


_FORMS: dict[str, Callable[..., ChosenKernel | None]] = {
    "plain": _single, "mixed": _single, "fused": _fused, "many": _many
}  # fmt: skip


def rows_by(maker: Maker, fits: Callable[[Any], bool]) -> list[tuple[Any, Any, None]]:
    """Rows of all forms of the steps that `maker` is for."""
    own: list[Any] = [op for op in ALL if getattr(op, "form", None) in _FORMS]
    forms: list[Any] = [(op, partial(_FORMS[op.form], maker=maker), None) for op in own if fits(op.step_of)]
    return [*forms, (FusedUpdates, partial(group_row, maker=maker, fits=fits), None)]


rows = table(*rows_by(UpdateStep, _is_elementwise))
