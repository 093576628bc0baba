"""Inlined casts of a float32 batch: fewer bytes than with a copy, the same numbers."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import passes
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tiled import Tiled, TiledGradient
from mxlite.backends.passes import named
from mxlite.executor.request.infer import infer
from mxlite.graph import Entry, Node
from mxlite.memplan import check
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.passes.pass_lists import asking, left_out, Willing
from tests.backends.passes.regions import inner_operators, run_region

rule = import_module("mxlite.backends.passes.tiling.inline_dense_casts")
COUNT, WIDTH, HIDDEN = 75, 60, 12
needs_kernels = pytest.mark.skipif(
    library() is None or not usable(), reason="oneDNN or llvmlite is not there"
)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Tiles of 16 samples, of copies of 4 KiB or more; products of 16 bits, however small."""
    monkeypatch.setattr(tile_sizes, "BATCH_CAST_BYTES", 16)
    monkeypatch.setattr(tile_sizes, "LEAST_BATCH_TILE", 16)
    monkeypatch.setitem(rule.LEAST_BYTES, "data", 4096)
    monkeypatch.setattr(rule, "LEAST_SAMPLES", 32)
    monkeypatch.setattr("mxlite.backends.cpu.products.SMALL", 1)


# -- the regions ------------------------------------------------------------------------------------

KINDS = ["reference", pytest.param("onednn,compiled", marks=needs_kernels)]


