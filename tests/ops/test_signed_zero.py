"""At zero the sign of zero decides: values and gradients there are those that MXNet 1.9.1 gives."""

import numpy as np
import pytest

import mxlite as mx

INF = np.inf

# Values and gradients at -0.0 and at 0.0, as MXNet 1.9.1 prints them in every floating type.
MEASURED = {
    "rsqrt": ([-INF, INF], [-INF, -INF]),
    "rcbrt": ([-INF, INF], [-INF, -INF]),
    "reciprocal": ([-INF, INF], [-INF, -INF]),
    "sqrt": ([-0.0, 0.0], [-INF, INF]),
    "cbrt": ([-0.0, 0.0], [INF, INF]),
    "log": ([-INF, -INF], [-INF, INF]),
    "log2": ([-INF, -INF], [-INF, INF]),
    "log10": ([-INF, -INF], [-INF, INF]),
}


def _same(found, expected):
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("kernels", ["", "reference"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("count", [1, 3000])
def test_a_function_with_a_pole_or_a_root_at_zero_has_the_signs_of_mxnet(
    name, dtype, kernels, count, monkeypatch
):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    values, slopes = (np.tile(v, count) for v in MEASURED[name])
    x = mx.nd.array(np.tile([-0.0, 0.0], count), dtype=dtype)
    given = {"args": {"x": x}, "args_grad": {"x": mx.nd.zeros(x.shape, dtype=dtype)}}
    executor = getattr(mx.sym, name)(mx.sym.Variable("x")).bind(mx.cpu(), **given)
    _same(executor.forward(is_train=True)[0].asnumpy(), values)
    executor.backward([mx.nd.ones(x.shape, dtype=dtype)])
    _same(executor.grad_dict["x"].asnumpy(), slopes)
    for again in (False, True):  # with `create_graph` the gradient is written with operators
        x.attach_grad()
        with mx.autograd.record():
            y = getattr(mx.nd, name)(x)
            (grad,) = mx.autograd.grad(y, [x], create_graph=again, retain_graph=True)
        _same(y.asnumpy(), values)
        _same(grad.asnumpy(), slopes)


@pytest.mark.parametrize("kernels", ["", "reference"])
def test_the_gamma_function_has_the_sign_of_its_zero(kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    for dtype in ("float32", "float64"):
        _same(mx.nd.gamma(mx.nd.array([-0.0, 0.0], dtype=dtype)).asnumpy(), [-INF, INF])
