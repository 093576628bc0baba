"""Epilogue fusion: norms, sums and rectifiers behind convolutions at inference, and sums behind norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import passes
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.onednn import library
from mxlite.backends.elementwise.epilogue import RECTIFIER
from mxlite.backends.passes import named
from mxlite.backends.rewrite import Pipeline, Stage, Step
from mxlite.executor.request.infer import infer
from mxlite.ops.norm.norm_act import NormAct
from tests.backends.passes.pass_lists import alone, asking, left_out, optimized, Willing

needs_onednn = pytest.mark.skipif(library() is None, reason="oneDNN is not there")

SHAPE = (2, 3, 9, 9)


def conv(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.Convolution(data, **{"kernel": (3, 3), "pad": (1, 1), "num_filter": 4, "name": name} | more)


def norm(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.BatchNorm(data, name=name, **{"fix_gamma": False} | more)


def relu(data: Any, name: str = "relu") -> Any:
    return mx.sym.Activation(data, act_type="relu", name=name)


X = mx.sym.var("x")
Y = mx.sym.var("y")


def folded(symbol: Any, train: bool = False, kind: str = "float32") -> list[str]:
    """The operators that the passes leave, but for those that move the channels."""
    shapes = {n: s for n, s in (("x", SHAPE), ("y", (2, 4, 9, 9))) if n in symbol.list_arguments()}
    graph = infer(symbol.graph, shapes, dict.fromkeys(shapes, kind))
    made = optimized(graph, train)
    assert sorted(n.name for n in made.variables) == sorted(n.name for n in graph.variables)
    assert all(made.shapes[e] == graph.shapes[o] for e, o in zip(made.outputs, graph.outputs, strict=True))
    return [n.op.op_name for n in made.nodes if n.op is not None and n.op.op_name not in MOVES]


MOVES = ("_channels_first", "_channels_last")
FOLD, FACTORS, WHOLE = "_fold_norm", "_norm_factors", "_convolution_epilogue"
PLAIN = "_convolution_channels_last"

CHAINS = {
    "norm": (norm(conv(X, "c"), "n"), [FACTORS, WHOLE]),
    "norm, no bias": (norm(conv(X, "c", no_bias=True), "n"), [FACTORS, WHOLE]),
    "rectifier": (relu(conv(X, "c")), [WHOLE]),
    "norm, rectifier": (relu(norm(conv(X, "c"), "n")), [FACTORS, WHOLE]),
    "norm, sum": (norm(conv(X, "c"), "n") + Y, [FACTORS, WHOLE]),
    "sum, rectifier": (relu(Y + conv(X, "c")), [WHOLE]),
    "all": (relu(norm(conv(X, "c"), "n") + Y), [FACTORS, WHOLE]),
    "two branches": (relu(norm(conv(X, "c"), "n") + norm(conv(X, "d"), "m")), [FACTORS, WHOLE] * 2),
    "one after the other": (relu(norm(conv(relu(norm(conv(X, "c"), "n")), "d"), "m")), [FACTORS, WHOLE] * 2),
    "groups": (norm(conv(Y, "c", num_group=2), "n"), [FACTORS, WHOLE]),
    "several functions": (mx.sym.tanh(relu(conv(X, "c"))), [WHOLE]),
    "another array twice": (conv(X, "c") + Y + Y, [WHOLE, "elemwise_add"]),
}


def taken(monkeypatch: Any, answer: Any) -> None:
    """Convolutions are asked for what they do to their output by `answer`."""
    work = tuple(asking(p.name, Willing(answer=answer)) if p.name == "epilogue" else p for p in passes.PASSES)
    monkeypatch.setattr(passes, "PASSES", work)


@needs_onednn
@pytest.mark.parametrize("how", CHAINS)
def test_a_convolution_takes_along_what_follows_it(how, monkeypatch):
    symbol, want = CHAINS[how]
    taken(monkeypatch, lambda r: True)
    assert sorted(folded(symbol)) == sorted(want)
    assert not {FOLD, FACTORS, WHOLE} & set(folded(symbol, train=True))


@needs_onednn
def test_a_convolution_takes_as_much_as_its_kernel_takes(monkeypatch):
    assert sorted(folded(mx.sym.tanh(conv(X, "c")))) == sorted([PLAIN, "tanh"])
    whole = norm(conv(X, "c"), "n") + Y
    taken(monkeypatch, lambda r: r.attrs.epilogue in (None, RECTIFIER))
    assert sorted(folded(mx.sym.tanh(relu(whole)))) == sorted([FACTORS, WHOLE, "tanh"])
    assert sorted(folded(mx.sym.tanh(whole))) == sorted([FACTORS, WHOLE, "tanh"])
    taken(monkeypatch, lambda r: False)
    assert sorted(folded(mx.sym.tanh(whole))) == sorted([FOLD, PLAIN, "elemwise_add", "tanh"])


def normed_sums(train: bool, **answer: Any) -> list[str]:
    """What is behind which norm, in a step of two norms with rectifiers whose sum is read once."""
    data = mx.sym.var("x")
    both = [relu(norm(mx.sym.sin(data), n), f"{n}_relu") for n in ("n", "m")]
    graph = infer(
        mx.sym.tanh(mx.sym.elemwise_add(both[0], both[1], name="sum")).graph, {"x": SHAPE}, {"x": "float32"}
    )
    made = alone("norm_act", graph, target=Willing(), train=train)
    made = Pipeline(named("epilogue"), Willing(**answer)).run(
        Stage.STEP, Step.of(made.graph, (), 0, train=train)
    )
    return [f"{n.name} {n.attrs.plus}" for n in made.graph.nodes if n.op is NormAct]


@pytest.mark.parametrize("train", [False, True])
def test_a_sum_behind_two_norms_belongs_to_the_first(train):
    assert normed_sums(train) == ["m_relu ", "sum behind"]
    assert normed_sums(train, answer=lambda r: False) == ["n_relu ", "m_relu "]


def test_nothing_that_will_be_differentiated_has_an_epilogue():
    """Operators with an epilogue have no gradient. In the whole step the layer has one."""
    layer = relu(mx.sym.FullyConnected(X, num_hidden=1, name="d"))
    graph = infer(layer.graph, {"x": SHAPE}, {"x": "float32"})
    work = Pipeline(named("epilogue"), Willing())
    early = Step(graph, train=True)
    assert work.run(Stage.FORWARD, early) is early
    for stage, step in (
        (Stage.FORWARD, Step(graph, train=False)),
        (Stage.STEP, Step(graph, num_forward=2, train=True)),
    ):
        assert [n.op.op_name for n in work.run(stage, step).operators] == ["_dense_epilogue"]


@needs_onednn
def test_a_backend_whose_convolutions_take_no_factor_folds_into_weights(monkeypatch):
    taken(monkeypatch, lambda r: not getattr(r.attrs, "scale", False) and passes.TARGET.has_kernel(r))
    assert sorted(folded(relu(norm(conv(X, "c"), "n") + Y))) == sorted([FOLD, WHOLE])
    assert sorted(folded(norm(conv(X, "c"), "n"))) == sorted([FOLD, PLAIN])


def apart() -> dict[str, Any]:
    c = conv(X, "c")
    n = norm(c, "n")
    shown = norm(c, "n", output_mean_var=True)
    return {
        "the convolution is an output": mx.sym.Group([n, c]),
        "the convolution has another reader": mx.sym.tanh(c) + n,
        "the statistics are read": mx.sym.Group([shown[0], shown[1]]),
        "another axis is normalized": norm(c, "n", axis=2),
    }


@pytest.mark.parametrize("how", apart())
def test_a_norm_is_not_folded_where(how):
    assert not {FOLD, FACTORS} & set(folded(apart()[how]))


@needs_onednn
def test_a_norm_with_another_reader_is_folded_and_the_rest_stays():
    n = norm(conv(X, "c"), "n")
    assert sorted(folded(relu(n) * n)) == sorted([FACTORS, WHOLE, "Activation", "elemwise_mul"])


def test_float64_stays_as_it_is():
    assert folded(norm(conv(X, "c"), "n"), kind="float64") == ["Convolution", "BatchNorm"]


def run(symbol: Any, shape: tuple[int, ...], **more: Any) -> tuple[Any, np.ndarray]:
    """An executor for inference with parameters in it, and its output."""
    exe = symbol.simple_bind(mx.cpu(), data=shape, **{"grad_req": "null"} | more)
    rng = np.random.default_rng(1)
    for name, x in sorted({**exe.arg_dict, **exe.aux_dict}.items()):
        values = rng.standard_normal(x.shape)
        if name.endswith(("gamma", "var")):
            values = 1 + 0.3 * np.abs(values)
        elif name.endswith("weight"):
            values /= np.sqrt(np.prod(x.shape[1:]) / 2)
        x[:] = values
    return exe, exe.forward(is_train=False)[0].asnumpy()


def without(monkeypatch: Any) -> Any:
    left_out(monkeypatch, "epilogue", "norm_act")


def logits(symbol: Any) -> Any:
    """The network without its softmax, which would hide differences."""
    return symbol.get_internals()["fc_output"]


def small() -> Any:
    data = mx.sym.var("data")
    x = relu(norm(conv(data, "a", num_filter=32), "an", fix_gamma=True), "ar")
    y = norm(conv(x, "b", num_filter=32, num_group=4, no_bias=True), "bn")
    x = relu(mx.sym.broadcast_add(x, y), "br")
    x = conv(x, "c", num_filter=16, stride=(2, 2)) + norm(conv(x, "d", num_filter=16, stride=(2, 2)), "dn")
    return mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=3, name="fc")


NETS = {
    "small": (small, (2, 3, 12, 14)),
    "resnet": (lambda: logits(mx.models.resnet_cifar(20)), (2, 3, 32, 32)),
    "resnet v2": (lambda: logits(mx.models.resnet_cifar(20, version=2)), (2, 3, 32, 32)),
}


@pytest.mark.parametrize("kernels", ["onednn,compiled", "onednn", "compiled", "reference"])
@pytest.mark.parametrize("net", NETS)
def test_inference_gives_the_same_folded(net, kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    make, shape = NETS[net]
    exe, got = run(make(), shape)
    assert any(t.op in (FOLD, FACTORS) for t in exe._planned.infer.problem.tasks)
    _, budgeted = run(make(), shape, memory_budget=exe.memory_plan.peak_bytes)  # nothing is kept ready
    _, trained = run(make(), shape, grad_req="write")
    without(monkeypatch)
    exe, want = run(make(), shape)
    assert not any(t.op in (FOLD, FACTORS) for t in exe._planned.infer.problem.tasks)
    for found in (got, budgeted, trained):
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    "name", ["an_gamma", "bn_gamma", "dn_beta", "an_moving_mean", "dn_moving_var", "b_weight", "a_bias"]
)
def test_what_is_folded_follows_its_parameters(name, monkeypatch):
    exe, first = run(small(), (2, 3, 12, 14))
    arrays = {**exe.arg_dict, **exe.aux_dict}
    change = np.linspace(1.5, 2.5, arrays[name].size).reshape(arrays[name].shape)
    arrays[name][:] = arrays[name].asnumpy() * change
    got = exe.forward(is_train=False)[0].asnumpy()
    without(monkeypatch)
    other, same = run(small(), (2, 3, 12, 14))
    np.testing.assert_allclose(same, first, rtol=0, atol=1e-5 * np.abs(same).max())
    {**other.arg_dict, **other.aux_dict}[name][:] = arrays[name].asnumpy()
    want = other.forward(is_train=False)[0].asnumpy()
    assert name == "an_gamma" or np.abs(want - first).max() > 1e-3  # a fixed gamma counts as 1
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())


@needs_onednn
@pytest.mark.parametrize(
    "kernel, channels, filters, size", [(1, 2048, 64, 5), (1, 64, 256, 9), (3, 256, 64, 6)]
)
def test_an_addend_is_added_in_place_also_by_a_deep_convolution(kernel, channels, filters, size):
    """oneDNN keeps the sums of a part of the channels in the output meanwhile."""
    op = ops.ConvolutionEpilogue
    given = {
        "kernel": (kernel, kernel),
        "pad": (kernel // 2,) * 2,
        "num_filter": filters,
        "add": True,
        "epilogue": RECTIFIER,
    }
    attrs = op.Attrs(**given)
    rng = np.random.default_rng(0)
    shapes = (
        (2, size, size, channels),
        (filters, channels, kernel, kernel),
        (filters,),
        (2, size, size, filters),
    )
    ins = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    made = CPU.choose(op, attrs, shapes, shapes[3:], ins[0].dtype, train=False)
    outs = []
    for out in (np.empty_like(ins[3]), ins[3].copy()):
        args = [*ins[:3], ins[3] if not outs else out]
        work = CPU.empty(made.workspace)
        bind_call(made, np, op, attrs, args, [out], work=work, shapes=(shapes, shapes[3:]))()
        outs.append(out)
    np.testing.assert_allclose(outs[1], outs[0], rtol=0, atol=1e-4 * np.abs(outs[0]).max())
