"""Loops and branches: against unrolled networks, PyTorch and what MXNet 1.9.1 stored; plans, budgets, errors,
files."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mxlite as mx
from mxlite import ops
from mxlite.core.errors import (
    DTypeError,
    FormatError,
    MemoryBudgetError,
    OpAttributeError,
    ShapeError,
)
from mxlite.engine import use_engine
from mxlite.graph import Entry
from mxlite.memplan import check
from mxlite.ops.control.subgraph import Subgraph
from tests.networks import control_programs

GOLDEN = Path(__file__).parent.parent / "golden" / "mxnet"
S = mx.sym


def run(net, values, seed=3, train=True, grad_req="write", heads=None, engine="naive", **how):
    """Outputs, and gradients by name for fixed head gradients, in float64 unless the values say otherwise."""
    mx.random.seed(seed)
    rng = np.random.default_rng(5)
    with use_engine(engine):
        shapes = {n: np.shape(v) for n, v in values.items()}
        types = {n: np.asarray(v).dtype for n, v in values.items()}
        exe = net.simple_bind(mx.cpu(), grad_req=grad_req, type_dict=types, **how, **shapes)
        for n, v in values.items():
            exe.arg_dict[n][:] = v
        outs = exe.forward(is_train=train)
        result = [o.asnumpy().copy() for o in outs]
        assert exe.memory_plan.peak_bytes >= exe.measured_bytes
        grads = {}
        if train and grad_req != "null":
            heads = heads or [rng.standard_normal(o.shape) for o in outs]
            exe.backward([mx.nd.array(h, dtype=o.dtype) for h, o in zip(heads, outs)])
            assert exe.memory_plan.peak_bytes == exe.measured_bytes
            grads = {n: g.asnumpy().copy() for n, g in exe.grad_dict.items() if g is not None}
    return result, grads


def same(a, b, tolerance=0.0):
    """Two results of `run`, bit for bit unless a tolerance is given."""
    assert len(a[0]) == len(b[0]) and set(a[1]) == set(b[1])
    for x, y in [*zip(a[0], b[0]), *((a[1][n], b[1][n]) for n in a[1])]:
        assert x.shape == y.shape and x.dtype == y.dtype
        if tolerance:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(x, y)


def unrolled(body, data, states, count):
    """What foreach means, one copy of the body for each row. `data` and `states` are lists."""
    columns = []
    for t in range(count):
        rows = [S.Reshape(S.slice_axis(d, axis=0, begin=t, end=t + 1), shape=(-3, -2)) for d in data]
        outs, states = body(rows, states)
        columns.append([S.expand_dims(o, axis=0) for o in outs])
    stacked = [S.concat(*column, dim=0) for column in zip(*columns)]
    return stacked, states


def numbers(**shapes):
    rng = np.random.default_rng(11)
    return {n: rng.uniform(-1, 1, s) for n, s in shapes.items()}


W, V, D, Z = (S.var(n) for n in ("w", "v", "data", "s"))


def _outer_use(rows, states):
    return [rows[0] * W + OUTER], [S.tanh(states[0] * V + rows[0])]


OUTER = S.sin(W * 2)

BODIES = {
    "a running sum": lambda d, s: ([s[0]], [s[0] + d[0]]),
    "weights from outside": _outer_use,
    "the same symbol returned twice": lambda d, s: ([(h := d[0] * s[0]), h], [h]),
    "the state as it came": lambda d, s: ([d[0] + s[0]], [s[0]]),
    "the row as it came": lambda d, s: ([d[0], s[0] * W], [d[0]]),
    "no outputs": lambda d, s: ([], [s[0] * d[0] + W]),
    "a loss inside": lambda d, s: ([S.MakeLoss(d[0] * s[0] * W)], [s[0] * V]),
    "a product kept": lambda d, s: ([S.sin(d[0]) * S.cos(s[0])], [s[0] * S.sin(d[0] * W)]),
}


@pytest.mark.parametrize("name", BODIES)
def test_foreach_is_the_unrolled_loop(name):
    body, count = BODIES[name], 5
    data, state = S.var("data"), S.var("state")
    loop = S.contrib.foreach(lambda d, s: body([d], [s[0]]), data, [state])
    outs, states = loop
    flat, last = unrolled(body, [data], [state], count)
    values = numbers(data=(count, 3), state=(3,), w=(3,), v=(3,))
    nets = [S.Group([*outs, *states]), S.Group([*flat, *last])]
    values = {n: v for n, v in values.items() if n in nets[0].list_arguments()}
    assert sorted(nets[0].list_arguments()) == sorted(nets[1].list_arguments())
    same(run(nets[0], values), run(nets[1], values), 1e-14)


def test_states_that_trade_places_do_not_overwrite_each_other():
    data, a, b = S.var("data"), S.var("a"), S.var("b")

    def body(d, s):
        return [d[0] * s[0]], [s[2], s[0], s[1]]

    states = [a, b, S.var("c")]
    outs, last = S.contrib.foreach(lambda d, s: body([d], s), data, states)
    flat, ends = unrolled(body, [data], states, 4)
    values = numbers(data=(4, 2), a=(2,), b=(2,), c=(2,))
    same(run(S.Group([*outs, *last]), values), run(S.Group([*flat, *ends]), values))
    # The same without the copies that tracing puts in: a file may return states as they came.
    bare = Subgraph.from_text(
        '{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "s", "inputs": []},'
        '{"op": "null", "name": "t", "inputs": []},'
        '{"op": "elemwise_mul", "name": "m", "inputs": [[0,0],[1,0]]}],'
        '"heads": [[3, 0], [2, 0], [1, 0]]}'
    )
    attrs = ops._foreach.Attrs(bare, 4, 3, 1, (0,), (1, 2), ())
    node = mx.graph.Node(ops._foreach, attrs, (data.entries[0], a.entries[0], b.entries[0]), "loop")
    net = S.Symbol([Entry(node, i) for i in range(3)])
    flat, ends = unrolled(lambda d, s: ([d[0] * s[0]], [s[1], s[0]]), [data], [a, b], 4)
    del values["c"]
    same(run(net, values), run(S.Group([*flat, *ends]), values))


@st.composite
def bodies(draw):
    """A random body as a list of instructions over rows, states, weights and what was computed before."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8)
    )
    returned = draw(st.lists(st.integers(0, 20), min_size=2, max_size=5))
    return steps, returned, draw(st.integers(1, 2)), draw(st.integers(1, 4))


