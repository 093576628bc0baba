"""Loop nests as CUDA kernels, run on the CPU: random computations against numpy in float64, operators against
their reference kernels."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.gpu.kernels.generated.computed import rows
from mxlite.backends.gpu.nests import Launches, launches, THREADS
from mxlite.backends.nests.build import nests_of
from mxlite.core.dtype import as_dtype
from mxlite.te.computation import Computation
from tests.backends.gpu.gpu_case import agree
from tests.conformance.case import Case, integers
from tests.conformance.conformance import Call, check_in_place, kernels_of
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.te.computations import drawn, reference

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

SPLITTING = replace(THREADS, few=50, nbytes=1 << 10, part=64)
"""By which sums are taken in parts in small arrays."""
BACKEND = Backend("emulated", np, rows(EmulatedDevice()))
PLACES = {"label": integers(0, 6)}
CASES = {
    "softmax": Case(ops.softmax, {}, [(5, 33)]),
    "softmax-columns": Case(ops.softmax, {"axis": 1}, [(2, 5, 7)]),
    "LayerNorm": Case(ops.LayerNorm, {}, [(6, 40), (40,), (40,)]),
    "BilinearSampler": Case(ops.BilinearSampler, {}, [(2, 3, 4, 5), (2, 2, 3, 5)]),
    "Embedding": Case(
        ops.Embedding, {"input_dim": 7, "output_dim": 6}, [(9,), (7, 6)], make={"data": integers(0, 7)}
    ),
    "SoftmaxOutput": Case(ops.SoftmaxOutput, {"smooth_alpha": 0.1}, [(5, 6), (5,)], make=PLACES),
    "broadcast_mul": Case(ops.broadcast_mul, {}, [(3, 8), (1, 8)]),
}  # fmt: skip


def run(t, outputs, shapes, arrays, over=None, splitting=SPLITTING, dtype="float32"):
    """The outputs of the printed kernels; `over`: those that are written over inputs."""
    dtypes = dict.fromkeys((*shapes, *outputs), dtype)
    donors = {n: frozenset({x}) for n, x in (over or {}).items()}
    made = {n: x.shape for n, x in outputs.items()}
    nests = nests_of(t, outputs, made, dtypes, donors, splitting=splitting)
    assert nests is not None
    device, kind = EmulatedDevice(), as_dtype(dtype)
    arrays = {n: x.astype(kind) for n, x in arrays.items()}
    blocks = {
        n: arrays[(over or {})[n]]
        if n in (over or {})
        else device.empty(kind.itemsize * prod(s)).view(kind).reshape(s)
        for n, s in made.items()
    }
    scratch = [device.empty(kind.itemsize * n).view(kind) for n in nests.scratch]
    given = [*(arrays[n] for n in nests.inputs), *(blocks[n] for n in nests.outputs), *scratch]
    Launches(device, nests).call(given)()
    return blocks, nests


def close(got, want, tolerance=3e-5):
    for n, y in want.items():
        scale = float(np.max(np.abs(y), initial=1e-6))
        np.testing.assert_allclose(got[n], y, rtol=tolerance, atol=tolerance * scale, err_msg=n)


@pytest.mark.parametrize("seed", range(8))
def test_random_computations_are_numpys(seed):
    rng = np.random.default_rng(seed)
    t, outputs, shapes = drawn(rng)
    arrays = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    got, _ = run(t, outputs, shapes, arrays)
    close(got, reference(t, outputs, arrays))


def row_and_columns(shape):
    """A row's statistics, a sum over the rows, and a result over the input."""
    t = Computation()
    x = t.input("x", shape)
    scaled = (x - t.mean(x, (1,))) * t.rsqrt(t.mean(x * x, (1,)) + 1.0)
    return t, {"y": scaled * t.max(x, (1,)), "z": t.sum(scaled, (0,)), "w": t.prod(t.sin(x), (1,))}


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 1), (1, 70), (5, 300), (300, 3), (2, 4096), (40, 130)], ids=str
)
def test_results_over_their_inputs_and_sums_in_parts(shape):
    t, outputs = row_and_columns(shape)
    arrays = {"x": np.random.default_rng(1).uniform(-2, 2, shape).astype("f")}
    got, _ = run(t, outputs, {"x": shape}, arrays, {"y": "x"})
    close(got, reference(t, outputs, arrays))


def test_bits_do_not_depend_on_where_arrays_lie_nor_on_the_grid(monkeypatch):
    t = Computation()
    x = t.input("x", (12, 4096))
    outputs = {"y": x / t.sum(x, (1,)), "z": t.sum(x * x, (0,))}
    arrays = {"x": np.random.default_rng(1).standard_normal((12, 4096)).astype("f")}
    first, _ = run(t, outputs, {"x": (12, 4096)}, arrays)
    monkeypatch.setattr(EmulatedDevice, "multiprocessors", 1)
    for at in (0, 1):
        block = np.zeros(12 * 4096 + 20, "f")
        arrays["x"] = block[at : at + 12 * 4096].reshape(12, 4096)
        arrays["x"][...] = np.random.default_rng(1).standard_normal((12, 4096))
        again, _ = run(t, outputs, {"x": (12, 4096)}, arrays)
        for n in outputs:
            np.testing.assert_array_equal(first[n], again[n], n)


