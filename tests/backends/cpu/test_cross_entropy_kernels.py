"""The generated cross-entropy of rows: the numbers of the reference, and of both in one array."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from tests.backends.cpu.fast_kernels import close, heads_of, kernel_name, KINDS, only, run
from tests.conformance.case import Case, integers
from tests.conformance.conformance import Call, check_in_place

OPS = (ops.softmax_cross_entropy, ops.WideSoftmaxCrossEntropy)
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}
compiled = pytest.mark.parametrize("kinds", KINDS[1:])


def rows_of(op, kind="float32", label="float32", shape=(33, 70), low=-2):
    labels = integers(max(low, 0) if label == "uint8" else low, shape[1] + 3)
    return Case(op, {}, [shape, shape[:1]], dtype=kind, dtypes={"label": label}, make={"label": labels})


@compiled
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", TOLERANCE)
@pytest.mark.parametrize("label", ["float32", "int32", "uint8"])
def test_losses_and_gradients_are_the_reference_s(kinds, op, kind, label):
    case = rows_of(op, kind, label)
    for backward in (False, True):
        assert "loop nest" in kernel_name(Call.of(case, dtype=kind), kinds, backward)
    arrays, heads = case.inputs(dtype=kind), heads_of(case, kind)
    got, want = (run(case, kind, k, arrays, heads) for k in (kinds, "reference"))
    assert {n: x.dtype for n, x in got.items()} == {n: x.dtype for n, x in want.items()}
    close(got, want, TOLERANCE[kind])


@compiled
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("kind", TOLERANCE)
def test_a_gradient_may_lie_where_its_scores_do(kinds, op, kind):
    assert op.grad_op.in_place_options(None) == {"d_data": ("data",)}
    with only(kinds):
        check_in_place(rows_of(op, kind))


@compiled
def test_scores_as_large_as_there_are_give_finite_losses(kinds):
    case = rows_of(OPS[0], low=0)
    data, label = case.inputs()
    data[:] = np.where(np.arange(70) % 2, 3e38, -3e38)
    label[:] = np.arange(33) * 2 + 1
    got = run(case, "float32", kinds, [data, label], {"out": np.ones(1, np.float32)})
    np.testing.assert_allclose(got["out"], 33 * np.log(35), rtol=1e-6)
    np.testing.assert_allclose(got["d_data"].sum(1), 0, atol=1e-6)


@compiled
def test_labels_between_classes_are_cut(kinds):
    case = rows_of(OPS[0], shape=(4, 9))
    data, _ = case.inputs()
    heads = {"out": np.ones(1, np.float32)}
    cut, whole = (
        run(case, "float32", kinds, [data, np.array(x, np.float32)], heads)
        for x in ([-0.7, 8.9, 9.1, np.nan], [0, 8, -1, -1])
    )
    close(cut, whole, 0)
