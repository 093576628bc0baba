"""Chains of elementwise operators as one node: the same numbers, less memory traffic, no more memory."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mxlite as mx
from mxlite import sym
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.fused.computation import ComputationAttrs, FusedComputation
from mxlite.backends.passes.fusion import groups as fusing
from mxlite.backends.rewrite import Stage
from mxlite.core.machine_code import native
from mxlite.executor.plan.step import _accumulate
from mxlite.graph import Entry, Graph, infer_shapes, infer_types, NoAttrs, Node
from mxlite.ops.nn.dropout import Dropout
from mxlite.te.computation import Computation, pruned
from tests.backends.passes.pass_lists import alone, without_stage

pytestmark = pytest.mark.skipif(not usable(), reason="llvmlite is not installed")

SHAPE = (16, 128)


def forward_graph(symbol, dtypes=None, **shapes):
    """The graph of a symbol with all shapes and types."""
    graph = Graph(tuple(symbol._entries) if hasattr(symbol, "_entries") else tuple(symbol.graph.outputs))
    return infer_types(infer_shapes(graph, shapes), dtypes or {}, default="float32")


def chains(graph, kept, num_forward):
    """What the pass makes of a graph."""
    return alone("chains", graph, kept, num_forward).graph


def fused(symbol, kept=None, num_forward=None, **shapes):
    """Names of operators after the pass, in their order."""
    graph = forward_graph(symbol, **shapes)
    count = sum(n.op is not None for n in graph.nodes) if num_forward is None else num_forward
    made = chains(graph, graph.outputs if kept is None else kept, count)
    return [n.op.op_name for n in made.nodes if n.op is not None]


def bound(symbol, kernels, monkeypatch, grad_req="write", dtype="float32", seed=0, budget=None, **shapes):
    """An executor with arrays that depend on the seed only."""
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    types = dict.fromkeys(symbol.list_arguments(), dtype)
    executor = symbol.simple_bind(
        mx.cpu(), grad_req=grad_req, type_dict=types, memory_budget=budget, **shapes
    )
    rng = np.random.default_rng(seed)
    for array in executor.arg_dict.values():
        array[:] = np.asarray(rng.normal(size=array.shape)) * 0.5
    return executor


def step(executor):
    """Outputs and gradients of one training step."""
    outs = executor.forward(is_train=True)
    heads = [mx.nd.ones(o.shape, dtype=o.dtype) for o in outs]
    executor.backward(heads)
    found = [o.asnumpy().astype(np.float64) for o in outs]
    return found, {n: g.asnumpy().astype(np.float64) for n, g in executor.grad_dict.items() if g is not None}


def tasks(executor):
    return executor.memory_plan.problem.tasks


def close(found, wanted, step=2e-5):
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(found, wanted, rtol=step, atol=step * scale)


def gated(x, y, b):
    """A net of many elementwise operators between two products."""
    h = sym.broadcast_add(sym.FullyConnected(x, num_hidden=128, no_bias=True, name="fc"), b)
    g = sym.sigmoid(h) * sym.tanh(h * 0.5) + y
    g = sym.LeakyReLU(g, act_type="gelu")
    return sym.FullyConnected(sym.square(g - y), num_hidden=8, name="last")


_GATED = dict(x=(16, 32), y=SHAPE, b=(1, 128))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_training_step_is_the_same_in_fewer_nodes(dtype, monkeypatch):
    if dtype not in storable():
        pytest.skip(f"this CPU does not convert {dtype}")
    net = gated(sym.Variable("x"), sym.Variable("y"), sym.Variable("b"))
    plain = bound(net, "reference", monkeypatch, dtype=dtype, **_GATED)
    fast = bound(net, "compiled", monkeypatch, dtype=dtype, **_GATED)
    (a, ga), (b, gb) = step(plain), step(fast)
    near = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}[dtype]
    close(b[0], a[0], near)
    for name in ga:
        close(gb[name], ga[name], near)
    ops = [t.op for t in tasks(fast)]
    assert ops.count("_fused_computation") == ops.count("_fused_computation_gradient") == 1
    assert len(ops) <= len(tasks(plain)) - 9
    assert fast.memory_plan.peak_bytes <= plain.memory_plan.peak_bytes


def test_budgets_give_the_same_bits(monkeypatch):
    net = gated(sym.Variable("x"), sym.Variable("y"), sym.Variable("b"))
    free = bound(net, "compiled", monkeypatch, **_GATED)
    wanted = step(free)
    least = free.memory_plan.lower_bound if hasattr(free.memory_plan, "lower_bound") else None
    for budget in (None, least):
        tight = bound(net, "compiled", monkeypatch, budget=budget, **_GATED)
        found = step(tight)
        np.testing.assert_array_equal(found[0][0], wanted[0][0])
        for name, g in wanted[1].items():
            np.testing.assert_array_equal(found[1][name], g)


# -- random graphs

_ROW, _COLUMN, _SQUARE = (sym.Variable(n) for n in ("row", "column", "square"))
_MAKERS = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "scale": lambda a, b, c: a * 0.5 + 1.25,
    "sigmoid": lambda a, b, c: sym.sigmoid(a),
    "tanh": lambda a, b, c: sym.tanh(a),
    "relu": lambda a, b, c: sym.Activation(a, act_type="relu"),
    "leaky": lambda a, b, c: sym.LeakyReLU(a, act_type="leaky", slope=0.1),
    "elu": lambda a, b, c: sym.LeakyReLU(a, act_type="elu", slope=0.7),
    "gelu": lambda a, b, c: sym.LeakyReLU(a, act_type="gelu"),
    "square": lambda a, b, c: sym.square(sym.tanh(a)),
    "div": lambda a, b, c: a / (sym.square(b) + 1.0),
    "exp": lambda a, b, c: sym.exp(sym.tanh(a)),
    "add_n": lambda a, b, c: sym.add_n(a, b, c),
    "where": lambda a, b, c: sym.where(sym.broadcast_greater(a, b), b, c),
    "row": lambda a, b, c: sym.broadcast_mul(a, _ROW),
    "column": lambda a, b, c: sym.broadcast_add(a, _COLUMN),
    "block": lambda a, b, c: sym.BlockGrad(a) * b,
    # what stands between groups
    "softmax": lambda a, b, c: sym.softmax(a),
    "sum": lambda a, b, c: sym.broadcast_sub(a, sym.mean(a, axis=1, keepdims=True)),
    "product": lambda a, b, c: sym.dot(a, _SQUARE),
    "flip": lambda a, b, c: sym.reverse(a, axis=1),
}  # fmt: skip

_SHAPES = dict(x=SHAPE, y=SHAPE, row=(1, 128), column=(16, 1), square=(128, 128))


@st.composite
def networks(draw):
    values = [sym.Variable("x"), sym.Variable("y")]
    for _ in range(draw(st.integers(2, 12))):
        name = draw(st.sampled_from(sorted(_MAKERS)))
        a, b, c = (values[-1 - draw(st.integers(0, min(3, len(values) - 1)))] for _ in range(3))
        values.append(_MAKERS[name](a, b, c))
    outputs = [values[-1]] + ([values[len(values) // 2]] if draw(st.booleans()) and len(values) > 4 else [])
    return sym.Group([o * 0.125 for o in outputs])


@settings(max_examples=40, deadline=None)
@given(networks(), st.integers(0, 1000), st.sampled_from(["write", "add"]))
def test_random_network_trains_alike(net, seed, grad_req):
    with pytest.MonkeyPatch.context() as patch:
        shapes = {n: _SHAPES[n] for n in net.list_arguments()}
        plain = bound(net, "reference", patch, grad_req, seed=seed, **shapes)
        fast = bound(net, "compiled", patch, grad_req, seed=seed, **shapes)
        for executor in (plain, fast):
            for g in executor.grad_dict.values():
                g[:] = 0
        (a, ga), (b, gb) = step(plain), step(fast)
        for x, y in zip(b, a):
            close(x, y, 1e-4)
        for name in ga:
            close(gb[name], ga[name], 2e-4)
        # Never more memory than the plan of the same kernels without the pass.
        without_stage(patch, Stage.STEP)
        apart = bound(net, "compiled", patch, grad_req, seed=seed, **shapes)
        assert fast.memory_plan.peak_bytes <= apart.memory_plan.peak_bytes * 1.25 + 4096


# -- what is fused, and what is not


def test_chain_becomes_one_node():
    x = sym.Variable("x")
    assert fused(sym.exp(sym.tanh(x) * 2.0), x=SHAPE) == ["_fused_computation"]


def test_dag_becomes_one_node():
    i, f, o, g, c = (sym.Variable(n) for n in "ifogc")
    cell = sym.sigmoid(f) * c + sym.sigmoid(i) * sym.tanh(g)
    out = sym.Group([sym.sigmoid(o) * sym.tanh(cell), cell])
    assert fused(out, **dict.fromkeys("ifogc", SHAPE)) == ["_fused_computation"]


def test_a_chain_that_reads_no_array(monkeypatch):
    net = sym.exp(sym.ones_like(sym.Variable("x")) * 2.0)
    assert fused(net, x=SHAPE) == ["_fused_computation"]
    (out,) = bound(net, "compiled", monkeypatch, grad_req="null", x=SHAPE).forward()
    np.testing.assert_allclose(out.asnumpy(), np.full(SHAPE, np.exp(2.0)), rtol=1e-6)


def test_what_is_small_stays():
    assert fused(sym.exp(sym.tanh(sym.Variable("x"))), x=(4, 4)) == ["tanh", "exp"]


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_types_stay(dtype):
    x = sym.Variable("x")
    graph = forward_graph(sym.square(x) * 2.0, dict(x=dtype), x=SHAPE)
    assert chains(graph, graph.outputs, 2) is graph


def test_other_shapes_stay_apart():
    x, y = sym.Variable("x"), sym.Variable("y")
    net = sym.broadcast_mul(sym.exp(sym.tanh(x)), sym.exp(sym.tanh(y)))
    assert fused(net, x=(32, 128), y=(32, 1, 128)) == [
        "_fused_computation", "_fused_computation", "broadcast_mul"
    ]  # fmt: skip


def test_value_that_others_read_is_an_output():
    x = sym.Variable("x")
    h = sym.tanh(x)
    net = sym.Group([sym.exp(h) * 2.0, sym.sum(h)])
    graph = forward_graph(net, x=SHAPE)
    made = chains(graph, graph.outputs, 4)
    (node,) = (n for n in made.nodes if n.op is FusedComputation)
    assert node.num_outputs == 2


def test_reader_outside_ends_a_group():
    """exp may not wait for what the softmax of the same tanh makes."""
    x = sym.Variable("x")
    h = sym.tanh(x)
    net = sym.exp(h) + sym.softmax(h)
    names = fused(net, x=SHAPE)
    assert names in (
        ["_fused_computation", "softmax", "elemwise_add"],
        ["tanh", "softmax", "_fused_computation"],
    )


def test_forward_and_backward_stay_apart():
    x = sym.Variable("x")
    net = sym.exp(sym.tanh(sym.square(sym.sigmoid(x))))
    assert fused(net, num_forward=2, x=SHAPE) == ["_fused_computation", "_fused_computation_gradient"]


def test_different_annotations_stay_apart():
    with mx.AttrScope(__force_mirroring__="True"):
        h = sym.tanh(sym.sigmoid(sym.Variable("x")))
    assert fused(sym.exp(sym.square(h)), x=SHAPE) == ["_fused_computation", "_fused_computation"]


def test_without_a_compiler_nothing_happens(monkeypatch):
    graph = forward_graph(sym.exp(sym.tanh(sym.Variable("x"))), x=SHAPE)
    monkeypatch.setattr(native, "available", lambda: False)
    assert chains(graph, (), 2) is graph
    monkeypatch.undo()
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert chains(graph, (), 2) is graph


def test_what_changes_in_between_is_read_before():
    """A reader of a moving mean may not wait until the norm has changed it."""
    total, x = sym.Variable("total"), sym.Variable("x")
    net = sym.tanh(sym.exp(sym.tanh(total)) + sym.softmax(x))
    graph = forward_graph(net, total=SHAPE, x=SHAPE)
    *others, softmax, add, end = graph.nodes
    place = {n.name: n for n in graph.variables}
    change = Node(_accumulate, NoAttrs(), (Entry(place["total"]), Entry(place["x"])), "change")
    found = []
    for middle in ([], [change]):
        changed = replace(graph, effects=tuple(middle), order=(*others, *middle, softmax, add, end))
        made = chains(changed, graph.outputs, 6)
        found.append([n.op.op_name for n in made.nodes if n.op is not None])
    assert found[0] == ["softmax", "_fused_computation"]
    assert found[1] == ["_fused_computation", "_accumulate", "softmax", "_fused_computation"]


def test_what_would_have_to_live_longer_is_not_made_to_wait():
    """The sum of two products stays where it is: to wait would keep both instead of one."""
    x, w = sym.Variable("x"), sym.Variable("w")
    s = sym.dot(x, w) + sym.dot(sym.reverse(x, axis=0), w)
    other = sym.softmax(sym.dot(sym.reverse(x, axis=1), w))
    assert fused(s * other, x=SHAPE, w=(128, 128)).count("_fused_computation") == 0
    assert fused(sym.exp(s) * other, x=SHAPE, w=(128, 128)).count("_fused_computation") == 1


def test_random_numbers_stay_with_their_node(monkeypatch):
    x = sym.Variable("x")
    h = sym.Dropout(sym.tanh(x * 2.0), p=0.5, name="drop")
    net = sym.exp(sym.tanh(h))
    fast = bound(net, "compiled", monkeypatch, x=SHAPE)
    mx.random.seed(3)
    out, grads = step(fast)
    kept = out[0] != 1  # exp(tanh(0))
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_array_equal(grads["x"] != 0, kept)
    assert sum(t.op.endswith(Dropout.op_name) for t in tasks(fast)) == 2


def test_many_nodes_take_linear_time():
    def steps(count):
        """Calls of functions, Python's and C's, that the pass makes."""
        x = h = sym.Variable("x")
        for i in range(count):
            h = sym.tanh(h) if i % 3 else sym.softmax(h + x)
        graph = forward_graph(h, x=SHAPE)
        seen = Counter()
        sys.setprofile(lambda frame, event, argument: seen.update((event,)))
        try:
            made = chains(graph, graph.outputs, count)
        finally:
            sys.setprofile(None)
        assert len(made.nodes) < len(graph.nodes)
        return seen["call"] + seen["c_call"]

    steps(300)
    assert steps(4000) < 12 * steps(400)


# -- the fused operator itself


def attrs(shape=(40, 300), dtype="float32"):
    t = Computation()
    x, y, row = t.input("arg0", shape), t.input("arg1", shape), t.input("arg2", (1, shape[1]))
    nodes, numbers = pruned(t, [v.number for v in (t.tanh(x * y) + row * t.constant(0.5), x - y)])
    return ComputationAttrs(nodes, numbers, (shape,) * 2, (np.dtype(dtype),) * 2, (np.dtype("f"),) * 3)


def run(a, arrays, outs, kernel=None):
    dtypes = tuple(x.dtype for x in arrays)
    shapes = tuple(x.shape for x in arrays), a.shapes
    kernel = kernel or CPU.choose(FusedComputation, a, *shapes, dtypes[0], dtypes)
    work = CPU.empty(kernel.workspace)
    bind_call(kernel, np, FusedComputation, a, arrays, outs, work=work, shapes=shapes)()
    return kernel.name


def arrays_of(a, seed=0):
    rng = np.random.default_rng(seed)
    shape = a.shapes[0]
    return [rng.normal(size=s).astype(np.float32) for s in (shape, shape, shape[1:])]


def reference(a):
    return CPU.reference(FusedComputation, a, (*a.shapes, (1, a.shapes[0][1])), a.shapes, np.dtype("f"))


@pytest.mark.parametrize("shape", [(40, 300), (3, 20_000), (1, 1), (9000, 2)])
def test_generated_and_reference_kernel_agree(shape):
    a = attrs(shape)
    found, wanted = ([np.full(shape, 7, np.float32) for _ in range(2)] for _ in range(2))
    assert run(a, arrays_of(a), found).startswith("compiled")
    run(a, arrays_of(a), wanted, reference(a))
    for x, y in zip(found, wanted):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_reference_kernel_writes_over_its_inputs():
    """As the generated one may: everything of a block is read before any of it is written."""
    a = attrs((9000, 2))
    wanted, arrays = [np.empty(s, np.float32) for s in a.shapes], arrays_of(a)
    run(a, arrays, wanted, reference(a))
    run(a, arrays, [arrays[0], arrays[1]], reference(a))
    np.testing.assert_array_equal(arrays[0], wanted[0])
    np.testing.assert_array_equal(arrays[1], wanted[1])


def test_unwanted_output_of_a_fused_node_is_left_out():
    a = attrs()
    arrays = arrays_of(a)
    whole = [np.empty(s, np.float32) for s in a.shapes]
    run(a, arrays, whole)
    for i in range(2):
        some = [np.empty(a.shapes[k], np.float32) if i == k else None for k in range(2)]
        run(a, arrays, some)
        np.testing.assert_array_equal(some[i], whole[i])


def test_equal_values_are_stored_once():
    x = sym.Variable("x")
    h = sym.exp(x)
    same = sym.exp(x)
    net = sym.Group([sym.softmax(h), sym.softmax(same), sym.tanh(h) * same])
    graph = forward_graph(net, x=SHAPE)
    made = chains(graph, graph.outputs, 6)
    fused_nodes = [n for n in made.nodes if n.op is FusedComputation]
    assert all(n.num_outputs == 1 for n in fused_nodes)


def test_group_is_no_larger_than_it_may_be(monkeypatch):
    monkeypatch.setattr(fusing, "MOST_MEMBERS", 3)
    h = sym.Variable("x")
    for _ in range(7):
        h = sym.tanh(h)
    assert fused(h, x=SHAPE) == ["_fused_computation", "_fused_computation", "tanh"]
