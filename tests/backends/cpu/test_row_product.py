"""Products with one row or one column: generated code that reads the matrix where it lies."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.compiled.nests import RowProduct
from mxlite.backends.cpu.runtime import threads
from tests.backends.passes.pass_lists import left_out

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not installed")

SHAPES = [(1, 1), (3, 17), (33, 16), (512, 13), (7, 4096), (300, 1030), (1024, 512)]


@pytest.mark.parametrize("rows, columns", SHAPES)
def test_numbers_and_bits_on_any_number_of_threads(rows, columns, monkeypatch):
    rng = np.random.default_rng(rows)
    matrix, row, bias = (
        rng.standard_normal(s).astype("float32") for s in ((rows, columns), (columns,), (rows,))
    )
    for count in (0, 1, rows):
        want = matrix.astype("float64") @ row + (bias[:count] if count else 0)
        found = []
        for workers in (1, 2, 3):
            monkeypatch.setattr(threads, "_threads", workers, raising=False)
            kernel = RowProduct(rows, columns, count)
            guard = np.full(rows + 32, np.nan, "float32")
            out = guard[16 : 16 + rows]
            kernel.connect(matrix, row, bias if count else None, out, np.empty(kernel.nbytes, np.uint8))()
            np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5 * np.sqrt(columns))
            assert np.isnan(guard[:16]).all() and np.isnan(guard[16 + rows :]).all()
            found.append(out.tobytes())
        assert len(set(found)) == 1


def test_long_rows_are_left_to_a_library_that_reads_several_at_a_time():
    with pytest.raises(LookupError):
        RowProduct(8, 4097, 0)


@pytest.mark.parametrize("samples, units", [(1, 70), (50, 1), (1, 1)])
@pytest.mark.parametrize("no_bias", [False, True])
def test_a_dense_layer_has_the_same_bits_within_every_budget(samples, units, no_bias):
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=256, name="first")
    x = mx.sym.FullyConnected(mx.sym.tanh(x), num_hidden=units, no_bias=no_bias, name="last")
    rng = np.random.default_rng(units)
    values: dict[str, np.ndarray] = {}
    found = []
    free = x.simple_bind(mx.cpu(), data=(samples, 33), grad_req="null")
    peak = free.memory_plan.peak_bytes
    for budget in (None, peak, 4 * peak):
        exe = x.simple_bind(mx.cpu(), data=(samples, 33), grad_req="null", memory_budget=budget)
        assert any("row product" in line for line in exe.debug_str().splitlines() if "last" in line)
        for name, a in exe.arg_dict.items():
            a[:] = values.setdefault(name, rng.standard_normal(a.shape).astype("float32"))
        found.append(exe.forward()[0].asnumpy())
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
    hidden = np.tanh(values["data"].astype("float64") @ values["first_weight"].T + values["first_bias"])
    want = hidden @ values["last_weight"].T + (0 if no_bias else values["last_bias"])
    np.testing.assert_allclose(found[0], want, rtol=0, atol=1e-4)
    assert len({out.tobytes() for out in found}) == 1


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("m, k, n", [(1, 40, 24), (24, 40, 1), (1, 40, 1), (1, 1, 1)])
def test_dot_of_a_row_or_a_column(m, k, n, turned):
    """A matrix that does not lie with its rows along the sum is another kernel's."""
    rng = np.random.default_rng(m)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((m, k), (n, k) if turned else (k, n)))
    exe = mx.sym.dot(mx.sym.var("a"), mx.sym.var("b"), transpose_b=turned).simple_bind(
        mx.cpu(), a=a.shape, b=b.shape, grad_req="write"
    )
    exe.arg_dict["a"][:], exe.arg_dict["b"][:] = a, b
    (out,) = exe.forward(is_train=True)
    exe.backward([mx.nd.ones((m, n))])
    np.testing.assert_allclose(out.asnumpy(), a @ (b.T if turned else b), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        exe.grad_dict["a"].asnumpy(), np.ones((m, n)) @ (b if turned else b.T), rtol=1e-4, atol=1e-4
    )


CHAINS = {
    "a rectifier": (lambda x: mx.sym.Activation(x, act_type="relu"), 1),
    "several functions": (lambda x: mx.sym.abs(mx.sym.clip(x * 3.0 - 1.0, -2.0, 2.0)) + 0.5, 1),
    "what costs less in vectors of its own": (lambda x: mx.sym.tanh(mx.sym.relu(x)), 1),
    "costly from the first": (mx.sym.sigmoid, 0),
    "another array": (lambda x: mx.sym.relu(x + mx.sym.var("other", shape=(1, 40))), 0),
    "another reader": (lambda x: mx.sym.relu(x) * x, 0),
}


def joined(exe):
    """How many layers have an epilogue at inference."""
    return sum(task.op == "_dense_epilogue" for task in exe._planned.infer.problem.tasks)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("how", CHAINS)
def test_a_layer_of_one_sample_takes_along_what_follows_it(how, samples, monkeypatch):
    """As much of it as its kernel takes; with the same bits as without, and within every budget."""
    follow, want = CHAINS[how]
    net = follow(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=40, name="dense"))
    if samples > 1 and how == "another array":
        return
    rng = np.random.default_rng(1)
    values: dict[str, np.ndarray] = {}

    def run(**options):
        exe = net.simple_bind(mx.cpu(), data=(samples, 24), **{"grad_req": "null"} | options)
        for name, a in exe.arg_dict.items():
            a[:] = values.setdefault(name, rng.standard_normal(a.shape).astype("float32"))
        return exe, exe.forward(is_train=False)[0].asnumpy()

    exe, got = run()
    assert joined(exe) == (want if samples == 1 else 0)
    budgeted, same = run(memory_budget=exe.memory_plan.peak_bytes)
    assert budgeted.measured_bytes == budgeted.memory_plan.peak_bytes
    _, again = run(grad_req="write")
    left_out(monkeypatch, "epilogue")
    other, apart = run()
    assert exe.memory_plan.peak_bytes <= other.memory_plan.peak_bytes
    assert not joined(other)
    assert got.tobytes() == same.tobytes() == again.tobytes() == apart.tobytes()
