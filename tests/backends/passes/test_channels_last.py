"""The pass that puts channels last: the same numbers as without it, and arrays as users know them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.onednn import library
from tests.backends.passes.pass_lists import optimized

needs_onednn = pytest.mark.skipif(library() is None, reason="oneDNN's library is not installed")


def _small():
    data = mx.sym.var("data")
    x = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="a")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="norm")
    x = mx.sym.Activation(x, act_type="relu", name="relu")
    y = mx.sym.Convolution(x, kernel=(1, 1), num_filter=8, no_bias=True, name="b")
    x = mx.sym.Concat(x, y + x, dim=1, name="both")
    x = mx.sym.Convolution(x, kernel=(3, 3), stride=(2, 2), num_filter=6, num_group=2, name="c")
    x = mx.sym.LeakyReLU(x, act_type="leaky", name="leaky")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=5, name="fc")


@functools.lru_cache(maxsize=1)  # what is compared starts from the same numbers
def _values(shapes):
    rng = np.random.default_rng(3)
    values = []
    for name, shape in shapes:
        positive = name.endswith(("var", "gamma"))
        fan = np.prod(shape[1:]) if name.endswith("weight") else 10
        drawn = rng.uniform(0.8, 1.2, shape) if positive else rng.standard_normal(shape) * (2 / fan) ** 0.5
        values.append(drawn)
    return values


def _run(symbol, shapes, kernels, monkeypatch, **more):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    executor = symbol.simple_bind(mx.cpu(), **shapes, **more)
    arrays = {**executor.arg_dict, **executor.aux_dict}
    for a, value in zip(arrays.values(), _values(tuple((n, a.shape) for n, a in arrays.items()))):
        a[:] = value
    rng = np.random.default_rng(4)
    for name in shapes:
        if name.endswith("label"):
            executor.arg_dict[name][:] = rng.integers(0, 3, shapes[name])
    outs = [o.asnumpy() for o in executor.forward(is_train=True)]
    heads = [mx.nd.array(rng.standard_normal(o.shape)) for o in outs]
    loss = any(name.endswith("label") for name in shapes)
    executor.backward(None if loss else heads)
    grads = {n: g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}
    aux = {n: a.asnumpy() for n, a in executor.aux_dict.items()}
    inferred = [o.asnumpy() for o in executor.forward(is_train=False)]
    return executor, outs, grads, aux, inferred


def _same(symbol, shapes, monkeypatch, of_gradients=2e-5):
    """Results are as near to float64's as the reference's in float32 are, within a factor.

    of_gradients: the least error a gradient is forgiven. In a deep network some rectifier's input is so near
    0 that rounding decides whether a gradient passes, in the reference as here: they differ by 1e-5 or by
    3e-2.
    """
    executor, *got = _run(symbol, shapes, "onednn,compiled", monkeypatch)
    _, *near = _run(symbol, shapes, "reference", monkeypatch)
    _, *want = _run(symbol, shapes, "reference", monkeypatch, type_dict={"data": "float64"})
    for a, b, c in zip(got, near, want, strict=True):
        keys = list(c) if isinstance(c, dict) else range(len(c))
        largest = max((np.abs(c[k]).max() for k in keys), default=0)
        for k in keys:
            # A bias in front of a norm has no gradient but rounding errors of the largest ones.
            scale = max(np.linalg.norm(c[k]), 0.01 * largest * c[k].size ** 0.5)
            error, usual = (np.linalg.norm(x[k] - c[k]) / scale for x in (a, b))
            assert error <= (of_gradients if c is want[1] else 2e-5) + 8 * usual, (k, error, usual)
    return executor


@needs_onednn
def test_small_network_is_the_same(monkeypatch):
    executor = _same(_small(), {"data": (2, 3, 11, 13)}, monkeypatch)
    ops = [t.op for t in executor.memory_plan.problem.tasks]
    assert "Convolution" not in ops and ops.count("_convolution_channels_last") == 3
    # One way in and, before Flatten, one way out: nothing in between goes to and fro.
    assert ops.count("_channels_last") <= 2 and ops.count("_channels_first") <= 2


@needs_onednn
@pytest.mark.parametrize(
    "name, options, shape",
    [
        ("resnet20_cifar", {}, (2, 3, 32, 32)),
        ("densenet121", {"classes": 7}, (4, 3, 64, 64)),
        ("mobilenet_v1", {"classes": 7}, (4, 3, 64, 64)),
        ("inception_bn", {"classes": 7}, (4, 3, 64, 64)),
        ("lenet", {}, (2, 1, 28, 28)),
    ],
)
def test_networks_are_the_same(name, options, shape, monkeypatch):
    symbol = mx.models.get(name, **options)
    _same(symbol, {"data": shape, "softmax_label": shape[:1]}, monkeypatch, of_gradients=0.06)


@needs_onednn
def test_a_budget_changes_no_bit(monkeypatch):
    symbol, shapes = mx.models.get("resnet20_cifar"), {"data": (8, 3, 32, 32), "softmax_label": (8,)}
    free = _run(symbol, shapes, "onednn", monkeypatch)
    plan = free[0].memory_plan
    tight = _run(
        symbol, shapes, "onednn", monkeypatch, memory_budget=(plan.peak_bytes + plan.lower_bound_bytes) // 2
    )
    for name, g in free[2].items():
        np.testing.assert_array_equal(tight[2][name], g, err_msg=name)
    assert tight[0].measured_bytes <= tight[0].memory_plan.budget_bytes


@needs_onednn
def test_transposed_convolutions_keep_channels_last(monkeypatch):
    data = mx.sym.var("data")
    x = mx.sym.Deconvolution(data, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=8, name="up")
    x = mx.sym.Activation(x, act_type="relu", name="relu")
    x = mx.sym.Deconvolution(x, kernel=(2, 2), stride=(2, 2), num_filter=6, no_bias=False, name="more")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), name="smooth")
    executor = _same(x, {"data": (2, 5, 4, 6)}, monkeypatch)
    made = [t.op for t in executor.memory_plan.problem.tasks]
    assert "Deconvolution" not in made and made.count("_deconvolution_channels_last") == 2
    # In, out, and the same for gradients.
    assert made.count("_channels_last") + made.count("_channels_first") == 2


@needs_onednn
def test_local_response_normalization_keeps_channels_last(monkeypatch):
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=16, name="a")
    x = mx.sym.LRN(mx.sym.Activation(x, act_type="relu"), nsize=5, alpha=0.1, name="lrn")
    x = mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max", name="pool")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="b")
    executor = _same(x, {"data": (2, 3, 14, 12)}, monkeypatch)
    made = [t.op for t in executor.memory_plan.problem.tasks]
    assert "_lrn_channels_last" in made and made.count("_channels_last") + made.count("_channels_first") == 2


def test_outputs_and_inner_outputs_keep_their_shape(monkeypatch):
    inner = _small().get_internals()
    symbol = mx.sym.Group([inner["relu_output"], inner["leaky_output"], inner["fc_output"]])
    executor = symbol.simple_bind(mx.cpu(), data=(2, 3, 11, 13))
    assert [o.shape for o in executor.outputs] == [(2, 8, 11, 13), (2, 6, 5, 6), (2, 5)]


def test_without_convolutions_nothing_changes():
    graph = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3).graph
    assert optimized(graph, True) is graph


def test_float64_stays_as_it_is():
    executor = _small().simple_bind(mx.cpu(), data=(2, 3, 11, 13), type_dict={"data": "float64"})
    assert "_channels_last" not in [t.op for t in executor.memory_plan.problem.tasks]


def test_dropout_behind_a_convolution_is_recomputed_alike(monkeypatch):
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, name="a")
    x = mx.sym.Dropout(mx.sym.Activation(x, act_type="relu"), p=0.5, name="drop")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="b")
    grads = []
    for budget in (None, "least", None):
        if len(grads) == 2:
            monkeypatch.setenv("MXLITE_KERNELS", "reference")
        if budget:
            budget = x.simple_bind(mx.cpu(), data=(4, 3, 16, 16)).memory_plan
            budget = (budget.peak_bytes + budget.lower_bound_bytes) // 2
        mx.random.seed(5)
        e = x.simple_bind(mx.cpu(), data=(4, 3, 16, 16), memory_budget=budget)
        rng = np.random.default_rng(0)
        for a in e.arg_arrays:
            a[:] = rng.standard_normal(a.shape)
        e.forward(is_train=True)
        e.backward([mx.nd.ones(e.outputs[0].shape)])
        grads.append([g.asnumpy() for g in e.grad_arrays])
    for a, b, c in zip(*grads, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-3, atol=1e-4 * np.abs(c).max())


@needs_onednn
def test_gradients_of_a_convolution_are_two_nodes(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    plan = (
        mx.models.get("resnet20_cifar")
        .simple_bind(mx.cpu(), data=(2, 3, 32, 32), softmax_label=(2,), optimizer=mx.optimizer.SGD())
        .memory_plan
    )
    tasks = {t.name: t for t in plan.problem.tasks}
    name = next(n for n in tasks if n.endswith("_backward_data") and "conv" in n)
    second, first = tasks[name], tasks[name.removesuffix("_data")]
    data, weight = set(first.inputs) - set(second.inputs), set(second.inputs) - set(first.inputs)
    assert len(data) == len(weight) == 1  # and d_out, which both read
    weight, data = plan.problem.values[weight.pop()], plan.problem.values[data.pop()]
    assert weight.fixed and not data.fixed
    order = [plan.problem.tasks[t].name for t in plan.schedule.task]
    assert (order.index(first.name) < order.index(second.name)) == (weight.nbytes <= data.nbytes)


@needs_onednn
def test_packed_weights_follow_their_parameters(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=32, name="a")
    x = mx.sym.Convolution(mx.sym.Activation(x, act_type="relu"), kernel=(1, 1), num_filter=16, name="b")
    executor = x.simple_bind(mx.cpu(), grad_req="null", data=(2, 16, 8, 8))
    rng = np.random.default_rng(0)
    executor.arg_dict["data"][:] = rng.standard_normal((2, 16, 8, 8))
    step = executor._planned.infer.step
    assert {k[1] for k in step.forms} == {"a_weight", "b_weight"} and step.num_constant == 0
    for _ in range(2):
        for name in ("a_weight", "b_weight", "a_bias", "b_bias"):
            executor.arg_dict[name][:] = rng.standard_normal(executor.arg_dict[name].shape)
        for _ in range(2):
            got = executor.forward()[0].asnumpy()
            args = {n: a.asnumpy().astype("float64") for n, a in executor.arg_dict.items()}
            y = np.zeros((2, 32, 8, 8)) + args["a_bias"][:, None, None]
            wide = np.pad(args["data"], ((0, 0), (0, 0), (1, 1), (1, 1)))
            for i in range(3):
                for j in range(3):
                    part = wide[:, :, i : i + 8, j : j + 8]
                    y += np.einsum("nchw,fc->nfhw", part, args["a_weight"][:, :, i, j])
            y = np.einsum("nchw,fc->nfhw", np.maximum(y, 0), args["b_weight"][:, :, 0, 0])
            np.testing.assert_allclose(got, y + args["b_bias"][:, None, None], rtol=1e-4, atol=1e-3)
    assert executor.memory_plan.peak_bytes == executor.measured_bytes
