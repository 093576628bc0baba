"""No gradient depends on what lies in the arena before a step: kernels read nothing that nobody wrote."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mxlite as mx

FILLS = (0x00, 0x7F, 0xFF)  # zeros, large numbers, nan


def numbers(exe, fill):
    """Outputs and gradients of a step that finds these bytes in the arena."""
    np.asarray(exe._arena.block).reshape(-1).view(np.uint8)[...] = fill
    exe.forward(is_train=True)
    exe.backward()
    found = {n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}
    return found | {"out": exe.outputs[0].asnumpy()}


def check_convolution(amp, channels, filters, size, kernel, stride, pad, samples):
    data = mx.sym.Convolution(mx.sym.var("data"), kernel=(1, 1), num_filter=channels, name="before")
    net = mx.sym.Convolution(
        data, kernel=kernel, num_filter=filters, stride=stride, pad=pad, no_bias=True, name="conv"
    )
    net = mx.sym.LinearRegressionOutput(net, name="loss")
    exe = net.simple_bind(mx.cpu(), amp=amp, data=(samples, 3, *size))
    rng = np.random.default_rng(0)
    for array in exe.arg_arrays:
        array[:] = rng.normal(size=array.shape)
    numbers(exe, 0)  # makes the program and its arena
    want, *others = (numbers(exe, fill) for fill in FILLS)
    for found in others:
        for name, x in found.items():
            assert np.isfinite(x).all() and np.array_equal(x, want[name]), (name, size, kernel, stride, pad)


@pytest.mark.parametrize("amp", ["bfloat16", None])
@pytest.mark.parametrize(
    "size, kernel, stride, pad",
    [
        ((14, 1), (3, 3), (2, 2), (1, 1)),  # two of three taps lie beside the data
        ((8, 1), (3, 2), (2, 2), (1, 1)),
        ((4, 2), (2, 5), (2, 3), (0, 2)),
        ((5, 1), (5, 5), (2, 3), (1, 2)),
        ((1, 1), (1, 2), (3, 2), (0, 1)),
    ],
)
def test_taps_that_meet_no_data_have_no_gradient(amp, size, kernel, stride, pad):
    check_convolution(amp, 16, 16, size, kernel, stride, pad, samples=5)


@pytest.mark.parametrize("amp", ["bfloat16", None])
def test_convolutions_of_random_shapes_do_not_depend_on_what_lies_in_the_arena(amp):
    draw = random.Random(3)
    for _ in range(25):
        size = draw.randint(1, 9), draw.randint(1, 9)
        kernel = draw.choice((1, 2, 3, 5)), draw.choice((1, 2, 3, 5))
        stride = draw.choice((1, 2, 3)), draw.choice((1, 2, 3))
        pad = tuple(draw.randint(0, k - 1) for k in kernel)
        channels, filters = draw.choice((3, 8, 16, 17)), draw.choice((8, 16, 24))
        if all(s + 2 * p >= k for s, p, k in zip(size, pad, kernel)):
            check_convolution(amp, channels, filters, size, kernel, stride, pad, draw.choice((1, 2, 5)))
