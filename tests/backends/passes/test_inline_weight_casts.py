"""Inlined casts of weights: the numbers of a layer on a copy, without the copy."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tiled import Tiled, TiledGradient
from mxlite.executor.request.infer import infer
from mxlite.graph import Entry, Node
from mxlite.memplan import check
from tests.backends.passes.pass_lists import alone, left_out, Willing
from tests.backends.passes.regions import inner_operators, operators_of, run_region

rule = import_module("mxlite.backends.passes.tiling.inline_dense_casts")
WIDTH, HIDDEN = 40, 76
needs_kernels = pytest.mark.skipif(
    library() is None or not usable(), reason="oneDNN or llvmlite is not there"
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiles of 16 rows, of copies of 4 KiB or more."""
    monkeypatch.setattr(tile_sizes, "WEIGHT_CAST_BYTES", 16 * 2 * WIDTH)
    monkeypatch.setitem(rule.LEAST_BYTES, "weight", 4096)


# -- the regions ------------------------------------------------------------------------------------

KINDS = ["reference", pytest.param("onednn,compiled", marks=needs_kernels)]


def regions(count: int, hidden: int, dtype: str, bias: bool = True) -> list[Any]:
    """The regions of a layer's output, and of its gradient in data."""
    weight = mx.sym.cast(mx.sym.var("weight"), dtype=dtype, name="copy")
    data = mx.sym.var("data")
    given = (data, weight, mx.sym.var("bias")) if bias else (data, weight)
    net = mx.sym.FullyConnected(*given, num_hidden=hidden, no_bias=not bias, name="layer")
    types = {"data": dtype, "weight": "float32"} | ({"bias": dtype} if bias else {})
    graph = infer(net.graph, {"data": (count, 4, WIDTH // 4)}, types)
    layer = next(n for n in graph.nodes if n.name == "layer")
    back = replace(layer, op=layer.op.grad_op, inputs=(layer.inputs[0], layer.inputs[1]), forward=layer)
    names = {"data": layer.inputs[0], "weight": layer.inputs[1], "d_out": Entry(layer)}
    back = replace(back, inputs=tuple(names[n] for n in ("d_out", "weight")), absent=frozenset({"data"}))
    shapes = dict(graph.shapes) | {
        Entry(back, i): graph.shapes[names[n[2:]]] if n != "d_bias" else (hidden,)
        for i, n in enumerate(back.output_names)
    }
    types = dict(graph.dtypes) | {Entry(back, i): graph.dtypes[Entry(layer)] for i in range(back.num_outputs)}
    whole = replace(graph, shapes=shapes, dtypes=types)
    found = []
    for node in (layer, back):
        region, made = rule.casting_region(whole, node, names["weight"].node, "weight")
        op = Tiled if node is layer else TiledGradient
        found.append(Node(op, region.attrs([made]), tuple(region.entries), node.name))
    return found


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("count, hidden", [(1, 76), (8, 64), (5, 16), (3, 7)])
def test_a_region_computes_what_a_layer_with_a_copy_computes(count, hidden, dtype, kinds, monkeypatch):
    monkeypatch.setattr("mxlite.backends.cpu.products.SMALL", 1)
    monkeypatch.setitem(rule.LEAST_BYTES, "weight", 1)
    kind = mx.nd.zeros((1,), dtype=dtype).dtype
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((hidden, WIDTH)).astype("f")
    exact = weight.astype(kind).astype("float64")
    data, grad, bias = (
        rng.standard_normal(s).astype(kind) for s in ((count, 4, WIDTH // 4), (count, hidden), hidden)
    )
    wide = data.astype("float64").reshape(count, WIDTH)
    forward, backward = regions(count, hidden, dtype)
    (out,), name = run_region(forward, [weight, data, bias], kinds)
    close(out, wide @ exact.T + bias.astype("float64"))
    close(run_region(regions(count, hidden, dtype, False)[0], [weight, data], kinds)[0][0], wide @ exact.T)
    (d_data,), other = run_region(backward, [weight, grad], kinds)
    close(d_data.reshape(count, WIDTH), grad.astype("float64") @ exact)
    assert "rows at a time" in name and "rows at a time" in other
    if kinds != "reference" and hidden > 7:
        assert all("onednn" in n or "compiled product" in n for n in (name, other))


def close(got: Any, want: Any) -> None:
    assert np.abs(got.astype("float64") - want).max() < 1e-2 * np.abs(want).max()


def test_tiles_have_each_row_once():
    for rows in (1, 7, 16, 17, 64, 1000):
        loop = tile_sizes.weight_cast_tiles(rows, WIDTH)
        assert [i for part in loop.tiles for i in range(rows)[part]] == list(range(rows))
        assert all(part.stop - part.start <= loop.each <= 16 for part in loop.tiles)


# -- the pass ---------------------------------------------------------------------------------------

SHAPES = dict(data=(8, 4, 5), softmax_label=(8,))


def network(reader: Any = None, flatten: bool = True) -> Any:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=WIDTH, name="first", flatten=flatten)
    x = mx.sym.FullyConnected(mx.sym.tanh(x), num_hidden=HIDDEN, name="second")
    y = mx.sym.FullyConnected(mx.sym.tanh(x), num_hidden=3, name="third")
    made = mx.sym.SoftmaxOutput(y, name="softmax")
    return mx.sym.Group([made, reader(x)]) if reader else made


def learned(net: Any, steps: int = 2, **how: Any) -> tuple[dict[str, Any], Any]:
    """Weights after some steps, and the executor."""
    sgd = mx.optimizer.SGD(momentum=0.9)
    step = net.simple_bind(mx.cpu(), optimizer=sgd, amp="bfloat16", **{**SHAPES, **how})
    rng = np.random.default_rng(0)
    for name, array in step.arg_dict.items():
        array[:] = (
            rng.integers(0, 3, array.shape) if "label" in name else rng.standard_normal(array.shape) / 4
        )
    for _ in range(steps):
        out = step.step([[0.1, 0.0]] * len(step.updated))[0].asnumpy()
    check(step.memory_plan)
    assert step.measured_bytes == step.memory_plan.peak_bytes
    found = {n: a.asnumpy() for n, a in step.arg_dict.items()} | {"out": out}
    step.forward(is_train=False)
    return found | {"inference": step.outputs[0].asnumpy()}, step


def apart(monkeypatch: Any) -> None:
    left_out(monkeypatch, "inline_dense_casts")


INLINED, BACK = ["Cast", "FullyConnected"], ["Cast", "_backward_FullyConnected", "Cast"]


@pytest.fixture
def fast(monkeypatch):
    """Products of 16 bits, however small."""
    monkeypatch.setattr("mxlite.backends.cpu.products.SMALL", 1)


@needs_kernels
@pytest.mark.parametrize("flatten", [True, False])
def test_training_goes_as_with_a_copy_in_fewer_bytes(fast, monkeypatch, flatten):
    after, exe = learned(network(flatten=flatten))
    apart(monkeypatch)
    before, old = learned(network(flatten=flatten))
    made = dict(inner_operators(exe))
    assert (made["second"], made["second_backward_data"]) == (INLINED, BACK)
    assert not any("second_weight" in n and op == ["Cast"] for n, op in made.items())
    assert INLINED not in dict(inner_operators(old)).values()
    assert len(made) < len(inner_operators(old))
    for name in before:
        scale = np.abs(before[name]).max()
        np.testing.assert_allclose(after[name], before[name], atol=1e-2 * scale, err_msg=name)


@needs_kernels
def test_every_budget_gives_the_same_bits(fast):
    usual, _ = learned(network())
    with pytest.raises(mx.MemoryBudgetError) as error:
        learned(network(), memory_budget=1)
    least, tight = learned(network(), memory_budget=error.value.least_feasible_bytes)
    assert INLINED in dict(inner_operators(tight)).values()
    assert [n for n in usual if usual[n].tobytes() != least[n].tobytes()] == []


@needs_kernels
def test_with_many_samples_a_copy_stays(fast):
    shapes = dict(data=(129, 4, 5), softmax_label=(129,))
    plan = network().memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), amp="bfloat16", **shapes)
    assert {t.name: t.op for t in plan.problem.tasks}["second"] == "FullyConnected"


def layer(reader: Any = None) -> Any:
    """A layer on a copy of its weight, and what else reads that; the node that makes the copy."""
    narrow = mx.sym.cast(mx.sym.var("weight"), dtype="bfloat16", name="copy")
    x = mx.sym.var("data")
    x = mx.sym.FullyConnected(x, narrow, num_hidden=HIDDEN, no_bias=True, name="layer")
    net = mx.sym.Group([x, reader(narrow)]) if reader else x
    graph = infer(net.graph, {"data": (8, WIDTH)}, {"data": "bfloat16", "weight": "float32"})
    return graph, next(n for n in graph.nodes if n.name == "copy")


def joined(graph: Any, kept: Any = ()) -> bool:
    made = alone("inline_dense_casts", graph, kept, 2, target=Willing())
    names = [operators_of(n) for n in made.operators]
    assert made.num_forward == min(2, len(names))
    return INLINED in names and ["Cast"] not in names


def test_a_copy_that_nobody_else_wants_goes(monkeypatch):
    assert joined(layer()[0])
    assert not joined(layer(lambda copy: copy)[0])
    assert not joined(layer(mx.sym.square)[0])
    graph, copy = layer()
    assert not joined(graph, [Entry(copy)])
    monkeypatch.setitem(rule.LEAST_BYTES, "weight", 2 * WIDTH * HIDDEN + 1)
    assert not joined(graph)


@needs_kernels
def test_inference_that_keeps_its_constants_keeps_copies(fast, monkeypatch):
    given = dict(grad_req="null", amp="bfloat16", **SHAPES)
    free = network().simple_bind(mx.cpu(), **given)
    tight = network().simple_bind(mx.cpu(), memory_budget="1MB", **given)
    for step in (free, tight):
        for array in step.arg_dict.values():
            array[:] = np.random.default_rng(array.size).standard_normal(array.shape)
        step.forward(is_train=False)
        assert step.measured_bytes == step.memory_plan.peak_bytes
    np.testing.assert_allclose(tight.outputs[0].asnumpy(), free.outputs[0].asnumpy(), rtol=2e-2)
    held = [step.memory_plan.breakdown["arguments"] for step in (free, tight)]
    assert held[0] - held[1] >= 2 * WIDTH * HIDDEN
    apart(monkeypatch)
    assert network().memory_plan(mx.cpu(), **given).breakdown["arguments"] == held[0]


# -- figures ----------------------------------------------------------------------------------------


@needs_kernels
def test_vgg_in_mixed_precision_takes_less_than_without(monkeypatch):
    monkeypatch.undo()
    net, sgd = mx.models.get("vgg11", dropout=0.0), mx.optimizer.SGD(momentum=0.9)
    shapes = dict(data=(8, 3, 224, 224), softmax_label=(8,))
    plan = net.memory_plan(mx.cpu(), optimizer=sgd, amp="bfloat16", **shapes)
    assert plan.arena_bytes < 85 * 2**20