@settings(max_examples=20, deadline=None)
@given(bodies())
def test_random_bodies_are_their_unrolled_loops(drawn):
    steps, returned, num_states, count = drawn

    def body(rows, states):
        pool = [*rows, *states, W, V]
        for kind, i, j in steps:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            pool.append([a + b, a * b, S.sin(a), S.tanh(a - b), S.maximum(a, b)][kind])
        # Whatever is drawn, all rows and states are used.
        chosen = [pool[i % len(pool)] + rows[0] * 0 for i in returned]
        return chosen[num_states:], [c + s for c, s in zip(chosen, states)]

    data, states = S.var("data"), [S.var(f"s{k}") for k in range(num_states)]
    outs, last = S.contrib.foreach(lambda d, s: body([d], s), data, states)
    flat, ends = unrolled(body, [data], states, count)
    loop, plain = S.Group([*outs, *last]), S.Group([*flat, *ends])
    shapes = dict(data=(count, 2), w=(2,), v=(2,), s0=(2,), s1=(2,))
    values = numbers(**{n: shapes[n] for n in loop.list_arguments()})
    same(run(loop, values), run(plain, values), 1e-12)
    again = S.load_json(loop.tojson())
    same(run(again, values), run(loop, values))


@pytest.mark.torch
def test_a_recurrent_cell_is_pytorchs():
    torch = pytest.importorskip("torch")
    count, batch, inputs, hidden = 6, 3, 4, 5
    data, state = S.var("data"), S.var("state")

    def cell(x, h):
        total = S.FullyConnected(x, num_hidden=hidden, name="i2h") + S.FullyConnected(
            h, num_hidden=hidden, name="h2h"
        )
        h = S.tanh(total)
        return h, h

    out, last = S.contrib.foreach(cell, data, state)
    net = S.Group([out, last])
    shapes = dict(
        zip(net.list_arguments(), net.infer_shape(data=(count, batch, inputs), state=(batch, hidden))[0])
    )
    assert shapes["i2h_weight"] == (hidden, inputs) and shapes["h2h_weight"] == (hidden, hidden)
    values = numbers(**shapes)
    rng = np.random.default_rng(1)
    heads = [rng.standard_normal((count, batch, hidden)), rng.standard_normal((batch, hidden))]
    outs, grads = run(net, values, heads=heads)
    rnn = torch.nn.RNN(inputs, hidden).double()
    names = dict(
        weight_ih_l0="i2h_weight", bias_ih_l0="i2h_bias", weight_hh_l0="h2h_weight", bias_hh_l0="h2h_bias"
    )
    with torch.no_grad():
        for theirs, ours in names.items():
            getattr(rnn, theirs).copy_(torch.tensor(values[ours]))
    x = torch.tensor(values["data"], requires_grad=True)
    h = torch.tensor(values["state"][None], requires_grad=True)
    result, end = rnn(x, h)
    ((result * torch.tensor(heads[0])).sum() + (end[0] * torch.tensor(heads[1])).sum()).backward()
    want = {ours: getattr(rnn, theirs).grad for theirs, ours in names.items()}
    want |= {"data": x.grad, "state": h.grad[0]}
    np.testing.assert_allclose(outs[0], result.detach().numpy(), atol=1e-13)
    for name, grad in want.items():
        np.testing.assert_allclose(grads[name], grad.numpy(), atol=1e-12, err_msg=name)


@pytest.mark.parametrize("program", control_programs.PROGRAMS)
@pytest.mark.parametrize("source", ["composed", "loaded"])
def test_programs_give_what_mxnet_gave(program, source):
    make, shapes = control_programs.PROGRAMS[program]
    text = (GOLDEN / f"control-{program}.json").read_text()
    net = S.load_json(text) if source == "loaded" else make(mx)
    if source == "loaded":
        assert net.tojson() == text
    with np.load(GOLDEN / "control.npz") as stored:
        assert net.list_arguments() == list(stored[f"{program}|arguments"])
        kinds = [n.partition("_output")[2] for n in net.list_outputs()]
        assert kinds == [n.partition("_output")[2] for n in stored[f"{program}|outputs"]]
        got = control_programs.run(mx, net, control_programs.numbers(program, net.list_arguments(), shapes))
        for name, array in got.items():
            want = stored[f"{program}|{name}"]
            assert array.shape == want.shape
            np.testing.assert_allclose(array, want, rtol=2e-5, atol=2e-5 * np.abs(want).max(), err_msg=name)


