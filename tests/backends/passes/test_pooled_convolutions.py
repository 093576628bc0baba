"""Convolutions with the max pooling behind them, some samples at a time: what is joined, the same numbers."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import convolution
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.convolution import direct
from mxlite.backends.cpu.onednn import library
from mxlite.backends.rewrite import Stage
from mxlite.executor.request.infer import infer
from mxlite.memplan import check
from mxlite.ops.nn.pooled_convolution import PooledAttrs, pooling
from tests.backends.cpu.fast_kernels import only
from tests.backends.passes.pass_lists import alone, left_out, optimized, Willing, without_stage

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")

rule = import_module("mxlite.backends.passes.fusion.pooled_convolutions")
FUSED = "_pooled_convolution"
SHAPE = (6, 3, 11, 9)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Bands of 400 bytes or more: of one sample, or two."""
    monkeypatch.setattr(rule, "LEAST_BYTES", 400)


def apart(monkeypatch):
    """From here on nothing is joined."""
    left_out(monkeypatch, "pooled_convolutions")


# -- the kernels ------------------------------------------------------------------------------------

HALF = dict(pool_kernel=(2, 2), pool_stride=(2, 2))
CALLS = {
    "direct": (dict(kernel=(3, 3), pad=(1, 1), num_filter=20), (5, 9, 8, 3)),
    "winograd": (dict(kernel=(3, 3), pad=(1, 1), num_filter=32), (5, 9, 8, 16)),
    "1x1": (dict(kernel=(1, 1), num_filter=24), (5, 6, 5, 16)),
    "stride": (dict(kernel=(5, 5), stride=(2, 2), num_filter=16), (5, 13, 12, 3)),
    "overlap": (dict(kernel=(3, 3), num_filter=16, pool_kernel=(3, 3), pool_pad=(1, 1)), (5, 11, 8, 3)),
    "full": (dict(kernel=(2, 2), num_filter=16, pooling_convention="full"), (5, 8, 10, 3)),
}  # fmt: skip
TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def call(op: Any, attrs: Any, shapes: Any, arrays: Any, wanted: Any, kernel: Any = None) -> Any:
    """Outputs by name, and the kernel: with another one's, on float64 numbers, what is exact."""
    ins = [arrays.get(n) for n in op.input_names(attrs)]
    kinds = tuple(arrays[n].dtype for n in ("data", "weight"))
    kinds += (kinds[0],) * (len(shapes[0]) - 2)
    outs = {n: np.full(s, 1, kind) for n, (s, kind) in wanted.items()}
    if kernel is None:
        used = frozenset((*(n for n, x in zip(op.input_names(attrs), ins) if x is not None), *wanted))
        kernel = CPU.choose(op, attrs, *shapes, kinds[0], kinds, used)
    block = CPU.empty(kernel.workspace + 128)
    block[:] = 0xFF
    run = bind_call(
        kernel, np, op, attrs, ins, [outs.get(n) for n in op.output_names(attrs)],
        work=block[64 : 64 + kernel.workspace], shapes=shapes,
    )  # fmt: skip
    run()
    once = {n: x.copy() for n, x in outs.items()}
    block[64 : 64 + kernel.workspace] = 0x01
    run()
    assert all(x.tobytes() == once[n].tobytes() for n, x in outs.items())
    assert (block[:64] == 0xFF).all() and (block[64 + kernel.workspace :] == 0xFF).all()
    return outs, kernel


