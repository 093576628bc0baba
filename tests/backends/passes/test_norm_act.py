"""The pass that gives batch normalization what follows it: what it joins, what not, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import storable, usable
from mxlite.executor.request.infer import infer
from tests.backends.passes.pass_lists import alone, left_out, Willing
from tests.networks.small_networks import fill_by_kind

needs_compiler = pytest.mark.skipif(
    not usable(), reason="there is no compiler (llvmlite), or it may not be used"
)


def norm_of(data: Any, name: str, **more: Any) -> Any:
    return mx.sym.BatchNorm(data, name=name, fix_gamma=False, **more)


def simplified(symbol: Any, train: bool = True, kind: str = "float32", **shapes: tuple[int, ...]) -> Any:
    """(operator, name) of the operators that the pass leaves, variables in order before and after."""
    shapes = shapes or {n: (2, 4, 5, 5) for n in ("x", "y", "z") if n in symbol.list_arguments()}
    graph = infer(symbol.graph, shapes, dict.fromkeys(shapes, kind))
    made = alone("norm_act", graph, train=train).graph
    assert [n.name for n in made.variables] == [n.name for n in graph.variables]
    assert all(made.shapes[e] == graph.shapes[o] for e, o in zip(made.outputs, graph.outputs, strict=True))
    assert all(e in made.shapes and e in made.dtypes for e in made.entries())
    return [(n.op.op_name, n.name) for n in made.nodes if n.op is not None]


X, Y, Z = (mx.sym.var(n) for n in "xyz")


def relu(data: Any) -> Any:
    return mx.sym.Activation(data, act_type="relu", name="relu")


FUSED = {
    "norm, rectifier": relu(norm_of(X, "a")),
    "the operator relu": mx.sym.relu(norm_of(X, "a"), name="relu"),
    "norm on the left": relu(mx.sym.elemwise_add(norm_of(X, "a"), Y)),
    "norm on the right": relu(mx.sym.elemwise_add(X, norm_of(Y, "a"))),
    "the sign +": relu(norm_of(X, "a") + Y),
    "a broadcast that stretches nothing": relu(mx.sym.broadcast_add(Y, norm_of(X, "a"))),
    "the norm of old files": relu(mx.sym.BatchNorm_v1(X, name="a")),
    "the last axis": relu(norm_of(X, "a", axis=3)),
    "the addend is the norm's data": relu(norm_of(X, "a") + X),
    "the rectifier is the end of a stage": mx.sym.Activation(
        norm_of(X, "a"), act_type="relu", name="relu", attr={"__mirror_stage__": "True"}
    ),
    "both are to be recomputed": mx.sym.Activation(
        norm_of(X, "a", attr={"__force_mirroring__": "True"}),
        act_type="relu", name="relu", attr={"__force_mirroring__": "True"},
    ),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("how", FUSED)
def test_a_norm_takes_along_what_follows_it(how):
    for train in (True, False):
        assert simplified(FUSED[how], train) == [("_norm_act", "relu")]


@needs_compiler
def test_of_two_norms_one_takes_the_other_as_its_addend():
    both = relu(norm_of(X, "a") + norm_of(Y, "b"))
    assert simplified(both) == [("BatchNorm", "b"), ("_norm_act", "relu")]
    left = norm_of(X, "a")
    assert simplified(mx.sym.Group([relu(left + norm_of(Y, "b")), left])) == [
        ("BatchNorm", "a"), ("_norm_act", "relu")
    ]  # fmt: skip


def kept_apart() -> dict[str, Any]:
    norm = norm_of(X, "a")
    total = norm + Y
    marked = norm_of(X, "a", attr={"__force_mirroring__": "True"})
    stage = norm_of(X, "a", attr={"__mirror_stage__": "True"})
    shown = mx.sym.BatchNorm(X, name="a", output_mean_var=True)
    return {
        "the norm has another reader": relu(norm) * norm,
        "the norm is an output": mx.sym.Group([relu(norm), norm]),
        "the sum has another reader": relu(total) * total,
        "the norm is added to itself": relu(norm + norm),
        "the statistics are read": mx.sym.Group([relu(shown[0]), shown[1]]),
        "another activation": mx.sym.Activation(norm, act_type="sigmoid"),
        "a sum without a rectifier": total * 2,
        "a product": relu(norm * Y),
        "it is to be recomputed, the rectifier not": relu(marked),
        "it is the end of a stage": relu(stage),
    }


@needs_compiler
@pytest.mark.parametrize("how", kept_apart())
def test_a_norm_stays_alone_where(how):
    symbol = kept_apart()[how]
    assert "_norm_act" not in [op for op, _ in simplified(symbol)]


@needs_compiler
def test_a_stretched_norm_and_float64_stay_alone():
    stretched = relu(mx.sym.broadcast_add(norm_of(X, "a"), Y))
    assert "_norm_act" not in [o for o, _ in simplified(stretched, x=(1, 4, 5, 5), y=(2, 4, 5, 5))]
    assert simplified(relu(norm_of(X, "a")), kind="float64") == [("BatchNorm", "a"), ("Activation", "relu")]


def test_a_leaky_rectifier_is_taken_where_a_backend_has_a_kernel_for_its_slope():
    def made(how: Any, **attrs: Any) -> list[Any]:
        y = mx.sym.LeakyReLU(how(norm_of(X, "a")), name="leaky", **attrs)
        graph = infer(y.graph, {"x": (2, 4, 5, 5)}, {"x": "float32"})
        new = alone("norm_act", graph, target=Willing()).graph
        return [(n.op.op_name, getattr(n.attrs, "slope", None)) for n in new.nodes if n.op is not None]

    assert made(lambda a: a) == [("_norm_act", 0.25)]
    assert made(lambda a: a + X, slope=0.1) == [("_norm_act", 0.1)]
    for other in ({"slope": 1.5}, {"slope": -0.1}, {"act_type": "elu"}):  # falls where data rise, or no line
        assert [op for op, _ in made(lambda a: a, **other)] == ["BatchNorm", "LeakyReLU"]
    assert simplified(mx.sym.LeakyReLU(norm_of(X, "a"), name="leaky")) == [
        ("BatchNorm", "a"), ("LeakyReLU", "leaky")
    ]  # fmt: skip


def test_without_a_compiler_nothing_changes(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "onednn")
    assert simplified(relu(norm_of(X, "a"))) == [("BatchNorm", "a"), ("Activation", "relu")]


def dense_net() -> Any:
    """Norm, rectifier and convolution over all that came before, as in a DenseNet; a softmax."""
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, name="stem")
    for i in range(3):
        y = mx.sym.Activation(norm_of(x, f"norm{i}"), act_type="relu", name=f"relu{i}")
        x = mx.sym.Concat(
            x, mx.sym.Convolution(y, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"c{i}"), dim=1
        )
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=5, name="fc"), name="softmax"
    )


NETS = {
    "resnet": lambda: mx.models.resnet_cifar(8),
    "resnet v2": lambda: mx.models.resnet_cifar(8, version=2),
    "densenet": dense_net,
}


def step_of(symbol: Any, n: int = 4, **more: Any) -> Any:
    """An executor, and after a step: outputs, gradients, moving averages; then outputs of inference."""
    exe = symbol.simple_bind(mx.cpu(), data=(n, 3, 12, 12), softmax_label=(n,), **more)
    fill_by_kind(exe, 0.1)
    outs = [o.asnumpy() for o in exe.forward(is_train=True)]
    exe.backward()
    made = {f"out{i}": o for i, o in enumerate(outs)}
    made |= {f"d_{k}": g.asnumpy() for k, g in exe.grad_dict.items() if g is not None}
    made |= {k: a.asnumpy() for k, a in exe.aux_dict.items()}
    made |= {f"inferred{i}": o.asnumpy() for i, o in enumerate(exe.forward(is_train=False))}
    return exe, made


def operators(exe: Any, train: bool = True) -> list[str]:
    lowered = exe._planned.train if train else exe._planned.infer
    return [t.op for t in lowered.problem.tasks]


@needs_compiler
@pytest.mark.parametrize("net", NETS)
def test_a_training_step_is_the_same_with_and_without(net, monkeypatch):
    exe, got = step_of(NETS[net]())
    assert {"_backward__norm_act", "_backward__norm_act_line"}.intersection(operators(exe))
    plan = exe.memory_plan
    budget = (plan.peak_bytes + plan.lower_bound_bytes) // 2
    for share in (budget, plan.peak_bytes):
        tight, same = step_of(NETS[net](), memory_budget=share)
        assert tight.measured_bytes <= share
        for name, x in got.items():
            np.testing.assert_array_equal(same[name], x, err_msg=name)
    left_out(monkeypatch, "norm_act", "epilogue", "norm_prologue", "norm_chains")
    exe, want = step_of(NETS[net]())
    assert "BatchNorm" in operators(exe) and "_norm_act" not in operators(exe)
    assert plan.arena_bytes <= exe.memory_plan.arena_bytes
    largest = max(float(np.abs(x).max()) for n, x in want.items() if n.startswith("d_"))
    for name, x in want.items():
        scale = max(float(np.abs(x).max()), 1e-3 * largest if name.startswith("d_") else 1e-3)
        np.testing.assert_allclose(got[name], x, rtol=0, atol=1e-4 * scale, err_msg=name)


@needs_compiler
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_a_step_in_16_bits_is_near_that_in_32(kind):
    if kind not in storable():
        pytest.skip(f"this CPU cannot load {kind}")
    exe, small = step_of(mx.models.resnet_cifar(8), n=8, amp=kind)
    assert sum(o.startswith("_backward__norm_act") for o in operators(exe)) == 7
    _, full = step_of(mx.models.resnet_cifar(8), n=8)
    for name in full:
        error = np.linalg.norm(small[name] - full[name]) / (np.linalg.norm(full[name]) + 1e-6)
        assert error < (0.5 if name.startswith("d_") else 0.05), (name, error)
