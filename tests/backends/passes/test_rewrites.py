"""Where all rewrites of graphs run: who looks on sees each, and what they make can run."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.gpu import planning_backend
from mxlite.backends.rewrite import observed, ordered, Pass, Pipeline, Stage, Step
from mxlite.core import RewriteError
from mxlite.executor.plan.lower import rewrites
from mxlite.executor.request.infer import infer
from mxlite.graph import Entry, in_order, Rewriter
from tests.backends.passes.pass_lists import rewritten


def dense(data, units, name):
    return mx.sym.FullyConnected(data, num_hidden=units, name=name)


def inferred(symbol, **shapes):
    return infer(symbol.graph, shapes, {})


def test_every_pass_has_one_name():
    """The names by which tests count what is covered, and by which a check names a pass at fault."""
    for backend in (CPU, planning_backend()):
        names = rewrites(backend)
        assert len(set(names)) == len(names)
        listed = {p.name for pipeline in (backend.optimize(), backend.low_memory()) for p in pipeline.passes}
        assert set(names) == listed | {"constants"} | ({"previews"} & set(names))
        assert names.index("split_gradients") < names.index("accumulate_gradients") < names.index("constants")


def test_an_observer_sees_every_pass_that_runs():
    seen = []
    with observed(seen.append):
        dense(mx.sym.var("data"), 3, "fc").simple_bind(mx.cpu(), data=(2, 5))
    names = [r.name for r in seen]
    assert set(rewrites(CPU)) - set(names) <= {
        "forget_gates",
        "sink_results",
        "pack",
        "previews",
        "constants",
    }
    assert {r.name for r in seen if r.changed} == {"split_gradients"}
    count = len(seen)
    dense(mx.sym.var("data"), 4, "fc").simple_bind(mx.cpu(), data=(2, 5))
    assert len(seen) == count


def behind(graph):
    """The graph with its variables listed last."""
    return replace(graph, order=tuple(sorted(graph.nodes, key=lambda n: n.op is None)))


def test_a_variable_that_a_pass_lists_behind_its_reader_is_put_in_front():
    graph = inferred(dense(mx.sym.var("data"), 3, "fc"), data=(2, 5))
    made = rewritten(lambda step: step.became(behind(step.graph)), Step.of(graph, num_forward=1))
    assert [n.name for n in made.graph.nodes] == ["data", "fc_weight", "fc_bias", "fc"]
    assert (made.stands, made.num_forward) == ({}, 1)
    assert in_order(made.graph, "nobody") is made.graph


def test_an_operator_behind_its_reader_is_the_fault_of_the_pass():
    graph = inferred(dense(dense(mx.sym.var("data"), 3, "a"), 3, "b"), data=(2, 5))
    first, second = (n for n in graph.nodes if n.op is not None)
    wrong = replace(graph, order=(*graph.variables, second, first))

    def turn(step):
        return step.became(wrong)

    with pytest.raises(
        RewriteError, match=r"'b' reads 'a', which comes behind it or is missing.*made by turn"
    ):
        rewritten(turn, Step.of(graph, num_forward=2))
    with pytest.raises(RewriteError, match=r"'b'.* asked for, but not in the graph made by turn"):
        in_order(replace(wrong, order=(*graph.variables, first)), "turn")
    waiting = replace(first, after=(Entry(second),))
    with pytest.raises(RewriteError, match="'a' reads 'b'"):
        in_order(replace(graph, outputs=(), order=(*graph.variables, waiting)), "turn")


def idle(name, *after):
    return Pass(name, lambda step, target: step, Stage.STEP, after)


def test_passes_come_in_the_order_that_they_declare_and_else_in_that_of_the_list():
    a, b, c, d = idle("a", "d"), idle("b"), idle("c", "a", "epilogue"), idle("d")
    assert [p.name for p in ordered((a, b, c, d))] == ["b", "d", "a", "c"]
    assert ordered((c, b, a, d)) == (b, d, a, c)  # nobody waits for `epilogue`: it is not there


def test_an_order_that_cannot_be_names_the_passes():
    with pytest.raises(RewriteError, match=r"\['a', 'c'\] comes after another one"):
        ordered((idle("a", "c"), idle("b"), idle("c", "a")))
    with pytest.raises(RewriteError, match=r"'a' comes after \['chain'\], and there is no such pass"):
        ordered((idle("a", "chain", "chains"),))
    with pytest.raises(RewriteError, match=r"two passes \['a'\]"):
        ordered((idle("a"), idle("a")))


@pytest.mark.parametrize("backend", [CPU, planning_backend()], ids=["cpu", "gpu"])
def test_lists_of_passes_are_in_their_order(backend):
    """What runs is what one reads."""
    for pipeline in (backend.optimize(), backend.low_memory()):
        assert ordered(pipeline.passes) == pipeline.passes


def test_what_passes_one_behind_the_other_make_stands_for_what_was_first():
    graph = inferred(dense(dense(mx.sym.var("data"), 3, "a"), 3, "b"), data=(2, 5))
    first, second = (Entry(n) for n in graph.nodes if n.op is not None)

    def renamed(step):
        made = Rewriter(step.graph)
        for node in made.walk(step.num_forward):
            made.keep(node) if node.op is None else made.replace(node, made.renewed(replace(node, name="x")))
        return step.rewritten(made)

    work = tuple(Pass(n, lambda step, target: renamed(step), Stage.STEP) for n in ("one", "two"))
    step = Pipeline(work).run(Stage.STEP, Step.of(graph, [first, second], 1))
    assert step.num_forward == 1 and step.kept == {Entry(n) for n in step.operators}
    assert step.stands == dict(zip((first, second), (Entry(n) for n in step.operators)))


@pytest.mark.parametrize("norm", [None, "LayerNorm", "BatchNorm"])
def test_a_hidden_layer_may_be_an_output_too(norm):
    """Its gradient is a sum of what comes from above and the user's, a variable."""
    data = mx.sym.var("data")
    hidden = dense(data if norm is None else getattr(mx.sym, norm)(data, name="norm"), 8, "hidden")
    top = dense(hidden, 3, "top")
    x, g, h = (np.random.default_rng(0).standard_normal(s).astype("f") for s in ((4, 5), (4, 3), (4, 8)))

    def gradients(net, heads):
        exe = net.simple_bind(mx.cpu(), data=x.shape)
        for i, a in enumerate(exe.arg_dict.values()):
            a[:] = np.cos(np.arange(a.size) * (i + 1.3)).reshape(a.shape)
        exe.arg_dict["data"][:] = x
        exe.forward(is_train=True)
        exe.backward([mx.nd.array(y) for y in heads])
        return {n: a.asnumpy() for n, a in exe.grad_dict.items()}

    both = gradients(mx.sym.Group([top, hidden]), [g, h])
    alone = gradients(top, [g])
    for name, more in gradients(hidden, [h]).items():
        np.testing.assert_allclose(both[name], alone[name] + more, rtol=1e-4, atol=1e-5)


