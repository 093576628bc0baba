"""Gradients added to a sum by the products that make them: which are, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend, bind_call, registry
from mxlite.backends.fused.accumulated_gradient import AccumulatedGradient
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.passes import GPUTarget
from mxlite.core.dtype import as_dtype
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.passes.pass_lists import with_gpu_passes
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

TABLE = table(EmulatedDevice())
KNOWN = GPUTarget.of(TABLE)
APART = GPUTarget.of({op: rows for op, rows in TABLE.items() if op.op_name != "_accumulated_gradient"})


def backend(target=KNOWN):
    return with_gpu_passes(target, TABLE)


def convolution(x, filters, kernel, name, **more):
    pad = (kernel // 2,) * 2
    size = (kernel, kernel)
    return mx.sym.Convolution(x, num_filter=filters, kernel=size, pad=pad, no_bias=True, name=name, **more)


def block(x, name, kernel=1, width=8, **more):
    """x + what two convolutions with norms make of it, nothing behind the sum."""
    y = x
    for i, size in enumerate((kernel, 1)):
        y = convolution(y, width, size, f"{name}_conv{i}", **(more if i == 0 else {}))
        y = mx.sym.BatchNorm(y, fix_gamma=False, name=f"{name}_norm{i}")
        y = mx.sym.relu(y, name=f"{name}_relu{i}")
    return x + y


def residual(blocks=3, **how):
    x = convolution(mx.sym.var("data"), 8, 3, "stem")
    for i in range(blocks):
        x = block(x, f"block{i}", **how)
    return mx.sym.sum(mx.sym.tanh(x), name="loss")


def strided():
    """Two convolutions of one input that skip positions."""
    x = mx.sym.BatchNorm(mx.sym.var("data"), fix_gamma=False, name="norm")
    made = [convolution(x, 8, size, f"conv{size}", stride=(2, 2)) for size in (3, 1)]
    return mx.sym.sum(made[0] * made[1])


def dense_branches():
    """Three dense layers of one input, as those of an attention."""
    x = mx.sym.LayerNorm(mx.sym.var("data"), name="norm")
    made = [mx.sym.FullyConnected(x, num_hidden=8, flatten=False, name=n) for n in ("q", "k", "v")]
    return mx.sym.sum(made[0] * made[1] * made[2])


def steps(count=4, **more):
    """One dense layer for all steps, as of a network unrolled over time."""
    x, weight = mx.sym.var("data"), mx.sym.var("weight")
    for t in range(count):
        x = mx.sym.FullyConnected(x, weight, num_hidden=8, name=f"step{t}", **more)
        x = mx.sym.tanh(x, name=f"tanh{t}")
    return mx.sym.sum(x)


NETS = {
    "products": (residual(), (2, 8, 6, 6), 3),
    "windows": (residual(kernel=3), (2, 8, 6, 6), 3),
    "windows with a stride": (strided(), (2, 8, 7, 6), 1),
    "channels apart": (residual(kernel=3, num_group=8), (2, 8, 6, 6), 3),
    "dense layers": (dense_branches(), (3, 5, 8), 2),
    "one weight": (steps(no_bias=True), (6, 8), 3),
}


def bound(monkeypatch, symbol, shape, of, **options):
    monkeypatch.setattr(registry, "_cpu", lambda: of)
    return symbol.simple_bind(mx.cpu(), data=shape, **options)


def gradients(executor):
    rng = np.random.default_rng(3)
    for array in executor.arg_dict.values():
        array[:] = rng.standard_normal(array.shape)
    outputs = executor.forward(is_train=True)
    executor.backward([mx.nd.ones(y.shape) for y in outputs])
    return {n: g.asnumpy() for n, g in executor.grad_dict.items()}


def tasks(executor, name):
    return [t for t in executor.memory_plan.problem.tasks if t.op == name]


@pytest.mark.parametrize("net", NETS)
def test_float32_has_the_bits_of_a_sum_apart_and_the_references_numbers(monkeypatch, net):
    symbol, shape, count = NETS[net]
    own = bound(monkeypatch, symbol, shape, backend())
    assert len(tasks(own, "_accumulated_gradient")) == count and not tasks(own, "_grad_add")
    got = gradients(own)
    apart = bound(monkeypatch, symbol, shape, backend(APART))
    assert len(tasks(apart, "_grad_add")) + len(tasks(apart, "_fused_computation")) > 0
    assert not tasks(apart, "_accumulated_gradient")
    for name, want in gradients(apart).items():
        assert got[name].tobytes() == want.tobytes(), name
    plain = gradients(bound(monkeypatch, symbol, shape, Backend("cpu", np)))
    for name, want in plain.items():
        np.testing.assert_allclose(got[name], want, rtol=0, atol=3e-5 * np.abs(want).max(), err_msg=name)


def test_beside_a_shared_weight_its_bias_gets_its_gradient(monkeypatch):
    """The product that adds makes the bias's sums too, which are added apart: eight numbers."""
    symbol = steps(bias=mx.sym.var("bias"))
    own = bound(monkeypatch, symbol, (6, 8), backend())
    assert len(tasks(own, "_accumulated_gradient")) == len(tasks(own, "_grad_add")) == 3
    apart = gradients(bound(monkeypatch, symbol, (6, 8), backend(APART)))
    for name, got in gradients(own).items():
        assert got.tobytes() == apart[name].tobytes(), name


