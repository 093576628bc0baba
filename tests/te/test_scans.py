"""Scans: values that are carried along an axis, by numpy and as generated loop nests, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.te import sweeps
from mxlite.te.adjoint import adjoint
from mxlite.te.computation import Computation
from tests.te.computations import nests, run
from tests.te.test_evaluate import computed, evaluation

KINDS = ("sum", "product", "any")


def _drawn(rng, most=3):
    """A scan `y` of random axes, direction and kind, its computation, arrays, and what it should be."""
    rank = int(rng.integers(1, most + 1))
    axis = int(rng.integers(rank))
    shape = tuple(int(rng.choice([2, 3, 17, 40, 130] if most == 3 else [2, 3, 5])) for _ in range(rank))
    lines = tuple(1 if k == axis else n for k, n in enumerate(shape))
    kind = str(rng.choice(KINDS))
    reverse, exclusive = (bool(rng.random() < 0.5) for _ in range(2))
    arrays = {"x": rng.standard_normal(shape), "first": rng.standard_normal(lines)}
    arrays["factor"] = rng.uniform(0.7, 1.2, shape) * rng.choice([-1, 1], shape)
    t = Computation()
    given = {n: t.input(n, a.shape) for n, a in arrays.items()}
    # What is computed is scanned block by block.
    x, factor, first = given["x"] + 0.5, given["factor"] * 0.9, given["first"]
    values = {n: np.moveaxis(np.broadcast_to(a, shape), axis, 0) for n, a in arrays.items()}
    terms, factors, carried = values["x"] + 0.5, values["factor"] * 0.9, values["first"][0]
    if kind == "sum":
        y = t.scan(x, axis, reverse=reverse, exclusive=exclusive)
        factors, carried = np.ones_like(factors), np.zeros_like(carried)
    elif kind == "product":
        y = t.scan(0.0, axis, factor, 1.0, reverse, exclusive)
        terms, carried = np.zeros_like(terms), np.ones_like(carried)
    else:
        y = t.scan(x, axis, factor, first, reverse, exclusive)
    want = np.zeros_like(terms)
    for i in range(len(want))[:: -1 if reverse else 1]:
        after = factors[i] * carried + terms[i]
        want[i] = carried if exclusive else after
        carried = after
    return t, y, given, arrays, np.moveaxis(want, 0, axis), axis


@pytest.mark.parametrize("nbytes", [1 << 17, 1 << 10])
def test_numpy_carries_a_value_from_block_to_block(nbytes, monkeypatch):
    monkeypatch.setattr(sweeps, "BLOCK_NBYTES", nbytes)
    for seed in range(25):
        t, y, _, arrays, want, axis = _drawn(np.random.default_rng(seed))
        outputs = {"y": y, "more": t.exp(-t.abs(y)), "sum": t.sum(y, [axis])}
        got = computed(evaluation(t, outputs), outputs, arrays)
        np.testing.assert_allclose(got["y"], want, rtol=1e-9, atol=1e-9, err_msg=str(seed))
        np.testing.assert_allclose(got["more"], np.exp(-abs(want)), rtol=1e-9, err_msg=str(seed))
        np.testing.assert_allclose(got["sum"], want.sum(axis, keepdims=True), rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")
def test_nests_are_numpys_and_have_equal_bits_on_any_number_of_threads():
    before = mx.get_num_threads()
    try:
        for seed in range(40):
            t, y, _, arrays, want, axis = _drawn(np.random.default_rng(seed))
            outputs = {"y": y, "more": y * 0.5 + 1.0, "sum": t.sum(y * y, [axis])}
            given = {n: a.astype("f") for n, a in arrays.items()}
            made = []
            for many in (1, 2, 3):
                mx.set_num_threads(many)
                made.append(run(nests(t, outputs, {n: a.shape for n, a in given.items()}), outputs, given))
            results = {"y": want, "more": want / 2 + 1, "sum": (want * want).sum(axis, keepdims=True)}
            for name, x in results.items():
                np.testing.assert_allclose(
                    made[0][name], x, rtol=1e-3, atol=1e-4 * abs(x).max(), err_msg=f"{seed}: {name}"
                )
                for other in made[1:]:
                    np.testing.assert_array_equal(other[name], made[0][name], err_msg=f"{seed}: {name}")
    finally:
        mx.set_num_threads(before)


def test_gradients_are_those_of_finite_differences():
    """Also those of two scans in a row, of which the second goes on from what the first has come to."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        t, y, given, arrays, _, axis = _drawn(rng, most=2)
        if seed % 2:
            y = t.scan(y, axis, reverse=bool(rng.random() < 0.5)) * y
        head = rng.standard_normal(y.shape)
        gradients = adjoint(t, {"y": y}, {"y": t.input("head", y.shape)}, given)
        got = computed(evaluation(t, gradients), gradients, {**arrays, "head": head})
        found = evaluation(t, {"y": y})
        for name in gradients:
            for at in range(min(6, arrays[name].size)):
                losses = []
                for step in (1e-5, -1e-5):
                    moved = {**arrays, name: arrays[name].copy()}
                    moved[name].reshape(-1)[at] += step
                    losses.append((computed(found, {"y": y}, moved)["y"] * head).sum())
                slope = (losses[0] - losses[1]) / 2e-5
                np.testing.assert_allclose(
                    got[name].reshape(-1)[at], slope, rtol=1e-5, atol=1e-6, err_msg=f"{seed}: {name}"
                )


@pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")
def test_scans_of_one_direction_are_one_nest_and_what_the_other_reads_is_stored():
    t = Computation()
    x = t.input("x", (5, 90))
    y = t.scan(x * 2.0, 1)
    z = t.scan(y, 1, exclusive=True)
    back = t.scan(z, 1, reverse=True)
    share = t.scan(t.exp(x) / t.sum(t.exp(x), (1,)), 1)
    assert len(nests(t, {"y": y, "z": z}, {"x": x.shape}).nests) == 1
    found = nests(t, {"back": back}, {"x": x.shape})
    assert len(found.nests) == 2 and found.scratch == [5 * 90]
    array = np.random.default_rng(2).standard_normal((5, 90))
    want = (np.cumsum(2 * array, 1).cumsum(1) - np.cumsum(2 * array, 1))[:, ::-1].cumsum(1)[:, ::-1]
    got = run(found, {"back": back}, {"x": array.astype("f")})["back"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * abs(want).max())
    e = np.exp(array)
    got = run(nests(t, {"share": share}, {"x": x.shape}), {"share": share}, {"x": array.astype("f")})["share"]
    np.testing.assert_allclose(got, np.cumsum(e / e.sum(1, keepdims=True), 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_a_running_product_is_right_where_an_element_is_0(dtype):
    data = np.array([[2, 0, 3, -1, 0.5], [0, 1, 0, 2, 4], [1, 2, -3, 1, 0]], dtype)
    x = mx.nd.array(data, dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.cumprod(x, axis=1)
    y.backward(mx.nd.ones_like(y))
    want = np.zeros_like(data)
    for i in range(5):
        for k in range(i, 5):
            want[:, i] += np.delete(data[:, : k + 1], i, 1).prod(1)
    np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-6)
