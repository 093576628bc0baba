"""Rules for element types and for arrays without elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mxlite.core.dtype import as_dtype, is_floating
from mxlite.core.errors import MXLiteError, ShapeError
from tests.conformance.case import Case
from tests.conformance.conformance import Call, stages, takes

_SMALL = {"float16": 2e-2, "bfloat16": 1e-1}
_WHOLE = ("int8", "int32", "int64", "uint8", "bool")


def check_every_dtype(case: Case) -> None:
    """Every type is computed, or refused by a DTypeError before anything runs."""
    if case.dtype != "float64" or not case.shapes or not case.op.num_visible_outputs(case.parsed):
        return
    for kind in (*_SMALL, *_WHOLE):
        if not takes(case, kind):
            continue
        call = Call.of(case, dtype=kind)
        arrays = case.inputs(dtype=kind)
        wide = case.inputs(dtype="float64")
        for (op, given), (_, exact) in zip(stages(call, arrays), _exact(case, wide)):
            got, _ = call.execute(op, given)
            for name, x in got.items():
                assert x is None or np.asarray(x).dtype == as_dtype(call.layout()[name][1]), name
            if kind in _SMALL:
                _close(case, op, given, got, exact, _SMALL[kind])


def check_two_byte_rows(case: Case) -> None:
    """A row of 16-bit data, whatever its other inputs are: near what float64 makes of the same numbers.

    Float32 results are nearer than 16 bits could hold: sums and statistics are made in float32.
    """
    if case.dtype not in _SMALL or not case.op.num_visible_outputs(case.parsed):
        return
    wide = replace(case, dtype="float64", dtypes={}, tolerance32=0.0)
    pairs = zip(stages(Call.of(case), case.inputs()), _exact(wide, wide.inputs()))
    for (op, given), (_, exact) in pairs:
        got, _ = Call.of(case).execute(op, given)
        _close(wide, op, given, got, exact, _SMALL[case.dtype])
        _close(wide, op, given, {n: x for n, x in got.items() if x.dtype.itemsize == 4}, exact, 2e-5)


def _exact(case: Case, arrays: list[Any]) -> Any:
    call = Call.of(case)
    for op, given in stages(call, arrays):
        yield op, (call, given)


def _close(case: Case, op: Any, given: Any, got: Any, exact: Any, tolerance: float) -> None:
    """Near what float64 makes of the same (rounded) numbers."""
    call, wide = exact
    same = {n: None if x is None else np.asarray(given[n]).astype(x.dtype) for n, x in wide.items()}
    want, _ = call.execute(op, same)
    for name, x in want.items():
        if x is None or name not in got or not is_floating(got[name].dtype):
            continue
        a, b = np.asarray(got[name], np.float64), np.asarray(x, np.float64)
        finite = np.isfinite(a) & np.isfinite(b) & (np.abs(b) < 6e4)
        scale = float(np.max(np.abs(b[finite]), initial=0))
        tight = max(tolerance, 100 * case.tolerance32) if case.tolerance32 > 1e-4 else tolerance
        np.testing.assert_allclose(
            a[finite], b[finite], rtol=tight, atol=tight * max(scale, 1e-1),
            err_msg=f"{op.op_name}: {name} in {got[name].dtype}",
        )  # fmt: skip


def check_empty_batch(case: Case) -> None:
    """With axis 0 of length 0 it runs, forwards and backwards, or says by a ShapeError that it cannot."""
    if not case.empty or not case.shapes or not case.shapes[0]:
        return
    first = case.shapes[0][0]
    names = case.op.input_names(case.parsed)
    shapes = [
        (0, *s[1:]) if s and s[0] == first and not case.follows(n) else tuple(s)
        for n, s in zip(names, case.shapes)
    ]
    try:
        call = Call.of(case, shapes)
    except ShapeError:
        return
    except MXLiteError as error:
        raise AssertionError(f"{case.op.op_name} refuses an empty batch with {error!r}") from error
    arrays = case.inputs(call.shapes[0])
    for op, given in stages(call, arrays):
        first_run, _ = call.execute(op, given, garbage=0xFF)
        second_run, _ = call.execute(op, given, garbage=0x01)
        for name, x in first_run.items():
            if x is not None:
                np.testing.assert_array_equal(x, second_run[name], f"{op.op_name}: {name} holds garbage")


RULES = {
    "computes or refuses every dtype": check_every_dtype,
    "is near the truth where its rows are of two bytes": check_two_byte_rows,
    "runs an empty batch": check_empty_batch,
}