# -- while_loop and cond ---------------------------------------------------------------------------------


def _doubling(most):
    i, x = S.var("i"), S.var("x")
    outs, states = S.contrib.while_loop(
        lambda i, x: i < 3, lambda i, x: ([x * W], [i + 1, x * x + W]), [i, x], max_iterations=most
    )
    return S.Group([*outs, *states])


@pytest.mark.parametrize("start, most", [(0, 5), (0, 2), (2, 4), (3, 4), (9, 1), (0, 0)])
def test_while_loop_stops_by_itself_or_at_max_iterations_and_pads_with_zeros(start, most):
    count = max(0, min(3 - start, most))
    values = {**numbers(x=(2,), w=(2,)), "i": np.array([float(start)])}
    got = run(_doubling(most), values, heads=(heads := [np.ones((most, 2)), np.zeros(1), np.full(2, 2.0)]))
    x, rows = S.var("x"), []
    for _ in range(count):
        rows.append(S.expand_dims(x * W, axis=0))
        x = x * x + W
    assert got[0][0].shape == (most, 2) and not got[0][0][count:].any()
    assert got[0][1] == [start + count]
    net = S.Group([S.concat(*rows, dim=0), x]) if rows else S.Group([x * 1])
    del values["i"]
    used = {n: v for n, v in values.items() if n in net.list_arguments()}
    want = run(net, used, heads=[heads[0][:count], heads[2]] if rows else [heads[2]])
    if rows:
        np.testing.assert_array_equal(got[0][0][:count], want[0][0])
    np.testing.assert_array_equal(got[0][2], want[0][-1])
    for name in ("x", "w"):
        np.testing.assert_allclose(got[1][name], want[1].get(name, np.zeros(2)), atol=1e-14)


def test_rows_of_an_earlier_longer_run_are_cleared():
    with use_engine("naive"):
        exe = _doubling(5).simple_bind(mx.cpu(), i=(1,), x=(2,), w=(2,))
        for n in ("x", "w"):
            exe.arg_dict[n][:] = 1
        for start, count in ((0, 3), (2, 1)):
            exe.arg_dict["i"][:] = start
            rows = exe.forward(is_train=True)[0].asnumpy()
            assert rows[:count].all() and not rows[count:].any()


def test_only_the_chosen_branch_is_computed_and_differentiated():
    x, w, v, p = (S.var(n) for n in "xwvp")
    net = S.contrib.cond(S.sum(p) > 1, lambda: [x * w, [S.sin(x)]], lambda: [x / v, [x * x]])
    assert isinstance(net[1], list)
    net = S.Group([net[0], net[1][0]])
    values = numbers(x=(3,), w=(3,), v=(3,), p=(2,))
    values["v"][1] = 0  # the other branch would divide by it
    for chosen in (True, False):
        values["p"] = np.full(2, 2.0 if chosen else 0.0)
        plain = S.Group([x * w, S.sin(x)]) if chosen else S.Group([x / v, x * x])
        got = run(net, values)
        want = run(plain, {n: a for n, a in values.items() if n in plain.list_arguments()})
        same((got[0], {n: got[1][n] for n in want[1]}), want)
        assert all(not got[1][n].any() for n in got[1] if n not in want[1])


def test_a_branch_in_a_while_loop_in_a_loop():
    """Collatz steps of each row, and a weight that only one branch uses."""
    data = S.var("data")

    def step(n, total):
        even = S.contrib.cond(n - 2 * S.floor(n * 0.5) < 0.5, lambda: n * 0.5, lambda: n * 3 + 1)
        return [], [even, total + S.log(n) * W]

    def row(x, s):
        _, (end, total) = S.contrib.while_loop(lambda n, t: n > 1, step, [x, s * 0], max_iterations=50)
        return [end, total], s + total

    (ends, totals), last = S.contrib.foreach(row, data, S.var("s"))
    net = S.Group([ends, totals, last])
    values = {"data": np.array([3.0, 6.0, 7.0, 1.0]), "s": np.zeros(1), "w": np.array([0.5])}
    outs, grads = run(net, values, heads=[np.zeros((4, 1)), np.zeros((4, 1)), np.ones(1)])
    want = []
    for n in values["data"]:
        logs = 0.0
        while n > 1:
            logs, n = logs + np.log(n), n / 2 if n % 2 == 0 else 3 * n + 1
        want.append(logs)
    assert (outs[0] == 1).all()
    np.testing.assert_allclose(outs[1][:, 0], np.array(want) * 0.5, rtol=1e-13)
    np.testing.assert_allclose(grads["w"], [sum(want)], rtol=1e-13)


# -- random numbers --------------------------------------------------------------------------------------


def _dropouts():
    data, state = S.var("data"), S.var("state")

    def inner(row, t):
        return S.Dropout(row, p=0.5), t + 0 * row

    def body(x, s):
        a, b = S.Dropout(x, p=0.5), S.Dropout(x, p=0.5)
        inside, _ = S.contrib.foreach(inner, S.concat(S.expand_dims(x, 0), S.expand_dims(x, 0), dim=0), s)
        return [a, b, inside], s + x * 0

    outs, last = S.contrib.foreach(body, data, state)
    return S.Group([*outs, last])


