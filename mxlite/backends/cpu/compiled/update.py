"""An optimizer's step as generated code, from the expression of its formula (see elementwise/update.py)."""

from __future__ import annotations

import functools
from typing import Any

from ....core.dtype import float32
from ....core.machine_code import native
from ...elementwise.update import trace, trace_rest, Traced
from .calls.team import load
from .codegen.emit import emit
from .codegen.emitter import Function, Module
from .codegen.ir import DOUBLE, FLOAT, number, Operand as Int, Value

_HYPER, _SIZE, _ARRAYS = 0, 1, 2  # slots: the row of rates, the number of elements, then every array


_ROWS, _COLUMNS, _MATRICES = 1, 2, 3  # of parts of rows; then every array, each followed by its row's length


@functools.lru_cache(maxsize=256)
def code(
    step: Any, a: Any, dtypes: tuple[str, ...], master: bool, in_rows: bool = False, rest: bool = False
) -> native.Code:
    """The function "update" of a step with these attributes (whose `row` is 0).

    dtypes: those of weight, gradient and states; with `master` the last state is the weight in float32, and
    the weight only gets its rounded value. Slots: the address of the rates (float64, lr and wd), the number
    of elements, the addresses of the arrays. With `in_rows` the arrays are columns of matrices: instead of
    the number of elements those of rows and columns, and after each address the row stride in elements.
    rest: True for the rest of the step after its gradient, which is not among the arrays then.
    """
    module = Module()
    f = module.function("update")
    hyper = f.pointer(_HYPER)
    if in_rows:
        columns = f.integer(_COLUMNS)
        arrays = [f.pointer(_MATRICES + 2 * i) for i in range(len(dtypes))]
        leads = [f.integer(_MATRICES + 2 * i + 1) for i in range(len(dtypes))]
        first, last = f.share(f.integer(_ROWS))
    else:
        arrays = [f.pointer(_ARRAYS + i) for i in range(len(dtypes))]
        first, last = f.share(f.integer(_SIZE), f.width)
    lr, wd = (_rate(f, hyper, i) for i in range(2))
    is_made = f.compare("ord", lr[0], number(DOUBLE, 0.0))  # a learning rate of nan skips the update
    any_decay = f.compare("une", wd[0], number(DOUBLE, 0.0))
    no_decay = f.negated(any_decay)
    for condition, decays in ((any_decay, True), (no_decay, False)):
        formula = (trace_rest if rest else trace)(step, a, float32, decays)
        with f.when(f.both(is_made, condition)):

            def elements(at: list[Value], start: Int, stop: Int, formula: Traced = formula) -> None:
                def body(i: Value, mask: Value | None) -> None:
                    values = [f.load(p, i, d, mask=mask) for p, d in zip(at, dtypes)]
                    if master:
                        values[0] = values.pop()
                    weight, *states = _computed(f, formula, [*values, lr[1], wd[1]])
                    f.store(weight, at[0], i, dtypes[0], mask=mask)
                    for state, p in zip([*states, *([weight] if master else [])], at[1 if rest else 2 :]):
                        if state not in values:  # otherwise it is unchanged
                            f.store(state, p, i, mask=mask)

                f.sweep(start, stop, body)

            if not in_rows:
                elements(arrays, first, last)
                continue
            with f.loop(first, last) as row:
                moved = [f.times(row.index, lead) for lead in leads]
                elements([f.offset(p, m, d) for p, m, d in zip(arrays, moved, dtypes)], 0, columns)
    f.done()
    return load(module)


def _computed(f: Function, formula: Traced, inputs: list[Value]) -> list[Value]:
    """The outputs of the expression, in vectors."""
    e = formula.expression
    values, made = [*inputs, *map(f.const, formula.constants)], dict[Value, tuple[Value, Value]]()
    for step in e.steps:
        values.append(emit(f, step, [] if step[0] == "number" else [values[x] for x in step[1:]], made))
    return [values[x] for x in e.outputs]


def _rate(f: Function, hyper: Value, column: int) -> tuple[Value, Value]:
    """A rate as a double, and in all lanes rounded to float32."""
    exact = f.load_at(DOUBLE, f.offset(hyper, column, 8), 8)
    return exact, f.every(f.cast("fptrunc", exact, FLOAT))
