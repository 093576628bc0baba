"""Remainders of whole numbers have no slope, as in MXNet 1.9.1; those of real numbers have theirs."""

import numpy as np
import pytest

import mxlite as mx

LHS, RHS, HEAD = [7, 9, 3, 0], [2, 3, 5, 4], [1, 2, 3, 4]
WHOLE = ["int8", "uint8", "int32", "int64"]

# Gradients of real numbers, for LHS, RHS and HEAD.
CALLS = {
    "two arrays": (lambda m, x, y: m.broadcast_mod(x, y), HEAD, [-3, -6, 0, 0]),
    "a row": (lambda m, x, y: m.broadcast_mod(x, m.reshape(y, shape=(1, -1))), HEAD, [-3, -6, 0, 0]),
    "the sign": (lambda m, x, y: x % y, HEAD, [-3, -6, 0, 0]),
    "as of C": (lambda m, x, y: m.fmod(x, y), HEAD, [-3, -6, 0, 0]),
    "by a number": (lambda m, x, y: x % 2, HEAD, [0, 0, 0, 0]),
    "of a number": (lambda m, x, y: 9 % y, [0, 0, 0, 0], [-4, -6, -3, -8]),
}  # fmt: skip


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [*WHOLE, "float16", "float32", "float64"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arrays_have_the_gradients_of_mxnet(call, dtype, again):
    function, *slopes = call
    x, y, head = (mx.nd.array(v, dtype=dtype) for v in (LHS, RHS, HEAD))
    x.attach_grad()
    y.attach_grad()
    with mx.autograd.record():
        out = function(mx.nd, x, y)
        out = out.reshape((-1,)) + 0 * x + 0 * y  # so that each is reached
        found = mx.autograd.grad(out, [x, y], head, create_graph=again, retain_graph=True)
    for grad, slope in zip(found, slopes):
        np.testing.assert_array_equal(grad.asnumpy(), np.zeros(4) if dtype in WHOLE else slope)


@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_networks_have_the_gradients_of_mxnet(call, dtype):
    """As MXNet's own test has it: of real numbers that are cast."""
    function, *slopes = call
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    net = function(mx.sym, mx.sym.cast(x, dtype=dtype), mx.sym.cast(y, dtype=dtype))
    shapes = dict.fromkeys(net.list_arguments(), (4,))
    executor = net.simple_bind(mx.cpu(), **shapes)
    executor.copy_params_from(
        {n: mx.nd.array(v) for n, v in (("x", LHS), ("y", RHS)) if n in shapes}, allow_extra_params=True
    )
    (out,) = executor.forward(is_train=True)
    executor.backward([mx.nd.array(HEAD, dtype=dtype).reshape(out.shape)])
    for name, slope in zip("xy", slopes):
        if name in shapes:
            expected = np.zeros(4) if dtype == "int32" else slope
            np.testing.assert_array_equal(executor.grad_dict[name].asnumpy(), expected)
