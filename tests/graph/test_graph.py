"""The graph and its passes: order, parameters, inference, gradients, updates."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import DefinitionError, DTypeError, MXLiteError, OpAttributeError, ShapeError
from mxlite.graph import (
    attr_fields,
    attr_text,
    backward,
    Entry,
    fuse_updates,
    gradient,
    Graph,
    infer_shapes,
    infer_types,
    needs_head_gradient,
    Node,
    Op,
    output_name,
    parse_attrs,
    state_name,
    UpdateRule,
    variable,
)
from mxlite.graph.opdef import Signature, with_parameters
from mxlite.graph.update import HYPER
from tests.networks.small_networks import mlp, random_network

sym = mx.sym


# -- operators of these tests ----------------------------------------------------------------------------


class plus(Op):
    """Both gradients are that of `out`."""

    inputs = ("lhs", "rhs")
    same_shape = True
    gradient_is = {"lhs": "d_out", "rhs": "d_out"}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.add(lhs, rhs, out=out)


class from_output(Op):
    """Backward reads its output, not its input."""

    inputs = ("data",)
    same_shape = True

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.exp(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)


class scaled(Op):
    """Two weights share one backward call; it reads `data` but no weight, and no output."""

    inputs = ("data", "weight", "bias")
    inferred = ("weight", "bias")

    @staticmethod
    def infer_shape(a, data, weight=None, bias=None):
        return (data, (1,), (1,)), (data,)

    @staticmethod
    def forward(xp, a, data, weight, bias, *, out):
        xp.multiply(data, weight, out=out)
        xp.add(out, bias, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_weight, d_bias):
        if d_weight is not None:
            d_weight[0] = (d_out * data).sum()
        if d_bias is not None:
            d_bias[0] = d_out.sum()


class wall(Op):
    """No gradient passes."""

    inputs = ("data",)
    same_shape = True

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data


class counts(Op):
    """Takes whole numbers, whatever it is told."""

    inputs = ("data",)
    same_shape = True

    @classmethod
    def infer_type(cls, a, *dtypes):
        return (np.dtype("int32"),), (np.dtype("int32"),)

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data


class with_state(Op):
    """An auxiliary state in the middle of the inputs."""

    inputs = ("data", "moving", "gamma")
    aux = ("moving",)
    same_shape = True

    @staticmethod
    def forward(xp, a, data, moving, gamma, *, out):
        xp.multiply(data, gamma, out=out)


class everything(Op):
    """One parameter of each kind."""

    inputs = ("data",)
    same_shape = True

    @dataclass(frozen=True)
    class Attrs:
        kernel: tuple[int, ...]
        mode: Literal["max", "avg"] = "max"
        rate: float = 0.5
        no_bias: bool = False
        axis: int | None = None
        axes: tuple[int, ...] | int | None = None
        scales: tuple[float, ...] = ()
        code: Literal[1, 2] = 1
        label: str = ""
        size: int = 0

        def __post_init__(self):
            if self.rate > 1:
                raise OpAttributeError(f"rate must be at most 1, got {self.rate}.")

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data


class descend(Op):
    """``weight -= hyper[row, 0] * grad``"""

    inputs = ("weight", "grad", "momentum", "hyper")
    outputs = ()
    mutates = ("weight", "momentum")
    recomputable = False

    @dataclass(frozen=True)
    class Attrs:
        row: int
        nesterov: bool = False

    @staticmethod
    def infer_shape(a, weight, grad, momentum, hyper):
        return (weight, weight, weight, hyper), ()

    @staticmethod
    def forward(xp, a, weight, grad, momentum, hyper):
        weight -= hyper[a.row, 0] * grad


def call(op, *inputs, name=None, **attrs):
    return Entry(Node(op, parse_attrs(op, attrs), inputs, name or op.op_name))


def names(nodes):
    return [n.name for n in nodes]


# -- order and lists -------------------------------------------------------------------------------------


def test_nodes_come_depth_first_inputs_in_order():
    a, b, c = variable("a"), variable("b"), variable("c")
    left = call(plus, b, a, name="left")
    right = call(plus, a, c, name="right")
    top = call(plus, left, right, name="top")
    graph = Graph((top, right))
    assert names(graph.nodes) == ["b", "a", "left", "c", "right", "top"]
    assert names(graph.variables) == names(graph.arguments) == ["b", "a", "c"]
    assert graph.uses() == {a: 2, b: 1, c: 1, left: 1, right: 2, top: 1}


def test_any_random_network_has_inputs_before_users_each_node_once():
    for seed in range(5):
        nodes = random_network(seed)[0].graph.nodes
        at = {n: i for i, n in enumerate(nodes)}
        assert len(at) == len(nodes)
        assert all(at[e.node] < i for i, n in enumerate(nodes) for e in n.inputs)


def test_a_given_order_is_kept_and_effects_are_reached():
    a, b = variable("a"), variable("b")
    effect = call(descend, a, b, variable("m"), variable("h"), row=0).node
    graph = Graph((call(wall, a),), effects=(effect,))
    assert names(graph.nodes) == ["a", "wall", "b", "m", "h", "descend"]
    turned = replace(graph, order=(b.node, a.node))
    assert names(turned.nodes) == ["b", "a"]


def test_auxiliary_states_are_no_arguments():
    data, moving, gamma = variable("data"), variable("moving"), variable("gamma")
    graph = Graph((call(with_state, data, moving, gamma),))
    assert names(graph.arguments) == ["data", "gamma"]
    assert names(graph.auxiliary) == ["moving"]
    assert names(graph.variables) == ["data", "moving", "gamma"]


def test_outputs_are_called_as_mxnet_calls_them():
    x = sym.Variable("x")
    two = sym.SliceChannel(x, num_outputs=2, name="cut")
    assert [output_name(e) for e in (*x.entries, *two.entries)] == ["x", "cut_output0", "cut_output1"]
    assert output_name(sym.exp(x, name="e").entries[0]) == "e_output"


def test_bytes_of_an_entry_are_its_elements_times_their_size():
    x = variable("x")
    graph = infer_types(infer_shapes(Graph((call(wall, x),)), {"x": (3, 5)}), {"x": "float16"})
    assert graph.nbytes(x) == 30
    assert [graph.nbytes(e) for e in graph.entries()] == [30, 30]


def test_a_chain_of_20000_nodes_is_walked_without_recursion():
    e = variable("x")
    for i in range(20_000):
        e = call(wall, e, name=f"n{i}")
    graph = without_depth(lambda: infer_types(infer_shapes(Graph((e,)), {"x": (2,)}), {"x": "float32"}))
    assert len(graph.nodes) == 20_001
    assert graph.shapes[e] == (2,)


def without_depth(act):
    """Run with room for a few more Python frames only."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 80)
    try:
        return act()
    finally:
        sys.setrecursionlimit(limit)