@pytest.mark.parametrize("batch", [6, 64])
@pytest.mark.parametrize("more", [dict(no_bias=True), dict(bias=mx.sym.var("bias"))], ids=["", "bias"])
def test_the_cpu_adds_too(monkeypatch, batch, more):
    symbol = steps(**more)
    own = symbol.simple_bind(mx.cpu(), data=(batch, 8))
    plan = own.memory_plan
    assert len(tasks(own, "_accumulated_gradient")) == 3
    mx.memplan.check(plan, plan.predecessors)
    got = gradients(own)
    plain = gradients(bound(monkeypatch, symbol, (batch, 8), Backend("cpu", np)))
    for name, want in plain.items():
        np.testing.assert_allclose(got[name], want, rtol=0, atol=3e-6 * np.abs(want).max(), err_msg=name)


TWICE = {
    "batch_dot": lambda x, **turned: mx.sym.batch_dot(x, x, **turned),
    "gemm": lambda x, **turned: mx.sym.linalg_gemm2(x, x, alpha=0.5, **turned),
    "dot": lambda x, **turned: mx.sym.dot(*2 * [mx.sym.reshape(x, (-1, 12))], **turned),
}


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("product", TWICE)
def test_the_gradients_of_a_product_of_an_array_with_itself_share_one_array(monkeypatch, product, side):
    x = mx.sym.take(mx.sym.var("data"), mx.sym.var("places"), axis=1)  # no chain takes the sum along
    made = TWICE[product](x, **{f"transpose_{side}": True})
    symbol, shapes = mx.sym.MakeLoss(mx.sym.square(made) * made), dict(data=(5, 20, 12), places=(20,))
    found = []
    reference = Backend("cpu", np)
    for backend_of in (registry._cpu, lambda: reference):
        monkeypatch.setattr(registry, "_cpu", backend_of)
        grad_req = {"data": "write", "places": "null"}
        executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes)
        executor.arg_dict["data"][:] = np.random.default_rng(3).standard_normal(shapes["data"])
        executor.arg_dict["places"][:] = np.arange(20)[::-1]
        executor.forward(is_train=True)
        executor.backward()
        found.append((len(tasks(executor, "_accumulated_gradient")), executor.grad_dict["data"].asnumpy()))
    (count, got), (no_count, want) = found
    assert (count, no_count) == (1, 0)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_a_sum_lies_where_its_other_term_lay_and_costs_less(monkeypatch):
    symbol, shape, _ = NETS["products"]
    own, apart = (bound(monkeypatch, symbol, shape, backend(p)) for p in (KNOWN, APART))
    plan = own.memory_plan
    mx.memplan.check(plan, plan.predecessors)
    steps, place = plan.schedule, plan.liveness.range_of
    added = [s for s, t in enumerate(steps.task) if plan.problem.tasks[t].op == "_accumulated_gradient"]
    assert all(place[steps.outputs[s][0]] == place[steps.inputs[s][2]] >= 0 for s in added)
    assert plan.peak_bytes <= apart.memory_plan.peak_bytes
    assert plan.step_seconds < apart.memory_plan.step_seconds