def test_random_numbers_differ_between_iterations_and_nodes_and_repeat_in_backward():
    net, values = _dropouts(), {"data": np.ones((70, 40)), "state": np.zeros(40)}
    heads = [np.ones((70, 40)), np.zeros((70, 40)), np.zeros((70, 2, 40)), np.zeros(40)]
    outs, grads = run(net, values, heads=heads)
    np.testing.assert_array_equal(grads["data"], outs[0])  # the mask itself
    masks = np.concatenate([outs[0], outs[1], outs[2][:, 0], outs[2][:, 1]])
    assert len({row.tobytes() for row in masks}) == len(masks)
    assert abs(masks.mean() - 1) < 0.05
    for engine in ("naive", "threaded"):
        same(run(net, values, heads=heads, engine=engine), (outs, grads))
    assert (run(net, values, heads=heads, seed=4)[0][0] != outs[0]).any()
    inside = [np.zeros((70, 40))] * 2 + [np.ones((70, 2, 40)), np.zeros(40)]
    np.testing.assert_array_equal(run(net, values, heads=inside)[1]["data"], outs[2].sum(axis=1))


def test_a_loop_that_draws_gives_the_same_when_it_is_run_again():
    data = S.var("data")
    first, _ = S.contrib.foreach(lambda x, s: (S.Dropout(x * W, p=0.3), s + x), data, S.var("s"))
    second, _ = S.contrib.foreach(lambda x, s: (S.sin(x) * s, s * 1), first, S.var("r"))
    values = numbers(data=(6, 50), w=(50,), s=(50,), r=(50,))
    want = run(second, values)
    marked = S.load_json(second.tojson())
    for node in marked.graph.nodes:
        if node.op is not None:
            node.annotations["__force_mirroring__"] = "True"
    same(run(marked, values), want)


# -- memory ----------------------------------------------------------------------------------------------


def _network():
    """Layers, a loop over time, layers."""
    x = S.var("data")  # (time, batch, features)
    for i in range(3):
        x = S.tanh(S.FullyConnected(x, num_hidden=16, flatten=False, no_bias=True, name=f"before{i}"))

    def cell(x, s):
        h = S.tanh(
            S.FullyConnected(x, num_hidden=16, name="i2h") + S.FullyConnected(s[0], num_hidden=16, name="h2h")
        )
        return h, [h]

    x, _ = S.contrib.foreach(cell, x, [S.var("state")])
    for i in range(3):
        x = S.tanh(S.FullyConnected(x, num_hidden=16, flatten=False, no_bias=True, name=f"after{i}"))
    return x


def test_a_budget_bounds_a_network_with_a_loop_and_changes_no_bit():
    net = _network()
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=(20, 4, 16), state=(4, 16))[0]))
    values = numbers(**shapes)
    keep = net.memory_plan(data=(20, 4, 16), state=(4, 16), type_dict=dict.fromkeys(shapes, "float64"))
    with pytest.raises(MemoryBudgetError) as error:
        run(net, values, memory_budget=1000)
    least = error.value.least_feasible_bytes
    assert least < keep.peak_bytes
    want = run(net, values)
    for budget in (keep.peak_bytes, (keep.peak_bytes + least) // 2, least):
        same(run(net, values, memory_budget=budget), want)
        same(run(net, values, memory_budget=budget, engine="threaded"), want)


def test_a_loop_keeps_its_states_and_nothing_else():
    count, width = 50, 64
    data, state = S.var("data"), S.var("state")

    def body(x, s):
        for _ in range(10):
            s = S.tanh(s * W + x)
        return [], s

    _, last = S.contrib.foreach(body, data, state)
    plan = last.memory_plan(data=(count, width), state=(width,), w=(width,))
    kept = [v for v in plan.problem.values if not v.fixed]
    assert [v.nbytes for v in kept] == [count * width * 4]
    _, flat = unrolled(lambda d, s: ([], [body(d[0], s[0])[1]]), [data], [state], count)
    plain = flat[0].memory_plan(data=(count, width), state=(width,), w=(width,))
    assert plan.breakdown["activations"] < plain.breakdown["activations"] / 8
    _, total = S.contrib.foreach(lambda x, s: ([], s + S.sin(x)), data, state)
    plan = total.memory_plan(data=(count, width), state=(width,))
    assert all(v.fixed for v in plan.problem.values)  # a sum's gradient reads no state


def test_a_state_that_is_an_output_is_not_kept_twice():
    def cell(x, s):
        h = S.tanh(x * W + s)
        return h, h

    out, last = S.contrib.foreach(cell, S.var("data"), S.var("s"))
    plan = S.Group([S.sin(out), last]).memory_plan(data=(50, 8), s=(8,), w=(8,))
    made = [v.name for v in plan.problem.values if v.name.startswith("_foreach") and not v.fixed]
    assert [name.split(".")[1] for name in made] == ["output0"]
    values = numbers(data=(5, 3), s=(3,), w=(3,))
    flat, ends = unrolled(lambda d, s: ([(h := cell(d[0], s[0])[0])], [h]), [S.var("data")], [S.var("s")], 5)
    for net, plain in ((S.Group([out, last]), S.Group([*flat, *ends])), (last, ends[0])):
        same(run(net, values), run(plain, values), 1e-14)


def test_the_scratch_of_a_loop_does_not_grow_with_its_length():
    out, last = S.contrib.foreach(lambda x, s: ([], S.tanh(s * x)), S.var("data"), S.var("s"))
    works, seconds = [], []
    for count in (10, 1000):
        plan = last.memory_plan(data=(count, 8), s=(8,))
        works.append([t.workspace for t in plan.problem.tasks])
        seconds.append([t.seconds for t in plan.problem.tasks])
        check(plan)
    assert works[0] == works[1] and out == []
    np.testing.assert_allclose(seconds[1], np.multiply(seconds[0], 100))  # the body's cost, times iterations


def test_what_nobody_reads_is_not_computed():
    data = S.var("data")
    (a, b), _ = S.contrib.foreach(lambda x, s: ([x * 2, S.exp(S.sin(x))], s + x), data, S.var("s"))
    both = S.Group([a, b]).memory_plan(data=(4, 8), s=(8,), grad_req="null").problem.tasks[0]
    one = a.memory_plan(data=(4, 8), s=(8,), grad_req="null").problem.tasks[0]
    assert one.seconds < both.seconds and one.workspace < both.workspace


def test_inference_runs_in_the_planned_arena():
    values = numbers(data=(7, 4), s=(4,), w=(4,))
    out, last = S.contrib.foreach(lambda x, s: (x * s, S.tanh(s * W)), S.var("data"), S.var("s"))
    net = S.Group([S.sin(out), last])
    assert all(np.array_equal(a, b) for a, b in zip(run(net, values)[0], run(net, values, train=False)[0]))
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(7, 4), s=(4,), w=(4,))
    exe.forward()[0].wait_to_read()
    assert exe.measured_bytes == exe.memory_plan.peak_bytes