# -- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, text, value",
    [
        ("kernel", "(3, 3)", (3, 3)), ("kernel", "[3,3]", (3, 3)), ("kernel", "(3L, 3L)", (3, 3)),
        ("kernel", "3", (3,)),
        ("kernel", "(3,)", (3,)), ("kernel", "()", ()), ("kernel", " ( 3 , -1 ) ", (3, -1)),
        ("kernel", "3, 4", (3, 4)),
        ("kernel", 3, (3,)), ("kernel", [3, np.int64(4)], (3, 4)), ("kernel", np.array([5, 6]), (5, 6)),
        ("no_bias", "True", True), ("no_bias", "true", True), ("no_bias", "1", True), ("no_bias", 1, True),
        ("no_bias", "False", False), ("no_bias", "false", False), ("no_bias", "0", False),
        ("no_bias", np.bool_(1), True),
        ("rate", "0.25", 0.25), ("rate", "1e-3", 1e-3), ("rate", 1, 1.0), ("rate", "-inf", -np.inf),
        ("rate", np.float32(0.5), 0.5),
        ("axis", "None", None), ("axis", None, None), ("axis", "-1", -1), ("axis", 2.0, 2), ("axis", True, 1),
        ("axes", "None", None), ("axes", "(0, 1)", (0, 1)), ("axes", 1, (1,)),
        ("scales", "(0.5, 1)", (0.5, 1.0)), ("scales", "(1e-3,)", (1e-3,)),
        ("mode", "avg", "avg"), ("code", "2", 2), ("code", 2, 2), ("label", "x", "x"), ("label", 3, "3"),
        ("size", "+7", 7), ("size", np.uint8(7), 7),
    ],
)  # fmt: skip
def test_a_parameter_is_read_from_text_or_an_object(key, text, value):
    got = getattr(parse_attrs(everything, {"kernel": "(1,)", key: text}), key)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "key, value, text",
    [
        ("kernel", "(3, x)", "whole number, got 'x'"), ("kernel", "(3.5,)", "whole number"),
        ("kernel", "(9999999999999999999, 1)", "whole number of 64 bits"),
        ("kernel", "(3,,3)", "whole number"), ("kernel", None, "whole number"),
        ("kernel", "__import__('os')", "whole number"), ("kernel", "(1e999,)", "whole number"),
        ("kernel", "(99999999999999999999,)", "whole number"),
        ("mode", "mxa", "Did you mean 'max'"), ("mode", None, "must be one of"),
        ("rate", "fast", "number, got 'fast'"), ("rate", None, "number, got None"), ("rate", (1,), "number"),
        ("no_bias", "yes", "True or False"), ("no_bias", 2, "True or False"),
        ("no_bias", None, "True or False"),
        ("axis", "1.5", "whole number"), ("axis", 1.5, "whole number"),
        ("axis", float("inf"), "whole number"),
        ("axis", float("nan"), "whole number"), ("size", "None", "whole number"),
        ("size", "٣", "whole number"),
        ("code", 3, "must be one of"), ("rate", 2, "at most 1, got 2"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_names_operator_parameter_and_value(key, value, text):
    with pytest.raises(OpAttributeError, match=text) as caught:
        parse_attrs(everything, {"kernel": "(1,)", key: value})
    assert str(caught.value).startswith("everything")
    assert key in str(caught.value)


def test_missing_and_unknown_parameters_are_named():
    with pytest.raises(OpAttributeError, match="everything needs the parameter 'kernel'"):
        parse_attrs(everything, {})
    with pytest.raises(OpAttributeError, match=r"'kernle'.*Did you mean 'kernel'"):
        parse_attrs(everything, {"kernle": (3, 3)})
    assert attr_fields(everything)["kernel"][1] is True
    assert attr_fields(everything)["mode"][1] is False


def test_what_is_written_is_what_is_read():
    for value in ((3, 3), (), 4, 0.1, 1e-30, True, None, "max"):
        assert isinstance(attr_text(value), str)
    assert attr_text(np.float16) == attr_text(np.dtype("float16")) == "float16"
    for key, value in dict(kernel=(3, 3), axis=None, rate=1e-30, no_bias=True, mode="avg").items():
        assert getattr(parse_attrs(everything, {"kernel": (1,), key: attr_text(value)}), key) == value


def test_a_declaration_that_contradicts_itself_is_refused():
    def forward(xp, a, data, *, out):
        """Nothing."""

    def backward(xp, a, d_out, dta, *, d_data):
        """Nothing."""

    for extra, text in (
        (dict(inputs=("x",)), "forward takes"),
        (dict(outputs=("y",)), "forward makes"),
        (dict(in_place={"out": "other"}), "in_place"),
        (dict(mutates=("z",)), "mutates"),
        (dict(aux=("z",)), "aux"),
        (dict(gradient_is={"z": "d_out"}), "gradient_is"),
        (dict(backward=staticmethod(backward)), "backward asks for.*'dta'"),
    ):
        with pytest.raises(DefinitionError, match=text):
            type("wrong", (Op,), {"inputs": ("data",), "forward": staticmethod(forward), **extra})


def test_threads_that_need_a_gradient_operator_at_once_get_the_same():
    def forward(xp, a, data, *, out):
        """Nothing."""

    def backward(xp, a, d_out, *, d_data):
        """Nothing."""

    kernels = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            op = type("quick", (Op,), {"inputs": ("data",), **kernels})
            made, start = [], threading.Barrier(4)

            def run(op=op, made=made, start=start):
                start.wait()
                made.append(op.grad_op)

            threads = [threading.Thread(target=run) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert len(made) == 4 and set(made) == {op.grad_op} and op.grad_op.forward_op is op
    finally:
        sys.setswitchinterval(interval)


def test_kernels_say_their_parameters_whatever_they_are():
    def plain(xp, a, data, *rest, out, work):
        """Nothing."""

    class Family:
        @classmethod
        def bound(cls, xp, a, data, *rest, out, work):
            """Nothing."""

    @functools.wraps(plain)
    def wrapped(*args, **kwargs):
        """Nothing."""

    class Called:
        def __call__(self, xp, a, data, *rest, out, work):
            """Nothing."""

    anything = with_parameters(lambda *args, **kwargs: None, ("data", "rest"), ("out",), ("work",))
    wanted = Signature(("data", "rest"), ("out",), frozenset({"work"}))
    for kernel in (plain, Family.bound, wrapped, Called(), anything):
        assert Signature.of(kernel) == Signature.of(kernel) == wanted
    unbound = Family.__dict__["bound"].__func__  # the same code with one parameter more
    assert Signature.of(unbound).needs == ("a", "data", "rest")


# -- inference -------------------------------------------------------------------------------------------


def test_shapes_flow_forwards_to_weights_and_backwards_to_inputs():
    x = variable("x")
    y = call(wall, call(plus, x, variable("b")))
    graph = Graph((call(plus, y, variable("c")),))
    forwards = infer_shapes(graph, {"x": (2, 3)})
    backwards = infer_shapes(graph, {"c": (2, 3)})
    for found in (forwards, backwards):
        assert set(found.shapes.values()) == {(2, 3)}
        assert len(found.shapes) == len(list(graph.entries()))
    assert graph.shapes == {}
    fc = mlp().graph
    weights = infer_shapes(fc, {"data": (2, 3)})
    by_name = {e.node.name: s for e, s in weights.shapes.items() if e.node.op is None}
    assert by_name["fc1_weight"] == (16, 3)
    assert by_name["softmax_label"] == (2,)


def test_open_dimensions_of_both_sides_are_filled_from_each_other():
    graph = Graph((call(plus, variable("a"), variable("b")),))
    found = infer_shapes(graph, {"a": (-1, 3, -1), "b": (2, -1, -1)})
    assert set(found.shapes.values()) == {(2, 3, -1)}
    assert infer_shapes(graph, {}).shapes == {}


def test_0_is_a_size_of_its_own():
    graph = Graph((call(plus, variable("a"), variable("b")),))
    assert set(infer_shapes(graph, {"a": (0, -1), "b": (-1, 3)}).shapes.values()) == {(0, 3)}
    with pytest.raises(ShapeError, match=r"must have one shape, got \(0, 3\) and \(2, 3\)"):
        infer_shapes(graph, {"a": (0, 3), "b": (2, 3)})


def test_a_variables_own_shape_takes_part():
    a = variable("a", __shape__="(4, 0)")
    graph = Graph((call(plus, a, variable("b")),))
    assert infer_shapes(graph, {"b": (-1, 5)}).shapes[a] == (4, 5)
    with pytest.raises(ShapeError, match=r"'a'.*needs 'a' to be"):
        infer_shapes(graph, {"a": (3, -1)})


def test_a_whole_shape_counts_for_more_than_the_variable_s_own():
    a = variable("a", __shape__="(4, 3)")
    graph = Graph((call(plus, a, variable("b")),))
    again = infer_shapes(graph, {"a": (2, 5)})
    assert set(again.shapes.values()) == {(2, 5)}
    assert infer_shapes(again, {}).shapes == again.shapes


def test_a_type_that_is_known_counts_for_more_than_the_variable_s_own():
    a = variable("a", __dtype__="float32")
    graph = infer_types(Graph((call(plus, a, variable("b")),)), {"a": "float64"})
    assert infer_types(graph, {}).dtypes == graph.dtypes


def test_what_is_far_back_is_learned_in_a_few_rounds():
    """The last of a long chain tells the first; then that one tells a second chain's end."""
    visits = 0

    class watched(wall):
        @classmethod
        def input_names(cls, a):
            nonlocal visits
            visits += 1
            return cls.inputs

    x = variable("x")
    e, f = x, x
    for _ in range(500):
        e, f = call(watched, e), call(watched, f)
    tied = Graph((f, call(plus, e, variable("known"))))
    assert infer_shapes(tied, {"known": (7,)}).shapes[f] == (7,)
    assert visits <= 10 * 1000


@pytest.mark.parametrize(
    "shapes, text",
    [
        ({"a": (2, 3), "b": (3, 2)}, r"plus 'both'.*\(2, 3\).*\(3, 2\).*'b'"),
        ({"a": (2, 3), "b": (2, 3, 1)}, "plus 'both'"),
        ({"a": (0, 3), "b": (2, 4)}, "plus 'both'"),
    ],
)
def test_contradicting_shapes_name_the_node(shapes, text):
    graph = Graph((call(plus, variable("a"), variable("b"), name="both"),))
    with pytest.raises(ShapeError, match=text):
        infer_shapes(graph, shapes)


def test_a_contradiction_with_an_inferred_weight_names_both():
    x, w, b = variable("x"), variable("w"), variable("b")
    graph = Graph((call(scaled, x, w, b, name="s"),))
    with pytest.raises(ShapeError, match=r"scaled 's' needs 'w' to be \(1,\), but it is \(2,\)"):
        infer_shapes(graph, {"x": (3,), "w": (2,)})


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("at", ["a", "b"])
def test_types_are_learned_in_both_directions_float64_too(dtype, at):
    """numpy says that dtype('float64') == None: float64 is the one that a careless test never learns."""
    a, b = variable("a"), variable("b")
    out = call(wall, call(plus, a, b))
    found = infer_types(Graph((out,)), {at: dtype})
    assert {str(d) for d in found.dtypes.values()} == {dtype}
    assert len(found.dtypes) == 4


@pytest.mark.parametrize(
    "net",
    [
        lambda x, y: sym.exp(sym.negative(x)) + y,
        lambda x, y: sym.FullyConnected(x, num_hidden=3, name="fc") + y,
        lambda x, y: sym.add_n(sym.tanh(x), y),
    ],
)
def test_the_type_of_an_output_tells_the_inputs(net):
    """MXNet 1.9.1 says the same: all of these are float64 once `y` is."""
    built = net(sym.Variable("x"), sym.Variable("y"))
    arguments, outputs, _ = built.infer_type(y="float64")
    assert {*arguments, *outputs} == {np.float64}


def test_a_cast_tells_its_input_nothing():
    built = sym.Cast(sym.Variable("x"), dtype="float64") + sym.Variable("y")
    assert built.infer_type_partial()[0] == [None, np.float64]
    exe = built.simple_bind(mx.cpu(), x=(2,), y=(2,))
    assert (exe.arg_dict["x"].dtype, exe.arg_dict["y"].dtype) == (np.float32, np.float64)


def test_contradicting_types_name_the_node():
    graph = Graph((call(plus, variable("a"), variable("b"), name="both"),))
    with pytest.raises(DTypeError, match=r"plus 'both'.*float32.*float64"):
        infer_types(graph, {"a": "float32", "b": "float64"})


def test_an_input_that_must_be_of_another_type_is_named():
    x = variable("x")
    graph = Graph((call(counts, x, name="c"),))
    assert infer_types(graph, {}).dtypes[x] == np.int32
    with pytest.raises(DTypeError, match=r"counts 'c' needs 'x' to be int32, but it is float64"):
        infer_types(graph, {"x": "float64"})


def test_types_that_nobody_says_are_the_default_once_all_else_is_known():
    a, b, c, d = (variable(n) for n in "abcd")
    graph = Graph((call(plus, a, b), call(plus, c, d)))
    found = infer_types(graph, {"b": "float64"}, default="float32")
    assert [str(found.dtypes[v]) for v in (a, b, c, d)] == ["float64", "float64", "float32", "float32"]
    assert [str(found.dtypes[e]) for e in graph.outputs] == ["float64", "float32"]
    assert a in infer_types(graph, {"b": "float64"}).dtypes
    assert c not in infer_types(graph, {"b": "float64"}).dtypes


@pytest.mark.parametrize("text, dtype", [("1", "float64"), ("float16", "float16"), ("12", "bfloat16")])
def test_a_variables_own_type_is_a_number_or_a_name_and_gives_way(text, dtype):
    a = variable("a", __dtype__=text)
    graph = Graph((call(wall, a),))
    assert str(infer_types(graph, {}).dtypes[graph.outputs[0]]) == dtype
    assert str(infer_types(graph, {"a": "int8"}).dtypes[graph.outputs[0]]) == "int8"


def test_an_unknown_type_number_is_refused():
    with pytest.raises(DTypeError, match="number 99"):
        infer_types(Graph((call(wall, variable("a", __dtype__="99")),)), {})


def test_a_gradient_is_as_its_input():
    x, w, b = variable("x"), variable("w"), variable("b")
    graph = gradient(Graph((call(scaled, x, w, b),)), [w, b])
    found = infer_types(infer_shapes(graph, {"x": (3, 4)}), {"w": "float64", "x": "float64", "b": "float64"})
    for i, of in ((1, w), (2, b)):
        assert found.shapes[graph.outputs[i]] == found.shapes[of] == (1,)
        assert found.dtypes[graph.outputs[i]] == np.float64


# -- gradients: their values -----------------------------------------------------------------------------


def random_graph(seed):
    """A random graph over three (3, 4) variables and a shared (4, 4) weight, for mx and torch alike."""
    rng = np.random.default_rng(seed)
    symbols = [sym.Variable(n) for n in "abc"]
    weight = sym.Variable("w")
    steps = []
    live = list(symbols)
    for _ in range(int(rng.integers(4, 12))):
        kind = int(rng.integers(0, 11))
        i, j, k = (int(rng.integers(max(0, len(live) - 5), len(live))) for _ in range(3))
        x, y, z = live[i], live[j], live[k]
        if kind == 0:
            out = x + y
        elif kind == 1:
            out = x - y
        elif kind == 2:
            out = sym.tanh(x) * y
        elif kind == 3:
            out = sym.sigmoid(x)
        elif kind == 4:
            out = sym.add_n(x, y, z, x)
        elif kind == 5:
            part = sym.SliceChannel(x, num_outputs=2, axis=1)
            out = sym.Concat(part[1], sym.tanh(part[0]), dim=1)
        elif kind == 6:
            part = sym.SliceChannel(x, num_outputs=2, axis=1)[int(seed) % 2]
            out = sym.Concat(part, part, dim=1)
        elif kind == 7:
            out = sym.tanh(sym.FullyConnected(x, weight, num_hidden=4, no_bias=True))
        elif kind == 8:
            out = sym.BlockGrad(sym.tanh(x)) * y
        elif kind == 9:
            out = sym.broadcast_add(x * 0.5 + 1, sym.mean(y, axis=1, keepdims=True))
        else:
            out = sym.square(sym.tanh(x)) - sym.exp(-sym.square(y))
        steps.append((kind, i, j, k))
        live.append(out)
    heads = [live[-1]] if rng.random() < 0.5 else [live[-1], live[-3]]
    return sym.Group(heads), steps, [len(live) - 1, len(live) - 3][: len(heads)]


def in_torch(torch, seed, steps, heads, values):
    leaves = {n: torch.tensor(v, requires_grad=True) for n, v in values.items()}
    live = [leaves[n] for n in "abc"]
    for kind, i, j, k in steps:
        x, y, z = live[i], live[j], live[k]
        halves = x.chunk(2, dim=1)
        live.append(
            x + y if kind == 0
            else x - y if kind == 1
            else x.tanh() * y if kind == 2
            else x.sigmoid() if kind == 3
            else x + y + z + x if kind == 4
            else torch.cat([halves[1], halves[0].tanh()], 1) if kind == 5
            else torch.cat([halves[seed % 2]] * 2, 1) if kind == 6
            else (x @ leaves["w"].T).tanh() if kind == 7
            else x.tanh().detach() * y if kind == 8
            else x * 0.5 + 1 + y.mean(1, keepdim=True) if kind == 9
            else x.tanh() ** 2 - (-(y**2)).exp()
        )  # fmt: skip
    return leaves, [live[h] for h in heads]


def values_for(net, seed):
    rng = np.random.default_rng(1000 + seed)
    values = {n: rng.standard_normal((3, 4)) for n in "abc"} | {"w": rng.standard_normal((4, 4))}
    shapes = {n: v.shape for n, v in values.items() if n in net.list_arguments()}
    heads = [rng.standard_normal((3, 4)) for _ in net.list_outputs()]
    return values, shapes, heads


def bound(net, values, shapes):
    exe = net.simple_bind(mx.cpu(), type_dict=dict.fromkeys(shapes, "float64"), **shapes)
    for n in shapes:
        exe.arg_dict[n][:] = values[n]
    return exe


@pytest.mark.parametrize("seed", range(25))
def test_gradients_agree_with_finite_differences(seed):
    net, steps, _ = random_graph(seed)
    values, shapes, heads = values_for(net, seed)
    exe = bound(net, values, shapes)
    exe.forward(is_train=True)
    exe.backward([mx.nd.array(h, dtype="float64") for h in heads])
    blocked = {k for k, *_ in steps} & {8}
    if blocked:
        return  # finite differences see through BlockGrad; torch does not
    h = 1e-6
    rng = np.random.default_rng(seed)
    for name in shapes:
        direction = rng.standard_normal(values[name].shape)
        ends = []
        for sign in (1, -1):
            exe.arg_dict[name][:] = values[name] + sign * h * direction
            ends.append(sum((o.asnumpy() * g).sum() for o, g in zip(exe.forward(), heads)))
        exe.arg_dict[name][:] = values[name]
        along = (exe.grad_dict[name].asnumpy() * direction).sum()
        assert along == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6), name


@pytest.mark.torch
@pytest.mark.parametrize("seed", range(60))
def test_gradients_agree_with_torch(seed):
    torch = pytest.importorskip("torch")
    net, steps, at = random_graph(seed)
    values, shapes, heads = values_for(net, seed)
    exe = bound(net, values, shapes)
    outputs = exe.forward(is_train=True)
    exe.backward([mx.nd.array(h, dtype="float64") for h in heads])
    leaves, wanted = in_torch(torch, seed, steps, at, values)
    torch.autograd.backward(
        [w for w in wanted if w.requires_grad],
        [torch.tensor(h) for h, w in zip(heads, wanted) if w.requires_grad],
    )
    for o, w in zip(outputs, wanted):
        np.testing.assert_allclose(o.asnumpy(), w.detach().numpy(), rtol=1e-12, atol=1e-12)
    for name in shapes:
        grad = leaves[name].grad
        grad = np.zeros(shapes[name]) if grad is None else grad.numpy()
        np.testing.assert_allclose(exe.grad_dict[name].asnumpy(), grad, rtol=1e-10, atol=1e-12, err_msg=name)


# -- gradients: the graph they make ----------------------------------------------------------------------


def backward_nodes(graph, of):
    """The nodes of a training graph that its forward graph does not have, head gradients left out."""
    old = set(of.nodes)
    return [n for n in graph.nodes if n not in old and n.op is not None]


def test_the_gradient_of_a_sum_is_no_node():
    a, b, head = variable("a"), variable("b"), variable("head")
    graph = Graph((call(plus, a, b),))
    trained, grads = backward(graph, [a, b], {0: head})
    assert grads == [head, head]
    assert backward_nodes(trained, graph) == []


def test_a_variable_that_is_an_output_has_its_head_as_gradient():
    a, head = variable("a"), variable("head")
    _, grads = backward(Graph((a,)), [a], {0: head})
    assert grads == [head]


def test_a_backward_node_reads_exactly_what_is_declared():
    x = variable("x")
    y = call(from_output, x)
    z = call(from_output, y)
    head = variable("head")
    trained, _ = backward(Graph((z,)), [x], {0: head})
    second, first = backward_nodes(trained, Graph((z,)))
    assert second.inputs == (head, z)
    assert first.inputs == (Entry(second), y)
    assert second.forward is z.node
    assert trained.uses()[x] == 1  # forward alone


def test_nothing_but_what_is_declared_is_kept_in_the_arena():
    """A plan of 30 layers that read their output, not their input: 31 arrays, not 60."""
    e = sym.Variable("x")
    for _ in range(30):
        e = sym.exp(sym.negative(e))
    plan = sym.MakeLoss(e).memory_plan(mx.cpu(), grad_req={"x": "write"}, x=(256,))
    assert plan.arena_bytes <= 32 * 1024


def test_each_entry_read_by_backward_is_named_by_the_operators_backward():
    for seed in range(6):
        net, _ = random_network(seed, blocks=10)
        graph = net.graph
        trained, _ = backward(
            graph, [Entry(n) for n in graph.arguments if n.name not in ("data", "softmax_label")], {}
        )
        for node in backward_nodes(trained, graph):
            if node.forward is None:
                continue
            f = node.forward
            have = dict(zip(f.input_names, f.inputs)) | {y: Entry(f, i) for i, y in enumerate(f.output_names)}
            for name, e in zip(node.input_names, node.inputs):
                assert name.startswith("d_") or have[name] == e
            assert {*node.input_names, *node.absent} == set(node.op.input_names(node.attrs))
            assert all(n.startswith("d_") for n in node.absent)


def test_a_part_without_a_gradient_is_absent():
    x, head = sym.Variable("x"), variable("head")
    parts = sym.SliceChannel(x, num_outputs=3, axis=0, name="cut")
    graph = Graph((parts[1].entries[0],))
    _, (grad,) = backward(graph, [x.entries[0]], {0: head})
    assert grad.node.absent == {"d_output0", "d_output2"}
    assert grad.node.input_names == ("d_output1",)
    assert grad.node.inputs == (head,)
    exe = (parts[1] * 2).simple_bind(mx.cpu(), x=(3, 2))
    exe.forward(is_train=True)
    exe.backward(mx.nd.array([[5, 7]]))
    assert exe.grad_dict["x"].asnumpy().tolist() == [[0, 0], [10, 14], [0, 0]]


def test_gradients_that_meet_are_added_as_they_arrive():
    """Each sum stands right behind the node that makes its second term."""
    x, head = variable("x"), variable("head")
    parts = [call(from_output, x, name=f"p{i}") for i in range(6)]
    total = parts[0]
    for p in parts[1:]:
        total = call(plus, total, p)
    trained, _ = backward(Graph((total,)), [x], {0: head})
    made = [n.op.op_name for n in trained.nodes if n not in set(Graph((total,)).nodes) and n.op is not None]
    assert made == ["_backward_from_output"] + ["_backward_from_output", "_grad_add"] * 5


def unrolled(steps):
    """A weight shared by many time steps."""
    weight, state = sym.Variable("w"), sym.Variable("h")
    for t in range(steps):
        state = sym.tanh(sym.FullyConnected(state, weight, num_hidden=64, no_bias=True, name=f"t{t}"))
    return sym.MakeLoss(state)


def test_a_weight_shared_by_64_steps_has_one_running_sum():
    net = unrolled(64)
    graph = net.graph
    weight = next(Entry(n) for n in graph.arguments if n.name == "w")
    trained, _ = backward(graph, [weight], {})
    trained = infer_shapes(trained, {"h": (1, 64)})
    last = {e: s for s, n in enumerate(trained.nodes) for e in n.inputs}
    live, most = set(), 0
    for s, node in enumerate(trained.nodes):
        made = {Entry(node, i) for i in range(node.num_outputs)} if node.op is not None else set()
        live |= {e for e in made if trained.shapes[e] == (64, 64)}
        most = max(most, len(live))
        live = {e for e in live if last.get(e, len(trained.nodes)) > s}
    assert most <= 3  # the running sum, the new term, their sum
    plan = net.memory_plan(mx.cpu(), grad_req={"w": "write"}, h=(1, 64))
    sizes = 64 * 64 * 4
    assert plan.arena_bytes < 2.5 * sizes + 64 * 3 * 256
    longer = unrolled(128).memory_plan(mx.cpu(), grad_req={"w": "write"}, h=(1, 64))
    assert longer.arena_bytes - plan.arena_bytes < 64 * 3 * 256


def test_losses_need_no_head_gradient_and_ignore_one():
    net = mlp()
    assert not needs_head_gradient(net.graph.outputs[0].node)
    assert needs_head_gradient(sym.exp(sym.Variable("x")).graph.outputs[0].node)
    assert needs_head_gradient(variable("x").node)
    taken = sym.SoftmaxOutput(sym.Variable("x"), name="s", out_grad=True).graph.outputs[0].node
    assert needs_head_gradient(taken)
    found = []
    for heads in (None, [mx.nd.ones((2, 5)) * 100]):
        exe = net.simple_bind(mx.cpu(), data=(2, 3))
        exe.arg_dict["fc1_weight"][:] = 0.5
        exe.forward(is_train=True, data=np.ones((2, 3), "float32"))
        exe.backward(heads)
        found.append(exe.grad_dict["fc2_bias"].asnumpy())
    assert np.array_equal(*found)
    assert np.abs(found[0]).sum() > 0


def test_a_loss_that_is_no_output_starts_no_gradient():
    """As in MXNet: a loss whose result is only looked at, behind BlockGrad, trains nothing."""
    x, head = sym.Variable("x"), variable("head")
    seen = sym.BlockGrad(sym.MakeLoss(sym.square(x)))
    _, grads = backward((seen + sym.Variable("y")).graph, list(x.entries), {0: head})
    assert grads == [None]


def test_a_loss_inside_the_graph_starts_anew():
    x = sym.Variable("x")
    exe = (sym.MakeLoss(sym.square(x), grad_scale=3) * 100).simple_bind(mx.cpu(), x=(2,))
    exe.forward(is_train=True, x=np.array([1, 2], "float32"))
    exe.backward(mx.nd.ones((2,)))
    assert exe.grad_dict["x"].asnumpy().tolist() == [6, 12]


def test_block_grad_blocks_and_only_there():
    x, y, head = variable("x"), variable("y"), variable("head")
    graph = Graph((call(plus, call(wall, call(from_output, x)), call(from_output, y)),))
    trained, (dx, dy) = backward(graph, [x, y], {0: head})
    assert dx is None
    assert [n.op.op_name for n in backward_nodes(trained, graph)] == ["_backward_from_output"]
    assert dy.node.forward.inputs == (y,)
    with pytest.raises(MXLiteError, match=r"do not depend on \['x'\]"):
        gradient(graph, [x, y])


def test_gradients_that_nobody_wants_are_not_made():
    data, w, b, head = (variable(n) for n in ("data", "w", "b", "head"))
    graph = Graph((call(scaled, call(from_output, data), w, b),))
    trained, (db,) = backward(graph, [b], {0: head})
    assert names(backward_nodes(trained, graph)) == ["scaled_backward"]
    assert trained.uses().get(Entry(db.node, 0), 0) == 0
    _, none = backward(graph, [data], {0: head})
    assert none == [None]


def test_the_gradient_of_an_inner_entry_is_found():
    x, head = variable("x"), variable("head")
    y = call(from_output, x)
    graph = Graph((call(from_output, y),))
    _, (dy,) = backward(graph, [y], {0: head})
    assert dy.node.forward is graph.outputs[0].node


def test_one_output_asked_for_twice_gets_the_sum_of_its_heads():
    x, h0, h1 = variable("x"), variable("h0"), variable("h1")
    y = call(from_output, x)
    graph = Graph((y, y))
    trained, _ = backward(graph, [x], {0: h0, 1: h1})
    total, back = backward_nodes(trained, graph)
    assert total.inputs == (h0, h1)
    assert back.inputs == (Entry(total), y)


def test_gradient_starts_with_ones_except_at_losses():
    x = sym.Variable("x")
    grads = sym.Group([sym.square(x), sym.MakeLoss(sym.exp(x))]).gradient("x")
    out = grads.eval(mx.cpu(), x=mx.nd.array([0.0, 1.0]))[0].asnumpy()
    np.testing.assert_allclose(out, [1, 2 + np.e], rtol=1e-6)


def test_forward_nodes_keep_their_order_and_backward_visits_them_in_reverse():
    net = mlp().graph
    wanted = [Entry(n) for n in net.arguments if n.name.startswith("fc")]
    trained, _ = backward(net, wanted, {})
    assert [n for n in trained.nodes if n in set(net.nodes)] == list(net.nodes)
    assert names(backward_nodes(trained, net)) == [
        f"{n}_backward" for n in ("softmax", "fc2", "relu1", "fc1")
    ]


def test_backward_goes_back_in_time_not_parameter_by_parameter():
    """Branches are walked last first, whatever the order of `wrt`; each sum comes with its second term."""
    x, head = variable("x"), variable("head")
    ws = [variable(f"w{i}") for i in range(3)]
    parts = [call(scaled, x, w, variable(f"b{i}"), name=f"s{i}") for i, w in enumerate(ws)]
    graph = Graph((call(plus, call(plus, parts[0], parts[1]), parts[2]),))
    for wrt in (ws, ws[::-1]):
        trained, _ = backward(graph, wrt, {0: head})
        assert names(backward_nodes(trained, graph)) == ["s2_backward", "s1_backward", "s0_backward"]


def test_nothing_is_written_to_the_graph_that_was_given():
    net = mlp().graph
    before = (net.outputs, net.nodes, net.order, dict(net.shapes))
    backward(net, [Entry(n) for n in net.arguments], {})
    infer_shapes(net, {"data": (2, 3)})
    assert (net.outputs, net.nodes, net.order, dict(net.shapes)) == before


def test_a_chain_of_20000_nodes_differentiates_in_linear_time_without_recursion():
    def seconds(length):
        x = variable("x")
        e = x
        for i in range(length):
            e = call(plus, call(from_output, e, name=f"e{i}"), x) if i % 2 else call(from_output, e)
        graph = Graph((e,))
        graph.nodes  # noqa: B018  # walked once, outside the clock
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            trained, grads = without_depth(lambda: backward(graph, [x], {0: variable("head")}))
            best = min(best, time.process_time() - start)
        made = Counter(n.op.op_name for n in trained.nodes if n.op is not None)
        assert made["_backward_from_output"] == made["from_output"] == length
        assert grads[0] is not None
        return best

    short, long = seconds(2_500), seconds(20_000)
    assert long < 25 * short  # linear is 8, quadratic 64


# -- updates ---------------------------------------------------------------------------------------------


def fused(rule=None):
    x, w, b, head = (variable(n) for n in ("x", "w", "b", "head"))
    graph = Graph((call(scaled, x, w, b),))
    trained, grads = backward(graph, [w, b], {0: head})
    rule = rule or UpdateRule(descend, {"nesterov": True}, ("momentum",))
    return (
        graph,
        fuse_updates(replace(trained, outputs=graph.outputs), rule, [(w, grads[0]), (b, grads[1])]),
        grads,
    )


def test_an_update_node_reads_weight_gradient_states_and_its_row():
    graph, result, grads = fused()
    first, second = result.effects
    assert (first.name, second.name) == ("w_update", "b_update")
    assert (first.attrs, second.attrs) == (descend.Attrs(0, True), descend.Attrs(1, True))
    assert names(e.node for e in first.inputs) == ["w", grads[0].node.name, "w:momentum", HYPER]
    assert first.inputs[1] == grads[0]
    assert second.inputs[2].node.name == state_name("b", "momentum") == "b:momentum"
    assert first.inputs[3] is not None and first.inputs[3] == second.inputs[3]
    assert result.outputs == graph.outputs


def test_updates_stand_last_behind_all_they_read():
    _, result, _ = fused()
    nodes = list(result.nodes)
    assert tuple(nodes[-2:]) == result.effects
    at = {n: i for i, n in enumerate(nodes)}
    assert len(at) == len(nodes)
    assert all(at[e.node] < i for i, n in enumerate(nodes) for e in n.inputs)


def test_effects_that_are_there_stay():
    _, result, _ = fused()
    w = next(Entry(n) for n in result.nodes if n.name == "w")
    more = fuse_updates(result, UpdateRule(descend, {}, ("second",)), [(w, w)])
    assert more.effects[:2] == result.effects
    assert len(more.effects) == 3


def test_an_update_without_a_parameter_it_has_is_refused():
    with pytest.raises(OpAttributeError, match="momentun"):
        fused(UpdateRule(descend, {"momentun": 0.9}))
