"""MXNet's DataParallelExecutorGroup, for programs that make one themselves."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.module.executor_group import DataParallelExecutorGroup


def network(layers=1):
    out = mx.sym.Variable("data")
    for i in range(layers):
        out = mx.sym.FullyConnected(out, num_hidden=3, name=f"fc{i}")
    return mx.sym.SoftmaxOutput(out, name="softmax")


def group(symbol, contexts, **options):
    inputs = ("data", "softmax_label")
    names = options.pop("params", [n for n in symbol.list_arguments() if n not in inputs])
    shapes = [("data", (6, 3))], [("softmax_label", (6,))]
    options = {"for_training": True, "inputs_need_grad": True, **options}
    return DataParallelExecutorGroup(symbol, contexts, None, *shapes, names, **options)


def batch():
    draw = np.random.RandomState(0)
    return mx.io.DataBatch([mx.nd.array(draw.rand(6, 3))], [mx.nd.array(draw.randint(0, 3, 6))])


def parameters():
    draw = np.random.RandomState(1)
    return {"fc0_weight": mx.nd.array(draw.rand(3, 3)), "fc0_bias": mx.nd.array(draw.rand(3))}


def test_two_executors_do_together_what_one_does():
    given, found = batch(), []
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        made = group(network(), contexts)
        made.set_params(parameters(), {})
        made.forward(given)
        made.backward()
        metric = mx.metric.create("acc")
        made.update_metric(metric, given.label)
        sums = [sum(g.asnumpy() for g in parts) for parts in made.grad_arrays]
        read = {n: mx.nd.zeros(a.shape) for n, a in parameters().items()}
        made.get_params(read, {})
        arrays = [*made.get_outputs(), *made.get_input_grads(), *read.values()]
        found.append(([a.asnumpy() for a in arrays] + sums, metric.get()))
    assert [len(e.outputs[0]) for e in made.execs] == [3, 3]
    for one, two in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    assert found[0][1] == found[1][1]


def test_a_group_shares_parameters_gradients_and_inputs_with_another():
    first = group(network(1), [mx.cpu(0), mx.cpu(1)])
    assert [sorted(d) for d in first.shared_data_arrays] == [["data", "softmax_label"]] * 2
    second = group(network(2), [mx.cpu(0), mx.cpu(1)], shared_group=first, params=first.param_names)
    for a, b, shared in zip(first.execs, second.execs, second.shared_data_arrays):
        for name in first.param_names:
            assert mx.test_utils.same_array(a.arg_dict[name], b.arg_dict[name])
            assert mx.test_utils.same_array(a.grad_dict[name], b.grad_dict[name])
        assert mx.test_utils.same_array(a.arg_dict["data"], b.arg_dict["data"])
        assert sorted(shared) == ["data", "fc1_bias", "fc1_weight", "softmax_label"]
    assert second.grad_req["fc0_weight"] == "write" and second.grad_req["fc1_weight"] == "null"


def test_a_group_for_inference_has_no_backward_pass():
    made = group(network(), [mx.cpu()], for_training=False, inputs_need_grad=False)
    made.forward(batch())
    with pytest.raises(mx.StateError, match="for_training=True"):
        made.backward()
    with pytest.raises(mx.StateError, match="inputs_need_grad=True"):
        made.get_input_grads()
