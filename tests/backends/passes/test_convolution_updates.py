"""Updates of weights of convolutions that make their gradient some filters at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends.call import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.fused import tile_sizes
from mxlite.backends.fused.tiled import TiledUpdate
from mxlite.backends.passes.entries import output
from mxlite.backends.passes.tiling.gradient_updates import convolution_region
from mxlite.core.dtype import as_dtype
from mxlite.graph import Entry, Node
from mxlite.graph.attrs import parse_attrs
from mxlite.memplan import check
from tests.backends.passes.pass_lists import left_out
from tests.backends.passes.regions import variables
from tests.networks.small_networks import fill_by_kind

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")

SGD = mx.optimizer.SGD(momentum=0.9)


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    """Weights of small networks count, in tiles of 64 filters."""
    monkeypatch.setattr(tile_sizes, "FILTER_BYTES", 64)
    monkeypatch.setattr(tile_sizes, "FILTER_BYTES_OF_THREAD", 64)
    monkeypatch.setattr(tile_sizes, "LEAST_DEEP_UPDATE", 60_000)


def conv(data: Any, name: str, filters: int, size: int = 3, **how: Any) -> Any:
    return mx.sym.Convolution(
        data, name=name, num_filter=filters, kernel=(size, size), pad=(size // 2,) * 2,
        **({"no_bias": True} | how),
    )  # fmt: skip


def normed(data: Any, name: str) -> Any:
    return mx.sym.Activation(mx.sym.BatchNorm(data, name=f"{name}_bn", fix_gamma=False), act_type="relu")


def network() -> Any:
    x = normed(conv(mx.sym.var("data"), "first", 64), "first")
    x = normed(conv(x, "winograd", 128), "a")
    x = conv(x, "strided", 128, stride=(2, 2))
    y = normed(conv(x, "pointwise", 256, 1), "b") + conv(x, "skip", 256, 1)
    z = conv(normed(y, "c"), "biased", 128, 1, no_bias=False)
    z = mx.sym.Pooling(z, global_pool=True, kernel=(1, 1), pool_type="avg")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(z, num_hidden=5, name="fc"), name="softmax")


def bound(**how: Any) -> Any:
    how = dict(optimizer=SGD) | how
    exe = network().simple_bind(mx.cpu(), data=(4, 16, 9, 8), softmax_label=(4,), **how)
    fill_by_kind(exe, 0.1)
    return exe


def fused(exe: Any) -> set[str]:
    tasks = exe._planned.train.problem.tasks
    found = [t for t in tasks if t.op == "_tiled_update" and "filters at a time" in t.kernel]
    assert all("64 filters at a time" in t.kernel for t in found)
    return {t.name.removesuffix("_weight_update") for t in found}


def trained(exe: Any) -> dict[str, np.ndarray]:
    for _ in range(2):
        exe.step([[0.05, 0.01]] * len(exe.updated))
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    return {n: a.asnumpy() for n, a in {**exe.arg_dict, **exe.aux_dict}.items()}


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_a_step_learns_the_same(amp, monkeypatch):
    found = bound(amp=amp)
    assert fused(found) == {"winograd", "strided", "pointwise", "skip"}
    check(found.memory_plan)
    got = trained(found)
    same = trained(bound(amp=amp, memory_budget=2**40))
    left_out(monkeypatch, "gradient_updates")
    plain = bound(amp=amp)
    assert not fused(plain)
    for name, x in trained(plain).items():
        np.testing.assert_array_equal(got[name], same[name], err_msg=name)
        most = (2e-2 if amp else 1e-5) * np.abs(x).max()
        np.testing.assert_allclose(got[name], x, rtol=0, atol=most, err_msg=name)


def test_gradients_that_somebody_sees_stay_whole():
    assert not fused(bound(optimizer=None))
    assert not fused(bound(optimizer=mx.optimizer.LAMB()))


ROWS = {
    "winograd": dict(size=(7, 6), kernel=(3, 3), pad=(1, 1)),
    "strided": dict(size=(9, 8), kernel=(3, 3), pad=(1, 1), stride=(2, 2)),
    "pointwise": dict(size=(6, 5), kernel=(1, 1)),
}


@pytest.mark.parametrize("plus", ["plain", "", "array", "relu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("row", ROWS)
def test_kernels_make_what_the_references_make_in_float64(row, dtype, plus):
    given = dict(ROWS[row])
    size, kind = given.pop("size"), as_dtype(dtype)
    given |= dict(num_filter=128, no_bias=True)
    if plus == "plain":
        maker, attrs = ops.ConvolutionChannelsLast, ops.ConvolutionChannelsLast.Attrs(**given)
    else:
        maker = ops.NormedConvolutionWeightGradient
        attrs = maker.Attrs(**given, relu=True, plus=plus)
    is_plain = plus == "plain"
    data, weight = (3, *size, 32), (128, 32, *given["kernel"])
    made = ops.ConvolutionChannelsLast.infer_shape(attrs, data, weight)[1][0]
    rng = np.random.default_rng(0)
    large = {"d_out": made, "grad": made, "data": data, "addend": data}
    names = ["d_out", "data"] if is_plain else list(maker.input_names(attrs))
    arrays = {
        n: rng.standard_normal(large.get(n, data[-1:])).astype(kind if n in large else np.float32)
        for n in names
    }
    arrays |= {n: rng.standard_normal(weight).astype(np.float32) for n in ("weight", "state")}
    arrays["hyper"] = np.array([[9.0, 9.0], [0.05, 0.25]])
    graph, known = variables(arrays)
    gradient = Node(
        maker.grad_op if is_plain else maker, attrs, tuple(known[n] for n in names), "gradient",
        absent=frozenset({"weight"} if is_plain else ()),
    )  # fmt: skip
    op = ops._fused_sgd_mom
    ends = known["weight"], output(gradient, "d_weight"), known["state"], known["hyper"]
    update = Node(op, parse_attrs(op, {"momentum": 0.5, "row": 1}), ends, "update")
    region = convolution_region(graph, update, 2)
    step = region.attrs([])
    ins = [arrays[e.node.name] for e in region.entries]
    shapes, types = tuple(x.shape for x in ins), tuple(x.dtype for x in ins)
    chosen = CPU.choose(TiledUpdate, step, shapes, (), kind, types)
    assert "64 filters at a time" in chosen.name and "reference" not in chosen.name
    wide = [x.astype(np.float64) for x in ins]
    doubles = variables({n: x.astype(np.float64) for n, x in arrays.items()})
    in_wide = [
        Entry(doubles[1][e.node.name].node) for e in (*gradient.inputs, *ends) if e.node is not gradient
    ]
    of_wide = {e.node.name: e for e in in_wide}
    back = replace(gradient, inputs=tuple(of_wide[e.node.name] for e in gradient.inputs))
    last = replace(update, inputs=tuple(of_wide.get(e.node.name, output(back, "d_weight")) for e in ends))
    exact = convolution_region(doubles[0], last, 2).attrs([])
    reference = CPU.reference(TiledUpdate, exact, shapes, (), np.dtype("d"))
    for kernel, given_arrays, a in ((chosen, ins, step), (reference, wide, exact)):
        block = np.full(64 + kernel.workspace + 64, 0xFF, np.uint8)
        work = block[64 : 64 + kernel.workspace]
        with CPU.running(CPU.threads()):
            run = bind_call(kernel, np, TiledUpdate, a, given_arrays, [], work=work, shapes=(shapes, ()))
            run()
            run()
        assert (block[:64] == 0xFF).all() and (block[-64:] == 0xFF).all()
    atol = {"float32": 1e-5, "float16": 1e-3}.get(dtype, 2**-7)
    for x, y in zip(ins, wide):
        np.testing.assert_allclose(x.astype("d"), y, rtol=0, atol=atol * max(1.0, np.abs(y).max()))