def test_a_gradient_that_somebody_else_reads_is_made_apart(monkeypatch):
    """The gradient in a sum of two is that of both: here one goes on, and one is asked for."""
    a, b = mx.sym.var("data"), mx.sym.var("b")
    low, high = (mx.sym.FullyConnected(x, num_hidden=8, name=n) for x, n in ((a + b, "low"), (a, "high")))
    symbol, found = mx.sym.sum(low * high), []
    for of in (backend(), Backend("cpu", np)):
        executor = bound(monkeypatch, symbol, (6, 8), of, b=(6, 8))
        found.append(gradients(executor))
        assert not tasks(executor, "_accumulated_gradient")
    for name, want in found[1].items():
        np.testing.assert_allclose(found[0][name], want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_what_a_chain_takes_along_stays_in_it(monkeypatch):
    """A sum beside elementwise operators of many numbers is part of their one launch."""
    x = mx.sym.tanh(mx.sym.var("data"), name="before")
    symbol = mx.sym.sum(mx.sym.FullyConnected(x, num_hidden=64, name="fc") * mx.sym.sigmoid(x))
    executor = bound(monkeypatch, symbol, (32, 64), backend())
    assert not tasks(executor, "_accumulated_gradient") and not tasks(executor, "_grad_add")


def test_gradients_are_the_same_bits_within_every_budget(monkeypatch):
    symbol, shape, count = residual(2, kernel=3), (2, 8, 6, 6), 2
    free = bound(monkeypatch, symbol, shape, backend())
    want, plan = gradients(free), free.memory_plan
    for share in (0.15, 0.5):
        budget = int(plan.lower_bound_bytes + share * (plan.peak_bytes - plan.lower_bound_bytes))
        executor = bound(monkeypatch, symbol, shape, backend(), memory_budget=budget)
        assert executor.memory_plan.peak_bytes <= budget
        assert len(tasks(executor, "_accumulated_gradient")) >= count
        for name, got in gradients(executor).items():
            assert got.tobytes() == want[name].tobytes(), (name, budget)


@pytest.mark.parametrize("of", ["data", "weight"])
@pytest.mark.parametrize("where, dtype", [("cuda", "float16"), ("cuda", "bfloat16"), ("cpu", "bfloat16")])
@pytest.mark.parametrize("in_place", [True, False])
def test_16_bits_are_rounded_once(where, dtype, of, in_place):
    """The result is the exact sum, rounded; a product that is rounded before the sum gives another one."""
    rng, kind = np.random.default_rng(0), as_dtype(dtype)
    n, m, k = 256, 160, 192
    d, w, x = (rng.integers(-4, 5, s).astype(kind) for s in ((n, m), (m, k), (n, k)))
    factor, addend = (w, x) if of == "data" else (x, w)
    addend = (addend.astype(np.float32) / 1024).astype(kind)
    first = d if of == "data" else d.T
    exact = addend.astype(np.float64) + first.astype(np.float64) @ factor.astype(np.float64)
    a = AccumulatedGradient.Attrs(FullyConnected, FullyConnected.Attrs(num_hidden=m, no_bias=True), of)
    ins = (d.shape, factor.shape, addend.shape)
    there = backend() if where == "cuda" else registry._cpu()
    kernel = there.choose(AccumulatedGradient, a, ins, ins[2:], d.dtype, (d.dtype,) * 3)
    work = np.empty(kernel.workspace, np.uint8)
    out = addend.copy() if in_place else np.empty_like(addend)
    assert kernel.in_place_options(AccumulatedGradient, a) == {"out": ("addend",)}
    given = [d, factor, out if in_place else addend]
    bind_call(kernel, np, AccumulatedGradient, a, given, [out], work=work, shapes=(ins, ins[2:]))()
    np.testing.assert_array_equal(out, exact.astype(kind))
