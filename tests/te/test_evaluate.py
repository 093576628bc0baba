"""Computations carried out by numpy block by block."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.graph import parse_attrs
from mxlite.ops.loss.wide_losses import WideSoftmaxCrossEntropy
from mxlite.te import sweeps
from mxlite.te.computation import Computation, MOST_COUNTED
from mxlite.te.evaluate import Evaluation

from .computations import drawn, evaluate

FLOAT64 = np.dtype("float64")


def evaluation(t, outputs, dtypes=None, dtype=FLOAT64, donors=None):
    """`outputs` in their own shapes, of arrays that are all of `dtype` unless `dtypes` tells."""
    names = {node[1] for node in t.nodes if node[0] == "input"} | set(outputs)
    kinds = dict.fromkeys(names, dtype) | (dtypes or {})
    return Evaluation(t, outputs, {n: x.shape for n, x in outputs.items()}, dtype, kinds, donors or {})


def computed(found, outputs, arrays, wanted=None, dtypes=None):
    """The arrays of the outputs that are wanted; nothing is written beyond the scratch."""
    work = np.full(found.nbytes + 64, 255, np.uint8)
    made = {
        n: np.full(x.shape, 7, (dtypes or {}).get(n, FLOAT64)) if wanted is None or n in wanted else None
        for n, x in outputs.items()
    }
    with np.errstate(all="ignore"):
        found.run(np, arrays, made, work[: found.nbytes])
    assert (work[found.nbytes :] == 255).all()
    return made


@pytest.mark.parametrize("nbytes", [1 << 17, 1 << 12, 1 << 10])
@pytest.mark.parametrize("seed", range(60))
def test_random_computations_have_the_same_bits_whichever_outputs_are_wanted(seed, nbytes, monkeypatch):
    monkeypatch.setattr(sweeps, "BLOCK_NBYTES", nbytes)
    rng = np.random.default_rng(seed)
    t, outputs, shapes = drawn(rng)
    arrays = {n: rng.standard_normal(s) for n, s in shapes.items()}
    found = evaluation(t, outputs)
    got = computed(found, outputs, arrays)
    for n, want in zip(outputs, evaluate(t, list(outputs.values()), arrays)):
        np.testing.assert_allclose(got[n], want, rtol=1e-8, atol=1e-8)
        assert np.array_equal(computed(found, outputs, arrays, [n])[n], got[n], equal_nan=True)


@pytest.mark.parametrize("nbytes", [1 << 17, 1 << 10, 1 << 7])
def test_an_output_may_be_written_over_what_it_is_made_of(nbytes, monkeypatch):
    monkeypatch.setattr(sweeps, "BLOCK_NBYTES", nbytes)
    t = Computation()
    x, d = t.input("x", (12, 40)), t.input("d", (12, 40))
    made = {"over_x": x * (d - t.sum(x * d, (1,))), "columns": t.sum(x * x, (0,))}
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal((12, 40)) for n in ("x", "d")}
    want = evaluate(t, list(made.values()), arrays)
    for over in ("x", "d"):
        given = {n: a.copy() for n, a in arrays.items()}
        found = evaluation(t, made, donors={"over_x": frozenset(["x", "d"])})
        columns = np.empty((1, 40))
        work = np.empty(found.nbytes, np.uint8)
        found.run(np, given, {"over_x": given[over], "columns": columns}, work)
        np.testing.assert_allclose(given[over], want[0], rtol=1e-12)
        np.testing.assert_allclose(columns, want[1], rtol=1e-12)


@pytest.mark.parametrize("nbytes", [1 << 17, 1 << 9])
def test_what_a_later_sweep_reads_is_not_written_over_before(nbytes, monkeypatch):
    monkeypatch.setattr(sweeps, "BLOCK_NBYTES", nbytes)
    t = Computation()
    x = t.input("x", (12, 40))
    made = {"twice": x + x, "spread": t.sum(t.abs(x - t.mean(t.abs(x))), (0,))}
    data = np.random.default_rng(0).standard_normal((12, 40))
    want = evaluate(t, list(made.values()), {"x": data})
    found = evaluation(t, made, donors={"twice": frozenset(["x"])})
    spread = np.empty((1, 40))
    found.run(np, {"x": data}, {"twice": data, "spread": spread}, np.empty(found.nbytes, np.uint8))
    np.testing.assert_allclose(data, want[0], rtol=1e-12)
    np.testing.assert_allclose(spread, want[1], rtol=1e-12)


def test_a_sum_of_nothing_is_0_and_a_product_1():
    t = Computation()
    x = t.input("x", (3, 0))
    made = {"sum": t.sum(x * x, (1,)), "product": t.prod(x + 1.0, (1,)), "mean": t.mean(x, (1,))}
    got = computed(evaluation(t, made), made, {"x": np.empty((3, 0))})
    assert got["sum"].tolist() == [[0]] * 3
    assert got["product"].tolist() == [[1]] * 3
    assert np.isnan(got["mean"]).all()
    got = computed(evaluation(t, made := {"most": t.max(x, (1,))}), made, {"x": np.empty((3, 0))})
    assert got["most"].tolist() == [[-np.inf]] * 3


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_whole_numbers_keep_their_type_and_quotients_are_cut_towards_0(dtype):
    t, kind = Computation(), np.dtype(dtype)
    x = t.input("x", (2, 3))
    place = t.index(x, 1)
    made = {"mean": t.mean(x, (1,)), "place": t.min(t.select(t.eq(x, -5.0), place, 300.0), (1,))}
    types = dict.fromkeys(("mean", "place"), kind) | {"place": np.dtype("int64")}
    data = np.array([[7, -5, 2], [-5, -5, 2]], kind)
    got = computed(evaluation(t, made, types, kind), made, {"x": data}, dtypes=types)
    assert got["mean"].tolist() == [[1], [-2]]
    assert got["place"].tolist() == [[1], [0]]


def test_positions_that_float32_cannot_count_are_counted_in_float64():
    t, float32 = Computation(), np.dtype("float32")
    length = MOST_COUNTED + 3
    x = t.input("x", (length,))
    made = {"place": t.max(t.where("eq", x, 1.0, t.index(x, 0), -1.0))}
    data = np.zeros(length, float32)
    data[-2] = 1
    types = {"place": np.dtype("int64")}
    got = computed(evaluation(t, made, types, float32), made, {"x": data}, dtypes=types)
    assert got["place"].tolist() == [length - 2]


def test_an_index_is_cut_and_moved_into_the_array():
    t = Computation()
    x, index = t.input("x", (3, 4)), t.input("index", (3, 1))
    made = {"out": t.pick(x, index, 1)}
    data = np.arange(12.0).reshape(3, 4)
    got = computed(evaluation(t, made), made, {"x": data, "index": np.array([[1.9], [-4.0], [np.inf]])})
    assert got["out"].tolist() == [[1.0], [4.0], [11.0]]


def test_a_softmax_of_short_rows_takes_one_sweep_and_two_arrays_of_scratch():
    t, float32 = Computation(), np.dtype("float32")
    x = t.input("x", (1000, 50))
    power = t.exp(x - t.max(x, (1,)))
    found = evaluation(t, {"out": power * (1 / t.sum(power, (1,)))}, dtype=float32)
    assert len(found.sweeps.sweeps) == 1
    assert found.nbytes < sweeps.BLOCK_NBYTES * 1.2


def test_what_is_a_sum_of_an_input_takes_no_scratch():
    t = Computation()
    x = t.input("x", (300, 400))
    for axes in ((0,), (1,), (0, 1)):
        assert evaluation(t, {"out": t.mean(x, axes)}).nbytes == 0


def test_axes_of_length_0_are_no_divisors():
    """A sweep of blocks along a whole axis, where another has no elements."""
    attrs = parse_attrs(WideSoftmaxCrossEntropy, {})
    shapes = ((6, 0), (6,)), ((1,),)
    assert WideSoftmaxCrossEntropy.workspace(attrs, *shapes, FLOAT64) % 64 == 0
