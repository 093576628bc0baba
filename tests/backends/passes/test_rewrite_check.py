"""MXLITE_CHECK_REWRITES: a pass that changes what a network computes is named, with what differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.checks.drawn import COUNT, kinds_of, NUMBER, POSITIVE
from mxlite.backends.checks.evaluated import evaluated
from mxlite.backends.checks.rewrite_check import check
from mxlite.backends.cpu import passes
from mxlite.backends.rewrite import Pass, Pipeline, Rewrite, Stage, Step
from mxlite.core import RewriteError
from mxlite.executor.request.infer import infer
from mxlite.graph import Entry, Graph, Node, Op, Rewriter, variable
from mxlite.ops.elementwise.elemwise import elemwise_add
from tests.backends.passes.pass_lists import as_pass, rewritten
from tests.differential import agreement
from tests.differential.network import Call, Network, Value, Variable
from tests.differential.setting import Setting


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "1")


def graph_of(symbol, **shapes):
    return infer(symbol.graph, shapes, {})


def dense(data, units, name, **more):
    return mx.sym.FullyConnected(data, num_hidden=units, name=name, **more)


def mlp():
    hidden = mx.sym.Activation(dense(mx.sym.var("data"), 6, "a"), act_type="relu", name="act")
    return graph_of(dense(hidden, 3, "b"), data=(4, 5))


def without(graph, name):
    """The graph without the node of that name: its reader reads what it read."""
    r = Rewriter(graph)
    for node in graph.nodes:
        if node.name == name:
            r.put(Entry(node), r.of(node.inputs[0]))
        else:
            r.keep(node)
    return r.graph()


def simplified(work, graph, train):
    """The graph through a pass over forward graphs: `work` of a graph."""

    def run(step, target):
        return step.became(work(step.graph))

    pipeline = Pipeline((Pass(work.__name__, run, Stage.FORWARD),))
    return pipeline.run(Stage.FORWARD, Step(graph, train=train)).graph


def fault(work, graph=None, train=True):
    with pytest.raises(RewriteError) as error:
        simplified(work, graph or mlp(), train)
    return str(error.value)


def test_a_pass_that_forgets_a_node_is_named_with_the_difference():
    def forgets(graph):
        return without(graph, "act")

    assert "The pass 'forgets' has changed a network: 'b_output', (4, 3) float32, differs by up to" in fault(
        forgets
    )
    assert "where roundings make" in fault(forgets, train=False)


def test_a_pass_that_changes_gradients_alone_is_found():
    class half(Op):
        """relu with half of its gradient."""

        inputs = ("data",)
        same_shape = True

        @staticmethod
        def forward(xp, a, data, *, out):
            xp.maximum(data, 0, out=out)

        @staticmethod
        def backward(xp, a, d_out, out, *, d_data):
            xp.multiply(d_out, (out > 0) * 0.5, out=d_data)

    def halves(graph):
        r = Rewriter(graph)
        for node in graph.nodes:
            if node.name == "act":
                r.put(Entry(node), Entry(r.add(half, half.Attrs(), [r.of(node.inputs[0])], "act")))
            else:
                r.keep(node)
        return r.graph()

    assert "'halves' has changed a network: 'the gradient of " in fault(halves)
    assert simplified(halves, mlp(), False) is not None  # nobody wants a gradient


@pytest.mark.parametrize("mistake", [0.0, 0.01])
def test_what_roundings_hide_is_computed_in_float64(mistake):
    """Sums with 1e6 are rounded to sixteenths: who omits both is right, and a mistake below that is one."""

    def cancels(graph):
        r = Rewriter(graph)
        total = graph.outputs[0].node
        for node in graph.nodes:
            if node is total:
                attrs = replace(node.attrs, scalar=-mistake)
                r.put(Entry(node), Entry(r.add(node.op, attrs, [r.of(Entry(graph.variables[0]))], node.name)))
            elif node.op is None:
                r.keep(node)
        return r.graph()

    graph = graph_of(mx.sym.var("data") + 1e6 - 1e6, data=(3,))
    if mistake:
        assert "'cancels' has changed a network" in fault(cancels, graph)
    else:
        assert simplified(cancels, graph, True) is not None


def test_variables_keep_their_names_and_kinds():
    def gone(graph):
        return replace(graph, outputs=(Entry(next(n for n in graph.nodes if n.name == "a")),))

    def other(graph):
        new, (out,) = variable("new"), graph.outputs
        known = {**graph.shapes, new: graph.shapes[out]}, {**graph.dtypes, new: graph.dtypes[out]}
        node = Entry(Node(elemwise_add, elemwise_add.Attrs(), (out, new), "sum"))
        shapes, dtypes = {**known[0], node: known[0][out]}, {**known[1], node: known[1][out]}
        return Graph((node,), shapes=shapes, dtypes=dtypes)

    def wider(graph):
        e = Entry(next(n for n in graph.variables if n.name == "a_bias"))
        return replace(graph, dtypes={**graph.dtypes, e: np.dtype("float64")})

    assert "'b_output' was (4, 3) float32 and is (4, 6) float32." in fault(gone)
    assert "the variables ['new'] are new." in fault(other)
    assert "'a_bias' was (6,) float32 and is (6,) float64." in fault(wider)


def test_outputs_and_kept_entries_stay():
    graph = mlp()
    act = next(n for n in graph.nodes if n.name == "act")

    def fewer(graph):
        return replace(graph, outputs=())

    def forgets_kept(step):
        return step.became(without(step.graph, "act"), num_forward=step.num_forward - 1)

    def counts_wrong(step):
        return step.became(replace(step.graph, order=tuple(step.graph.nodes)), {}, step.num_forward + 1)

    assert "1 outputs have become 0." in fault(fewer)
    with pytest.raises(RewriteError, match=r"'forgets_kept'.*nothing makes 'act_output' any more"):
        rewritten(forgets_kept, Step.of(graph, [Entry(act)], 3))
    with pytest.raises(
        RewriteError, match=r"'counts_wrong'.*4 of 3 operators are said to be the forward pass"
    ):
        rewritten(counts_wrong, Step.of(graph, num_forward=3))


def test_what_a_step_writes_is_compared():
    """An update that is left out changes no output."""
    net = mx.sym.LinearRegressionOutput(dense(mx.sym.var("data"), 3, "a"), name="loss")
    how = dict(data=(4, 5), loss_label=(4, 3), optimizer=mx.optimizer.SGD(momentum=0.9))
    exe = net.simple_bind(mx.cpu(), **how)
    graph = exe._planned.train.step.graph
    fewer = replace(
        graph, effects=graph.effects[1:], order=tuple(n for n in graph.nodes if n != graph.effects[0])
    )
    step = Step.of(graph, num_forward=2)
    with pytest.raises(RewriteError, match=r"'lazy'.*differs by up to"):
        check(Rewrite("lazy", step, step.became(fewer)))
    check(Rewrite("idle", step, step.became(replace(graph, order=tuple(graph.nodes)))))


def test_a_bind_fails_where_a_pass_is_wrong_and_not_without_the_check(monkeypatch):
    def forgets(step):
        return step.became(without(step.graph, "act"))

    monkeypatch.setattr(passes, "PASSES", (*passes.PASSES, as_pass(forgets, Stage.FORWARD)))
    net = mx.sym.Activation(dense(mx.sym.var("data"), 6, "a"), act_type="relu", name="act")
    with pytest.raises(RewriteError, match="'forgets'"):
        net.simple_bind(mx.cpu(), data=(4, 5))
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "0")
    net.simple_bind(mx.cpu(), data=(4, 5))


def test_roundings_are_allowed():
    """Sums in another order, of 16 bits too, behind a norm of two samples that makes them large."""

    def turned(graph):
        r = Rewriter(graph)
        for node in graph.nodes:
            r.keep(node if node.name != "sum" else replace(node, inputs=node.inputs[::-1]))
        return replace(r.graph(), order=None)

    data = mx.sym.var("data")
    x = mx.sym.elemwise_add(dense(data, 64, "a"), dense(data, 64, "b"), name="sum")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="norm")
    for kind in ("float32", "float16", "bfloat16"):
        graph = infer(x.graph, {"data": (2, 5)}, {"data": kind})
        simplified(turned, graph, True)


def test_values_are_such_as_operators_can_use():
    data = mx.sym.Embedding(
        mx.sym.Reshape(mx.sym.var("token"), shape=(-1,)), input_dim=9, output_dim=4, name="e"
    )
    x = mx.sym.BatchNorm(data, name="norm")
    net = mx.sym.SoftmaxOutput(dense(x, 3, "fc"), name="softmax")
    graph = graph_of(net, token=(2, 4), softmax_label=(8,))
    kinds = kinds_of(graph)
    assert {n for n, k in kinds.items() if k == COUNT} == {"token", "softmax_label"}
    assert {n for n, k in kinds.items() if k == POSITIVE} == {"norm_moving_mean", "norm_moving_var"}
    assert {kinds[n] for n in ("e_weight", "norm_gamma", "fc_weight", "fc_bias")} == {NUMBER}


def test_a_graph_is_evaluated_as_the_unplanned_reference_computes_it(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    x = mx.sym.Dropout(dense(mx.sym.var("data"), 6, "a"), p=0.5, name="drop")
    net = mx.sym.Group([mx.sym.BatchNorm(x, fix_gamma=False, name="norm"), mx.sym.exp(x, name="exp")])
    graph = graph_of(net, data=(4, 5))
    rng = np.random.default_rng(0)
    values = {
        n.name: rng.uniform(0.5, 1.5, graph.shapes[Entry(n)]).astype("float32") for n in graph.variables
    }
    before = {n: v.copy() for n, v in values.items()}
    found = evaluated(graph, values, graph.outputs, False)
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(4, 5))
    for name, a in {**exe.arg_dict, **exe.aux_dict}.items():
        a[:] = values[name]
    for e, want in zip(graph.outputs, exe.forward(is_train=False)):
        assert found[e].tobytes() == want.asnumpy().tobytes()
    trained = evaluated(graph, values, graph.outputs, True)
    assert all((trained[e] != found[e]).any() for e in graph.outputs)
    assert all((values[n] == v).all() for n, v in before.items())
    again = evaluated(graph, values, graph.outputs, True)
    assert all(again[e].tobytes() == trained[e].tobytes() for e in graph.outputs)


@pytest.mark.parametrize("pipeline", ["cpu", "gpu passes"])
def test_a_loss_behind_which_its_axes_are_put_back_has_the_same_gradients(pipeline):
    """The output is the transposition of a loss then, whose gradient would be given from outside."""
    x, w = Variable("data", (4, 4, 4, 4), "data"), Variable("w", (4, 4, 3, 3), "weight")
    size = dict(kernel=(2, 2), stride=(2, 2), pool_type="max")
    calls = (
        Call(
            "conv",
            "Convolution",
            (Value("data"), Value("w")),
            ((4, 4, 4, 4),),
            dict(kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True),
        ),
        Call("pool", "Pooling", (Value("conv"),), ((4, 4, 2, 2),), size),
        Call("loss", "make_loss", (Value("pool"),), ((4, 4, 2, 2),)),
    )
    network = Network((x, w), calls, (Value("loss"),), frozenset({"data"}))
    assert agreement.judge(network, Setting(pipeline=pipeline, how="train")).wrong == ""


def test_indices_along_an_axis_of_one_position_are_drawn_so():
    rows = mx.sym.gather_nd(dense(mx.sym.var("data"), 6, "a"), mx.sym.var("indices"))
    graph = graph_of(mx.sym.tanh(rows, name="last") + 1, data=(1, 5), indices=(1, 7))

    def forgets(graph):
        return without(graph, "last")

    assert "differs by up to" in fault(forgets, graph)
