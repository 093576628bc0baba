"""Every row of `cases.py` whose operator has a kernel on the GPU, on that kernel, run on the CPU.

Rules that hold for every operator hold for these kernels; their numbers are the reference's. Elementwise
kernels are generated from expressions, and optimizers' steps from formulas, that have tests of their own, so
here a few of each stand for all.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from mxlite.backends import Backend
from mxlite.backends.gpu.kernels import table
from tests.conformance.cases import CASES
from tests.conformance.conformance import (
    Call,
    check_in_place,
    check_inputs_are_untouched,
    check_missing_head_gradients,
    check_unwanted_outputs,
    check_writes_all_and_reads_no_garbage,
    kernels_of,
    NOTHING_BUT_ROUNDINGS,
    operators,
    stages,
    takes,
)
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

COLLECTIVE = "mxlite.ops.collective."
"""Operators whose kernels need the devices of other ranks: tests/dist and test_messages.py have these."""
BACKEND = Backend("emulated", np, table(EmulatedDevice()))
EVERY = {
    "elementwise": 40,  # tests/backends/gpu/kernels/test_elementwise.py has every step of an expression
    "step": 19,  # of an optimizer; tests/backends/gpu/kernels/test_update.py has every formula
    "copy": 6,  # tests/backends/gpu/kernels/test_movement.py has all ways to go
    "recurrent": 20,  # hundreds of launches each
}
"""Of the rows of such a kind one in so many is run, of others one in eight for each operator and choice of
kernels. MXLITE_ALL_GPU_ROWS=1 runs all: minutes of compiling.
"""


def kernels(case):
    """Names of the kernels of a row's stages; None where it is the reference."""
    call = Call.of(case)
    names = []
    first = (call.dtypes[0] or call.dtypes[1])[0]
    for op in operators(call):
        kernel = BACKEND.choose(op, call.attrs, *call.shapes, first, call.dtypes[0])
        names.append(None if kernel.is_reference else kernel.name)
    return names


def kind_of(case, found):
    """What rows are alike: a key of EVERY, or the operator with the names of its kernels."""
    if all(k is None or k.startswith("cuda elementwise") for k in found):
        return "elementwise"
    if hasattr(case.op, "step_of"):
        return "step"
    if all(k in (None, "cuda copy", "cuda fill", "cuda cast") for k in found):
        return "copy"
    return "recurrent" if "cuda recurrent" in found else (case.op, *found)


def chosen():
    """Names of the rows to run."""
    alike = {}
    for name, case in CASES.items():
        if case.op.__module__.startswith(COLLECTIVE):
            continue
        if case.op in BACKEND.kernels or case.op.grad_op in BACKEND.kernels:
            found = kernels(case)
            if any(found):
                alike.setdefault(kind_of(case, found), []).append(name)
    every = {} if "MXLITE_ALL_GPU_ROWS" in os.environ else EVERY
    step = 8 if every else 1
    return [name for kind, names in alike.items() for name in names[:: every.get(kind, step)]]


@pytest.mark.parametrize("name", chosen())
def test_row(name):
    case = CASES[name]
    with kernels_of(BACKEND):
        check_writes_all_and_reads_no_garbage(case)
        check_inputs_are_untouched(case)
        check_in_place(case)
        check_unwanted_outputs(case)
        check_missing_head_gradients(case)
    for dtype in (None, "float32") if takes(case, "float32") else (None,):
        compare(case, dtype, 1.0 if name in NOTHING_BUT_ROUNDINGS else 1e-30)


def compare(case, dtype, least):
    """The row on both kernels, in its own types or with `dtype` in the place of float64; see `close`."""
    call = Call.of(case, dtype=dtype)
    for op, inputs in stages(call, case.inputs(dtype=dtype)):
        want, wanted_after = call.execute(op, inputs)
        with kernels_of(BACKEND):
            got, after = call.execute(op, inputs)
        for n in op.mutated(call.attrs):
            if n in after:
                got[n], want[n] = after[n], wanted_after[n]
        for n, y in want.items():
            close(got[n], y, f"{op.op_name} {n}", least)


def close(got, want, what, least=1e-30):
    """Whole numbers exactly; others to a few roundings of the largest, or of `least`."""
    if want is None:
        assert got is None
        return
    assert got.dtype == want.dtype
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want, what)
        return
    tolerance = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[want.dtype.name]
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=least))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=what)
