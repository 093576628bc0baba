"""Dense layers that take activations along: which do, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend, registry
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.passes import GPUTarget
from tests.backends.passes.pass_lists import with_gpu_passes
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICE = EmulatedDevice()
TABLE = table(DEVICE)
KNOWN = GPUTarget.of(TABLE)
OWN = with_gpu_passes(KNOWN, TABLE)
ACTIVATIONS = {
    "relu": lambda x: mx.sym.Activation(x, act_type="relu", name="act"),
    "named_relu": lambda x: mx.sym.relu(x, name="act"),
    "gelu": lambda x: mx.sym.LeakyReLU(x, act_type="gelu", name="act"),
    "gelu_tanh": lambda x: mx.sym.gelu(x, approximate="tanh", name="act"),
    "tanh": lambda x: mx.sym.tanh(x, name="act"),
}
SHAPE = (6, 5, 8)


def network(activation, no_bias=False, flatten=False):
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=40, no_bias=no_bias, flatten=flatten, name="up")
    x = ACTIVATIONS[activation](x)
    return mx.sym.FullyConnected(x, num_hidden=8, flatten=flatten, name="down")


def bound(monkeypatch, symbol, backend, train=True, **options):
    if backend is not None:
        monkeypatch.setattr(registry, "_cpu", lambda: backend)
    return symbol.simple_bind(mx.cpu(), data=SHAPE, grad_req="write" if train else "null", **options)


def operators(executor):
    return [line for line in executor.debug_str().splitlines() if "_dense_" in line]


def count(executor, name):
    return sum(name in line for line in operators(executor))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_which_products_take_an_activation_along(monkeypatch, activation):
    """In training a GELU keeps what it is given, so only its gradient is taken along."""
    trained = bound(monkeypatch, network(activation), OWN)
    inferred = bound(monkeypatch, network(activation), OWN, train=False)
    kept_apart = activation.startswith("gelu")
    known = activation != "tanh"
    assert count(trained, "_dense_epilogue") == (known and not kept_apart)
    assert count(trained, "_dense_slope") == known
    assert count(inferred, "_dense_epilogue") == known


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_numbers_are_those_of_the_reference(monkeypatch, activation, flatten):
    def run(backend, dtype="float32"):
        executor = bound(monkeypatch, network(activation, flatten=flatten), backend)
        rng = np.random.default_rng(3)
        for a in executor.arg_dict.values():
            a[:] = rng.standard_normal(a.shape)
        (out,) = executor.forward(is_train=True)
        executor.backward([mx.nd.array(rng.standard_normal(out.shape))])
        made = {n: g.asnumpy() for n, g in executor.grad_dict.items()}
        return made | {"out": out.asnumpy(), "inferred": executor.forward(is_train=False)[0].asnumpy()}

    own = run(OWN)
    plain = run(Backend("cpu", np))
    assert own.keys() == plain.keys()
    for name, want in plain.items():
        np.testing.assert_allclose(own[name], want, rtol=2e-5, atol=2e-5 * np.abs(want).max(), err_msg=name)


def test_what_somebody_else_reads_is_stored(monkeypatch):
    up = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="up")
    act = mx.sym.relu(up, name="act")
    for symbol in (mx.sym.Group([act, up]), act + up):
        assert count(bound(monkeypatch, symbol, OWN, train=False), "_dense_epilogue") == 0
    marked = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="up")
    other = mx.sym.relu(marked, name="act", attr={"__force_mirroring__": "True"})
    assert count(bound(monkeypatch, other, OWN, train=False), "_dense_epilogue") == 0


def test_a_backend_without_kernels_keeps_its_graph(monkeypatch):
    bare = GPUTarget.of({op: rows for op, rows in TABLE.items() if not op.op_name.startswith("_dense_")})
    backend = with_gpu_passes(bare, TABLE)
    assert operators(bound(monkeypatch, network("relu"), backend)) == []


def test_the_reference_kernels_compute_the_same(monkeypatch):
    """What a backend falls back to when a row answers once and not again."""
    reference = with_gpu_passes(KNOWN, {})

    def run(backend):
        executor = bound(monkeypatch, network("gelu_tanh"), backend)
        for i, a in enumerate(executor.arg_dict.values()):
            a[:] = np.cos(np.arange(a.size) * (i + 1.3)).reshape(a.shape)
        (out,) = executor.forward(is_train=True)
        executor.backward([mx.nd.ones(out.shape)])
        return executor, [g.asnumpy() for g in executor.grad_dict.values()]

    joined, got = run(reference)
    assert count(joined, "_dense_slope") == 1
    for x, y in zip(got, run(Backend("cpu", np))[1]):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_a_plan_has_no_more_bytes_than_without(monkeypatch):
    for activation in ("relu", "gelu", "gelu_tanh"):
        joined = bound(monkeypatch, network(activation), OWN)
        bare = GPUTarget.of({op: rows for op, rows in TABLE.items() if not op.op_name.startswith("_dense_")})
        apart = with_gpu_passes(bare, TABLE)
        other = bound(monkeypatch, network(activation), apart)
        assert joined.memory_plan.peak_bytes <= other.memory_plan.peak_bytes
