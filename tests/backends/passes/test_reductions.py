"""Reductions fused with elementwise operators: which are, and that they compute the same in fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.fused.computation import ComputationAttrs, FusedComputation
from mxlite.memplan import check
from mxlite.te.computation import Computation, pruned
from tests.backends.passes.pass_lists import left_out

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")

ROWS, WIDTH = 24, 96
X, B, G = (mx.sym.var(n) for n in ("x", "b", "g"))
SHAPES = {"x": (ROWS, WIDTH), "b": (ROWS, WIDTH), "g": (1, WIDTH)}
FUSED = ["_fused_computation", "_fused_computation_gradient"]


def rms_norm(x: Any) -> Any:
    scale = mx.sym.rsqrt(mx.sym.mean(mx.sym.square(x), axis=-1, keepdims=True) + 1e-5)
    return mx.sym.broadcast_mul(mx.sym.broadcast_mul(x, scale), G)


def layer_norm(x: Any) -> Any:
    centred = mx.sym.broadcast_sub(x, mx.sym.mean(x, axis=-1, keepdims=True))
    variance = mx.sym.mean(centred * centred, axis=-1, keepdims=True)
    return mx.sym.broadcast_mul(mx.sym.broadcast_mul(centred, mx.sym.rsqrt(variance + 1e-5)), G)


NETWORKS = {
    "weighted sum": mx.sym.sum(mx.sym.exp(X) * B, axis=1),
    "softmax of a chain": mx.sym.softmax(X * 0.5 + B) * B,
    "root of a mean": rms_norm(X),
    "layer norm": layer_norm(X),
    "sums of columns": mx.sym.sum(mx.sym.tanh(X) * B, axis=0),
    "sum without the axis": mx.sym.sqrt(mx.sym.sum(mx.sym.square(X - B), axis=1) + 1.0),
    "operator norm": mx.sym.RMSNorm(X * B, mx.sym.reshape(G, shape=(WIDTH,))) + X,
}
TWO = ["weighted sum", "softmax of a chain", "root of a mean", "layer norm", "sums of columns"]


def bound(symbol: Any, **how: Any) -> Any:
    given = {n: SHAPES[n] for n in symbol.list_arguments() if n in SHAPES}
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(**given)[0]))
    exe = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes, **how)
    rng = np.random.default_rng(0)
    for _, x in sorted(exe.arg_dict.items()):
        x[:] = rng.standard_normal(x.shape)
    return exe


def step(exe: Any) -> dict[str, np.ndarray]:
    """The output and gradients of a step."""
    (out,) = exe.forward(is_train=True)
    exe.backward([mx.nd.array(np.random.default_rng(1).standard_normal(out.shape), dtype=out.dtype)])
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    check(exe.memory_plan)
    grads = {n: g.asnumpy().astype("d") for n, g in exe.grad_dict.items()}
    return {"out": out.asnumpy().astype("d"), **grads}


def operators(exe: Any) -> list[str]:
    return [t.op for t in exe._planned.train.problem.tasks]


def reducing(lowered: Any) -> list[str]:
    """The fused operators that are more than chains."""
    return [c.node.op.op_name for c in lowered.calls if getattr(c.node.attrs, "reduces", False)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_computes_what_the_reference_computes(name, dtype, monkeypatch):
    if dtype not in storable():
        pytest.skip(f"this CPU does not convert {dtype}")
    symbol = NETWORKS[name]
    types = {"type_dict": dict.fromkeys(symbol.list_arguments(), dtype)} if dtype != "float32" else {}
    exe = bound(symbol, **types)
    assert reducing(exe._planned.train)
    got = step(exe)
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    want = step(bound(symbol, **types))
    near = 1e-5 if dtype == "float32" else 6e-2
    for n, x in want.items():
        np.testing.assert_allclose(got[n], x, rtol=near, atol=near * max(1, np.abs(x).max()), err_msg=n)


@pytest.mark.parametrize("name", TWO)
def test_forward_and_backward_are_a_node_each_in_fewer_bytes(name, monkeypatch):
    exe = bound(NETWORKS[name])
    assert operators(exe) == FUSED and reducing(exe._planned.train)
    left_out(monkeypatch, "reductions")
    apart = bound(NETWORKS[name])
    assert not reducing(apart._planned.train)
    assert exe.memory_plan.arena_bytes <= apart.memory_plan.arena_bytes
    fewer = name in ("weighted sum", "root of a mean", "layer norm")
    assert (exe.memory_plan.arena_bytes < apart.memory_plan.arena_bytes) >= fewer


def test_every_budget_gives_the_same_bits():
    symbol = mx.sym.FullyConnected(layer_norm(mx.sym.FullyConnected(X, num_hidden=WIDTH)), num_hidden=8)
    symbol = mx.sym.mean(mx.sym.square(rms_norm(mx.sym.FullyConnected(symbol, num_hidden=WIDTH))), axis=1)
    exe = bound(symbol)
    want, plan = step(exe), exe.memory_plan
    for budget in (plan.peak_bytes, (plan.peak_bytes + plan.lower_bound_bytes) // 2):
        try:
            got = step(bound(symbol, memory_budget=budget))
        except mx.MemoryBudgetError as error:
            got = step(bound(symbol, memory_budget=error.least_feasible_bytes))
        for n, x in want.items():
            np.testing.assert_array_equal(got[n], x, err_msg=n)


def inference(symbol: Any, **shapes: Any) -> Any:
    return symbol.simple_bind(mx.cpu(), grad_req="null", **shapes)._planned.infer


def test_a_softmax_of_an_axis_in_the_middle_is_computed_over_the_axes_of_its_chain():
    """The operator merges axes that a chain with a mask has apart."""
    mask = mx.sym.var("mask")
    symbol = mx.sym.softmax(mx.sym.broadcast_add(X, mask), axis=2)
    made = inference(symbol, x=(4, 6, 40, 5), mask=(1, 6, 40, 1))
    assert [t.op for t in made.problem.tasks] == reducing(made) == ["_fused_computation"]


def test_nodes_stay_apart_where():
    cases = {
        "an array is small": (mx.sym.sum(mx.sym.exp(X)), (8, 8)),
        "a stage ends": (mx.sym.sum(mx.sym.exp(X, attr={"__mirror_stage__": "True"})), (40, 40)),
        "axes end at places of which none divides the other": (
            mx.sym.sum(mx.sym.reshape(mx.sym.exp(X), shape=(60, 40)), axis=1),
            (40, 60),
        ),
    }
    for why, (symbol, shape) in cases.items():
        assert not reducing(inference(symbol, x=shape)), why


def test_one_result_of_several_is_made_again_from_the_others():
    """Backward reads a sum and its norm: the norm comes from the sum, without the terms of that."""
    total = X + B
    symbol = mx.sym.Group([total, mx.sym.RMSNorm(total, mx.sym.reshape(G, shape=(WIDTH,)))])
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", **SHAPES)
    (node,) = (c.node for c in exe._planned.infer.calls if c.node.op is FusedComputation)
    made, places = node.attrs.part([1], from_others=True)
    assert places == (3, 2) or places == (2, 3)
    assert made.donors == ((f"arg{places.index(3)}",),)
    assert sum(n[0] == "add" for n in made.nodes) == 1, "of the norm's epsilon, not of the sum"


def test_a_node_that_does_not_join_has_axes_of_its_own(monkeypatch):
    """A sum of gradients that could follow a smaller array's axes in a group that does not take it."""
    x, w = mx.sym.var("x"), mx.sym.var("w")
    y = mx.sym.LeakyReLU(x, w, act_type="prelu")
    symbol = mx.sym.broadcast_minimum(y, mx.sym.swapaxes(y, dim1=0, dim2=3))
    shapes = {"x": (8, 4, 64, 1), "w": (4,)}

    def gradients() -> list[np.ndarray]:
        exe = symbol.simple_bind(mx.cpu(), grad_req="write", **shapes)
        rng = np.random.default_rng(3)
        for _, a in sorted(exe.arg_dict.items()):
            a[:] = rng.standard_normal(a.shape)
        (out,) = exe.forward(is_train=True)
        exe.backward([mx.nd.array(np.random.default_rng(4).standard_normal(out.shape))])
        return [g.asnumpy() for _, g in sorted(exe.grad_dict.items())]

    got = gradients()
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    for a, b in zip(got, gradients(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


def test_a_result_that_an_array_only_repeats_is_computed_again():
    """The array has axes that the mean lacks, and so would what is made of it."""
    t = Computation()
    mean = t.mean(t.input("arg0", (6, 8)), (1,))
    nodes, numbers = pruned(t, [mean.number, (mean * 2.0).number])
    kind = np.dtype("f")
    attrs = ComputationAttrs(nodes, numbers, ((6, 8), (6, 1)), (kind, kind), (kind,))
    made, places = attrs.part([1], from_others=True)
    assert places == (0,), "from the data, not from the array in which the mean is repeated"
    assert made.written(Computation())["output0"].shape == (6, 1)


def test_groups_of_different_domains_stay_apart():
    """A sum whose terms belong to a chain of vectors and to a reduction of matrices, and a sum of that."""
    x, a, b = (mx.sym.var(n) for n in "xab")
    rows = mx.sym.negative(mx.sym.mean(mx.sym.exp(x), axis=1)) * 0.1
    symbol = mx.sym.MakeLoss(mx.sym.sum((a * b) * 0.9 + rows))
    exe = symbol.simple_bind(mx.cpu(), x=(60, 40), a=(60,), b=(60,))
    given = {n: np.random.default_rng(i).standard_normal(exe.arg_dict[n].shape) for i, n in enumerate("xab")}
    exe.copy_params_from({n: mx.nd.array(v) for n, v in given.items()})
    (out,) = exe.forward(is_train=True)
    wanted = (given["a"] * given["b"] * 0.9 - np.exp(given["x"]).mean(1) * 0.1).sum()
    np.testing.assert_allclose(out.asnumpy(), [wanted], rtol=1e-4)
    exe.backward()
    np.testing.assert_allclose(exe.grad_dict["x"].asnumpy(), -np.exp(given["x"]) * 0.1 / 40, rtol=1e-4)


def test_what_an_earlier_sweep_computed_is_not_written_by_a_later_one(monkeypatch):
    """The gradient reads tanh(x) again, which only the first of its two sweeps computes."""
    x = mx.sym.var("x")
    least = mx.sym.broadcast_add(mx.sym.min(x, axis=0, keepdims=True), x)
    length = mx.sym.norm(mx.sym.square(mx.sym.tanh(x)) + 1.0, axis=(0, 1), keepdims=True)
    symbol = mx.sym.MakeLoss(mx.sym.sum(mx.sym.broadcast_add(least, length)))

    def gradient() -> np.ndarray:
        exe = symbol.simple_bind(mx.cpu(), x=(40, 60))
        exe.arg_dict["x"][:] = np.random.default_rng(0).standard_normal((40, 60))
        exe.forward(is_train=True)
        exe.backward()
        return exe.grad_dict["x"].asnumpy()

    got = gradient()
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    np.testing.assert_allclose(got, gradient(), rtol=1e-4, atol=1e-5)
