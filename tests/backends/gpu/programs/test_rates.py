"""Times that plans for a GPU are reckoned with: each product's by what it is computed in."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mxlite as mx
from mxlite.backends.gpu import drivers_of
from mxlite.backends.gpu.runtime.rates import H200
from mxlite.core import DeviceError
from mxlite.memplan import Device
from mxlite.memplan.cost.device import DEFAULT


@pytest.fixture(autouse=True)
def no_gpu():
    def refused(index):
        raise DeviceError("There is no driver.")

    with drivers_of(refused):
        yield


def seconds(net, op, ctx=None, **ask):
    """Of the tasks of an operator and of its gradient."""
    plan = net.memory_plan(ctx or mx.gpu(0), **ask)
    return sum(t.seconds for t in plan.problem.tasks if t.op in (op, f"_backward_{op}"))


data = mx.sym.Variable("data")
flat = mx.sym.Variable("flat")
ONES = {
    "dense": ("FullyConnected", mx.sym.FullyConnected(data, num_hidden=4096), {"data": (2048, 4096)}),
    "convolution": (
        "_convolution_channels_last",
        mx.sym.Convolution(data, num_filter=512, kernel=(3, 3), pad=(1, 1)),
        {"data": (8, 512, 64, 64)},
    ),
    "products": ("batch_dot", mx.sym.batch_dot(data, flat), dict.fromkeys(("data", "flat"), (4, 2048, 2048))),
    "attention": (
        "scaled_dot_product_attention",
        mx.sym.scaled_dot_product_attention(data, data, data),
        {"data": (8, 8, 2048, 64)},
    ),
}


@pytest.mark.parametrize("name", ONES)
def test_a_product_takes_the_time_of_its_own_precision(name, monkeypatch):
    op, net, shapes = ONES[name]
    net = mx.sym.MakeLoss(mx.sym.sum(net))
    float32 = seconds(net, op, **shapes)
    half = seconds(net, op, amp="bfloat16", **shapes)
    assert seconds(net, op, amp="float16", **shapes) == half
    monkeypatch.setenv("MXLITE_ALLOW_TF32", "1")
    tf32 = seconds(net, op, **shapes)
    # Bytes are the longer of some by now, so rates are bounds.
    assert float32 / 4 > tf32 > half
    assert tf32 >= float32 * H200.flops_per_s / H200.tf32_flops_per_s * (1 - 1e-9)
    assert half >= float32 * H200.flops_per_s / H200.half_flops_per_s * (1 - 1e-9)


def test_recurrent_layers_multiply_two_byte_floats_as_float32(monkeypatch):
    cell = mx.sym.RNN(
        data, mx.sym.Variable("p"), mx.sym.Variable("s"), mode="rnn_tanh", state_size=1024, num_layers=1
    )
    net = mx.sym.MakeLoss(mx.sym.sum(cell))
    shapes = {"data": (16, 256, 1024), "s": (1, 256, 1024)}
    shapes["device"] = replace(H200, launch_s=0)  # they convert what they read, in launches of their own
    float32 = seconds(net, "RNN", **shapes)
    kinds = dict.fromkeys(("data", "p", "s"), "bfloat16")
    assert seconds(net, "RNN", type_dict=kinds, **shapes) == float32
    monkeypatch.setenv("MXLITE_ALLOW_TF32", "1")
    assert seconds(net, "RNN", **shapes) < float32 / 4


def test_what_is_no_product_takes_the_time_of_its_bytes():
    layer = mx.sym.FullyConnected(data, num_hidden=1024, flatten=False)
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.sigmoid(layer)))
    n = 2**20
    assert seconds(net, "sigmoid", data=(1024, 8)) == pytest.approx(
        (2 + 3) * 4 * n / H200.bytes_per_s + 2 * H200.launch_s
    )


def test_rates_of_a_gpu_are_those_of_an_h200_and_of_a_cpu_the_old_ones():
    net, shapes = mx.sym.MakeLoss(mx.sym.FullyConnected(data, num_hidden=8)), {"data": (4, 8)}
    costs = net.memory_plan(mx.gpu(0), **shapes).problem.costs
    assert (
        costs == "NVIDIA H200 (67 TFLOP/s, 4.8 TB/s, 494.5 TFLOP/s tf32, 989.5 TFLOP/s half, 1.3 us/launch)"
    )
    assert net.memory_plan(mx.cpu(), **shapes).problem.costs == ""
    assert DEFAULT == Device(10e12, 600e9)
    assert net.memory_plan(mx.gpu(0), device="10TFLOP/s,600GB/s", **shapes).problem.costs == ""
