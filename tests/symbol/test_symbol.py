"""Symbols: composition, names, attributes, lists, inference, gradients, copies."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import pathlib
import pickle
import time
import weakref

import numpy as np
import pytest

import mxlite as mx
import mxlite.symbol as sym
from mxlite import ndarray as nd
from mxlite.core import (
    cpu,
    DTypeError,
    MXLiteError,
    OpAttributeError,
    ShapeError,
    UnknownNameError,
)
from mxlite.core.compat.npshape import np_shape
from mxlite.ndarray import array
from mxlite.ops import TABLE
from mxlite.symbol import AttrScope, NameManager, Prefix

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "mxnet"
LONG = 20_000
A, B, C = map(sym.Variable, "abc")


@pytest.fixture(autouse=True)
def fresh_names():
    with NameManager():
        yield


@pytest.fixture
def a():
    return sym.Variable("a")


@pytest.fixture
def b():
    return sym.Variable("b")


def lenet():
    x = sym.Variable("data")
    for filters in (20, 50):
        x = sym.Convolution(x, kernel=(5, 5), num_filter=filters)
        x = sym.Activation(x, act_type="tanh")
        x = sym.Pooling(x, pool_type="max", kernel=(2, 2), stride=(2, 2))
    x = sym.FullyConnected(sym.Flatten(x), num_hidden=500)
    x = sym.Activation(x, act_type="tanh")
    x = sym.FullyConnected(x, num_hidden=10)
    return sym.SoftmaxOutput(x, name="softmax")


# -- what MXNet says of the same network ---------------------------------------------------------


def test_lists_shapes_and_attributes_of_lenet_are_those_of_mxnet():
    net, told = lenet(), json.loads((GOLDEN / "lenet-meta.json").read_text())
    assert net.list_arguments() == told["arguments"]
    assert net.list_auxiliary_states() == told["aux"]
    assert net.list_outputs() == told["outputs"]
    assert net.get_internals().list_outputs() == told["internals"]
    assert net.attr_dict() == told["attr_dict"]
    shapes = net.infer_shape(data=(2, 1, 28, 28))
    assert [[list(s) for s in part] for part in shapes] == [
        told[k] for k in ("arg_shapes", "out_shapes", "aux_shapes")
    ]


# -- names ---------------------------------------------------------------------------------------


def test_overloads_are_named_as_in_mxnet(a, b):
    expected = {
        "_plus0": a + b, "_minus0": a - b, "_mul0": a * b, "_div0": a / b, "_power0": a**b, "_mod0": a % b,
        "_plusscalar0": a + 1, "_plusscalar1": 1 + a, "_minusscalar0": a - 1, "_rminusscalar0": 1 - a,
        "_mulscalar0": a * 2, "_divscalar0": a / 2, "_rdivscalar0": 2 / a, "_powerscalar0": a**2,
        "_rpower_scalar0": 2**a, "_modscalar0": a % 2, "_rmodscalar0": 2 % a, "_mulscalar1": -a,
        "_equal0": a == b, "_equal_scalar0": a == 1, "_not_equal0": a != b, "_greater0": a > b,
        "_greater_scalar0": a > 1, "_lesser_scalar0": 1 > a, "_lesser_equal0": a <= b,
        "_greater_equal_scalar0": 1 <= a, "_maximum0": sym.maximum(a, b),
        "_minimumscalar0": sym.minimum(1, a),
    }  # fmt: skip
    assert [s.name for s in expected.values()] == list(expected)


def test_the_hint_is_the_name_that_was_called(a):
    assert sym.SliceChannel(a, num_outputs=2).name == "slicechannel0"
    assert sym.split(a, num_outputs=2).name == "split0"
    assert sym.Concat(a, a).name == "concat0" and sym.concat(a, a).name == "concat1"


def test_a_new_name_manager_counts_from_0(a):
    assert sym.Flatten(a).name == "flatten0"
    with NameManager() as names:
        assert sym.Flatten(a).name == "flatten0" and NameManager.current is names
    assert sym.Flatten(a).name == "flatten1"


def test_a_prefix_goes_before_operators_and_created_inputs_but_not_variables(a):
    with Prefix("net_"):
        assert sym.Flatten(sym.Variable("q"), name="r").list_outputs() == ["net_r_output"]
        fc = sym.FullyConnected(a, num_hidden=1)
    assert fc.list_arguments() == ["a", "net_fullyconnected0_weight", "net_fullyconnected0_bias"]


def test_a_refused_call_uses_up_no_name(a):
    with pytest.raises(OpAttributeError):
        sym.Flatten(a, nonsense=1)
    assert sym.Flatten(a).name == "flatten0"


# -- composition ---------------------------------------------------------------------------------


def test_missing_inputs_become_variables_named_after_the_node():
    fc = sym.FullyConnected(name="q", num_hidden=3)
    assert fc.list_arguments() == ["q_data", "q_weight", "q_bias"]


def test_an_input_that_a_parameter_switches_off_is_not_created(a):
    assert sym.FullyConnected(a, num_hidden=3, no_bias=True, name="q").list_arguments() == ["a", "q_weight"]
    assert sym.FullyConnected(a, None, None, num_hidden=3, no_bias=True, name="q").list_arguments() == [
        "a",
        "q_weight",
    ]


def test_inputs_and_parameters_can_be_given_by_position(a, b):
    fc = sym.FullyConnected(a, b, None, 3, name="q")
    assert fc.list_arguments() == ["a", "b", "q_bias"]
    assert fc.attr("num_hidden") == "3"


def test_created_variables_carry_their_operators_attributes_and_given_ones_do_not(a):
    bn = sym.BatchNorm(a, name="bn", fix_gamma=False, attr={"__lr_mult__": "2"})
    found = bn.attr_dict()
    shared = {"fix_gamma": "False", "__lr_mult__": "2", "lr_mult": "2"}
    assert found == {
        "bn": shared,
        "bn_gamma": shared,
        "bn_beta": shared,
        "bn_moving_mean": {**shared, "__init__": '["zero", {}]'},
        "bn_moving_var": {**shared, "__init__": '["one", {}]'},
    }


def test_states_are_listed_apart_from_arguments(a):
    bn = sym.BatchNorm(a, name="bn")
    assert bn.list_arguments() == ["a", "bn_gamma", "bn_beta"]
    assert bn.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert bn.list_inputs() == bn.list_arguments() + bn.list_auxiliary_states()


def test_variadic_operators_count_their_inputs(a, b):
    cat = sym.Concat(a, b, a, dim=0, name="c")
    assert cat.attr("num_args") == "3" and cat.list_arguments() == ["a", "b"]
    assert sym.Concat(arg0=a, arg1=b, name="c").list_arguments() == ["a", "b"]
    assert sym.Concat(a, num_args=2, name="c").list_arguments() == ["a", "c_arg1"]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a, b: sym.FullyConnected(a, num_hiden=3), OpAttributeError, "Did you mean 'num_hidden'"),
        (
            lambda a, b: sym.FullyConnected(a, name="fc1"),
            OpAttributeError,
            "'fc1' needs the parameter 'num_hidden'",
        ),
        (lambda a, b: sym.Activation(a, act_type="rel"), OpAttributeError, "Did you mean 'relu'"),
        (
            lambda a, b: sym.FullyConnected(a, num_hidden=3, wieght=b),
            UnknownNameError,
            "Did you mean 'weight'",
        ),
        (
            lambda a, b: sym.FullyConnected(a, bias=b, num_hidden=3, no_bias=True),
            UnknownNameError,
            "no_bias=True",
        ),
        (lambda a, b: sym.FullyConnected(a, data=b, num_hidden=3), MXLiteError, "'data' twice"),
        (lambda a, b: sym.FullyConnected(a, b, a, 3, num_hidden=3), MXLiteError, "'num_hidden' twice"),
        (lambda a, b: sym.FullyConnected(a, b, a, b, num_hidden=3), MXLiteError, "takes 3 inputs"),
        (lambda a, b: sym.FullyConnected(a, b, a, num_hidden=3, no_bias=True), MXLiteError, "takes 2 inputs"),
        (lambda a, b: sym.Flatten(a, b), MXLiteError, "takes 1 inputs"),
        (lambda a, b: sym.FullyConnected(5, num_hidden=3), OpAttributeError, "must be a Symbol, got int"),
        (lambda a, b: sym.FullyConnected(data=5, num_hidden=3), OpAttributeError, "'data' must be a Symbol"),
        (
            lambda a, b: sym.FullyConnected(sym.split(a, num_outputs=3), num_hidden=3),
            MXLiteError,
            "3 outputs",
        ),
        (lambda a, b: sym.Flatten(sym.Group([a, b])), MXLiteError, "2 outputs"),
        (lambda a, b: sym.split(a, num_outputs=3) + 1, MXLiteError, "3 outputs"),
        (lambda a, b: sym.Concat([a, b]), OpAttributeError, "Spread a list"),
        (lambda a, b: sym.Concat(a, arg1=b), MXLiteError, "not mixed"),
        (lambda a, b: sym.Concat(x=a, y=b), UnknownNameError, "arg0, arg1"),
        (lambda a, b: sym.Concat(a, b, a, num_args=2), MXLiteError, "3 were given"),
        (lambda a, b: sym.Concat(), OpAttributeError, "cannot have 0 inputs"),
        (lambda a, b: sym.Concat(a, num_args=100_000), OpAttributeError, "cannot have 100000 inputs"),
        (lambda a, b: sym.split(a, num_outputs=100_000), OpAttributeError, "outputs"),
        (
            lambda a, b: sym.FullyConnected(a, num_hidden=3, attr={"mood": "x"}),
            OpAttributeError,
            "no parameter 'mood'",
        ),
        (lambda a, b: a + "x", OpAttributeError, "not on str"),
        (lambda a, b: a == None, OpAttributeError, "not on NoneType"),  # noqa: E711
        (lambda a, b: a + np.ones(2), OpAttributeError, "not on ndarray"),
        (lambda a, b: sym.Group([]), OpAttributeError, "one symbol or more"),
        (lambda a, b: sym.Group([a, 3]), OpAttributeError, "one symbol or more"),
        (lambda a, b: sym.Variable(3), OpAttributeError, "must be text"),
        (lambda a, b: sym.Variable("v", foo=1), UnknownNameError, "'__foo__'"),
        (lambda a, b: sym.Variable("v", attr={"x": 3}), OpAttributeError, "must be text"),
        (
            lambda a, b: sym.Variable("v", stype="rows"),
            OpAttributeError,
            "stype is one of default, row_sparse, csr",
        ),
        (lambda a, b: sym.Variable("v", shape=(2, -1)), ShapeError, "whole numbers"),
        (lambda a, b: AttrScope(x=3), OpAttributeError, "must be text"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(a, b, call, error, words):
    with pytest.raises(error, match=words):
        call(a, b)


def test_what_an_operator_gets_is_what_a_file_will_say(a):
    conv = sym.Convolution(a, kernel=np.array([3, 3]), num_filter=np.int64(8), stride=(np.int32(2), 2))
    assert (
        conv.attr("kernel") == "(3, 3)" and conv.attr("num_filter") == "8" and conv.attr("stride") == "(2, 2)"
    )
    assert sym.load_json(conv.tojson()).tojson() == conv.tojson()
    assert sym.Cast(a, dtype=np.float16).attr("dtype") == "float16"
    assert (a + np.float32(0.1)).attr("scalar") == "0.1"
    assert (np.float32(2) * a).attr("scalar") == "2.0"


def test_every_operator_has_a_function_with_help_and_signature():
    for name, op in TABLE.items():
        function = getattr(sym, name)
        assert function.__name__ == name
        told = inspect.signature(function).parameters
        assert set(told) >= {*(op.inputs or ()), "name", "attr"}
        for key in told.keys() - {"name", "attr"}:
            assert f"{key} : " in function.__doc__
    assert "act_type : {" in sym.Activation.__doc__ and "required" in sym.Activation.__doc__
    assert set(TABLE) <= set(dir(sym))


def test_an_unknown_function_suggests_the_near_one():
    with pytest.raises(AttributeError, match="Did you mean 'Convolution'"):
        sym.Convolutio  # noqa: B018


def test_operators_are_methods_too(a):
    assert a.sum(axis=1).list_outputs() == ["sum0_output"]
    assert a.reshape((2, 3)).attr("shape") == "(2, 3)"
    assert a.astype("float16").attr("dtype") == "float16"
    assert not hasattr(a, "shape")


def test_composing_replaces_a_free_variable_and_leaves_the_original(a, b):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    moved = fc(a=b, name="new")
    assert moved.list_arguments() == ["b", "fc_weight", "fc_bias"] and moved.list_outputs() == ["new_output"]
    assert fc.list_arguments() == ["a", "fc_weight", "fc_bias"] and fc.list_outputs() == ["fc_output"]
    assert a(a=b).name == "b"


def test_a_network_composed_with_itself_shares_its_weights(a):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    twice = fc(a=fc)
    assert twice.list_arguments() == ["a", "fc_weight", "fc_bias"]
    assert twice.infer_shape(a=(2, 3))[1] == [(2, 3)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f, a: f(b=a), "no free variable 'b'"),
        (lambda f, a: f(a), "composed by name"),
        (lambda f, a: f(a=3), "replaced by a Symbol, got int"),
        (lambda f, a: f(a=sym.split(a, num_outputs=2)), "2 outputs"),
        (lambda f, a: a(name="x"), "cannot be renamed"),
    ],
)
def test_wrong_composition_is_refused(a, call, words):
    with pytest.raises(MXLiteError, match=words):
        call(sym.FullyConnected(a, num_hidden=3), a)


# -- outputs -------------------------------------------------------------------------------------


def test_outputs_are_chosen_by_number_name_and_slice(a):
    parts = sym.split(a, num_outputs=3, name="sp")
    assert parts.list_outputs() == ["sp_output0", "sp_output1", "sp_output2"] and len(parts) == 3
    assert parts[1].list_outputs() == parts["sp_output1"].list_outputs() == ["sp_output1"]
    assert parts[::2].list_outputs() == ["sp_output0", "sp_output2"]
    assert [p.list_outputs()[0] for p in parts] == parts.list_outputs()
    with pytest.raises(IndexError, match="no number 3"):
        parts[3]
    with pytest.raises(MXLiteError, match="counted from 0"):
        parts[-1]
    with pytest.raises(UnknownNameError, match="Did you mean 'sp_output"):
        parts["sp_output"]
    with pytest.raises(OpAttributeError):
        parts[1.5]


def test_hidden_outputs_show_only_when_asked_for(a):
    assert sym.BatchNorm(a, name="bn").list_outputs() == ["bn_output"]
    shown = sym.BatchNorm(a, name="bn", output_mean_var=True)
    assert shown.list_outputs() == ["bn_output", "bn_mean", "bn_var"]
    assert sym.BatchNorm(a, name="bn").get_internals().list_outputs()[-1] == "bn_output"


def test_internals_and_children(a):
    net = sym.Flatten(sym.FullyConnected(a, num_hidden=3, name="fc"))
    assert net.get_internals()["fc_output"].list_arguments() == ["a", "fc_weight", "fc_bias"]
    assert net.get_internals()["fc_weight"].name == "fc_weight"
    assert net.get_children().list_outputs() == ["fc_output"]
    assert a.get_children() is None


def test_an_output_name_that_two_have_is_refused(a):
    with pytest.raises(UnknownNameError, match="2 outputs"):
        sym.Group([a, sym.Variable("a")])["a"]


def test_groups_have_all_outputs_and_no_name(a, b):
    both = sym.Group([a, b, a])
    assert both.list_outputs() == ["a", "b", "a"] and both.name is None
    assert repr(both) == "<Symbol group [a, b, a]>" and repr(a) == "<Symbol a>"
    assert both.attr("x") is None and both.list_attr() == {}


def test_symbols_have_no_truth_value_and_no_hash(a, b):
    with pytest.raises(MXLiteError, match="no truth value"):
        bool(a == b)
    with pytest.raises(TypeError):
        hash(a)


# -- attributes ----------------------------------------------------------------------------------


def test_scopes_nest_and_what_is_given_wins(a):
    with AttrScope(ctx_group="outer", __mood__="x"), AttrScope(ctx_group="inner"):
        v = sym.Variable("v")
        f = sym.FullyConnected(v, num_hidden=2, name="f", attr={"ctx_group": "own"})
    assert v.list_attr() == {"__ctx_group__": "inner", "ctx_group": "inner", "__mood__": "x"}
    assert f.attr("ctx_group") == f.attr("__ctx_group__") == "own"
    assert f.attr_dict()["f_weight"]["ctx_group"] == "own"
    assert sym.Variable("w").list_attr() == {}


def test_a_scope_can_be_entered_again():
    scope = AttrScope(a="1")
    with AttrScope(b="2"), scope:
        assert sym.Variable("v").list_attr() == {"a": "1", "b": "2"}
    with scope:
        assert sym.Variable("v").list_attr() == {"a": "1"}


def test_hidden_keys_are_taken_as_keywords(a):
    fc = sym.FullyConnected(a, num_hidden=3, lr_mult=2, __note__="q", force_mirroring=True)
    assert fc.list_attr() == {
        "num_hidden": "3", "__lr_mult__": "2", "lr_mult": "2", "__note__": "q",
        "__force_mirroring__": "True", "force_mirroring": "True",
    }  # fmt: skip


def test_variables_store_their_settings_as_mxnet_does():
    class One:
        def dumps(self):
            return '["one", {}]'

    v = sym.var(
        "v", shape=(0, 3), lr_mult=2, wd_mult=0.5, dtype="float16", init=One(), __foo__=1, attr={"x": "y"}
    )
    assert {k: t for k, t in v.list_attr().items() if k not in ("lr_mult", "wd_mult")} == {
        "__shape__": "(0, 3)", "__lr_mult__": "2", "__wd_mult__": "0.5", "__dtype__": "2",
        "__init__": '["one", {}]', "__foo__": "1", "x": "y",
    }  # fmt: skip


def test_attributes_can_be_set_afterwards_but_parameters_cannot(a):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    a._set_attr(mood="x", lr_mult="3")
    fc._set_attr(mirror_stage="True")
    assert a.attr("mood") == "x" and a.attr("__lr_mult__") == "3" and fc.attr("__mirror_stage__") == "True"
    for wrong in ({"num_hidden": "7"}, {"mood": "x"}, {"lr_mult": 3}):
        with pytest.raises(OpAttributeError):
            fc._set_attr(**wrong)
    with pytest.raises(MXLiteError, match="group"):
        sym.Group([a, fc])._set_attr(x="1")
    with pytest.raises(MXLiteError, match="attr_dict"):
        fc.list_attr(recursive=True)


# -- inference -----------------------------------------------------------------------------------


def test_shapes_are_given_by_name_or_position(a):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    expected = ([(2, 5), (3, 5), (3,)], [(2, 3)], [])
    assert fc.infer_shape(a=(2, 5)) == fc.infer_shape((2, 5)) == fc.infer_shape([2, np.int64(5)]) == expected


def test_what_is_unknown_gives_none_and_partial_gives_the_rest(a):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    assert fc.infer_shape() == fc.infer_shape(fc_weight=(3, 5)) == (None, None, None)
    assert fc.infer_shape(a=(0, 5)) == (a + 1).infer_shape(a=(0, 5)) == (None, None, None)
    assert (a + 1).infer_shape_partial(a=(0, 5)) == ([(0, 5)], [(0, 5)], [])
    assert fc.infer_shape_partial() == ([(), (), ()], [()], [])
    assert fc.infer_shape_partial(a=None) == fc.infer_shape_partial(a=()) == ([(), (), ()], [()], [])


def test_unknown_dimensions_of_one_side_are_filled_from_the_other(a, b):
    assert (a + b).infer_shape(a=(2, 0), b=(0, 3))[0] == [(2, 3), (2, 3)]
    own = sym.Variable("own", shape=(0, 3))
    assert (own + b).infer_shape(b=(2, 0))[1] == [(2, 3)]


@pytest.mark.parametrize(
    ("net", "known", "arguments", "outputs"),
    [
        (sym.FullyConnected(A, num_hidden=7), {"a": (0, 10)}, [(0, 10), (7, 10), (7,)], [(0, 7)]),
        (sym.FullyConnected(A, num_hidden=7, flatten=False), {"a": (0, 0, 3)}, None, [(0, 0, 7)]),
        (sym.Convolution(A, kernel=(3, 3), num_filter=8), {"a": (0, 3, 9, 9)}, None, [(0, 8, 7, 7)]),
        (sym.Convolution(A, kernel=(3, 3), num_filter=8), {"a": (4, 3, 0, 0)}, None, [(4, 8, 0, 0)]),
        (sym.Pooling(A, kernel=(2, 2), stride=(2, 2)), {"a": (0, 3, 8, 8)}, None, [(0, 3, 4, 4)]),
        (sym.BatchNorm(A), {"a": (0, 3, 8, 8)}, [(0, 3, 8, 8), (3,), (3,)], None),
        (sym.Embedding(A, input_dim=10, output_dim=4), {"a": (0, 3)}, [(0, 3), (10, 4)], [(0, 3, 4)]),
        (sym.Reshape(A, shape=(-1, 6)), {"a": (0, 3, 4)}, None, [(0, 6)]),
        (sym.Reshape(A, shape=(5, -1)), {"a": (0, 3, 4)}, None, [(5, 0)]),
        (sym.Reshape(A, shape=(10, 12)), {"a": (0, 3, 4)}, [(10, 3, 4)], [(10, 12)]),
        (sym.Concat(A, B), {"a": (0, 3), "b": (5, 4)}, [(5, 3), (5, 4)], [(5, 7)]),
        (sym.stack(A, B), {"a": (0, 3), "b": (5, 0)}, [(5, 3), (5, 3)], [(2, 5, 3)]),
        (sym.SoftmaxOutput(A), {"a": (0, 10)}, [(0, 10), (0,)], [(0, 10)]),
        (sym.SoftmaxOutput(A, name="s"), {"a": (0, 10), "s_label": (4,)}, [(4, 10), (4,)], [(4, 10)]),
        (sym.broadcast_add(A, B), {"a": (0, 3), "b": (0, 1)}, [(0, 3), (0, 1)], [(0, 3)]),
        (sym.batch_dot(A, B), {"a": (0, 2, 3), "b": (7, 3, 5)}, [(7, 2, 3), (7, 3, 5)], [(7, 2, 5)]),
        (sym.dot(A, B), {"a": (0, 0), "b": (3, 5)}, [(0, 3), (3, 5)], [(0, 5)]),
        (sym.Concat(A, B) + C, {"a": (0, 3), "b": (0, 4), "c": (8, 0)}, [(8, 3), (8, 4), (8, 7)], None),
        (
            sym.Convolution(A, kernel=(3, 2), dilate=(2, 1), pad=(1, 0), num_filter=8) + C,
            {"a": (0, 3, 0, 0), "c": (5, 8, 30, 31)},
            [(5, 3, 32, 32), (8, 3, 3, 2), (8,), (5, 8, 30, 31)],
            None,
        ),
        (sym.Flatten(A) + C, {"a": (0, 3, 4), "c": (5, 0)}, [(5, 3, 4), (5, 12)], [(5, 12)]),
        (sym.Pooling(A, kernel=(2, 2)) + C, {"a": (0, 3, 8, 8), "c": (5, 0, 0, 0)}, None, [(5, 3, 7, 7)]),
        (
            sym.RNN(A, B, C, state_size=5, num_layers=1, mode="gru"),
            {"a": (7, 0, 3), "c": (1, 4, 5)},
            [(7, 4, 3), (150,), (1, 4, 5)],
            [(7, 4, 5)],
        ),
    ],
    ids=str,
)
def test_open_lengths_pass_through_operators_both_ways(net, known, arguments, outputs):
    found = net.infer_shape_partial(**known)
    assert arguments is None or found[0] == arguments
    assert outputs is None or found[1] == outputs


@pytest.mark.parametrize(
    ("net", "known"),
    [
        (sym.SliceChannel(A, num_outputs=11)[0], {"a": (0, 3)}),
        (sym.reshape_like(A, B), {"a": (0, 3), "b": (4, 0)}),
        (sym.Pooling(A, kernel=(2, 2), stride=(2, 2)) + C, {"a": (5, 3, 0, 0), "c": (5, 3, 4, 4)}),
        (sym.Concat(A, B, dim=0) + C, {"a": (0, 3), "b": (0, 3), "c": (6, 3)}),
        (sym.broadcast_to(A, shape=(3, 5)), {"a": (3, 0)}),
    ],
    ids=str,
)
def test_a_length_that_might_be_another_stays_open(net, known):
    assert net.infer_shape_partial(**known)[0] == [*known.values()]


def test_a_batch_known_at_bind_alone_goes_through_what_was_declared_with_0():
    data = sym.Variable("data", shape=(0, 3, 8, 8))
    net = sym.FullyConnected(sym.Reshape(sym.Pooling(data, kernel=(2, 2)), shape=(0, -1)), num_hidden=4)
    out = sym.SoftmaxOutput(net, name="softmax")
    assert out.infer_shape_partial()[1] == [(0, 4)]
    assert out.infer_shape(softmax_label=(6,))[1] == [(6, 4)]


def test_shapes_of_states_are_inferred(a):
    assert sym.BatchNorm(a).infer_shape(a=(2, 3, 4, 4))[2] == [(3,), (3,)]


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        ((), {"a": (2, 3), "fc_weight": (4, 5)}, ShapeError, "'fc'"),
        ((), {"dta": (2, 3)}, UnknownNameError, "no argument 'dta'"),
        (((2, 3),), {"a": (2, 3)}, MXLiteError, "not mixed"),
        (((2, 3),) * 4, {}, MXLiteError, "3 arguments"),
        ((), {"a": 3}, ShapeError, "tuple"),
        ((), {"a": (2, -3)}, ShapeError, "whole numbers"),
        ((), {"a": (2.5, 3)}, ShapeError, "whole numbers"),
        ((), {"a": "23"}, ShapeError, "tuple"),
    ],
)
def test_wrong_shapes_are_refused(a, args, kwargs, error, words):
    with pytest.raises(error, match=words):
        sym.FullyConnected(a, num_hidden=3, name="fc").infer_shape(*args, **kwargs)


def test_types_spread_through_the_graph(a):
    fc = sym.FullyConnected(a, num_hidden=3, name="fc")
    assert fc.infer_type(a="float16") == ([np.float16] * 3, [np.float16], [])
    assert fc.infer_type() == (None, None, None)
    assert fc.infer_type_partial() == ([None] * 3, [None], [])
    with pytest.raises(UnknownNameError):
        fc.infer_type(zz="float16")
    with pytest.raises(DTypeError):
        fc.infer_type(a="float16", fc_weight="float32")


# -- gradient ------------------------------------------------------------------------------------


def test_gradients_are_nodes_with_the_shapes_of_their_variables():
    net = lenet()
    grads = net.gradient(["convolution0_weight", "data"])
    assert grads.infer_shape(data=(2, 1, 28, 28))[1] == [(20, 1, 5, 5), (2, 1, 28, 28)]
    assert "_backward_Convolution" in grads.debug_str()
    assert len(net.gradient("data")) == 1


def test_a_gradient_that_does_not_read_its_variable_still_knows_its_shape(a, b):
    grad = sym.MakeLoss(a * b).gradient("a")  # reads `b` only
    for g in (grad, copy.deepcopy(grad), grad[0] * 2, copy.deepcopy(grad[0]) * 2):
        assert g.list_arguments() == ["a", "b"]
        assert g.infer_shape(a=(2, 3), b=(2, 3))[1] == [(2, 3)]


def test_substitution_reaches_the_gradient(a, b):
    grad = (a * b).gradient("a")
    assert grad(b=sym.Variable("c")).list_arguments() == ["a", "c"]
    assert grad(b=sym.Variable("c")).infer_shape(a=(2, 3))[1] == [(2, 3)]


def test_a_gradient_has_no_file(a, b):
    with pytest.raises(MXLiteError, match="no form in MXNet's Symbol files"):
        (a * b).gradient("a").tojson()
    with pytest.raises(UnknownNameError, match="no argument 'c'"):
        (a * b).gradient(["c"])


# -- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_is_equal_and_apart(a, duplicate):
    net = sym.BatchNorm(sym.FullyConnected(a, num_hidden=3, name="fc"), name="bn", lr_mult=2)
    again = duplicate(net)
    assert again.tojson() == net.tojson()
    again._set_attr(lr_mult="5")
    assert net.attr("lr_mult") == "2" and again.attr("lr_mult") == "5"


# -- text ----------------------------------------------------------------------------------------


def test_debug_str_reads_as_mxnets(a):
    bn = sym.BatchNorm(sym.FullyConnected(a, num_hidden=3, name="fc"), name="bn")
    assert a.debug_str() == "Variable:a\n"
    lines = bn.debug_str().split("\n")
    assert lines[:4] == ["Symbol Outputs:", "\toutput[0]=bn(0)", "Variable:a", "Variable:fc_weight"]
    assert lines[5:13] == [
        "-" * 20, "Op:FullyConnected, Name=fc", "Inputs:", "\targ[0]=a(0) version=0",
        "\targ[1]=fc_weight(0) version=0", "\targ[2]=fc_bias(0) version=0", "Attrs:", "\tnum_hidden=3",
    ]  # fmt: skip
    assert lines[-3:] == ["\targ[3]=bn_moving_mean(0) version=1", "\targ[4]=bn_moving_var(0) version=1", ""]


# -- running: more is said in the executor's tests -----------------------------------------------


def test_a_symbol_plans_binds_and_runs(a, b):
    net = sym.SoftmaxOutput(sym.FullyConnected(a, num_hidden=3, name="fc"), name="softmax")
    plan = net.memory_plan(cpu(), memory_budget="1MiB", a=(4, 5))
    exe = net.simple_bind(cpu(), memory_budget="1MiB", a=(4, 5))
    assert exe.memory_plan.peak_bytes == plan.peak_bytes <= plan.budget_bytes == 1 << 20
    np.testing.assert_allclose(exe.forward()[0].asnumpy(), np.full((4, 3), 1 / 3), rtol=1e-6)
    grads = (a * b).gradient(["a", "b"]).eval(cpu(), a=array([3.0]), b=array([4.0]))
    assert [float(g.asnumpy()[0]) for g in grads] == [4, 3]


def test_groups_on_one_device_and_dense_arrays_are_what_a_program_has_anyway(a):
    """As scripts for MXNet put the layers of a network on several devices, when they are run on one."""
    with mx.AttrScope(ctx_group="first"):
        net = a + 1
    for groups in ({}, {"first": cpu()}, {"first": cpu(0), "second": cpu()}):
        exe = net.simple_bind(cpu(), a=(2,), group2ctx=groups, stype_dict={"a": "default"})
        assert exe.forward()[0].asnumpy().tolist() == [1, 1]
        assert net.bind(None, {"a": array([2.0])}, group2ctx=groups).forward()[0].asnumpy().tolist() == [3]
    mx.mod.Module(net, ["a"], None, context=cpu(), group2ctxs=[{"first": cpu()}])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"group2ctx": {"a": mx.gpu(1)}}, r"group2ctx puts 'a' on gpu\(1\), and the program is on cpu\(0\)"),
        ({"group2ctx": {"x": [cpu(), mx.gpu(0)]}}, r"group2ctx puts 'x' on \[cpu\(0\), gpu\(0\)\], which"),
        ({"group2ctx": "cpu"}, "group2ctx must be a dict of groups and devices"),
        ({"stype_dict": {"a": "csr"}}, "stype_dict wants 'a' as 'csr', but in a program arrays are dense"),
        ({"stype_dict": "csr"}, "stype_dict must be a dict"),
        ({"shared_buffer": {"x": "y"}}, "shared_buffer is not supported"),
    ],
)
def test_what_cannot_be_done_is_refused(a, options, words):
    with pytest.raises(MXLiteError, match=words):
        (a + 1).simple_bind(a=(2,), **options)


# -- long graphs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain():
    with NameManager():
        x = sym.Variable("data")
        for _ in range(LONG // 2):
            x = sym.Activation(x, act_type="relu") + 1
        return x


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.list_arguments() == ["data"],
        lambda x: len(x.get_internals().list_outputs()) == LONG + 1,
        lambda x: x.get_internals()[f"activation{LONG // 2 - 1}_output"].name is not None,
        lambda x: x.infer_shape(data=(2, 3))[1] == [(2, 3)],
        lambda x: x.infer_type(data="float32")[1] == [np.float32],
        lambda x: x.debug_str().count("\nOp:") == LONG,
        lambda x: len(x.attr_dict()) == LONG,
        lambda x: x(data=sym.Variable("z")).list_arguments() == ["z"],
        lambda x: copy.deepcopy(x).list_outputs() == x.list_outputs(),
        lambda x: pickle.loads(pickle.dumps(x)).list_outputs() == x.list_outputs(),
        lambda x: x.gradient("data").infer_shape(data=(2, 3))[1] == [(2, 3)],
    ],
)
def test_a_long_chain_is_ordinary(chain, work):
    began = time.process_time()
    assert work(chain)
    assert time.process_time() - began < 20  # about 1 s; quadratic work would take minutes


def test_a_long_chain_is_collected():
    x = sym.Variable("data")
    first = weakref.ref(x.entries[0].node)
    for _ in range(5 * LONG):
        x = x + 1
    del x
    gc.collect()
    assert first() is None


def test_constants_of_a_graph_have_mxnets_names_and_values():
    with NameManager():
        made = [
            sym.zeros((2, 3)),
            sym.ones(2, dtype="int32", name="one"),
            sym.full((2,), 7.5),
            sym.arange(5),
            sym.arange(1, 7, 2, repeat=2, name="odd"),
        ]
    net = sym.Group(made)
    assert [o.name for o in net] == ["_zeros0", "one", "_full0", "_arange0", "odd"]
    assert net.list_arguments() == []
    zeros, ones, full, count, odd = net.eval()
    assert zeros.shape == (2, 3) and not zeros.asnumpy().any()
    assert ones.dtype == np.int32 and ones.asnumpy().tolist() == [1, 1]
    assert full.asnumpy().tolist() == [7.5, 7.5]
    assert count.dtype == np.float32 and count.asnumpy().tolist() == [0, 1, 2, 3, 4]
    assert odd.asnumpy().tolist() == [1, 1, 3, 3, 5, 5]
    again = sym.load_json(net.tojson())
    assert again.tojson() == net.tojson()
    assert [o.asnumpy().tolist() for o in again.eval()] == [o.asnumpy().tolist() for o in net.eval()]


def test_a_range_is_as_long_as_what_it_is_used_with():
    ranges = [sym.arange(2, infer_range=True), sym.zeros(-1)]
    for range_, wanted in zip(ranges, ([2, 3, 4], [0, 0, 0])):
        exe = (range_ + sym.zeros(3)).bind(mx.cpu(), {})
        assert exe.forward()[0].asnumpy().tolist() == wanted


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda: sym.zeros((2, -2)), ShapeError),
        (lambda: sym.zeros(None), ShapeError),
        (lambda: sym.linspace(0, 1, -1), OpAttributeError),
        (lambda: sym.arange(0, 3, step=0), OpAttributeError),
        (lambda: sym.arange(0, 3, repeat=0), OpAttributeError),
    ],
)
def test_impossible_constants_are_refused(make, error):
    with pytest.raises(error, match=r"_zeros|_ones|_arange|_linspace"):
        make().infer_shape()


def test_a_length_of_0_is_open_in_a_constant_and_follows_from_its_use():
    state = sym.zeros((0, 4))
    assert state.infer_shape() == (None, None, None)
    net = sym.Variable("x") + state
    assert net.infer_shape(x=(3, 4))[1] == [(3, 4)]
    assert net.eval(x=nd.ones((3, 4)))[0].asnumpy().tolist() == [[1] * 4] * 3
    with np_shape():
        assert state.infer_shape()[1] == [(0, 4)]
        assert sym.ones((-1, 4)).infer_shape() == (None, None, None)
        assert sym.ones(()).infer_shape()[1] == [()]
    assert sym.arange(3, 3).infer_shape()[1] == [(0,)]


def test_magnitudes_and_hypotenuses_are_symbols():
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    with mx.sym.NameManager():
        nets = [abs(x), mx.sym.hypot(x, 3), mx.sym.hypot(4, x), mx.sym.hypot(x, y)]
    assert [n.name for n in nets] == ["abs0", "_hypotscalar0", "_hypotscalar1", "_hypot0"]
    found = [
        float(n.eval(**dict.fromkeys(n.list_arguments(), mx.nd.array([-4])))[0].asscalar()) for n in nets
    ]
    np.testing.assert_allclose(found, [4, 5, 32**0.5, 32**0.5], rtol=1e-6)
    assert mx.sym.hypot(3, 4) == 5


def test_names_of_mxnet_s_modules_are_there():
    assert mx.sym._internal._plus_scalar is mx.sym._plus_scalar and mx.sym.op.relu is mx.sym.relu
    assert mx.rnn.io.encode_sentences is mx.rnn.encode_sentences
    assert mx.base.mx_real_t is np.float32 and isinstance("x", mx.base.string_types)
    assert isinstance(np.float32(1), mx.base.numeric_types) and isinstance(1, mx.base.integer_types)
    assert mx.base.py_str(b"x") == mx.base.py_str("x") == "x"
    assert mx.nd.ones((1,), ctx=mx.cpu_pinned()).context == mx.Context("cpu_pinned", 0)
    with mx.np_shape():
        assert mx.is_np_shape()


def test_a_deconvolution_of_a_target_shape_computes_its_adjustment():
    net = mx.sym.Deconvolution(
        mx.sym.Variable("d"), kernel=(3, 3), stride=(2, 2), pad=(99, 99), adj=(101, 101), num_filter=5,
        target_shape=(8, 8), name="up",
    )  # fmt: skip
    assert net.infer_shape(d=(2, 3, 4, 4))[1] == [(2, 5, 8, 8)]


def test_an_operator_without_outputs_is_no_symbol():
    with pytest.raises(mx.MXLiteError, match=r"reset_arrays 'r' has no output.*mx\.nd\.reset_arrays"):
        mx.sym.reset_arrays(mx.sym.var("x"), num_arrays=1, name="r")


def test_a_variable_of_one_axis_may_be_given_its_length():
    assert sym.Variable("v", shape=(3)).attr("__shape__") == "(3,)"
    assert sym.Variable("v", shape=np.int64(3)).infer_shape()[0] == [(3,)]
