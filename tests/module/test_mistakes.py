"""Mistakes that would pass in silence: what is said, when, and what stays as MXNet has it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.errors import BindError, OperatorError, StateError, UnknownNameError


def net(**options):
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(data, name="softmax", **options)


def warnings_of(symbol, labels, caplog, fed="softmax_label", **shapes):
    exe = symbol.simple_bind(mx.cpu(), **(shapes or {"data": (4, 5)}))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "mxlite"):
        for _ in range(2):
            exe.forward(is_train=True, **{fed: mx.nd.array(labels)})
        mx.nd.waitall()
    return [r.getMessage() for r in caplog.records]


# -- labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [3, -1, 0.5, np.nan, np.inf])
def test_a_label_that_is_no_class_is_told_once_with_its_place(wrong, caplog):
    (said,) = warnings_of(net(), [0, 2, wrong, wrong], caplog)
    assert "SoftmaxOutput 'softmax'" in said and "from 0 to 2" in said and "at [2]" in said
    assert f"'softmax_label' has {wrong:g}" in said


def test_labels_that_are_classes_or_left_out_are_not_told(caplog):
    assert warnings_of(net(), [0, 1, 2, 2], caplog) == []
    assert warnings_of(net(use_ignore=True, ignore_label=-1), [0, -1, 2, -1], caplog) == []
    (said,) = warnings_of(net(use_ignore=True, ignore_label=7), [0, 7, -1, 1], caplog)
    assert "or 7 to leave a row out" in said and "has -1 at [2]" in said


def test_probabilities_as_labels_are_no_class_numbers(caplog):
    shapes = {"data": (4, 5), "softmax_label": (4, 3)}
    assert warnings_of(net(), np.full((4, 3), 1 / 3), caplog, **shapes) == []


def test_labels_are_found_by_way_of_other_shapes_and_for_every_loss_of_classes(caplog):
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    label = mx.sym.Reshape(mx.sym.transpose(mx.sym.var("label")), shape=(-1,))
    shapes = {"data": (4, 5), "label": (2, 2)}
    for loss in (
        mx.sym.SoftmaxOutput(data, label, name="loss"),
        mx.sym.SVMOutput(data, label, name="loss"),
        mx.sym.MakeLoss(mx.sym.softmax_cross_entropy(data, label, name="loss")),
    ):
        (said,) = warnings_of(loss, [[0, 1], [5, 2]], caplog, fed="label", **shapes)
        assert "'loss'" in said and "'label' has 5 at [1, 0]" in said


def test_a_wrong_label_deep_in_a_large_array_is_found(caplog):
    labels = np.zeros((2, 40_000), "float32")
    labels[1, 39_998] = 9
    loss = mx.sym.SoftmaxOutput(mx.sym.var("data"), name="softmax", multi_output=True)
    (said,) = warnings_of(loss, labels, caplog, data=(2, 3, 40_000))
    assert "has 9 at [1, 39998]" in said


# -- names -----------------------------------------------------------------------------------------------


def test_names_much_like_one_that_is_missing_are_refused_and_others_left_out():
    shapes = {"data": (4, 5)}
    with pytest.raises(UnknownNameError, match=r"'softmax_lable'.*Did you mean 'softmax_label'"):
        net().simple_bind(mx.cpu(), **shapes, softmax_lable=(4,))
    net().simple_bind(mx.cpu(), **shapes, something_else=(4,))
    arrays = net().simple_bind(mx.cpu(), **shapes).arg_dict
    with pytest.raises(UnknownNameError, match=r"args_grad has 'fc_wieght'.*Did you mean 'fc_weight'"):
        net().bind(mx.cpu(), arrays, args_grad={"fc_wieght": mx.nd.zeros((3, 5))})
    net().bind(mx.cpu(), {**arrays, "head_weight": mx.nd.zeros(3)})


# -- arrays ----------------------------------------------------------------------------------------------


def test_a_gradient_over_an_argument_is_refused_also_where_they_share_a_part():
    arrays = net().simple_bind(mx.cpu(), data=(4, 5)).arg_dict
    with pytest.raises(
        BindError, match="gradient of 'fc_weight' has memory in common with 'fc_weight' itself"
    ):
        net().bind(mx.cpu(), arrays, args_grad={"fc_weight": arrays["fc_weight"]})
    both = mx.nd.zeros((8, 5))
    arrays["data"] = both[:4]
    with pytest.raises(BindError, match="gradient of 'fc_weight' has memory in common with 'data'"):
        net().bind(mx.cpu(), arrays, args_grad={"fc_weight": both[1:4]})
    net().bind(mx.cpu(), arrays, args_grad={"fc_weight": both[4:7]})
    net().bind(mx.cpu(), arrays, {"fc_weight": both[1:4]}, "null")  # nobody writes it


# -- order of calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, "least"])
def test_backward_without_a_forward_is_refused_at_every_budget(budget):
    if budget:
        budget = net().memory_plan(mx.cpu(), data=(4, 5)).lower_bound_bytes
    exe = net().simple_bind(mx.cpu(), data=(4, 5), memory_budget=budget)
    with pytest.raises(StateError, match=r"call forward\(is_train=True\) first"):
        exe.backward()
    exe.forward(is_train=True)
    exe.backward()
    assert exe.reshape(data=(2, 5)) is not exe
    with pytest.raises(StateError, match="first"):
        exe.reshape(data=(2, 5)).backward()


def test_a_module_gives_outputs_and_input_gradients_after_their_pass():
    module = mx.mod.Module(net())
    module.bind([("data", (4, 5))], [("softmax_label", (4,))], inputs_need_grad=True)
    module.init_params()
    batch = mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.zeros(4)])
    with pytest.raises(StateError, match="get_outputs: call forward first"):
        module.get_outputs()
    module.forward(batch, is_train=True)
    assert module.get_outputs()[0].shape == (4, 3)
    with pytest.raises(StateError, match="get_input_grads: call forward and backward first"):
        module.get_input_grads()
    module.backward()
    assert module.get_input_grads()[0].shape == (4, 5)


# -- custom operators ------------------------------------------------------------------------------------


class Half(mx.operator.CustomOp):
    """Writes its first output only, and the gradient of its first argument only."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])
        if in_data[0].shape[0] > 2:
            self.assign(out_data[1], req[1], in_data[0] * 0)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] + out_grad[1])