def test_ten_thousand_iterations_allocate_nothing():
    out, last = S.contrib.foreach(lambda x, s: (x * s, s + x), S.var("data"), S.var("s"))
    with use_engine("naive"):
        exe = S.Group([out, last]).simple_bind(mx.cpu(), data=(10_000, 2), s=(2,))
        heads = [mx.nd.ones(o.shape) for o in exe.outputs]
        for measured in (False, True):
            if measured:
                tracemalloc.start()
            exe.forward(is_train=True)
            exe.backward(heads)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 50_000


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_gradients_of_weights_are_added_up_in_float32(kind):
    """5000 ones: in float16 a running sum would stay at 2048, in bfloat16 at 256."""
    dtype = mx.nd.ones((1,), dtype=kind).dtype
    _, last = S.contrib.foreach(lambda x, s: ([], s + x * W), S.var("data"), S.var("s"))
    values = {"data": np.ones((5000, 1)), "s": np.zeros(1), "w": np.ones(1)}
    _, grads = run(last, {n: v.astype(dtype) for n, v in values.items()}, heads=[np.ones(1)])
    np.testing.assert_allclose(grads["w"].astype(float), [5000], rtol=4e-3)


def test_gradients_can_be_added_to_and_left_out():
    out, last = S.contrib.foreach(lambda x, s: (x * s * W, s * V), S.var("data"), S.var("s"))
    net, values = S.Group([out, last]), numbers(data=(3, 2), s=(2,), w=(2,), v=(2,))
    want = run(net, values)[1]
    some = run(net, values, grad_req={"w": "write", "s": "write"})[1]
    np.testing.assert_array_equal(some["w"], want["w"])
    np.testing.assert_array_equal(some["s"], want["s"])
    added = run(net, values, grad_req="add")[1]
    for n in want:
        np.testing.assert_array_equal(added[n], want[n])
    plans = [
        net.memory_plan(data=(3, 2), s=(2,), w=(2,), v=(2,), grad_req=r) for r in ("write", {"w": "write"})
    ]
    assert plans[1].problem.tasks[-1].workspace < plans[0].problem.tasks[-1].workspace


# -- composition, shapes, files --------------------------------------------------------------------------


def test_forms_of_lists_come_back_as_the_body_gave_them():
    a, b = S.var("a"), S.var("b")
    outs, states = S.contrib.foreach(
        lambda d, s: ([d[0] * 1, [d[1][0] * 2, (d[1][0] + s[0][0],)]], [[s[0][0] + d[0]]]),
        [a, [b]],
        [[S.var("s")]],
    )
    assert isinstance(outs[0], S.Symbol) and len(outs[1]) == 2 and len(outs[1][1]) == 1
    assert isinstance(states[0], list)
    result = S.Group([outs[0], outs[1][0], outs[1][1][0], states[0][0]])
    assert result.list_outputs() == [f"{result.name}_output{i}" for i in range(4)]
    assert result.infer_shape(a=(3, 2), b=(3, 2))[0] == [(3, 2), (3, 2), (2,)]


