"""Computations without reductions as kernels of elements: what they read, and in which types."""

import pytest

from mxlite.backends.base import Request
from mxlite.backends.gpu.compiler.kinds import FLOATS
from mxlite.backends.gpu.kernels.arithmetic.elementwise import KNOWN
from mxlite.backends.gpu.kernels.arithmetic.pointwise import REDUCTIONS, REGRESSIONS
from mxlite.backends.gpu.rows import gradient_of
from mxlite.backends.nests.pointwise import pointwise
from mxlite.ops import find_op
from tests.backends.gpu.gpu_case import agree
from tests.conformance.cases import CASES
from tests.conformance.conformance import Call
from tests.emulators.emulated_device import compiler

emulated = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def program_of(name, backward=False):
    call = Call.of(CASES[name], dtype="float32")
    op = gradient_of(call.op) if backward else call.op
    request = Request(op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
    return pointwise(request, KNOWN, FLOATS)


@emulated
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "name",
    ["sum-axis", "mean-first", "norm-axis", "logsumexp-two", "linear-regression-column", "mae-regression"],
)
def test_every_float_gives_the_numbers_of_the_reference(name, dtype):
    agree(CASES[name], dtype)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_gradient_of_a_reduction_reduces_nothing(name):
    case = next(c for c in CASES.values() if c.op is find_op(name))
    row = next(n for n, c in CASES.items() if c is case)
    assert program_of(row) is None
    assert program_of(row, backward=True) is not None


def test_a_regression_reads_labels_under_the_shape_of_data():
    p = program_of("linear-regression-column", backward=True)
    assert set(p.inputs) == {"out", "label"}
    assert all(view == p.shape for view in p.views)
    assert len(REGRESSIONS) == 3


@pytest.mark.parametrize("name", ["_pick_add", "softmax", "max-axis", "moments"])
def test_what_reduces_or_picks_elements_is_no_program(name):
    found = [n for n, c in CASES.items() if n == name or n.startswith(name)]
    assert found
    assert program_of(found[0]) is None