@mx.operator.register("writes_half")
class HalfProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["p", "q"]

    def list_outputs(self):
        return ["first", "second"]

    def infer_shape(self, in_shape):
        return [in_shape[0]] * 2, [in_shape[0]] * 2, []

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Half()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_an_output_that_a_custom_operator_does_not_write_fails_by_name(dtype):
    node = mx.sym.Custom(mx.sym.var("p"), mx.sym.var("q"), op_type="writes_half", name="half")
    exe = node.simple_bind(mx.cpu(), p=(2,), q=(2,), type_dict={"p": dtype, "q": dtype}, grad_req="null")
    with pytest.raises(OperatorError, match=r"'half' .*without writing its output 'second' of shape"):
        exe.forward()[1].asnumpy()


def test_a_gradient_that_a_custom_operator_does_not_write_is_0():
    node = mx.sym.Custom(mx.sym.var("p"), mx.sym.var("q"), op_type="writes_half", name="half")
    exe = node.simple_bind(mx.cpu(), p=(5,), q=(5,))
    exe.grad_dict["q"][:] = 7
    exe.forward(is_train=True, p=mx.nd.ones(5))
    exe.backward([mx.nd.ones(5), mx.nd.ones(5)])
    assert exe.grad_dict["q"].asnumpy().tolist() == [0] * 5
    assert exe.grad_dict["p"].asnumpy().tolist() == [2] * 5