def test_one_symbol_may_be_data_state_and_weight():
    x = S.var("x")
    out, last = S.contrib.foreach(
        lambda d, s: (d * s[0] + S.sum(x, axis=0), [s[0] + d, s[1] * 2 + d]), x, [x[0], x[0]]
    )
    assert out.list_arguments() == ["x"]
    values = {"x": np.array([[1.0], [2.0]])}
    with pytest.raises(ShapeError, match=r"state 0 .* is of shape \(2, 1\)|elemwise|must"):
        run(S.Group([out, *last]), values)
    row = S.Reshape(S.slice_axis(x, axis=0, begin=0, end=1), shape=(-3, -2))
    out, last = S.contrib.foreach(lambda d, s: (d * s[0], [s[0] + d, s[1] * 2 + d]), x, [row, row])
    outs, grads = run(S.Group([out, *last]), values, heads=[np.ones((2, 1)), np.zeros(1), np.zeros(1)])
    np.testing.assert_array_equal(outs[0], [[1.0], [4.0]])  # x0*x0, x1*(x0 + x0)
    np.testing.assert_array_equal(grads["x"], [[2 + 4.0], [2.0]])


def test_shapes_are_inferred_through_the_body_both_ways():
    out, last = S.contrib.foreach(
        lambda x, s: (S.FullyConnected(x + s, num_hidden=4, name="fc"), s * 1 + x), S.var("data"), S.var("s")
    )
    net = S.Group([out, last])
    assert net.list_arguments() == ["data", "s", "fc_weight", "fc_bias"]
    assert net.infer_shape(data=(5, 2, 3))[0] == [(5, 2, 3), (2, 3), (4, 3), (4,)]
    assert net.infer_shape(data=(5, 2, 3))[1] == [(5, 2, 4), (2, 3)]
    assert net.infer_shape(s=(2, 3)) == (None, None, None)
    assert net.infer_type(data="float64")[0] == [np.float64] * 4
    with mx.util.np_shape():
        total, _ = S.contrib.foreach(lambda x, s: (x + s, s + x), S.var("data"), S.var("s"))
        assert total.infer_shape(data=(5,))[:2] == ([(5,), ()], [(5,)])


def test_loops_of_no_rows_give_the_initial_states():
    out, last = S.contrib.foreach(lambda x, s: (x * s, s * W), S.var("data"), S.var("s"))
    net = S.Group([out, last])
    with mx.util.np_shape():
        values = {"data": np.zeros((0, 2)), "s": np.array([1.0, 2.0]), "w": np.ones(2)}
        outs, grads = run(net, values, heads=[np.zeros((0, 2)), np.array([3.0, 4.0])])
    assert outs[0].shape == (0, 2) and (outs[1] == [1, 2]).all()
    assert (grads["s"] == [3, 4]).all() and not grads["w"].any()


def test_operators_of_a_body_are_marked_and_nested_bodies_by_path():
    seen = []

    def inner(x, s):
        seen.append((x + s).attr("__subgraph_name__"))
        return x + s, s * x

    def outer(x, s):
        seen.append((x * s).attr("__subgraph_name__"))
        return S.contrib.foreach(inner, x, s, name="inside")

    S.contrib.foreach(outer, S.var("data"), S.var("s"), name="around")
    assert seen[0].startswith("around") and seen[1].startswith(f"{seen[0]}$inside")


def test_files_with_broken_subgraphs_are_refused():
    out, _ = S.contrib.foreach(lambda x, s: (x * s, s + x), S.var("data"), S.var("s"))
    good = json.loads(out.tojson())
    loop = next(n for n in good["nodes"] if n["op"] == "_foreach")

    def refused(match, change):
        data = json.loads(json.dumps(good))
        change(next(n for n in data["nodes"] if n["op"] == "_foreach"))
        with pytest.raises(FormatError, match=match):
            S.load_json(json.dumps(data))

    assert loop["attrs"]["in_data_locs"] == "[0]"
    refused("must have 1 subgraphs; it has 0", lambda n: n.pop("subgraphs"))
    refused("must have 1 subgraphs; it has 2", lambda n: n["subgraphs"].append(n["subgraphs"][0]))
    refused("a list 'nodes'", lambda n: n.update(subgraphs=[3]))
    refused("output 7 of node 0", lambda n: n["subgraphs"][0]["heads"].__setitem__(0, [0, 7, 0]))
    refused("must share out 2 inputs", lambda n: n["attrs"].update(in_data_locs="[1]"))
    refused("num_outputs is 9", lambda n: n["attrs"].update(num_outputs="9"))
    refused("num_args is 9", lambda n: n["attrs"].update(num_args="9"))
    refused("no operator 'nothing'", lambda n: n["subgraphs"][0]["nodes"][2].update(op="nothing"))
    refused("takes 2 inputs", lambda n: n["subgraphs"][0]["nodes"][2].update(inputs=[[0, 0, 0]]))
    refused("2 inputs named", lambda n: [m.update(name="x") for m in n["subgraphs"][0]["nodes"][:2]])
    deep = loop
    for _ in range(40):
        deep = {
            **json.loads(json.dumps(loop)),
            "inputs": [],
            "subgraphs": [{"nodes": [deep], "heads": [[0, 0, 0]]}],
        }
    refused("deep", lambda n: n.update(deep))


def test_outputs_of_a_subgraph_are_made_inside_and_each_once():
    """MXNet reads no file in which a subgraph's output is its input, or another output."""
    outs, states = S.contrib.foreach(lambda x, s: ([x, x, (h := x + s[0]), h], [h, s[1]]), D, [Z, W])
    body = outs[0].entries[0].node.attrs.body.graph
    assert len(set(body.outputs)) == 6 and all(e.node.op is not None for e in body.outputs)
    assert len(states) == 2


