"""Tensor expressions: what they mean, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.core.errors import ShapeError
from mxlite.te.adjoint import adjoint, RULES
from mxlite.te.computation import Computation
from mxlite.te.steps import COMPARISONS, NUMPY

from .computations import evaluate


def test_a_softmax_is_what_numpy_computes():
    t = Computation()
    x = t.input("x", (4, 8))
    power = t.exp(x - t.max(x, (1,)))
    data = np.random.default_rng(0).standard_normal((4, 8))
    (got,) = evaluate(t, [power / t.sum(power, (1,))], {"x": data})
    want = np.exp(data) / np.exp(data).sum(1, keepdims=True)
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_equal_nodes_are_one_and_signs_of_zero_are_not():
    t = Computation()
    x = t.input("x", (3,))
    assert (x + t.exp(x)).number == (t.exp(x) + x).number
    assert t.number(0.0).number != t.number(-0.0).number
    assert t.sum(x, (0,)).number == t.sum(x).number
    assert t.sum(t.sum(x)).number == t.sum(x).number  # one element is its own sum


def test_shapes_that_do_not_broadcast_are_named():
    t = Computation()
    with pytest.raises(ShapeError, match=r"\(3,\), \(4,\)"):
        t.input("x", (3,)) + t.input("y", (4,))


def test_positions_along_an_axis():
    t = Computation()
    (got,) = evaluate(t, [t.index(t.input("x", (2, 3, 4)), 1) + t.number(0.0)], {})
    np.testing.assert_array_equal(np.broadcast_to(got, (3, 1)), [[0], [1], [2]])


def test_the_only_position_of_an_axis_is_0():
    t = Computation()
    assert t.index(t.input("x", (2, 1)), 1).number == t.number(0.0).number


FUNCTIONS = {
    "mean of squares": lambda t, x, w: t.mean(x * x, (1,)),
    "softmax": lambda t, x, w: t.exp(x - w) / t.sum(t.exp(x - w), (1,)),
    "norm": lambda t, x, w: x * t.rsqrt(t.mean(x * x, (0,)) + 1.0) * w,
    "standard deviation": lambda t, x, w: t.sqrt(
        t.mean((x - t.mean(x, (1,))) * (x - t.mean(x, (1,))), (1,)) + w
    ),
    "product": lambda t, x, w: t.prod(x, (0,)) * w,
    "logarithm": lambda t, x, w: t.log(t.sum(t.exp(x), (0, 1))) - t.sum(w),
    "branches": lambda t, x, w: t.where("gt", x, w, x / (w + 3.0), t.abs(x)),
    "broadcast": lambda t, x, w: x + t.broadcast(w, (3, 4)),
    "sum of a broadcast": lambda t, x, w: t.sum(x + w, (0, 1)),
    "reused": lambda t, x, w: (x * w + w) * (-x),
}


FUNCTIONS |= {
    f"step {n}": (lambda t, x, w, n=n: t(n, *(x, w)[: operand_count(n)]))
    for n in NUMPY
    if n
    not in (*COMPARISONS, "select", "to_float16", "to_bfloat16", "arcsin", "arccos", "arctanh", "arccosh")
}
FUNCTIONS |= {f"step {n}": (lambda t, x, w, n=n: t(n, x / 3.0)) for n in ("arcsin", "arccos", "arctanh")}
FUNCTIONS["step arccosh"] = lambda t, x, w: t.arccosh(x + 1.0)


def operand_count(name):
    """1 or 2: the operands of a step."""
    return 2 if name in "add sub mul div max min pow hypot arctan2 fmod copysign".split() else 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_finite_differences(name):
    rng = np.random.default_rng(1)
    t = Computation()
    shapes = {"x": (3, 4), "w": (1, 4)}
    given = {n: t.input(n, s) for n, s in shapes.items()}
    out = FUNCTIONS[name](t, **given)
    d = t.input("d", out.shape)
    found = adjoint(t, {"out": out}, {"out": d}, given)
    assert found is not None
    arrays = {n: rng.uniform(0.2, 1.5, s) for n, s in shapes.items()}
    arrays["d"] = rng.standard_normal(out.shape)

    def loss(at):
        return float((evaluate(t, [out], at)[0] * arrays["d"]).sum())

    for n, shape in shapes.items():
        got = np.broadcast_to(evaluate(t, [found.get(n, t.number(0.0))], arrays)[0], shape)
        for i in np.ndindex(*shape):
            step = np.zeros(shape)
            step[i] = 1e-6
            slope = (loss({**arrays, n: arrays[n] + step}) - loss({**arrays, n: arrays[n] - step})) / 2e-6
            assert abs(got[i] - slope) < 1e-6 * max(1, abs(slope)), (n, i)


@pytest.mark.parametrize("name", ["to_float16", "to_bfloat16"])
def test_the_gradient_of_a_rounding_is_rounded(name):
    t = Computation()
    x, d = t.input("x", (3,)), t.input("d", (3,))
    found = adjoint(t, {"out": t(name, x)}, {"out": d}, {"x": x})
    arrays = {"x": np.ones(3), "d": np.array([1.0, 1.0001, -2.00001])}
    np.testing.assert_array_equal(*evaluate(t, [found["x"], t(name, d)], arrays))


def test_every_step_has_a_derivative():
    assert set(NUMPY) <= set(RULES)
