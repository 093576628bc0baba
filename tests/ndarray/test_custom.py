"""Operators in Python, CustomOp and the older NumpyOp: imperative, bound and planned, on both engines."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, nd
from mxlite.core import (
    DefinitionError,
    MXLiteError,
    OpAttributeError,
    OperatorError,
    ShapeError,
    UnknownNameError,
)
from mxlite.engine import ThreadedEngine, use_engine
from mxlite.executor.plan.step import input_names
from tests.engine.watchdog import in_time


@pytest.fixture(autouse=True, params=["naive", "threaded", "one worker"])
def engine(request):
    with use_engine(ThreadedEngine(workers=1) if request.param == "one worker" else request.param) as engine:
        yield engine
    if request.param == "one worker":
        engine.stop()


class Softmax(mx.operator.CustomOp):
    """The classic: softmax with its loss."""

    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        y = np.exp(x - x.max(axis=1).reshape((x.shape[0], 1)))
        y /= y.sum(axis=1).reshape((x.shape[0], 1))
        self.assign(out_data[0], req[0], mx.nd.array(y))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        label = in_data[1].asnumpy().ravel().astype(int)
        y = out_data[0].asnumpy()
        y[np.arange(label.shape[0]), label] -= 1.0
        self.assign(in_grad[0], req[0], mx.nd.array(y))


@mx.operator.register("test_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], (in_shape[0][0],)], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        assert ctx == mx.cpu() and len(shapes) == len(dtypes) == 2
        return Softmax()


class Scale(mx.operator.CustomOp):
    """product = data * weight * k and total = data + weight, with nd functions; counts calls in `seen`."""

    def __init__(self, k):
        self.k = k

    def forward(self, is_train, req, in_data, out_data, aux):
        assert not autograd.is_recording() and autograd.is_training() == is_train
        data, weight = in_data
        self.assign(out_data[0], req[0], data * weight * self.k)
        self.assign(out_data[1], req[1], data + weight)
        if is_train:
            aux[0][:] += 1
            self.twice = (data * 2).asnumpy()  # what forward leaves, backward finds

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        data, weight = in_data
        assert out_data == [None, None]  # not declared
        np.testing.assert_array_equal(self.twice, (data * 2).asnumpy())
        self.assign(in_grad[0], req[0], out_grad[0] * weight * self.k + out_grad[1])
        self.assign(in_grad[1], req[1], out_grad[0] * data * self.k + out_grad[1])


@mx.operator.register("test_scale")
class ScaleProp(mx.operator.CustomOpProp):
    def __init__(self, k, plus="0"):
        super().__init__()
        assert isinstance(k, str) and isinstance(plus, str)
        self.k = float(k) + float(plus)

    def list_arguments(self):
        return ["data", "weight"]

    def list_outputs(self):
        return ["product", "total"]

    def list_auxiliary_states(self):
        return ["seen"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0], in_shape[0]], [[1]]

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [*out_grad, *in_data]

    def create_operator(self, ctx, shapes, dtypes):
        return Scale(self.k)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def same(a, b):
    np.testing.assert_array_equal(a.asnumpy(), b)


def test_imperative_call_and_its_gradient():
    x, w, seen = nd.array([[1, 2]]), nd.array([[3, 4]]), nd.zeros(1)
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        product, total = nd.Custom(x, w, seen, op_type="test_scale", k=10)
        head = product * 2 + total
    head.backward()
    same(product, [[30, 80]])
    same(x.grad, [[61, 81]])
    same(w.grad, [[21, 41]])
    same(seen, [1])
    with autograd.record():
        _, total = nd.Custom(data=x, weight=w, seen=seen, op_type="test_scale", k=10, plus=5)
    total.backward()  # no gradient arrives at the first output
    same(x.grad, [[1, 1]])
    product, _ = nd.Custom(x, w, seen, op_type="test_scale", k="10", plus=5)
    same(product, [[45, 120]])
    same(seen, [2])


def test_loss_needs_no_head_gradient():
    x, label = nd.array(normal(4, 3)), nd.array([0, 2, 1, 1])
    x.attach_grad()
    with autograd.record():
        ours = nd.Custom(x, label, op_type="test_softmax")
    ours.backward()
    mine = x.grad.asnumpy()
    with autograd.record():
        theirs = nd.SoftmaxOutput(x, label)
    theirs.backward()
    np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(mine, x.grad.asnumpy(), rtol=1e-5, atol=1e-7)


def network():
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("w")
    x = mx.sym.FullyConnected(data, num_hidden=8, name="fc")
    x = mx.sym.Custom(mx.sym.Activation(x, act_type="relu"), weight, op_type="test_scale", k=2, name="scale")
    x = mx.sym.FullyConnected(x[0] + x[1], num_hidden=3, name="fc2")
    return mx.sym.Custom(data=x, op_type="test_softmax", name="softmax")


def test_symbol_lists_and_infers_what_the_property_says():
    net = network()
    assert net.list_arguments() == [
        "data",
        "fc_weight",
        "fc_bias",
        "w",
        "fc2_weight",
        "fc2_bias",
        "softmax_label",
    ]
    assert net.list_auxiliary_states() == ["scale_seen"]
    assert net.list_outputs() == ["softmax_output"]
    assert net.get_internals()["scale_total"].list_outputs() == ["scale_total"]
    arguments, outputs, states = net.infer_shape(data=(4, 5))
    assert dict(zip(net.list_arguments(), arguments))["softmax_label"] == (4,)
    assert outputs == [(4, 3)] and states == [(1,)]
    assert input_names(net.graph, ["data"]) == {"data", "softmax_label"}  # a loss's label is data, w is not


def bound(net, budget=None):
    exe = net.simple_bind(mx.cpu(), data=(4, 5), softmax_label=(4,), memory_budget=budget)
    for i, a in enumerate(exe.arg_arrays):
        a[:] = normal(*a.shape, seed=i)
    exe.arg_dict["softmax_label"][:] = [0, 1, 2, 1]
    return exe


def train(exe):
    exe.forward(is_train=True)
    exe.backward()
    return {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None and n != "softmax_label"}


def test_bound_planned_and_recorded_agree():
    net = network()
    exe = bound(net)
    want = train(exe)
    same(exe.aux_dict["scale_seen"], [1])
    p = {n: a.copy() for n, a in exe.arg_dict.items()}
    for a in p.values():
        a.attach_grad()
    with autograd.record():
        x = nd.relu(nd.FullyConnected(p["data"], p["fc_weight"], p["fc_bias"], num_hidden=8))
        a, b = nd.Custom(x, p["w"], nd.zeros(1), op_type="test_scale", k=2)
        x = nd.FullyConnected(a + b, p["fc2_weight"], p["fc2_bias"], num_hidden=3)
        y = nd.Custom(x, p["softmax_label"], op_type="test_softmax")
    y.backward()
    for name, grad in want.items():
        same(p[name].grad, grad)
    budget = exe.memory_plan.peak_bytes
    tight = bound(net, budget)
    for name, grad in train(tight).items():
        np.testing.assert_array_equal(grad, want[name])
    exe.forward(is_train=False)
    same(exe.aux_dict["scale_seen"], [1])


def test_backward_keeps_what_is_declared():
    plan = network().memory_plan(mx.cpu(), data=(4, 5), softmax_label=(4,))
    (task,) = (t for t in plan.problem.tasks if t.op == "_backward_Custom" and t.name.startswith("scale"))
    read = {plan.problem.values[v].name for v in task.inputs}
    assert not any("product" in n or "total" in n for n in read if "backward" not in n)
    assert not any(t.recomputable for t in plan.problem.tasks if t.op == "Custom")


def test_json_round_trip():
    net = network()
    again = mx.sym.load_json(net.tojson())
    assert again.tojson() == net.tojson()
    with mx.AttrScope(force_mirroring="True", lr_mult="2"):  # which is said about a node, not to its operator
        about = mx.sym.Custom(mx.sym.var("x"), mx.sym.var("w"), op_type="test_scale", k=1, name="about")
    assert mx.sym.load_json(about.tojson()).tojson() == about.tojson()
    assert '"op": "Custom"' in net.tojson() and '"op_type": "test_scale"' in net.tojson()
    a, b = train(bound(net)), train(bound(again))
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_module_trains_with_a_loss_in_python():
    data, label = normal(120, 6), (np.arange(120) % 3).astype("float32")
    data[np.arange(120), label.astype(int)] += 3
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    net = mx.sym.Custom(net, op_type="test_softmax", name="softmax")
    batches = mx.io.NDArrayIter(data, label, 20, label_name="softmax_label")
    module = mx.mod.Module(net, memory_budget="4MiB")
    module.fit(
        batches, num_epoch=4, optimizer_params={"learning_rate": 0.3}, initializer=mx.init.Uniform(0.1)
    )
    assert dict(module.score(batches, "acc"))["accuracy"] > 0.9


class OldSoftmax(mx.operator.NumpyOp):
    def __init__(self):
        super().__init__(False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], [in_shape[0][0]]], [in_shape[0]]

    def forward(self, in_data, out_data):
        x, y = in_data[0], out_data[0]
        assert isinstance(x, np.ndarray)
        y[:] = np.exp(x - x.max(axis=1).reshape((x.shape[0], 1)))
        y /= y.sum(axis=1).reshape((x.shape[0], 1))

    def backward(self, out_grad, in_data, out_data, in_grad):
        label, y, dx = in_data[1].astype(int), out_data[0], in_grad[0]
        dx[:] = y
        dx[np.arange(label.shape[0]), label] -= 1.0


def test_numpy_op():
    net = OldSoftmax()(
        data=mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax"
    )
    assert net.list_arguments()[-1] == "softmax_label"
    other = mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc"), name="softmax"
    )
    a, b = train(bound(net)), train(bound(other))
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6)


class double(mx.operator.NDArrayOp):
    def forward(self, in_data, out_data):
        out_data[0][:] = in_data[0] * 2

    def backward(self, out_grad, in_data, out_data, in_grad):
        in_grad[0][:] = out_grad[0] * 2


def test_ndarray_op():
    exe = double()(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(3,))
    exe.arg_dict["x"][:] = [1, 2, 3]
    same(exe.forward(is_train=True)[0], [2, 4, 6])
    exe.backward([nd.ones(3)])
    same(exe.grad_dict["x"], [2, 2, 2])


# -- user code inside the engine ---------------------------------------------------------------------


def registered(name, forward, backward=None, **lists):
    """Register an operator from functions of (self, in_data, out_data)."""

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            forward(self, in_data, out_data)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            backward(self, out_grad, in_grad)

    @mx.operator.register(name)
    class Prop(mx.operator.CustomOpProp):
        def list_arguments(self):
            return lists.get("arguments", ["data"])

        def list_outputs(self):
            return lists.get("outputs", ["output"])

        def create_operator(self, ctx, shapes, dtypes):
            return Op()


def test_user_code_may_wait_and_call_other_custom_operators():
    def inner(op, in_data, out_data):
        out_data[0][:] = nd.exp(in_data[0]).asnumpy()

    def outer(op, in_data, out_data):
        y = nd.Custom(in_data[0] * 2, op_type="test_inner")
        y.wait_to_read()
        nd.waitall()
        out_data[0][:] = y + 1

    registered("test_inner", inner)
    registered("test_outer", outer)

    @in_time(20)
    def run():
        x = nd.array([0, 1])
        ys = [nd.Custom(x, op_type="test_outer") for _ in range(20)]
        for y in ys:
            np.testing.assert_allclose(y.asnumpy(), np.exp([0, 2]) + 1, rtol=1e-6)

    run()


def test_failure_names_operator_and_line_of_the_users_code():
    def forward(op, in_data, out_data):
        raise KeyError("lost")

    registered("test_fails", forward)
    y = nd.Custom(nd.ones(2), op_type="test_fails")
    with pytest.raises(
        OperatorError, match=r"test_fails\.forward failed at .*test_custom\.py:\d+ with KeyError.*lost"
    ):
        y.asnumpy()
    exe = mx.sym.Custom(mx.sym.Variable("x"), op_type="test_fails", name="bad").simple_bind(mx.cpu(), x=(2,))
    exe.forward()
    with pytest.raises(OperatorError, match=r"'bad'.*test_custom\.py:\d+"):
        exe.outputs[0].asnumpy()


def test_failure_of_a_call_inside_surfaces_even_if_nobody_looks():
    def forward(op, in_data, out_data):
        out_data[0][:] = 1
        mx.engine.get_engine().push(lambda: 1 / 0, name="hidden trouble")

    registered("test_hidden", forward)
    with pytest.raises(OperatorError, match="hidden trouble"):
        nd.Custom(nd.ones(2), op_type="test_hidden").asnumpy()


def test_array_that_is_still_being_computed_outside_is_refused(engine):
    if not isinstance(engine, ThreadedEngine) or engine._workers == 1:
        pytest.skip("needs a second worker to be pending on")
    gate, seen = threading.Event(), []
    slow = nd.zeros(2)
    engine.push(gate.wait, (), (slow.var,), name="slow")

    def forward(op, in_data, out_data):
        try:
            out_data[0][:] = slow + 1
        finally:
            gate.set()

    registered("test_outside", forward)
    y = nd.Custom(nd.ones(2), op_type="test_outside")
    with pytest.raises(OperatorError, match="still being computed outside"):
        y.asnumpy()
    assert not seen
    nd.waitall()


def test_calls_inside_are_not_recorded():
    def forward(op, in_data, out_data):
        a = in_data[0] * 3
        assert a.origin is None
        out_data[0][:] = a

    registered(
        "test_quiet",
        forward,
        lambda op, out_grad, in_grad: in_grad[0].__setitem__(slice(None), out_grad[0] * 3),
    )
    x = nd.ones(2)
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type="test_quiet") * x
    y.backward()
    same(x.grad, [6, 6])


def test_calls_inside_are_no_part_of_a_checkpoint():
    w = nd.ones(2)
    w.attach_grad()
    w.grad[:] = 7
    w.wait_to_read()

    def forward(op, in_data, out_data):
        out_data[0][:] = in_data[0] + w * 0

    registered("test_reads", forward, lambda op, out_grad, in_grad: in_grad[0].__setitem__(slice(None), 1))
    x = nd.ones(2)
    x.attach_grad()
    with autograd.record():
        y = autograd.checkpoint(lambda x: nd.Custom(x, op_type="test_reads"), x)
    y.backward()
    same(x.grad, [1, 1])
    same(w.grad, [7, 7])


def test_custom_operator_in_the_body_of_a_loop():
    registered(
        "test_body",
        lambda op, in_data, out_data: out_data[0].__setitem__(slice(None), in_data[0] * 3),
        lambda op, out_grad, in_grad: in_grad[0].__setitem__(slice(None), out_grad[0] * 3),
    )

    def body(x, states):
        y = mx.sym.Custom(x + states[0], op_type="test_body")
        return y, [y * 2]

    outs, _ = mx.sym.contrib.foreach(body, mx.sym.Variable("x"), [mx.sym.Variable("s")])
    exe = outs.simple_bind(mx.cpu(), x=(3, 2), s=(2,))
    exe.arg_dict["x"][:] = 1
    exe.arg_dict["s"][:] = 0
    same(exe.forward(is_train=True)[0], [[3, 3], [21, 21], [129, 129]])
    exe.backward([nd.ones((3, 2))])
    same(exe.grad_dict["x"], [[129, 129], [21, 21], [3, 3]])


# -- what is refused ---------------------------------------------------------------------------------


def test_wrong_calls_and_declarations():
    x = nd.ones((2, 2))
    with pytest.raises(UnknownNameError, match="test_softmax"):
        nd.Custom(x, op_type="test_softmx")
    with pytest.raises(TypeError):
        nd.Custom(x)
    with pytest.raises(DefinitionError, match="does not take"):
        nd.Custom(x, x, op_type="test_softmax", colour=3)
    with pytest.raises((OpAttributeError, MXLiteError), match="label"):
        nd.Custom(x, op_type="test_softmax")
    with pytest.raises(ShapeError, match="label"):
        nd.Custom(x, nd.ones(7), op_type="test_softmax")
    with pytest.raises(DefinitionError, match="CustomOpProp"):
        mx.operator.register("test_wrong")(int)
    for arguments, outputs in (
        (["data", "data"], ["o"]),
        (["a b"], ["o"]),
        (["x"], ["x"]),
        (["work"], ["o"]),
    ):
        registered("test_names", None, arguments=arguments, outputs=outputs)
        with pytest.raises(DefinitionError, match="test_names"):
            mx.sym.Custom(op_type="test_names")
    with pytest.raises(mx.FormatError, match="nothing is registered"):
        mx.sym.load_json(network().tojson().replace("test_scale", "test_unknown"))


def test_registering_again_replaces():
    registered("test_again", lambda op, i, o: o[0].__setitem__(slice(None), 1))
    same(nd.Custom(nd.zeros(2), op_type="test_again"), [1, 1])
    registered("test_again", lambda op, i, o: o[0].__setitem__(slice(None), 2))
    same(nd.Custom(nd.zeros(2), op_type="test_again"), [2, 2])


def test_assign_does_what_req_says():
    op, a = mx.operator.CustomOp(), nd.ones(2)
    op.assign(a, "null", nd.ones(2) * 5)
    same(a, [1, 1])
    op.assign(a, "add", nd.ones(2) * 5)
    same(a, [6, 6])
    op.assign(a, "write", np.array([1, 2]))
    same(a, [1, 2])
    with pytest.raises(ValueError, match="req"):
        op.assign(a, "wirte", a)