def test_what_comes_from_outside_is_not_computed_again_inside():
    """A body within a body takes the outer one's values as they are: a dropout is drawn once for all rows."""

    def outer(matrix, s):
        dropped = S.Dropout(s, p=0.5)
        rows, _ = S.contrib.foreach(lambda row, t: (row * dropped, t + row), matrix, s)
        inner = rows.entries[0].node.attrs.body.graph
        assert [n.op.op_name for n in inner.nodes if n.op is not None] == ["elemwise_mul", "elemwise_add"]
        return rows, s + dropped * 0

    out, _ = S.contrib.foreach(outer, D, Z)
    rows = run(out, {"data": np.ones((3, 4, 20)), "s": np.ones(20)})[0][0]
    assert (rows == rows[:, :1]).all() and len({r.tobytes() for r in rows[:, 0]}) == 3


def test_every_argument_of_a_file_is_used():
    data = json.loads(_doubling(3).tojson())
    node = next(n for n in data["nodes"] if n["op"] == "_while_loop")
    node["inputs"].append(node["inputs"][0])
    node["attrs"]["num_args"] = str(int(node["attrs"]["num_args"]) + 1)
    with pytest.raises(FormatError, match="of 4 arguments 3 are used"):
        S.load_json(json.dumps(data))


def test_a_subgraph_is_compared_by_its_text():
    def make():
        return (
            S.contrib.foreach(lambda x, s: (x * s, s + x), S.var("data"), S.var("s"))[0].entries[0].node.attrs
        )

    one, other = make(), make()
    assert Subgraph.from_text(str(one.body)) == one.body and hash(one.body) == hash(
        Subgraph.from_text(one.body.text)
    )
    assert one.body != other.body  # the traces have names of their own
    with pytest.raises(OpAttributeError, match=r"body.* must be the JSON of a subgraph"):
        mx.graph.parse_attrs(ops._foreach, {"body": "{", "num_args": 2, "num_outputs": 1})


def test_a_lone_state_of_a_loop_may_come_back_without_its_list():
    for back in (lambda s: s, lambda s: [s]):
        for first in (Z, [Z]):
            _, last = S.contrib.while_loop(lambda s: S.sum(s) < 5, lambda s: ([], back(s + 1)), first, 9)  # noqa: B023
            (state,) = last if isinstance(last, list) else [last]
            assert isinstance(last, list) == isinstance(first, list)
            assert state.bind(mx.cpu(), {"s": mx.nd.ones((2,))}).forward()[0].asnumpy().tolist() == [3, 3]


# -- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, match",
    [
        (
            lambda: S.contrib.foreach(lambda x, s: x + s, D, Z),
            r"body must return a pair \(outputs, states\), got Symbol",
        ),
        (
            lambda: S.contrib.foreach(lambda x, s: (x, [s]), D, Z),
            "states in the form they came in: 1 in no list, got 1",
        ),
        (
            lambda: S.contrib.foreach(lambda x, s: (x, s[:1]), D, [Z, W]),
            "2 in a list of 2, got 1 in a list of 1",
        ),
        (lambda: S.contrib.foreach(lambda x, s: (3, x + s), D, Z), "an output of body must be .* got int"),
        (lambda: S.contrib.foreach(lambda x, s: (s, s), D, Z), r"body does not use data 0 \('data'\)"),
        (lambda: S.contrib.foreach(lambda x, s: (x, x), D, Z), r"body does not use init_states 0 \('s'\)"),
        (lambda: S.contrib.foreach(lambda x, s: (x, s), [], Z), "data must be one symbol or more"),
        (lambda: S.contrib.foreach(lambda x, s: (x, s), 3, Z), "data must be .* got int"),
        (
            lambda: S.contrib.foreach(lambda x, s: (S.BatchNorm(x), s), D, Z),
            "keeps auxiliary states.*LayerNorm",
        ),
        (lambda: S.contrib.while_loop(lambda s: s, lambda s: ([], s), Z), "needs max_iterations"),
        (lambda: S.contrib.while_loop(lambda s: 1, lambda s: ([], s), Z, 3), "cond must return a symbol"),
        (
            lambda: S.contrib.while_loop(lambda s: s, lambda s: ([], []), Z, 3),
            "loop_vars in|states in the form",
        ),
        (lambda: S.contrib.while_loop(lambda s: s, lambda s: ([], s), [], 3), "loop_vars must be one symbol"),
        (
            lambda: S.contrib.while_loop(lambda s: s, lambda s: ([], W), Z, 3),
            r"func does not use loop_var 0 \('s'\)",
        ),
        (lambda: S.contrib.while_loop(lambda s: s, lambda s: ([], s), Z, "many"), "must be a whole number"),
        (lambda: S.contrib.cond(1, lambda: D, lambda: D), "pred must be a symbol"),
        (lambda: S.contrib.cond(Z, lambda: [D], lambda: [D, D]), "then gives 1 symbols, else 2"),
        (lambda: S.contrib.cond(Z, lambda: 3, lambda: D), "the then branch must be .* got int"),
    ],
)
def test_what_cannot_be_composed_is_named(make, match):
    with pytest.raises(OpAttributeError, match=match):
        make()