@pytest.mark.parametrize(
    "dtype, part", [("float32", None), ("float16", None), ("bfloat16", None), ("bfloat16", 4_000)]
)
@pytest.mark.parametrize("samples", [1, 2, 3])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_makes_what_the_two_operators_make(name, samples, dtype, part, monkeypatch):
    if part:
        monkeypatch.setattr(direct, "PART", part)
        convolution.choice._once.cache_clear()
    given, data = CALLS[name]
    attrs = PooledAttrs(**HALF | given, samples=samples)
    kind = np.zeros(0, mx.nd.zeros((1,), dtype=dtype).dtype).dtype
    rng = np.random.default_rng(0)
    op = ops.PooledConvolution
    ins, outs = op.infer_shape(attrs, data, None, None)
    arrays = {n: rng.standard_normal(s).astype(kind) for n, s in zip(op.inputs, ins)}
    index = op.infer_type(attrs, *(kind,) * 3)[1][1]
    made, kernel = call(op, attrs, (ins, outs), arrays, {"out": (outs[0], kind), "index": (outs[1], index)})
    assert f"{samples} sample" in kernel.name
    wide = {n: x.astype("float64") for n, x in arrays.items()}
    double = np.dtype("float64")
    exact, _ = call(
        op, attrs, (ins, outs), wide, {"out": (outs[0], double), "index": (outs[1], index)},
        CPU.reference(op, attrs, ins, outs, double),
    )  # fmt: skip
    near(made["out"], exact["out"], TOLERANCE[dtype])
    if dtype == "float32":
        assert (made["index"] != exact["index"]).mean() < 0.01

    grad = op.grad_op
    d_out = rng.standard_normal(outs[0]).astype(kind)
    arrays |= {"d_out": d_out, "index": made["index"]}
    wide |= {"d_out": d_out.astype("float64"), "index": made["index"]}
    shapes = dict(zip((f"d_{n}" for n in op.inputs), ins))
    reference = CPU.reference(grad, attrs, ins, outs, double)
    for wanted in (tuple(shapes), ("d_data",), ("d_weight", "d_bias"), ("d_weight",), ("d_bias",)):
        found, kernel = call(grad, attrs, (ins, outs), arrays, {n: (shapes[n], kind) for n in wanted})
        assert f"{samples} sample" in kernel.name
        exact, _ = call(grad, attrs, (ins, outs), wide, {n: (shapes[n], double) for n in wanted}, reference)
        for n in wanted:
            near(found[n], exact[n], TOLERANCE[dtype])
    if part:
        convolution.choice._once.cache_clear()


def near(got: Any, want: Any, tolerance: float) -> None:
    error = np.abs(got.astype("float64") - want).max() / np.abs(want).max()
    assert error < tolerance, error


@pytest.mark.parametrize("kinds", ["onednn,compiled", "onednn", "reference"])
def test_infinities_and_nans_are_pooled_as_apart(kinds):
    attrs = PooledAttrs(kernel=(1, 1), num_filter=16, **HALF)
    data = np.zeros((2, 4, 4, 16), "f")
    data[0, 0, 0], data[0, 2, 2], data[1, 0, 0], data[1, 2:] = np.nan, np.inf, -np.inf, np.nan
    weight = np.eye(16, dtype="f").reshape(16, 16, 1, 1)
    op = ops.PooledConvolution
    arrays = {"data": data, "weight": weight, "bias": np.zeros(16, "f")}
    ins, outs = op.infer_shape(attrs, *(x.shape for x in arrays.values()))
    with only(kinds), np.errstate(invalid="ignore"):
        made, _ = call(
            op, attrs, (ins, outs), arrays,
            {"out": (outs[0], np.dtype("f")), "index": (outs[1], np.dtype("uint8"))},
        )  # fmt: skip
        alone, pool = np.zeros((2, 4, 4, 16), "f"), pooling(attrs)
        convolve = ops.ConvolutionChannelsLast
        own = CPU.choose(convolve, attrs, ins, (alone.shape,), np.dtype("f"), (np.dtype("f"),) * 3)
        bind_call(own, np, convolve, attrs, list(arrays.values()), [alone], work=CPU.empty(own.workspace))()
        want, number = np.zeros(outs[0], "f"), np.zeros(outs[1], "uint8")
        op = ops.PoolingChannelsLast
        own = CPU.choose(op, pool, (alone.shape,), outs, np.dtype("f"), (np.dtype("f"),))
        bind_call(own, np, op, pool, [alone], [want, number], work=CPU.empty(own.workspace))()
    np.testing.assert_array_equal(made["out"], want)
    np.testing.assert_array_equal(made["index"], number)
    assert np.isnan(want).any()


def test_a_window_of_padding_alone_has_no_kernel():
    attrs = PooledAttrs(kernel=(1, 1), num_filter=16, pool_pad=(1, 1), pooling_convention="full", **HALF)
    ins, outs = ops.PooledConvolution.infer_shape(attrs, (2, 5, 5, 16), None, None)
    assert CPU.choose(ops.PooledConvolution, attrs, ins, outs, np.dtype("f")).is_reference


# -- the pass ---------------------------------------------------------------------------------------


def network(act="relu", reader=None, channels=4, conv=None, name="", before=None, **pool):
    x = mx.sym.var("data") if before is None else before
    x = mx.sym.Convolution(
        x, name=f"conv{name}", **{"kernel": (3, 3), "pad": (1, 1), "num_filter": channels, **(conv or {})}
    )
    made = x
    if act:
        x = mx.sym.Activation(x, act_type=act, name=f"act{name}")
    pool = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max", **pool}
    x = mx.sym.Pooling(x, name=f"pool{name}", **pool)
    return mx.sym.Group([ended(x), reader(made)]) if reader else x


def convolved():
    return mx.sym.Convolution(mx.sym.var("data"), kernel=(1, 1), num_filter=8, name="first")


