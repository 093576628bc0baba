"""Sums at an index: terms added at places that are read from an array, as generated loop nests."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.nests.build import nests_of
from mxlite.backends.nests.facts import NestFacts
from mxlite.te import sweeps
from mxlite.te.adjoint import adjoint
from mxlite.te.computation import Computation
from tests.te.computations import nests, reference, run
from tests.te.test_evaluate import computed, evaluation

pytestmark = pytest.mark.skipif(not usable(), reason="generated code needs llvmlite")


@pytest.fixture
def threads():
    """Sets the number of threads, and brings the old one back."""
    before = mx.get_num_threads()
    yield mx.set_num_threads
    mx.set_num_threads(before)


def _drawn(rng, starts=("zeros", "input", "computed")):
    """A computation with a sum at an index, its outputs, and the shapes of its inputs.

    Each other axis of the terms is kept, summed over, or absent; the index has some of the axes.
    """
    t = Computation()
    rank = int(rng.integers(1, 5))
    axis = int(rng.integers(rank))
    length = int(rng.choice([1, 2, 7, 40, 1000]))
    base, terms, index = [], [], []
    for k in range(rank):
        n = int(rng.choice([1, 2, 3, 17, 70]))
        kept = rng.random() < 0.5
        base.append(length if k == axis else n if kept else 1)
        terms.append(1 if k == axis else n)
        index.append(1 if k == axis or rng.random() < 0.5 else n)
    shapes = {"terms": tuple(terms), "index": tuple(index)}
    x, at = (t.input(n, s) for n, s in shapes.items())
    kind = rng.choice(starts)
    start = t.broadcast(0.0, tuple(base))
    if kind != "zeros":
        shapes["base"] = tuple(base)
        start = t.input("base", tuple(base))
    if kind == "computed":
        start = t.exp(start)
    if rng.random() < 0.3:
        x = x / (t.sum(t.abs(x)) + 1.0)
    if rng.random() < 0.5:
        x = x * at
    y = t.add_at(start, at * float(length), x, axis)
    outputs = {"y": y}
    if rng.random() < 0.5:
        outputs["more"] = t("max", y, 0.0) * 2.0
    if rng.random() < 0.3:
        del outputs["y"]
        outputs["sum"] = t.sum(y, [int(rng.integers(rank))])
    return t, outputs, shapes


@pytest.mark.parametrize("part", range(4))
def test_they_are_numpys_for_any_axes_and_have_equal_bits_on_any_number_of_threads(part, threads):
    for seed in range(40 * part, 40 * part + 40):
        rng = np.random.default_rng(seed)
        t, outputs, shapes = _drawn(rng)
        arrays = {n: rng.uniform(-0.1 if n == "index" else -1, 1.1, s).astype("f") for n, s in shapes.items()}
        want = reference(t, outputs, arrays)
        made = []
        for many in (1, 2, 3):
            threads(many)
            made.append(run(nests(t, outputs, shapes), outputs, arrays))
        for name, x in want.items():
            size = max(1.0, float(np.abs(x).max(initial=0.0)))
            np.testing.assert_allclose(
                made[0][name], x, rtol=1e-4, atol=2e-5 * size, err_msg=f"{seed}: {name}"
            )
            for other in made[1:]:
                np.testing.assert_array_equal(other[name], made[0][name], err_msg=f"{seed}: {name}")


@pytest.mark.parametrize("nbytes", [1 << 17, 1 << 10])
def test_numpy_computes_them_block_by_block(nbytes, monkeypatch):
    monkeypatch.setattr(sweeps, "BLOCK_NBYTES", nbytes)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        t, outputs, shapes = _drawn(rng, ("zeros", "input"))
        arrays = {n: rng.uniform(-0.1 if n == "index" else -1, 1.1, s) for n, s in shapes.items()}
        got = computed(evaluation(t, outputs), outputs, arrays)
        for name, x in reference(t, outputs, arrays).items():
            np.testing.assert_allclose(got[name], x, rtol=1e-9, atol=1e-9, err_msg=f"{seed}: {name}")


def test_numpy_adds_several_sums_to_one_place_without_scratch():
    t = Computation()
    shapes = {"base": (50, 1, 40), "index": (1, 90, 1), "terms": (1, 90, 40)}
    base, index, terms = (t.input(n, s) for n, s in shapes.items())
    y = t.add_at(t.add_at(base, index, terms, 0), index + 1.0, terms * 2.0, 0)
    rng = np.random.default_rng(5)
    arrays = {n: rng.uniform(0, 50, s) for n, s in shapes.items()}
    found = evaluation(t, {"y": y})
    assert found.nbytes < 8 * 2 * 90 * 40, "two blocks of terms, no sum"
    got = computed(found, {"y": y}, arrays)["y"]
    np.testing.assert_allclose(got, reference(t, {"y": y}, arrays)["y"], rtol=1e-12)


@pytest.mark.parametrize("columns", [1, 5, 70])
def test_terms_of_one_place_are_added_in_their_order(columns):
    """Float32 numbers of very different sizes have another sum in another order."""
    rng = np.random.default_rng(3)
    terms = (10.0 ** rng.integers(-4, 8, (900, columns)) * rng.standard_normal((900, columns))).astype("f")
    index = rng.integers(0, 7, (900, 1)).astype("f")
    base = rng.standard_normal((7, 1, columns)).astype("f")
    t = Computation()
    x = t.input("terms", (1, 900, columns))
    outputs = {"y": t.add_at(t.input("base", base.shape), t.input("index", (1, 900, 1)), x, 0)}
    arrays = {"terms": terms, "index": index, "base": base}
    want = base[:, 0].copy()
    np.add.at(want, index[:, 0].astype(int), terms)
    got = run(nests(t, outputs, {n: a.shape for n, a in arrays.items()}), outputs, arrays)
    np.testing.assert_array_equal(got["y"][:, 0], want)


def test_over_its_base_it_has_no_scratch():
    t = Computation()
    base = t.input("base", (50, 1, 40))
    y = t.add_at(base, t.input("index", (1, 90, 1)), t.input("terms", (1, 90, 40)), 0)
    rng = np.random.default_rng(5)
    shapes = {"base": (50, 1, 40), "index": (1, 90, 1), "terms": (1, 90, 40)}
    arrays = {n: rng.uniform(0, 50, s).astype("f") for n, s in shapes.items()}
    want = reference(t, {"y": y}, arrays)["y"]
    over = CPU.empty(4 * 50 * 40).view("float32").reshape(50, 1, 40)
    over[:] = arrays["base"]
    found = nests(t, {"y": y}, shapes, {"y": frozenset({"base"})})
    assert not found.scratch
    got = run(found, {"y": y}, {**arrays, "base": over}, {"y": "base"})["y"]
    assert got is over
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_sums_of_16_bits_take_no_scratch_for_a_table_that_is_far_larger_than_what_is_added():
    found = []
    for rows in (30, 3000):
        t = Computation()
        shapes = {"index": (1, 90, 1), "terms": (1, 90, 40)}
        index, terms = (t.input(n, s) for n, s in shapes.items())
        y = t.add_at(t.broadcast(0.0, (rows, 1, 40)), index, terms, 0)
        dtypes = {"index": "float32", "terms": "bfloat16", "y": "bfloat16"}
        found.append(nests_of(t, {"y": y}, {"y": y.shape}, dtypes, {}))
    assert found[0] is not None and found[0].scratch == [30 * 40]
    assert found[1] is None


def test_what_reads_the_base_later_does_not_find_the_sums():
    t = Computation()
    base = t.input("base", (50, 1, 40))
    y = t.add_at(base, t.input("index", (1, 90, 1)), t.input("terms", (1, 90, 40)), 0)
    outputs = {"y": y, "z": t.exp(-t.abs(base))}
    rng = np.random.default_rng(5)
    shapes = {"base": (50, 1, 40), "index": (1, 90, 1), "terms": (1, 90, 40)}
    arrays = {n: rng.uniform(0, 50, s).astype("f") for n, s in shapes.items()}
    want = reference(t, outputs, arrays)
    found = nests(t, outputs, shapes, {"y": frozenset({"base"})})
    got = run(found, outputs, {n: a.copy() for n, a in arrays.items()}, {"y": "base"})
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=1e-5, err_msg=name)


def test_its_adjoint_picks_and_that_of_picked_slices_adds():
    """Against differences: both are linear."""
    rng = np.random.default_rng(8)
    shapes = {"base": (9, 1, 4), "index": (1, 30, 1), "terms": (1, 30, 4), "d": (9, 1, 4), "e": (1, 30, 4)}
    arrays = {n: rng.uniform(-1, 9, s).astype("f") for n, s in shapes.items()}
    t = Computation()
    base, index, terms, d, e = (t.input(n, s) for n, s in shapes.items())
    sums, picked = t.add_at(base, index, terms, 0), t.pick(base, index, 0)
    found = adjoint(t, {"y": sums}, {"y": d}, {"base": base, "terms": terms})
    back = adjoint(t, {"y": picked}, {"y": e}, {"base": base})
    outputs = {"y": sums, "d_base": found["base"], "d_terms": found["terms"], "p": picked, "q": back["base"]}
    got = reference(t, outputs, arrays)
    np.testing.assert_array_equal(got["d_base"], arrays["d"])
    linear = (got["y"] * arrays["d"]).sum()
    parts = sum((got[f"d_{n}"] * arrays[n]).sum() for n in ("base", "terms"))
    np.testing.assert_allclose(linear, parts, rtol=1e-6)
    np.testing.assert_allclose((got["p"] * arrays["e"]).sum(), (got["q"] * arrays["base"]).sum(), rtol=1e-6)


def _crossed(columns: int):
    """Numbers between neighbours of a row, of `columns` rows, with a weight that takes many steps."""
    shapes = {"rows": (columns, 1, 50), "at": (1, 90, 1), "d": (columns, 90, 1), "each": (columns, 1, 1)}
    t = Computation()
    rows, at, d, each = (t.input(n, s) for n, s in shapes.items())
    first = t.floor(at)
    share = t.exp(-t.abs(t.tanh(at - first) * 0.5 + t.sigmoid(at) * 0.1))
    y = t.pick(rows, first, 2) * share + t.pick(rows, first + 1.0, 2) * (1.0 - share) * t.tanh(each)
    return t, y, d, shapes


def test_the_gradient_of_an_array_that_is_picked_from_twice_is_one_array_of_sums():
    """Not one for each, and their sum: scratch as large as the array, each."""
    t, y, d, shapes = _crossed(7)
    outputs = {"d_rows": adjoint(t, {"y": y}, {"y": d}, {"rows": t.input("rows", shapes["rows"])})["rows"]}
    rng = np.random.default_rng(2)
    arrays = {n: rng.uniform(0, 47, s).astype("f") for n, s in shapes.items()}
    found = nests(t, outputs, {n: s for n, s in shapes.items() if n != "rows"})
    assert not found.scratch
    assert [len(p.nest.adds) for p in found.nests] == [0, 2]
    want = reference(t, outputs, arrays)["d_rows"]
    np.testing.assert_allclose(run(found, outputs, arrays)["d_rows"], want, rtol=1e-5, atol=1e-4)
    flat = {"y": y}
    linear = (reference(t, flat, arrays)["y"] * arrays["d"]).sum()
    np.testing.assert_allclose((want * arrays["rows"]).sum(), linear, rtol=1e-5)


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_what_is_the_same_in_all_rows_is_computed_once(columns, threads):
    """The rows are the innermost loop: with one row there is none. Bits do not depend on threads."""
    t, y, d, shapes = _crossed(columns)
    rows = t.input("rows", shapes["rows"])
    d_rows = adjoint(t, {"y": y}, {"y": d}, {"rows": rows})["rows"]
    rng = np.random.default_rng(2)
    arrays = {n: rng.uniform(0, 47, s).astype("f") for n, s in shapes.items()}
    for outputs in ({"y": y}, {"d_rows": d_rows}):
        found = nests(t, outputs, shapes)
        assert [NestFacts(p.nest).inner for p in found.nests][-1] == (0 if columns > 1 else None)
        ((name, want),) = reference(t, outputs, arrays).items()
        made = []
        for many in (1, 2, 3):
            threads(many)
            made.append(run(nests(t, outputs, shapes), outputs, arrays)[name])
        np.testing.assert_allclose(made[0], want, rtol=1e-5, atol=1e-4)
        for other in made[1:]:
            np.testing.assert_array_equal(other, made[0])


def test_sums_along_another_axis_than_their_bases_have_a_nest_of_their_own():
    """And so do those of a base that something else reads, and of terms that are known later."""
    rng = np.random.default_rng(4)
    shapes = {"base": (9, 9, 6), "i": (1, 1, 6), "a": (1, 9, 6), "b": (9, 1, 6)}
    arrays = {n: rng.uniform(0, 8, s).astype("f") for n, s in shapes.items()}
    t = Computation()
    base, i, a, b = (t.input(n, s) for n, s in shapes.items())
    once = t.add_at(base, i, a, 0)
    both, other = t.add_at(once, i, a, 0), t.add_at(once, i, b, 1)
    later = t.add_at(once, i, a / t.sum(t.exp(a), (1,)), 0)
    for outputs in ({"y": other}, {"y": both, "z": once * 2.0}, {"y": later}):
        want = reference(t, outputs, arrays)
        got = run(nests(t, outputs, shapes), outputs, arrays)
        for name, x in want.items():
            np.testing.assert_allclose(got[name], x, rtol=1e-5, err_msg=name)