def test_shapes_and_types_that_cannot_be_are_named():
    _, last = S.contrib.foreach(lambda x, s: (x, S.concat(s, x, dim=0)), D, Z)
    with pytest.raises(
        ShapeError, match=r"state 0 \('s-0'\) is of shape \(2,\) before an iteration and \(4,\) after it"
    ):
        last.infer_shape(data=(3, 2), s=(2,))
    _, last = S.contrib.foreach(lambda x, s: ([], S.Cast(s + x, dtype="float16")), D, Z)
    with pytest.raises(DTypeError, match=r"state 0 .* is float32 before an iteration and float16 after"):
        last.infer_type(data="float32")
    (a, _), _ = S.contrib.foreach(lambda x, s: ([x[0] + s, x[1] * 1], s + x[0]), [D, S.var("e")], Z)
    with pytest.raises(ShapeError, match="arrays of 3 rows, but argument 1 has 4"):
        a.infer_shape(data=(3, 2), e=(4, 2))
    _, last = S.contrib.while_loop(lambda s: s, lambda s: ([], s + 1), Z, 3)
    with pytest.raises(ShapeError, match=r"needs 'cond' to be one number, but it is of shape \(2,\)"):
        last.infer_shape(s=(2,))
    net = S.contrib.cond(Z, lambda: D, lambda: S.concat(D, D, dim=0))
    with pytest.raises(
        ShapeError, match=r"output 0 of shape \(2,\) from 'then_branch', but \(4,\) from 'else_branch'"
    ):
        net.infer_shape(data=(2,), s=(1,))


# -- arrays ----------------------------------------------------------------------------------------------


def test_loops_over_arrays_give_what_symbols_give():
    values = numbers(data=(4, 3), s=(3,), w=(3,))

    def body(x, s, w):
        return [x * w, [s + x]], s * w

    outs, last = S.contrib.foreach(lambda x, s: body(x, s, W), S.var("data"), S.var("s"))
    want = run(S.Group([outs[0], outs[1][0], last]), values)[0]
    data, s, w = (mx.nd.array(values[n], dtype="float64") for n in ("data", "s", "w"))
    outs, last = mx.nd.contrib.foreach(lambda x, s: body(x, s, w), data, s)
    got = [outs[0], outs[1][0], last]
    assert all(np.array_equal(a.asnumpy(), b) for a, b in zip(got, want))
    assert mx.nd.contrib.foreach(lambda x, s: ([], s + x), data, s)[0] == []


def test_loops_over_arrays_stop_pad_and_choose():
    i, x = mx.nd.array([0.0]), mx.nd.array([2.0, 3.0])
    outs, states = mx.nd.contrib.while_loop(
        lambda i, x: i < 2, lambda i, x: (x, (i + 1, x * x)), [i, x], max_iterations=4
    )
    assert outs.asnumpy().tolist() == [[2, 3], [4, 9], [0, 0], [0, 0]]
    assert [s.asnumpy().tolist() for s in states] == [[2], [16, 81]]
    outs, last = mx.nd.contrib.while_loop(lambda i: i < 0, lambda i: (i, i + 1), i, max_iterations=4)
    assert outs == [] and last is i
    chosen = [mx.nd.contrib.cond(mx.nd.array([v]), lambda: "then", lambda: "else") for v in (2, 0)]
    assert chosen == ["then", "else"]


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda a: mx.nd.contrib.foreach(lambda x, s: x, a, a), "must return a pair"),
        (lambda a: mx.nd.contrib.foreach(lambda x, s: (x, []), a, a), "states in the form they came in"),
        (lambda a: mx.nd.contrib.while_loop(lambda x: 1, lambda x: (x, x), a), "needs max_iterations"),
        (lambda a: mx.nd.contrib.while_loop(lambda x: 1, lambda x: (x, [x, x]), a, 3), "1 of them; got 2"),
        (lambda a: mx.nd.contrib.cond(a, lambda: 1, lambda: 2), "pred must be one number"),
        (
            lambda a: mx.nd.contrib.foreach(lambda x, s: (x, s), [a, mx.nd.ones((5,))], a),
            "arrays of one length",
        ),
    ],
)
def test_what_loops_over_arrays_refuse_is_named(make, match):
    with pytest.raises((OpAttributeError, ShapeError), match=match):
        make(mx.nd.ones((2,)))


def test_open_axes_of_data_go_through_a_loop():
    def step(data, states):
        return data + states[0], [states[0] * 2]

    def shapes(data_shape, other=None):
        data = mx.sym.var("data", shape=data_shape)
        fed = data if other is None else [data, mx.sym.var("other", shape=other)]
        body = step if other is None else lambda d, s: (d[0] * d[1] + s[0], [s[0] * 2])
        outs, states = mx.sym.contrib.foreach(body, fed, [mx.sym.var("state")])
        args, found, _ = mx.sym.Group([outs, *states]).infer_shape_partial()
        return found, args[-1]

    assert shapes((0, 3, 32)) == ([(0, 3, 32), (3, 32)], (3, 32))  # how many rows is open
    assert shapes((4, 0, 32)) == ([(4, 0, 32), (0, 32)], (0, 32))  # how large a row is
    assert shapes((0, 3), other=(5, 3)) == ([(5, 3), (3,)], (3,))  # the other tells
    with pytest.raises(mx.ShapeError, match="4 rows, but argument 1 has 5"):
        shapes((4, 0), other=(5, 3))