def ended(x):
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def two():
    """Two of them, one behind the other."""
    return ended(network(name="2", channels=16, before=network(channels=16)))


def joined(net, train=True, kind="float32", shape=SHAPE):
    """The nodes that a step has where there may be something to join, in order."""
    graph = infer(net.graph, {"data": shape}, {"data": kind})
    made = optimized(graph, train)
    assert [made.shapes[e] for e in made.outputs] == [graph.shapes[e] for e in graph.outputs]
    names = [(n.op.op_name, n.name) for n in made.nodes if n.op is not None]
    return [n for n in names if "onvolution" in n[0] or "ooling" in n[0] or n[0] == "Activation"]


@pytest.mark.parametrize("act", ["relu", "tanh", None])
def test_a_convolution_takes_its_pooling_along(act):
    own = [(FUSED, "conv"), *([("Activation", "pool")] if act else [])]
    assert joined(ended(network(act))) == own
    assert [op for op, _ in joined(ended(network(act)), train=False)] == [op for op, _ in own]
    assert joined(ended(network(act)), kind="bfloat16") == own


@pytest.mark.parametrize(
    "net, shape",
    [
        (ended(network(pool_type="avg")), SHAPE),
        (ended(network(kernel=(3, 3), stride=(1, 1))), SHAPE),
        (ended(network(act="mish")), SHAPE),
        (network(reader=mx.sym.BlockGrad), SHAPE),
        (network(reader=lambda x: x), SHAPE),
        (ended(network()), (1, *SHAPE[1:])),
        (ended(network(conv=dict(kernel=(7, 7), pad=(3, 3)), channels=300)), (2, 3, 5, 5)),
        (ended(network(before=mx.sym.BatchNorm(convolved(), name="norm"))), SHAPE),
    ],
    ids=[
        "means", "as many as before", "what falls is between", "another reader", "an output", "one sample",
        "large weight", "normed data",
    ],
)  # fmt: skip
def test_all_else_stays(net, shape):
    assert FUSED not in [op for op, _ in joined(net, shape=shape)]


@pytest.mark.parametrize("norm, addend", [(False, True), (True, False), (True, True)])
def test_what_else_a_convolution_does_at_inference_is_not_lost(monkeypatch, norm, addend):
    data = mx.sym.var("data")
    x = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), num_filter=8, name="conv")
    if norm:
        x = mx.sym.BatchNorm(x, fix_gamma=False, name="norm")
    if addend:
        x = x + mx.sym.Convolution(data, kernel=(1, 1), num_filter=8, name="other")
    x = mx.sym.relu(x)
    net = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    names = [op for op, _ in joined(net, train=False)]
    assert "_convolution_epilogue" in names and FUSED not in names
    found = []
    for change in (lambda m: None, lambda m: without_stage(m, Stage.FORWARD)):
        change(monkeypatch)
        exe = net.simple_bind(mx.cpu(), grad_req="null", data=SHAPE)
        for name, array in (exe.arg_dict | exe.aux_dict).items():
            array[:] = np.random.default_rng(len(name)).random(array.shape)
        found.append(exe.forward(is_train=False)[0].asnumpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)


def test_marked_nodes_stay():
    with mx.AttrScope(force_mirroring="True"):
        net = ended(network())
    assert FUSED not in [op for op, _ in joined(net)]


def test_a_gradient_that_is_in_the_graph_already_keeps_its_nodes():
    graph = infer(network(act=None).graph, {"data": SHAPE}, {"data": "float32"})
    known = alone("channels_last", graph, target=Willing()).graph
    pool = next(n for n in known.nodes if n.op is ops.PoolingChannelsLast)
    assert alone("pooled_convolutions", known, target=Willing()).graph is not known
    conv = pool.inputs[0].node
    for node in (pool, conv):
        grad = replace(node, forward=node, name="other")
        more = replace(known, outputs=(*known.outputs, mx.graph.Entry(grad)), order=(*known.nodes, grad))
        assert alone("pooled_convolutions", more, target=Willing()).graph is more


