"""Kernels of the GPU, run on the CPU, beside the reference kernels in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxlite.backends import Backend
from mxlite.backends.gpu.kernels import table
from mxlite.core.dtype import as_dtype
from tests.conformance.case import Case
from tests.conformance.conformance import Arrays, Call, kernels_of, stages
from tests.emulators.emulated_device import EmulatedDevice

BACKEND = Backend("emulated", np, table(EmulatedDevice()))
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of one rounding or a few; relative to the largest number of an array."""


def agree(case: Case, dtype: str, tolerance: float | None = None, backend: Backend = BACKEND) -> list[Arrays]:
    """Run a row forward and backward in `dtype` on `backend`; it must have kernels for both. Returns outputs.

    The reference gets the same numbers, already rounded to `dtype`, in float64.
    """
    call, exact = Call.of(case, dtype=dtype), Call.of(replace(case, dtypes={}), dtype="float64")
    results = []
    with kernels_of(backend):
        listed = list(stages(call, case.inputs(dtype=dtype)))
    layout = exact.layout()
    for op, inputs in listed:
        kernel = backend.choose(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
        assert not kernel.is_reference
        with kernels_of(backend):
            got, after = call.execute(op, inputs)
        wide = {n: None if x is None else x.astype(layout[n][1]) for n, x in inputs.items()}
        want, wanted_after = exact.execute(op, wide)
        for n in op.mutated(call.attrs):
            if n in after:
                got[n], want[n] = after[n], wanted_after[n]
        for n, y in want.items():
            close(got[n], y, tolerance or TOLERANCE[dtype], f"{op.op_name} {n}")
        results.append(got)
    return results


def close(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    """Equal up to `tolerance` times the largest finite number; whole numbers exactly."""
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want.astype(got.dtype), what)
        return
    a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=1e-30))
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=what)


def numpy_type(name: str) -> np.dtype:
    """The dtype of that name, bfloat16 among them."""
    return as_dtype(name)
