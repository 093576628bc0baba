"""Elementwise kernels of the GPU, run on the CPU: every rule, every dtype, every way to broadcast."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends import bind_call, Request
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.gpu.handwritten.layout import collapsed, divisor
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.kernels.arithmetic.elementwise import loop
from mxlite.backends.gpu.nests import Launches
from mxlite.ops import find_op
from mxlite.te.expression import evaluate, expression_of
from mxlite.te.steps import COMPARISONS, NUMPY
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.te.formulas import expression, in_order, nests_of_expression, writer

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def numpy_type(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def run(formula, inputs, views, shape, made):
    outputs = [np.full(shape, 77, d) for d in made]
    nests = nests_of_expression(formula, views, [x.dtype for x in inputs], shape, made)
    Launches(EmulatedDevice(), nests, "elementwise").call(in_order(nests, inputs, outputs))()
    return outputs


def test_a_loop_reads_what_its_formula_does():
    """An input that the formula leaves out is passed, too."""
    x, y = (np.arange(12, dtype=np.float32).reshape(3, 4) + k for k in (0, 100))
    out, dtype = np.empty((3, 4), np.float32), np.dtype(np.float32)
    made = loop(EmulatedDevice(), lambda t, a, b: b * 2.0, [(3, 4), (3, 4)], [dtype] * 2, (3, 4), dtype)
    made.call(x, y, out)()
    np.testing.assert_array_equal(out, y * 2)


@pytest.mark.parametrize("wide", [False, True])
def test_every_step_computes_what_numpy_does(wide):
    """One kernel with all steps, on numbers of every kind."""
    w, (a, b) = writer(2)
    two = {
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "min",
        "pow",
        "hypot",
        "arctan2",
        "fmod",
        "copysign",
        *COMPARISONS,
    }
    names, values = [], []
    for name in NUMPY:
        if name == "select":
            value = w("select", w("gt", a, b), a, 0.25)
        elif name in two:
            value = w(name, a, b)
            if name in COMPARISONS:
                value = w("select", value, 1.0, 0.0)
        else:
            value = w(name, a)
        names.append(name)
        values.append(value)
    values.append(a * w.constant(1.5) + w.number(float("inf")))
    formula = expression_of([a, b], values)
    dtype = np.float64 if wide else np.float32
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.standard_normal(2000) * 3, [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -90, 90]])
    x, y = x.astype(dtype), rng.permutation(x).astype(dtype)
    got = run(formula, [x, y], [x.shape] * 2, x.shape, [np.dtype(dtype)] * len(values))
    wanted = evaluate(*formula, [x, y], dtype)
    for name, g, v in zip([*names, "constant"], got, wanted):
        # Far out, the normal distribution multiplies the rounding of its argument.
        rtol = 1e-13 if wide else 2e-5 if name == "normal" else 3e-6
        np.testing.assert_allclose(g, v, rtol=rtol, atol=1e-37, err_msg=name)


@pytest.mark.parametrize("given", DTYPES)
def test_every_dtype_is_read_and_written(given):
    made = [numpy_type(d) for d in ("float32", "float16", "bfloat16", "float64")]
    formula = expression(1, lambda w, x: [x * 1.5])
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(999) * 50).astype(numpy_type(given))
    for got in (run(formula, [values], [values.shape], values.shape, [d])[0] for d in made):
        wide = np.float64 if "float64" in (given, str(got.dtype)) else np.float32
        with np.errstate(all="ignore"):
            wanted = (values.astype(wide) * wide(1.5)).astype(got.dtype)
        assert got.tobytes() == wanted.tobytes(), got.dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_rounding_to_16_bits_is_to_nearest_even(dtype, wide):
    """All halfway points, and both neighbours of each."""
    with np.errstate(all="ignore"):
        every = np.arange(2**16, dtype=np.uint16).view(numpy_type(dtype)).astype(wide)
        finite = np.sort(every[np.isfinite(every)])
        middle = finite[1:] / 2 + finite[:-1] / 2
    x = np.concatenate([every, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    x = np.concatenate([x, np.array([65519.99, 65520, 1e9, -1e9, 3.4e38, 1e-8, 3e-8, 1e-45], wide)])
    (got,) = run(expression(1, lambda w, x: [w("abs", x)]), [x], [x.shape], x.shape, [numpy_type(dtype)])
    with np.errstate(all="ignore"):
        wanted = np.abs(x).astype(numpy_type(dtype))
    numbers = ~np.isnan(x)
    assert (got.view(np.uint16) == wanted.view(np.uint16))[numbers].all()
    assert np.isnan(got.astype(np.float32)[~numbers]).all()


@pytest.mark.parametrize(
    "shape, views",
    [
        ((7,), [(7,), (1,)]),
        ((4, 6), [(4, 6), (6,)]),
        ((4, 6), [(4, 1), (1, 6)]),
        ((2, 3, 4, 5), [(2, 3, 4, 5), (1, 3, 1, 1), (5,)]),
        ((2, 3, 4, 8), [(2, 1, 4, 1), (1, 3, 1, 8), (2, 3, 4, 8)]),
        ((3, 1, 5, 2, 3), [(3, 1, 1, 2, 1), (1, 1, 5, 1, 3)]),
        ((), [(), ()]),
        ((300, 12), [(300, 1), (12,)]),
    ],
)
def test_broadcasting(shape, views):
    _, given = writer(len(views))
    total = given[0]
    for x in given[1:]:
        total = total * 0.5 + x
    formula = expression_of(given, [total, -total])
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(v).astype(np.float32) for v in views]
    got = run(formula, inputs, views, shape, [np.dtype("float32")] * 2)
    wanted = evaluate(*formula, inputs)
    for g, v in zip(got, wanted):
        np.testing.assert_array_equal(g, np.broadcast_to(v, shape))


@pytest.mark.parametrize("skip", [0, 1, 2, 4])
def test_addresses_that_are_not_aligned_for_packs(skip):
    base = np.arange(64, dtype=np.float32)
    x = base[skip : skip + 40]
    (got,) = run(expression(1, lambda w, x: [x + 1.0]), [x], [x.shape], x.shape, [np.dtype("float32")])
    np.testing.assert_array_equal(got, x + 1)


def test_division_by_multiplication():
    for n in [1, 2, 3, 5, 7, 10, 641, 2**16, 2**30 + 1, 2**31 - 1]:
        multiplier, shift = divisor(n)
        for x in [0, 1, n - 1, n, n + 1, 2 * n - 1, 2**31 - 1, 123456789]:
            if x < 2**31:
                assert (((x * multiplier) >> 32) + x) >> shift == x // n, (x, n)


@pytest.mark.parametrize("name", ["Activation", "broadcast_add", "gamma", "sqrt"])
def test_rows_of_the_table_compute_what_the_reference_does(name):
    """Forward and, where there is one, the gradient."""
    op = find_op(name)
    attrs = op.Attrs(act_type="relu") if name == "Activation" else op.Attrs()
    shapes = ((3, 4), (1, 4))[: len(op.input_names(attrs))]
    float32 = np.dtype("float32")
    table_ = table(EmulatedDevice())
    rng = np.random.default_rng(3)
    for wanted in (op, op.grad_op):
        request = Request(wanted, attrs, shapes, ((3, 4),), float32, (float32,) * len(shapes))
        found = [kernel for row in table_.get(wanted, ()) if (kernel := row(request)) is not None]
        if not found:
            assert name in ("gamma", "broadcast_add")  # no expression; sums over an axis
            continue
        size = dict(zip(op.input_names(attrs), shapes)) | dict.fromkeys(op.output_names(attrs), (3, 4))
        given = [rng.random(size[n.removeprefix("d_")]).astype(np.float32) for n in wanted.input_names(attrs)]
        results = []
        for kernel in (found[0], CPU.reference(wanted, attrs, shapes, ((3, 4),), float32)):
            outs = [np.zeros(size[n.removeprefix("d_")], np.float32) for n in wanted.output_names(attrs)]
            work = np.empty(kernel.workspace, np.uint8)
            bind_call(kernel, np, wanted, attrs, given, outs, work=work, shapes=(shapes, ((3, 4),)))()
            results.append(outs)
        for got, reference in zip(*results):
            np.testing.assert_allclose(got, reference, rtol=1e-6)
            assert got.any()


@pytest.mark.parametrize(
    "shape, views, lengths, strides",
    [
        ((2, 3, 4), [(2, 3, 4), (2, 3, 4)], (24,), [(1,), (1,)]),
        ((2, 3, 4), [(2, 3, 4), (1, 3, 1)], (2, 3, 4), [(12, 4, 1), (0, 1, 0)]),
        ((2, 3, 4), [(2, 3, 4), (4,)], (6, 4), [(4, 1), (0, 1)]),
        ((2, 3, 4), [(2, 3, 4), (2, 3, 1)], (6, 4), [(4, 1), (1, 0)]),
        ((2, 3, 4), [(1,), ()], (24,), [(0,), (0,)]),
        ((1, 3, 1), [(1, 3, 1), (3, 1)], (3,), [(1,), (1,)]),
        ((), [(), ()], (1,), [(0,), (0,)]),
        ((5, 3, 4), [(5, 1, 4), (1, 3, 4)], (5, 3, 4), [(4, 0, 1), (0, 4, 1)]),
    ],
)
def test_shapes_of_a_fold_become_as_few_axes_as_they_can(shape, views, lengths, strides):
    assert collapsed(shape, views) == (lengths, tuple(strides))
