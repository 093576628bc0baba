"""Where all rewrites of graphs run: who looks on sees each, and what they make can run."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.gpu import planning_backend
from mxlite.backends.rewrite import combined, observed
from mxlite.core import RewriteError
from mxlite.executor.infer import infer
from mxlite.executor.lower import rewrites
from mxlite.graph import Entry, in_order


def dense(data, units, name):
    return mx.sym.FullyConnected(data, num_hidden=units, name=name)


def inferred(symbol, **shapes):
    return infer(symbol.graph, shapes, {})


def test_every_pass_has_one_name():
    """The names by which tests count what is covered, and by which a check names a pass at fault."""
    assert rewrites(CPU) == (
        "channels_last", "fold", "norm_act", "pool_first", "pooled_convolutions", "narrow_data", "keep_gates",
        "wide_parameters", "forget_gates", "loss_bands", "loss_updates", "split_gradients", "image_gradients",
        "normed_loads", "wide_dense", "wide_convolutions", "narrow_gradients", "loaded_dense",
        "loaded_updates", "narrowed_dense", "product_updates", "convolution_updates", "rnn_updates", "banded",
        "added_gradients", "chains", "remade", "lightened", "late_results", "pack", "previews", "constants",
    )  # fmt: skip
    assert rewrites(planning_backend()) == (
        "channels_last", "fold", "norm_act", "pool_first", "wide_parameters", "split_gradients",
        "narrow_gradients", "dense_epilogue", "added_gradients", "norm_sums", "chains", "group_casts",
        "group_updates", "lightened", "late_results", "divided", "constants",
    )  # fmt: skip


def test_an_observer_sees_every_pass_that_runs():
    seen = []
    with observed(seen.append):
        dense(mx.sym.var("data"), 3, "fc").simple_bind(mx.cpu(), data=(2, 5))
    names = [r.name for r in seen]
    assert set(rewrites(CPU)) - set(names) <= {
        "forget_gates",
        "late_results",
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
    found, moved, count = combined([lambda g, kept, n: (behind(g), {}, n)], graph, frozenset(), 1)
    assert [n.name for n in found.nodes] == ["data", "fc_weight", "fc_bias", "fc"]
    assert (moved, count) == ({}, 1)
    assert in_order(found, "nobody") is found


def test_an_operator_behind_its_reader_is_the_fault_of_the_pass():
    graph = inferred(dense(dense(mx.sym.var("data"), 3, "a"), 3, "b"), data=(2, 5))
    first, second = (n for n in graph.nodes if n.op is not None)
    wrong = replace(graph, order=(*graph.variables, second, first))

    def turn(graph, kept, num_forward):
        return wrong, {}, num_forward

    with pytest.raises(
        RewriteError, match=r"'b' reads 'a', which comes behind it or is missing.*made by turn"
    ):
        combined([turn], graph, frozenset(), 2)
    with pytest.raises(RewriteError, match=r"'b'.* asked for, but not in the graph made by turn"):
        in_order(replace(wrong, order=(*graph.variables, first)), "turn")
    waiting = replace(first, after=(Entry(second),))
    with pytest.raises(RewriteError, match="'a' reads 'b'"):
        in_order(replace(graph, outputs=(), order=(*graph.variables, waiting)), "turn")


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

    def passed(graph, kept, num_forward):
        outputs = (Entry(second),)
        new = replace(second, inputs=(Entry(graph.nodes[0]), *second.inputs[1:]))
        order = tuple(new if n is second else n for n in graph.nodes)
        shapes, dtypes = ({Entry(new): x[Entry(second)], **x} for x in (graph.shapes, graph.dtypes))
        made = replace(graph, outputs=(Entry(new),), order=order, shapes=shapes, dtypes=dtypes)
        return made, dict(zip(outputs, made.outputs)), num_forward

    found, _, count = combined([passed], graph, frozenset([Entry(second)]), 2)
    assert [n.name for n in found.nodes if n.op is not None] == ["b"] and count == 1
    assert first not in found.nodes


def test_a_batch_that_backward_alone_reads_in_16_bits_is_narrowed_there(monkeypatch):
    """Forward reads it in float32, and backward makes the copy, also where `remade` moves none there."""
    net = dense(mx.sym.tanh(dense(mx.sym.var("data"), 1024, "a")), 8, "b")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    how = dict(amp="bfloat16", data=(1024, 512), softmax_label=(1024,))
    exe = net.simple_bind(mx.cpu(), **how)
    exe.forward(is_train=True)
    exe.backward()
    assert np.isclose(exe.outputs[0].asnumpy().sum(), 1024)
    assert np.isfinite(exe.grad_dict["a_weight"].asnumpy()).all()
    monkeypatch.setattr(importlib.import_module("mxlite.backends.passes.remade"), "LEAST_BYTES", 1 << 40)
    problem = net.memory_plan(mx.cpu(), **how).problem
    assert [t.name for t in problem.tasks].index("data_bfloat16") >= problem.num_forward
