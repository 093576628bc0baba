"""Arguments that are stored in mixed precision's 16 bits: which may be, the same numbers, fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import bfloat16

SHAPES = dict(data=(48, 3, 8, 8), softmax_label=(48,))


def network() -> Any:
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, name="conv")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="bn")
    x = mx.sym.FullyConnected(mx.sym.relu(x), num_hidden=40, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="last"), name="softmax")


NARROW = {"data", "conv_weight", "conv_bias", "fc_weight", "fc_bias", "last_weight", "last_bias"}


def values(net: Any, shapes: Any = SHAPES) -> dict[str, np.ndarray]:
    rng, (found, _, _) = np.random.default_rng(0), net.infer_shape(**shapes)
    return {
        n: rng.integers(0, 5, s) if n.endswith("label") else rng.standard_normal(s).astype("f") / 4
        for n, s in zip(net.list_arguments(), found)
    }


def bound(net: Any, shapes: Any = SHAPES, **how: Any) -> Any:
    exe = net.simple_bind(mx.cpu(), amp="bfloat16", **how, **shapes)
    for name, value in values(net, shapes).items():
        exe.arg_dict[name][:] = value
    return exe


def test_what_is_read_in_16_bits_alone_is_named():
    assert network().amp_types("bf16", **SHAPES) == dict.fromkeys(NARROW, bfloat16)
    assert network().amp_types(None, **SHAPES) == {}
    tokens = mx.sym.Embedding(mx.sym.var("data"), input_dim=9, output_dim=4, name="embed")
    net = mx.sym.FullyConnected(tokens, num_hidden=3, name="fc")
    assert set(net.amp_types("float16", data=(5, 2))) == {"fc_weight", "fc_bias"}
    data = mx.sym.var("data")
    net = mx.sym.Group([mx.sym.FullyConnected(data, num_hidden=3, no_bias=True, name="fc"), mx.sym.exp(data)])
    assert set(net.amp_types("bfloat16", data=(5, 2))) == {"fc_weight"}
    net = mx.sym.Group([mx.sym.FullyConnected(data, num_hidden=3, no_bias=True, name="fc"), data])
    assert set(net.amp_types("bfloat16", data=(5, 2))) == {"fc_weight"}


@pytest.mark.parametrize("budget", [None, "16MiB"])
def test_a_batch_of_16_bits_gives_the_same_bits_in_fewer_bytes(budget):
    made = []
    for types in (None, {"data": "bfloat16"}):
        how = dict(type_dict=types, memory_budget=budget, optimizer=mx.optimizer.SGD(momentum=0.9))
        exe = bound(network(), **how)
        for _ in range(2):
            exe.step([[0.1, 0.0]] * len(exe.updated))
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        found = {n: a.asnumpy() for n, a in exe.arg_dict.items() if n not in SHAPES}
        found |= {n: a.asnumpy() for n, a in exe.aux_dict.items()}
        made.append((exe, found))
    (full, want), (narrow, got) = made
    assert {n: a.dtype for n, a in narrow.arg_dict.items() if a.dtype != np.float32} == {"data": bfloat16}
    assert narrow.memory_plan.breakdown["inputs"] < 0.51 * full.memory_plan.breakdown["inputs"]
    assert narrow.memory_plan.peak_bytes < full.memory_plan.peak_bytes
    assert [n for n in want if want[n].tobytes() != got[n].tobytes()] == []


def test_parameters_of_16_bits_infer_the_same_with_nothing_kept_twice():
    net, made = network(), []
    for types in (None, net.amp_types("bfloat16", **SHAPES)):
        exe = bound(net, grad_req="null", type_dict=types)
        exe.forward(is_train=False)
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        made.append((exe, exe.outputs[0].asnumpy()))
    (both, want), (alone, got) = made
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=2e-2)
    assert {n for n, a in alone.arg_dict.items() if a.dtype == bfloat16} == NARROW
    small, large = (e.memory_plan.breakdown["arguments"] for e in (alone, both))
    assert 2 * small < 0.8 * large
    again = alone.reshape(data=(7, 3, 8, 8), softmax_label=(7,))
    again.forward(is_train=False, data=values(net)["data"][:7])
    assert {n for n, a in again.arg_dict.items() if a.dtype == bfloat16} == NARROW
    np.testing.assert_allclose(again.outputs[0].asnumpy(), want[:7], atol=2e-2)


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_an_executor_with_parameters_of_16_bits_can_be_watched(grad_req):
    net = network()
    exe = bound(net, grad_req=grad_req, type_dict=net.amp_types("bfloat16", **SHAPES))
    want = exe.forward(is_train=True)[0].asnumpy()
    seen = {}
    exe.set_monitor_callback(seen.__setitem__, pattern="conv_.*")
    np.testing.assert_array_equal(exe.forward(is_train=True)[0].asnumpy(), want)
    assert list(seen) == ["conv_output"] and seen["conv_output"].dtype == bfloat16
    assert {n for n, a in exe.arg_dict.items() if a.dtype == bfloat16} == NARROW


def test_arrays_of_16_bits_may_be_bound_beside_others():
    net = network()
    arrays = {n: mx.nd.array(v) for n, v in values(net).items()}
    arrays["fc_weight"] = arrays["fc_weight"].astype("bfloat16")
    states = {"bn_moving_mean": mx.nd.zeros((8,)), "bn_moving_var": mx.nd.ones((8,))}
    exe = net.bind(mx.cpu(), arrays, aux_states=states, grad_req="null", amp="bfloat16")
    exe.forward(is_train=False)
    assert exe.outputs[0].dtype == np.float32
    assert exe.arg_dict["fc_weight"].dtype == bfloat16 and exe.arg_dict["conv_weight"].dtype == np.float32


def test_who_reads_float32_reads_a_wide_copy():
    net = mx.sym.square(mx.sym.var("data"))
    exe = net.simple_bind(
        mx.cpu(), grad_req="null", amp="bfloat16", type_dict={"data": "bfloat16"}, data=(3,)
    )
    exe.forward(is_train=False, data=np.array([1, 2, 1.001], "f"))
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), [1, 4, 1])


# -- modules ----------------------------------------------------------------------------------------


def batch() -> Any:
    found = values(network())
    return mx.io.DataBatch([mx.nd.array(found["data"])], [mx.nd.array(found["softmax_label"])])


def test_a_module_feeds_its_batches_in_16_bits():
    net = network()
    module = mx.mod.Module(net, amp="bfloat16")
    module.bind([("data", SHAPES["data"])], [("softmax_label", (48,))])
    module.init_params()
    assert module._exec_group.execs[0].arg_dict["data"].dtype == bfloat16
    assert {a.dtype for a in module.get_params()[0].values()} == {np.float32}
    wide = {n: "null" if n in SHAPES else "write" for n in net.list_arguments()}
    plan = net.memory_plan(mx.cpu(), grad_req=wide, amp="bfloat16", **SHAPES)
    assert module.memory_plan.peak_bytes < plan.peak_bytes
    module.forward_backward(batch())
    got = module._exec_group.grad_arrays[0][0].asnumpy()
    exe = net.simple_bind(mx.cpu(), grad_req=wide, amp="bfloat16", **SHAPES)
    for name, value in module.get_params()[0].items():
        exe.arg_dict[name][:] = value
    exe.forward_backward(**{n: values(net)[n] for n in SHAPES})
    assert exe.grad_dict["conv_weight"].asnumpy().tobytes() == got.tobytes()


def test_a_batch_whose_gradient_is_wanted_stays_float32():
    module = mx.mod.Module(network(), amp="bfloat16")
    module.bind([("data", SHAPES["data"])], [("softmax_label", (48,))], inputs_need_grad=True)
    module.init_params()
    module.forward_backward(batch())
    assert module.get_input_grads()[0].dtype == np.float32
    assert module._exec_group.execs[0].arg_dict["data"].dtype == np.float32


def test_a_module_for_inference_keeps_narrow_parameters_alone():
    found, bytes_of = [], []
    given = {n: mx.nd.array(v) for n, v in values(network()).items() if n not in SHAPES}
    states = {"bn_moving_mean": mx.nd.zeros((8,)), "bn_moving_var": mx.nd.ones((8,))}
    for narrow in (False, True):
        module = mx.mod.Module(network(), amp="bfloat16", narrow_params=narrow)
        module.bind([("data", SHAPES["data"])], for_training=False)
        module.set_params(given, states)
        module.forward(batch(), is_train=False)
        found.append(module.get_outputs()[0].asnumpy())
        bytes_of.append(module.measured_bytes)
        assert module.measured_bytes == module.memory_plan.peak_bytes
    np.testing.assert_allclose(found[0], found[1], atol=2e-2)
    assert bytes_of[1] < bytes_of[0]
    kept = module.get_params()[0]
    assert {n for n, a in kept.items() if a.dtype == bfloat16} == NARROW - {"data"}
    np.testing.assert_array_equal(
        kept["fc_weight"].asnumpy(), given["fc_weight"].astype("bfloat16").asnumpy()
    )
    with pytest.raises(mx.BindError, match="narrow_params"):
        module.bind([("data", SHAPES["data"])], force_rebind=True)
    with pytest.raises(mx.BindError, match="amp='bfloat16'"):
        mx.mod.Module(network(), narrow_params=True)
