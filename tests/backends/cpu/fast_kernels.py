"""Running an operator on the kernels of one kind, and on the reference kernels: what kernel tests share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.runtime import threads
from mxlite.core.machine_code import native
from tests.conformance.case import Case
from tests.conformance.conformance import Call

KINDS = [
    pytest.param("onednn", marks=pytest.mark.skipif(library() is None, reason="oneDNN is not installed")),
    pytest.param(
        "compiled", marks=pytest.mark.skipif(not native.available(), reason="llvmlite is not there")
    ),
]
"""For `pytest.mark.parametrize`: the kinds of kernels besides the reference."""

Arrays = dict[str, Any]


@contextmanager
def only(kinds: str) -> Iterator[None]:
    """Inside, no kernels but of these kinds are chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MXLITE_KERNELS", kinds)
        yield


def kernel_name(call: Call, kinds: str, backward: bool = False) -> str:
    """What a plan calls the kernel that is chosen."""
    with only(kinds):
        op = call.op.grad_op if backward else call.op
        assert op is not None
        return CPU.choose(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0]).name


def run(case: Case, dtype: str, kinds: str, arrays: Sequence[Any], heads: Arrays | None = None) -> Arrays:
    """Outputs and gradients (`d_<input>`) of one call on kernels of these kinds.

    heads: gradients of outputs by name; without them there are no gradients. What the reference does not
    write is tiny, what others leave is nan.
    """
    call = Call.of(case, dtype=dtype)
    garbage = 0x01 if kinds == "reference" else 0xFF
    with only(kinds):
        given = dict(zip(call.names()[0], arrays))
        outs, _ = call.execute(call.op, given, garbage=garbage)
        if heads is None:
            return outs
        assert call.op.grad_op is not None
        have = {**given, **outs, **{f"d_{n}": x for n, x in heads.items()}}
        wanted = {n: have.get(n) for n in call.op.grad_op.input_names(call.attrs)}
        grads, _ = call.execute(call.op.grad_op, wanted, garbage=garbage)
        return {**outs, **grads}


def heads_of(case: Case, dtype: str) -> Arrays:
    """Random gradients of the visible outputs."""
    call = Call.of(case, dtype=dtype)
    visible = call.op.num_visible_outputs(call.attrs)
    rng = np.random.default_rng(2)
    return {
        n: np.asarray(rng.standard_normal(s)).astype(d)
        for n, s, d in zip(call.names()[1][:visible], call.shapes[1], call.dtypes[1])
    }


def close(got: Arrays, want: Arrays, tolerance: float, what: str = "") -> None:
    """Every array of `want` is that of `got`: whole numbers exactly, others within `tolerance` of the largest
    finite one; nan and inf where they are in `want`.
    """
    assert got.keys() == want.keys()
    for name, x in want.items():
        if (
            x is None
            or not np.issubdtype(np.asarray(x, np.float64).dtype, np.floating)
            or x.dtype.kind in "iub"
        ):
            np.testing.assert_array_equal(got[name], x, f"{what} {name}")
            continue
        a, b = np.asarray(got[name], np.float64), np.asarray(x, np.float64)
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=1e-30))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"{what} {name}")


def same_on_threads(case: Case) -> Arrays:
    """What generated kernels make of float32 on one thread, which is what they make on three, bit for bit."""
    arrays = case.inputs(dtype="float32")
    has_gradient = Call.of(case, dtype="float32").op.grad_op is not None
    heads = heads_of(case, "float32") if has_gradient else None
    found = []
    for n in (1, 3):
        before = threads.set_num_threads(n)
        try:
            found.append(run(case, "float32", "compiled", arrays, heads))
        finally:
            threads.set_num_threads(before)
    close(found[1], found[0], 0)
    return found[0]