def test_a_sum_of_many_numbers_loses_few_digits():
    t = Computation()
    x = t.input("x", (2**18, 2))
    arrays = {"x": np.full((2**18, 2), 0.1, "f")}
    splitting = replace(THREADS, few=1)  # by one block, in blocks of numbers
    got, _ = run(t, {"y": t.sum(x, (0,))}, {"x": x.shape}, arrays, splitting=splitting)
    np.testing.assert_allclose(got["y"], np.float32(0.1).astype("f8") * 2**18, rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_float64_is_computed_in_float64_and_counts_may_have_64_bits(monkeypatch, wide):
    if wide:
        monkeypatch.setattr(launches, "MOST", 10)
    t, outputs = row_and_columns((40, 130))
    arrays = {"x": np.random.default_rng(1).uniform(-2, 2, (40, 130))}
    got, _ = run(t, outputs, {"x": (40, 130)}, arrays, dtype="float64")
    close(got, reference(t, outputs, arrays), 1e-12)


@pytest.mark.parametrize("owners", [1, 1 << 16])
def test_terms_that_meet_are_added_in_their_order(monkeypatch, owners):
    """Whoever owns a place adds all of its terms, one after the other: 1e8 and -1e8 first, then 1."""
    monkeypatch.setattr(launches, "ADDING", owners)
    t = Computation()
    base, index, terms = t.input("b", (1, 5, 3)), t.input("i", (4, 1, 1)), t.input("x", (4, 1, 3))
    outputs = {"y": t.add_at(base, index, terms, 1)}
    arrays = {
        "b": np.zeros((1, 5, 3), "f"),
        "i": np.array([2, 2, 2, 4], "f").reshape(4, 1, 1),
        "x": np.array([1e8, -1e8, 1, 7], "f")[:, None, None].repeat(3, 2),
    }
    got, _ = run(t, outputs, {n: x.shape for n, x in arrays.items()}, arrays)
    np.testing.assert_array_equal(got["y"][0, :, 0], [0, 0, 1, 0, 7])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_operators_and_their_gradients_are_the_references(name, dtype):
    agree(CASES[name], dtype, {"float32": 3e-5, "float16": 4e-3}[dtype], BACKEND)


def test_rules_hold_in_place():
    with kernels_of(BACKEND):
        check_in_place(CASES["softmax"])
        check_in_place(CASES["LayerNorm"])


@pytest.mark.parametrize("shape", [(0, 4), (1, 1)], ids=str)
def test_arrays_without_elements_and_of_one(shape):
    agree(Case(ops.softmax, {}, [shape]), "float32", backend=BACKEND)


def test_operators_that_nobody_has_written_a_kernel_for_run_on_the_device():
    call = Call.of(Case(ops.box_decode, {}, [(3, 30, 4), (1, 30, 4)]), dtype="float32")
    kernel = BACKEND.choose(call.op, call.attrs, *call.shapes, call.dtypes[0][0], call.dtypes[0])
    assert kernel.name == "cuda loop nest"


def numbers(*values):
    return lambda rng, shape: np.resize(np.array(values), shape)


HUGE = numbers(2**60 + 1, -(2**60) - 3, 7)
WHOLE = {
    "sum": Case(ops.broadcast_add, {}, [(3, 4), (1, 4)], make={"lhs": HUGE, "rhs": HUGE}),
    "remainder": Case(
        ops.broadcast_mod, {}, [(7,), (7,)], make={"lhs": integers(-9, 9), "rhs": integers(-4, 4)}
    ),
    "fraction compared": Case(ops.round, {}, [(5,)], make={"data": HUGE}),
    "fraction cut": Case(ops._plus_scalar, {"scalar": -2.7}, [(6,)], make={"data": integers(0, 5)}),
    "diagonal": Case(ops.tril, {}, [(4, 5)], make={"data": HUGE}),
    "index cut": Case(
        ops.one_hot, {"depth": 4, "dtype": "int64"}, [(4,)], make={"indices": numbers(-0.5, 1.9, 3)}
    ),
    "condition": Case(ops.where, {}, [(6,)] * 3, make={"condition": numbers(0.5, 0.0), "x": HUGE, "y": HUGE}),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_are_computed_with_64_bits(name):
    floats = {"index cut": "indices", "condition": "condition"}
    case = replace(WHOLE[name], dtypes={floats[name]: "float32"} if name in floats else {})
    for dtype in ("int64", "uint8"):
        call = Call.of(case, dtype=dtype)
        with np.errstate(all="ignore"):
            inputs = dict(zip(call.names()[0], case.inputs(dtype=dtype)))
        want, _ = call.execute(call.op, inputs)
        with kernels_of(BACKEND):
            assert call.kernel(call.op).is_computed
            got, _ = call.execute(call.op, inputs)
        np.testing.assert_array_equal(got["out"], want["out"])


@pytest.mark.parametrize("scalar, dtype", [(0.5, "bool"), (float("inf"), "int32")])
def test_what_whole_numbers_cannot_be_compared_with_stays_on_the_host(scalar, dtype):
    call = Call.of(Case(ops._greater_scalar, {"scalar": scalar}, [(4,)]), dtype=dtype)
    with kernels_of(BACKEND):
        assert call.kernel(call.op).is_reference
