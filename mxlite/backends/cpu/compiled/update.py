"""An optimizer's step as generated code, from the expression of its formula (see elementwise/update.py)."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.dtype import float32
from ....core.machine_code import native
from ....graph.opdef import DType
from ....ops.optim.recording import Formula
from ....ops.optim.update import rounded
from ....te.expression import Expression
from ...elementwise.update import Traced, traced
from ..onednn import Run
from ..onednn.primitive import address_of
from .calls.team import caller, load, threads_for, usable
from .codegen.doubles import Doubles
from .codegen.emit import emit
from .codegen.emitter import Function, Module, storable
from .codegen.instructions import NBYTES
from .codegen.ir import DOUBLE, FLOAT, I8, I64, number, Operand as Int, PTR, Value

_RATES, _CONSTANTS, _COUNT = 0, 1, 2  # slots: rows of rates, constants, the number of weights
_WEIGHTS = 3  # for each weight the number of its elements, the address of the result, those of its arrays
_ROWS, _COLUMNS, _FLAGS = 2, 3, 4  # of one weight by rows, instead
_MATRICES = 5  # then every array, each followed by the elements between its rows


class StepForm(NamedTuple):
    """The form of a step that code is made for.

    dtypes: those of weight, gradient and states; with `master` the last state is the weight in float32, and
    the weight only gets its rounded value. gradient: False for the rest of a step, which reads none. skips:
    True if a learning rate of nan leaves everything as it is. writes: False if the new weight is not wanted.
    by_rows: True for parts of rows of matrices; flagged: and only rows with a flag that is not 0.
    """

    dtypes: tuple[str, ...]
    master: bool = False
    gradient: bool = True
    skips: bool = True
    writes: bool = True
    by_rows: bool = False
    flagged: bool = False

    @property
    def wide(self) -> str:
        """The type of the arithmetic."""
        return self.dtypes[-1] if self.master else self.dtypes[0]


class UpdateStep:
    """A step on weights of one layout: its code with the numbers that it reads. See `update_step`."""

    def __init__(self, both: tuple[Traced, Traced], dtype: DType, layout: StepForm) -> None:
        """dtype: that of the arithmetic."""
        self.both, self.dtype, self.layout = both, dtype, layout
        self.code = code((both[0].shape, both[1].shape), layout)
        self.constants = np.array([c for t in both for c in t.constants])
        self._callers: dict[int, Callable[[Any], Run]] = {}

    def reads(self, hyper: Any, row: int) -> tuple[list[Run], Any]:
        """The rates that code reads from this row of `hyper`, behind what is called before it."""
        own = hyper[row : row + 1]
        if rates_of(self.both) == 2 and self.dtype.itemsize > 2:
            return [], own
        rates = self.rates(1)
        return [lambda: self.set_rates(rates[0], *own[0])], rates

    def rates(self, count: int) -> Any:
        """Room for the rates of so many weights."""
        return np.zeros((count, rates_of(self.both)))

    def set_rates(self, row: Any, *rates: Any) -> None:
        """Write the rates of one weight."""
        r = rounded(rates, self.dtype)
        counts = [x for formula in self.both for x in formula.counts(r.t)]
        # Arrays of bfloat16 meet these numbers in float32.
        row[:] = r.lr, r.wd, *(map(self.dtype.type, counts) if self.dtype == np.float16 else counts)

    def run(self, rates: Any, weights: Sequence[tuple[Sequence[Any], Any]]) -> Run:
        """The call for weights: the arrays of each, and its output."""
        slots = [len(weights)]
        for arrays, out in weights:
            slots += [arrays[0].size, *map(address_of, (out, *arrays))]
        return self._call(rates, slots, [x for arrays, _ in weights for x in arrays], weights)

    def run_by_rows(self, rates: Any, arrays: Sequence[Any], leads: Sequence[int], flags: Any = None) -> Run:
        """The call for one weight of rows that are `leads` elements apart in each array."""
        rows = len(arrays[0])
        slots = [rows, arrays[0].size // rows, address_of(flags)]
        slots += [s for x, lead in zip(arrays, leads) for s in (address_of(x), lead)]
        return self._call(rates, slots, arrays, flags)

    def _call(self, rates: Any, slots: Sequence[int], arrays: Sequence[Any], *keep: Any) -> Run:
        threads = threads_for(2 * sum(x.nbytes for x in arrays))
        values = address_of(rates), address_of(self.constants), *slots
        args: Any = (ctypes.c_int64 * len(values))(*values)
        args.keep = self, rates, arrays, keep
        return self._caller(threads)(args)

    def _caller(self, threads: int) -> Callable[[Any], Run]:
        """The function that makes calls on so many threads."""
        if threads not in self._callers:
            self._callers[threads] = caller(self.code, "update", threads)
        return self._callers[threads]

    def unread(self) -> UpdateStep:
        """The same without the new weight."""
        return UpdateStep(self.both, self.dtype, self.layout._replace(writes=False))


def update_step(
    formula: Formula, attrs: Any, dtypes: tuple[DType, ...], master: bool = False, **how: bool
) -> UpdateStep | None:
    """The step of a formula, see `recorded`; None if there is no code for arrays of these types. `how`: see
    StepForm.
    """
    return _update_step(formula, attrs, dtypes, master, tuple(how.items())) if usable() else None


@functools.lru_cache(maxsize=1024)
def _update_step(
    formula: Formula, attrs: Any, dtypes: tuple[DType, ...], master: bool, how: tuple[tuple[str, bool], ...]
) -> UpdateStep | None:
    wide = float32 if master else dtypes[0]
    layout = StepForm(tuple(d.name for d in dtypes), master, **dict(how))
    # A gradient may be narrower than its weight, see passes/precision/inline_gradient_casts.py.
    states = dtypes[1 + layout.gradient :]
    if not set(layout.dtypes) <= {*storable(), "float64"} or any(d != wide for d in states):
        return None
    count = len(dtypes) - master
    decaying, plain = (traced(formula, attrs, count, wide, decays) for decays in (True, False))
    return UpdateStep((decaying, plain), wide, layout)


@functools.lru_cache(maxsize=256)
def code(both: tuple[Traced, Traced], layout: StepForm) -> native.Code:
    """The function "update" of a step: its expressions with weight decay and without, whose numbers are no
    part of the code.

    Rates are rows of float64: lr, wd, and what each expression derives from the count. Constants are float64:
    those of one expression, then of the other.
    """
    module = Module()
    f = module.function("update")
    rates, constants = f.pointer(_RATES), f.pointer(_CONSTANTS)
    count, width = len(layout.dtypes), rates_of(both)
    known = [_number(f, layout, constants, i) for i in range(sum(len(t.constants) for t in both))]
    own = known[: len(both[0].constants)], known[len(both[0].constants) :]

    def update(rates: Value, sweep: Callable[[Callable[..., None]], None]) -> None:
        """The step of one weight; `sweep` gets what does it on contiguous elements."""
        lr, wd, *counted = (_number(f, layout, rates, i) for i in range(width))
        zero = number(lr.type, 0.0)
        decays = f.compare("une", wd, zero)
        cut = len(both[0].counted)
        derived = counted[:cut], counted[cut:]
        for condition, formula, given in zip((decays, f.negated(decays)), both, zip(derived, own)):
            if layout.skips:
                condition = f.both(condition, f.compare("ord", lr, zero))
            with f.when(condition):
                numbers = [f.every(x) for x in (lr, wd, *given[0], *given[1])]
                sweep(functools.partial(_elements, f, layout, formula.expression, numbers))

    if layout.by_rows:
        arrays = [f.pointer(_MATRICES + 2 * i) for i in range(count)]
        leads = [f.times(f.integer(_MATRICES + 2 * i + 1), _nbytes(t)) for i, t in enumerate(layout.dtypes)]
        columns, flags = f.integer(_COLUMNS), f.pointer(_FLAGS)
        first, last = f.share(f.integer(_ROWS))

        def rows(elements: Callable[..., None]) -> None:
            with f.loop(first, last) as row, contextlib.ExitStack() as inside:
                if layout.flagged:
                    flag = f.load_at(I8, f.offset(flags, row.index), 1)
                    inside.enter_context(f.when(f.is_("ne", flag, 0)))
                own = [f.at(p, f.times(row.index, x)) for p, x in zip(arrays, leads)]
                elements(own[0], own, 0, columns)

        update(rates, rows)
    else:
        with f.loop(0, f.integer(_COUNT)) as weight:
            at = f.offset(f.slot(_WEIGHTS), f.times(weight.index, 2 + count), 8)
            first, last = f.share(f.load_at(I64, at, 8), f.width)
            out, *arrays = (f.load_at(PTR, f.offset(at, 1 + i, 8), 8) for i in range(1 + count))
            update(
                f.offset(rates, f.times(weight.index, width), 8),
                lambda elements: elements(out, arrays, first, last),
            )
    f.done()
    return load(module)


def rates_of(both: tuple[Traced, Traced]) -> int:
    """Numbers in a row of rates."""
    return 2 + sum(len(t.counted) for t in both)


def _elements(
    f: Function, layout: StepForm, e: Expression, numbers: Sequence[Value],
    out: Value, arrays: Sequence[Value], start: Int, stop: Int,
) -> None:  # fmt: skip
    """The loop over elements of contiguous arrays."""
    d: Any = Doubles(f) if layout.wide == "float64" else f
    load, store = (d.load_as, d.store_as) if layout.wide == "float64" else (f.load, f.store)

    def body(i: Value, mask: Value | None) -> None:
        read = [load(p, i, t, mask) for p, t in zip(arrays, layout.dtypes)]
        if layout.master:
            read[0] = read.pop()
        values, made = [*read, *numbers], dict[Value, tuple[Value, Value]]()
        for step in e.steps:
            values.append(emit(d, step, [] if step[0] == "number" else [values[x] for x in step[1:]], made))
        weight, *states = (values[x] for x in e.outputs)
        if layout.writes:
            store(weight, out, i, layout.dtypes[0], mask)
        first = 1 + layout.gradient
        for x, p, t in zip([*states, *[weight] * layout.master], arrays[first:], layout.dtypes[first:]):
            if x not in read:  # otherwise it is unchanged
                store(x, p, i, t, mask)

    f.sweep(start, stop, body)


def _number(f: Function, layout: StepForm, numbers: Value, at: int) -> Value:
    """A number in the type of the arithmetic."""
    exact = f.load_at(DOUBLE, f.offset(numbers, at, 8), 8)
    return exact if layout.wide == "float64" else f.cast("fptrunc", exact, FLOAT)


def _nbytes(dtype: str) -> int:
    return 8 if dtype == "float64" else NBYTES[dtype]