def test_what_a_pass_leaves_without_a_reader_is_not_run():
    graph = inferred(dense(dense(mx.sym.var("data"), 3, "a"), 3, "b"), data=(2, 5))
    first, second = (n for n in graph.nodes if n.op is not None)

    def passed(step):
        outputs = (Entry(second),)
        new = replace(second, inputs=(Entry(graph.nodes[0]), *second.inputs[1:]))
        order = tuple(new if n is second else n for n in graph.nodes)
        shapes, dtypes = ({Entry(new): x[Entry(second)], **x} for x in (graph.shapes, graph.dtypes))
        made = replace(graph, outputs=(Entry(new),), order=order, shapes=shapes, dtypes=dtypes)
        return step.became(made, dict(zip(outputs, made.outputs)))

    made = rewritten(passed, Step.of(graph, [Entry(second)], 2))
    assert [n.name for n in made.operators] == ["b"] and made.num_forward == 1
    assert first not in made.graph.nodes


def test_a_batch_that_backward_alone_reads_in_16_bits_is_narrowed_there(monkeypatch):
    """Forward reads it in float32, and backward makes the copy, also where `cheap_remat` moves none there."""
    net = dense(mx.sym.tanh(dense(mx.sym.var("data"), 1024, "a")), 8, "b")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    how = dict(amp="bfloat16", data=(1024, 512), softmax_label=(1024,))
    exe = net.simple_bind(mx.cpu(), **how)
    exe.forward(is_train=True)
    exe.backward()
    assert np.isclose(exe.outputs[0].asnumpy().sum(), 1024)
    assert np.isfinite(exe.grad_dict["a_weight"].asnumpy()).all()
    monkeypatch.setattr(
        importlib.import_module("mxlite.backends.passes.remat.cheap_remat"), "LEAST_BYTES", 1 << 40
    )
    problem = net.memory_plan(mx.cpu(), **how).problem
    assert [t.name for t in problem.tasks].index("data_bfloat16") >= problem.num_forward
