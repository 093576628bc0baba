import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu.backend import CPU
from mxlite.core.errors import OpAttributeError, ShapeError
from mxlite.graph.attrs import parse_attrs
from mxlite.graph.infer import infer_shapes, infer_types
from mxlite.graph.ir import Entry, Graph, Node, variable

SIZES = [(3, 4), (16384,), (5, 16384), (40_001,)]
PAIRS = [
    (ops.sgd_update, ops._fused_sgd, 0, {}),
    (ops.sgd_mom_update, ops._fused_sgd_mom, 1, {"momentum": 0.9}),
    (ops.adam_update, ops._fused_adam, 2, {"beta1": 0.8}),
]
EXTRAS = [{}, {"rescale_grad": 0.25}, {"clip_gradient": 0.3}, {"rescale_grad": 0.25, "clip_gradient": 0.3}]


def arrays(shape, states, dtype="float32"):
    rng = np.random.default_rng(0)
    return [np.abs(rng.standard_normal(shape)).astype(dtype) for _ in range(2 + states)]


def call(op, attrs, inputs, out):
    """Bind as a program does."""
    parsed = parse_attrs(op, attrs)
    shapes = tuple(x.shape for x in inputs)
    outs = () if out is None else (out.shape,)
    kernel = CPU.choose(op, parsed, shapes, outs, inputs[0].dtype)
    work = CPU.empty(kernel.workspace)
    return bind_call(kernel, np, op, parsed, inputs, [] if out is None else [out], work=work)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("wd", [0.0, 0.01])
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("public, fused, states, own", PAIRS)
def test_fused_and_public_forms_give_the_same_bits(public, fused, states, own, extra, wd, shape):
    lr = 0.1
    one, two = arrays(shape, states), arrays(shape, states)
    hyper = np.array([[9.0, 9.0], [lr, wd]])
    imperative = call(public, {"lr": lr, "wd": wd, **own, **extra}, one, one[0])
    program = call(fused, {"row": 1, **own, **extra}, [*two, hyper], None)
    for _ in range(3):
        imperative()
        program()
    for a, b in zip(one, two):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_plain_sgd_is_what_numpy_does(shape, dtype):
    weight, grad = arrays(shape, 0, dtype)
    want = weight.copy()
    want -= 0.1 * grad
    call(ops._fused_sgd, {"row": 0}, [weight, grad, np.array([[0.1, 0.0]])], None)()
    assert weight.tobytes() == want.tobytes()


def test_rates_are_read_when_the_operator_runs():
    weight, grad = np.zeros(3, np.float32), np.ones(3, np.float32)
    hyper = np.array([[1.0, 0.0], [100.0, 100.0]])
    step = call(ops._fused_sgd, {"row": 0}, [weight, grad, hyper], None)
    step()
    hyper[0, 0] = 2.0
    step()
    np.testing.assert_array_equal(weight, -3)


f = np.float32


def clipped(g, rescale, clip):
    g = g * f(rescale)
    return np.clip(g, f(-clip), f(clip)) if clip >= 0 else g


@pytest.mark.parametrize("rescale, clip", [(1.0, -1.0), (0.5, 0.3), (1.0, 0.0)])
def test_sgd_decays_apart_from_the_clipped_gradient(rescale, clip):
    w, g = arrays((50,), 0)
    want = (f(1) - f(0.1) * f(0.2)) * w - f(0.1) * clipped(g, rescale, clip)
    call(ops.sgd_update, {"lr": 0.1, "wd": 0.2, "rescale_grad": rescale, "clip_gradient": clip}, [w, g], w)()
    np.testing.assert_array_equal(w, want)


@pytest.mark.parametrize("rescale, clip", [(1.0, -1.0), (0.5, 0.3)])
def test_momentum_takes_the_decay_after_the_clipping(rescale, clip):
    w, g, m = arrays((50,), 1)
    mom = f(0.9) * m - f(0.1) * f(0.2) * w - f(0.1) * clipped(g, rescale, clip)
    want = w + mom
    attrs = {"lr": 0.1, "wd": 0.2, "momentum": 0.9, "rescale_grad": rescale, "clip_gradient": clip}
    call(ops.sgd_mom_update, attrs, [w, g, m], w)()
    np.testing.assert_array_equal(m, mom)
    np.testing.assert_array_equal(w, want)


@pytest.mark.parametrize("rescale, clip", [(1.0, -1.0), (0.5, 0.3)])
def test_adam_clips_after_the_decay_is_added(rescale, clip):
    w, g, m, v = arrays((50,), 2)
    t = g * f(rescale) + f(0.2) * w
    t = np.clip(t, f(-clip), f(clip)) if clip >= 0 else t
    mean = f(0.9) * m + (f(1) - f(0.9)) * t
    var = f(0.999) * v + (f(1) - f(0.999)) * t * t
    want = w - f(0.1) * mean / (np.sqrt(var) + f(1e-8))
    attrs = {"lr": 0.1, "wd": 0.2, "rescale_grad": rescale, "clip_gradient": clip}
    call(ops.adam_update, attrs, [w, g, m, v], w)()
    np.testing.assert_array_equal(m, mean)
    np.testing.assert_array_equal(v, var)
    np.testing.assert_array_equal(w, want)


def test_a_fused_step_is_an_effect_of_a_graph_and_its_states_take_the_weights_shape():
    names = ops._fused_adam.inputs
    node = Node(
        ops._fused_adam, parse_attrs(ops._fused_adam, {"row": 1}), tuple(map(variable, names)), "adam"
    )
    graph = infer_shapes(Graph((), (node,)), {"weight": (3, 4), "grad": (3, 4), "hyper": (2, 2)})
    graph = infer_types(graph, {"weight": "float32"})
    assert [graph.shapes[e] for e in node.inputs] == [(3, 4)] * 4 + [(2, 2)]
    assert [str(graph.dtypes[e]) for e in node.inputs[:-1]] == ["float32"] * 4
    assert node.num_outputs == 0 and Entry(node) not in graph.shapes


def test_a_row_that_hyper_does_not_have_is_an_error():
    with pytest.raises(ShapeError, match=r"hyper must be \(P, 2\) with a row 2, got \(2, 2\)"):
        ops._fused_sgd.infer_shape(parse_attrs(ops._fused_sgd, {"row": 2}), (3,), (3,), (2, 2))


@pytest.mark.parametrize("name", ["ftml_update", "_fused_ftml", "_fused_mp_ftml", "multi_ftml_update"])
def test_every_form_of_a_step_checks_the_steps_parameters(name):
    op = ops.find_op(name)
    rates = {"row": 0} if "fused" in name else {"lr": 0.1, "t": 1}
    many = {"num_args": 5, "lrs": (0.1,), "wds": (0.0,), "step_count": (1,)}
    with pytest.raises(OpAttributeError, match=r"beta1 and beta2 must be in \[0, 1\], got -1.0"):
        parse_attrs(op, {**(many if "multi" in name else rates), "beta1": -1.0})