def regions(count: int, dtype: str) -> list[Any]:
    """The regions of a layer's output, and of the gradient in its weight."""
    data = mx.sym.cast(mx.sym.var("data"), dtype=dtype, name="copy")
    net = mx.sym.FullyConnected(data, num_hidden=HIDDEN, name="layer")
    types = {"data": "float32", "layer_weight": dtype, "layer_bias": dtype}
    graph = infer(net.graph, {"data": (count, 4, WIDTH // 4)}, types)
    layer = next(n for n in graph.nodes if n.name == "layer")
    cast = layer.inputs[0].node
    back = replace(
        layer, op=layer.op.grad_op, inputs=(Entry(layer), layer.inputs[0]), forward=layer,
        absent=frozenset({"weight"}),
    )  # fmt: skip
    made = {n: Entry(back, i) for i, n in enumerate(back.output_names)}
    shapes = dict(graph.shapes) | {made["d_weight"]: (HIDDEN, WIDTH), made["d_bias"]: (HIDDEN,)}
    whole = replace(graph, shapes=shapes)
    found = []
    for op, (region, result) in (
        (Tiled, rule.casting_region(whole, layer, cast, "data")),
        (TiledGradient, rule.casting_region(whole, back, cast, "data")),
    ):
        found.append(Node(op, region.attrs([result]), tuple(region.entries), "region"))
    return found


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("count", [1, 16, 40, COUNT])
def test_a_region_computes_what_a_layer_with_a_copy_computes(count, dtype, kinds):
    kind = mx.nd.zeros((1,), dtype=dtype).dtype
    rng = np.random.default_rng(0)
    data = rng.standard_normal((count, 4, WIDTH // 4)).astype("f")
    exact = data.astype(kind).astype("float64").reshape(count, WIDTH)
    weight, bias, d_out = (
        rng.standard_normal(s).astype(kind) for s in ((HIDDEN, WIDTH), HIDDEN, (count, HIDDEN))
    )
    forward, backward = regions(count, dtype)
    (out,), name = run_region(forward, [data, weight, bias], kinds)
    close(out, exact @ weight.astype("float64").T + bias.astype("float64"), 1e-2)
    (d_weight,), other = run_region(backward, [data, d_out], kinds)
    close(d_weight, d_out.astype("float64").T @ exact, 1e-6)
    assert "at a time" in name and "at a time" in other
    if kinds != "reference" and count > 1:
        assert "onednn" in name + other or "compiled product" in name + other


def close(got: Any, want: Any, limit: float) -> None:
    assert np.abs(got.astype("float64") - want).max() <= limit * np.abs(want).max()


def test_tiles_have_each_sample_once():
    for count in (1, 7, 16, 23, 25, 64, 1000):
        parts = tile_sizes.batch_cast_tiles(count, WIDTH).tiles
        assert [i for part in parts for i in range(count)[part]] == list(range(count))
        assert len({part.stop - part.start for part in parts}) <= 2


# -- the pass ---------------------------------------------------------------------------------------

SHAPES = dict(data=(COUNT, 4, WIDTH // 4), softmax_label=(COUNT,))


def network(reader: Any = None, bias: bool = True, flatten: bool = True) -> Any:
    data = mx.sym.var("data")
    more = {} if flatten else {"flatten": False}
    x = mx.sym.FullyConnected(data, num_hidden=HIDDEN, no_bias=not bias, name="first", **more)
    x = mx.sym.FullyConnected(mx.sym.tanh(x), num_hidden=3, name="second")
    made = mx.sym.SoftmaxOutput(x, name="softmax")
    return mx.sym.Group([made, mx.sym.MakeLoss(reader(data))]) if reader else made


def learned(net: Any, shapes: Any = SHAPES, **how: Any) -> tuple[dict[str, Any], Any]:
    """Weights after two steps, and the executor."""
    sgd = mx.optimizer.SGD(momentum=0.9)
    step = net.simple_bind(mx.cpu(), optimizer=sgd, amp="bfloat16", **shapes, **how)
    rng = np.random.default_rng(0)
    for name, array in step.arg_dict.items():
        array[:] = (
            rng.integers(0, 3, array.shape) if "label" in name else rng.standard_normal(array.shape) / 4
        )
    for _ in range(2):
        out = step.step([[0.1, 0.0]] * len(step.updated))[0].asnumpy()
    check(step.memory_plan)
    assert step.measured_bytes == step.memory_plan.peak_bytes
    found = {n: a.asnumpy() for n, a in step.arg_dict.items()} | {"out": out}
    step.forward(is_train=False)
    return found | {"inference": step.outputs[0].asnumpy()}, step


def apart(monkeypatch: Any) -> None:
    left_out(monkeypatch, "inline_dense_casts")


INLINED, BACK = ["Cast", "FullyConnected"], ["Cast", "_backward_FullyConnected"]


def operators(exe: Any) -> list[list[str]]:
    return [made for _, made in inner_operators(exe)]


@needs_kernels
@pytest.mark.parametrize("bias", [True, False])
def test_training_goes_as_with_a_copy(bias, monkeypatch):
    after, exe = learned(network(bias=bias))
    apart(monkeypatch)
    before, old = learned(network(bias=bias))
    assert INLINED in operators(exe) and BACK in operators(exe)
    assert not any("data_bfloat16" in t.name for t in exe.memory_plan.problem.tasks)
    assert any("data_bfloat16" in t.name for t in old.memory_plan.problem.tasks)
    for name in before:
        scale = np.abs(before[name]).max()
        np.testing.assert_allclose(after[name], before[name], atol=1e-2 * scale, err_msg=name)


@needs_kernels
def test_every_budget_gives_the_same_bits():
    usual, _ = learned(network())
    with pytest.raises(mx.MemoryBudgetError) as error:
        learned(network(), memory_budget=1)
    least, tight = learned(network(), memory_budget=error.value.least_feasible_bytes)
    assert INLINED in operators(tight) and BACK in operators(tight)
    assert [n for n in usual if usual[n].tobytes() != least[n].tobytes()] == []


@needs_kernels
def test_gradients_that_are_kept_are_made_where_they_are_kept(monkeypatch):
    net, found = network(), []
    for _ in range(2):
        requests = {n: "null" if n in SHAPES else "write" for n in net.list_arguments()}
        exe = net.simple_bind(mx.cpu(), amp="bfloat16", grad_req=requests, **SHAPES)
        rng = np.random.default_rng(0)
        for name, array in exe.arg_dict.items():
            array[:] = rng.integers(0, 3, COUNT) if "label" in name else rng.standard_normal(array.shape) / 4
        exe.forward_backward()
        found.append({n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None})
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        assert (BACK in operators(exe)) == (len(found) == 1)
        apart(monkeypatch) if len(found) == 1 else None
    for name, want in found[1].items():
        np.testing.assert_allclose(found[0][name], want, atol=1e-2 * np.abs(want).max(), err_msg=name)


@needs_kernels
def test_a_copy_that_somebody_else_reads_stays():
    plan = learned(network(lambda x: mx.sym.FullyConnected(mx.sym.relu(x), num_hidden=2, name="other")))[1]
    assert INLINED in operators(plan)  # what the other reads is another array
    plan = learned(network(lambda x: mx.sym.dot(x.reshape((-1, WIDTH)), mx.sym.var("w", shape=(WIDTH, 2)))))[
        1
    ]
    assert INLINED in operators(plan)
    net = network(lambda x: mx.sym.Convolution(x, kernel=(3,), num_filter=2, name="other"))
    assert INLINED not in operators(learned(net)[1])


@needs_kernels
def test_with_few_samples_a_copy_stays():
    shapes = dict(data=(31, 4, WIDTH // 4), softmax_label=(31,))
    made = operators(learned(network(), shapes)[1])
    assert INLINED not in made and BACK not in made


@needs_kernels
def test_with_fewer_samples_than_hidden_numbers_the_gradient_has_its_copy(monkeypatch):
    monkeypatch.setattr(f"{__name__}.HIDDEN", 40)
    found = operators(learned(network())[1])
    assert INLINED in found and BACK not in found


@needs_kernels
def test_a_perceptron_takes_fewer_bytes_than_in_float32(monkeypatch):
    monkeypatch.undo()
    net, sgd = mx.models.get("mlp"), mx.optimizer.SGD(momentum=0.9)
    full, mixed = (
        net.memory_plan(mx.cpu(), optimizer=sgd, amp=kind, data=(8242, 784)) for kind in (None, "bfloat16")
    )
    assert mixed.peak_bytes < 0.9 * full.peak_bytes


def test_a_copy_that_backward_alone_reads_is_made_there(monkeypatch):
    """Forward has a kernel that narrows, the gradient in the weight has none."""
    hidden = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=HIDDEN, name="fc")
    net = mx.sym.SoftmaxOutput(hidden, name="softmax")
    found = []
    for more in (
        (),
        (asking("inline_dense_casts", Willing(tiles=lambda a: a.operators[-1] is FullyConnected)),),
    ):
        monkeypatch.setattr(passes, "PASSES", (*named("split_gradients"), *more))
        exe = net.simple_bind(mx.cpu(), amp="bfloat16", data=(COUNT, WIDTH), softmax_label=(COUNT,))
        problem = exe.memory_plan.problem
        copies = [
            i
            for i, t in enumerate(problem.tasks)
            if t.op == "Cast" and problem.values[t.outputs[0]].nbytes == 2 * COUNT * WIDTH
        ]
        assert [i >= problem.num_forward for i in copies] == [bool(more)]
        for name, array in exe.arg_dict.items():
            array[:] = np.random.default_rng(1).standard_normal(array.shape) if name != "softmax_label" else 1
        exe.forward(is_train=True)
        exe.backward()
        found.append((exe.outputs[0].asnumpy().tobytes(), exe.grad_dict["fc_weight"].asnumpy().tobytes()))
    assert found[0] == found[1]