def test_bands_are_even_and_large_enough(monkeypatch):
    least = 64 * 1024
    monkeypatch.setattr(rule, "LEAST_BYTES", least)
    seen = set()
    for count in (2, 3, 7, 64, 100):
        for size in (8, 24, 96):
            shape, sample = (count, 3, size, size), 4 * 4 * size * size
            graph = infer(network(act=None).graph, {"data": shape}, {"data": "float32"})
            nodes = [n for n in optimized(graph, True).nodes if n.op is ops.PooledConvolution]
            assert bool(nodes) == (2 * -(-least // sample) <= count)
            for node in nodes:
                samples = node.attrs.samples
                rest = count % samples or samples
                assert samples * sample >= least and (samples == 1 or samples * sample < 2 * (least + sample))
                seen.add((samples, rest))
    assert (1, 1) in seen and any(samples > rest for samples, rest in seen)


def learned(net, steps=2, shape=SHAPE, budget=None, **more):
    """Outputs, gradients and the plan."""
    step = net.simple_bind(mx.cpu(), data=shape, softmax_label=shape[:1], memory_budget=budget, **more)
    rng = np.random.default_rng(0)
    for name, array in step.arg_dict.items():
        values = rng.integers(0, 3, array.shape) if "label" in name else rng.standard_normal(array.shape) / 3
        array[:] = values
    for _, array in sorted((n, a) for n, a in step.grad_dict.items() if a is not None):
        array[:] = 1.0
    for _ in range(steps):
        step.forward(is_train=True)
        step.backward()
    check(step.memory_plan)
    assert step.measured_bytes == step.memory_plan.peak_bytes
    found = {n: g.asnumpy() for n, g in step.grad_dict.items() if g is not None and "label" not in n}
    found |= {"out": step.outputs[0].asnumpy()}
    step.forward(is_train=False)
    return found | {"inference": step.outputs[0].asnumpy()}, step.memory_plan


def fused(plan):
    return {t.name for t in plan.problem.tasks if "pooled" in t.op}


HOW = {
    "all": dict(),
    "add": dict(grad_req="add"),
    "weights": dict(grad_req={"conv_weight": "write", "conv2_weight": "add"}),
    "bias": dict(grad_req={"conv_bias": "write", "conv2_bias": "write"}),
    "data": dict(grad_req={"data": "write"}),
}


@pytest.mark.parametrize("how", HOW)
def test_outputs_and_gradients_are_the_same(monkeypatch, how):
    after, plan = learned(two(), **HOW[how])
    apart(monkeypatch)
    before, old = learned(two(), **HOW[how])
    assert {"conv", "conv2"} <= fused(plan) and not fused(old)
    assert after.keys() == before.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert plan.arena_bytes <= old.arena_bytes


@pytest.mark.parametrize(
    "pool",
    [
        dict(pooling_convention="full"),
        dict(kernel=(3, 3), pad=(1, 1)),
        dict(global_pool=True),
        dict(kernel=(3, 2), stride=(3, 1)),
    ],
    ids=["beyond the data", "overlapping and padded", "all", "half"],
)
def test_windows_of_any_kind(monkeypatch, pool):
    net, more = ended(network(**pool)), dict(grad_req={"conv_weight": "write", "data": "write"})
    after, plan = learned(net, **more)
    apart(monkeypatch)
    before, _ = learned(net, **more)
    assert "conv" in fused(plan)
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_learns_as_apart(monkeypatch, dtype):
    # Of weights that are rounded alike: else near maxima come out in another order.
    left_out(monkeypatch, "inline_convolution_casts")
    after, plan = learned(two(), amp=dtype)
    apart(monkeypatch)
    before, _ = learned(two(), amp=dtype)
    assert {"conv", "conv2"} <= fused(plan)
    for name in before:
        scale = np.abs(before[name]).max()
        np.testing.assert_allclose(after[name], before[name], atol=3e-2 * scale, err_msg=name)


def test_every_budget_gives_the_same_bits():
    shape = (32, *SHAPE[1:])  # samples, and not the kernels' workspaces, decide about the peak
    usual, plan = learned(two(), shape=shape)
    with pytest.raises(mx.MemoryBudgetError) as error:
        learned(two(), budget=1, shape=shape)
    least, tight = learned(two(), budget=error.value.least_feasible_bytes, shape=shape)
    assert tight.peak_bytes < plan.peak_bytes and "conv" in fused(tight)
    assert [n for n in usual if usual[n].tobytes() != least[n].tobytes()] == []


# -- figures ----------------------------------------------------------------------------------------


def planned(name, shape, **more):
    net = mx.models.get(name, **more)
    sgd = mx.optimizer.SGD(momentum=0.9)
    return net.memory_plan(mx.cpu(), optimizer=sgd, data=shape, softmax_label=shape[:1])


def test_vgg_never_holds_what_its_first_convolution_makes(monkeypatch):
    monkeypatch.undo()
    plan = planned("vgg11", (8, 3, 224, 224), dropout=0.0)
    assert len([n for n in fused(plan) if "backward" not in n]) == 4
    assert plan.arena_bytes < 127 * 2**20


def test_lenet_takes_less_than_its_first_convolution_makes(monkeypatch):
    monkeypatch.undo()
    assert planned("lenet", (64, 1, 28, 28)).arena_bytes < 2.8 * 2**20
