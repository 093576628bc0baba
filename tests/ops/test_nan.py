"""A nan is never hidden: what reads one gives nan, and no gradient is 0 because of it.

MXNet 1.9.1 gives nan for the gradient of `relu` at nan, hides it in `Activation(act_type="relu")` and in max
pooling, and gives 0 for the gradients of maxima and minima there. Here none does.
"""

import numpy as np
import pytest

import mxlite as mx

KERNELS = ["", "reference", "onednn"]
_x, _y = mx.sym.Variable("x"), mx.sym.Variable("y")


def _activations():
    yield "relu", mx.sym.relu(_x), np.nan
    for kind, expected in (
        ("relu", np.nan),
        ("sigmoid", np.nan),
        ("tanh", np.nan),
        ("softrelu", np.nan),
        ("softsign", np.nan),
    ):
        yield kind, mx.sym.Activation(_x, act_type=kind), expected
    for slope in (0.0, 0.1):
        yield f"leaky {slope}", mx.sym.LeakyReLU(_x, act_type="leaky", slope=slope), None
    for kind in ("elu", "selu", "gelu"):
        yield kind, mx.sym.LeakyReLU(_x, act_type=kind), np.nan
    for name in ("silu", "mish", "hard_swish", "gelu", "softplus", "log_sigmoid"):
        yield name, getattr(mx.sym, name)(_x), np.nan
    yield "clip", mx.sym.clip(_x, -0.5, 0.5), 1
    yield "relu6", mx.sym.clip(_x, 0, 6), 1
    yield "hard_sigmoid", mx.sym.hard_sigmoid(_x), 0.2
    yield "abs", mx.sym.abs(_x), np.nan
    yield "maximum of a number", mx.sym.maximum(_x, 0.5), 1
    yield "minimum of a number", mx.sym.minimum(_x, 0.5), 1
    yield "smooth_l1", mx.sym.smooth_l1(_x, scalar=1.0), np.nan
    yield "square", mx.sym.square(_x), np.nan


def _run(net, heads=1.0, **values):
    arrays = {name: mx.nd.array(value) for name, value in values.items()}
    grads = {name: mx.nd.zeros(a.shape) for name, a in arrays.items()}
    executor = net.bind(mx.cpu(), arrays, args_grad=grads)
    (out,) = executor.forward(is_train=True)
    executor.backward([mx.nd.full(out.shape, heads)])
    return out.asnumpy(), {name: g.asnumpy() for name, g in grads.items()}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("size", [40, 5000])
def test_no_activation_hides_a_nan(kernels, size, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    data = np.linspace(-3, 3, size, dtype="float32").reshape(4, -1)
    data[1, 3] = data[2, 5] = np.nan
    nan = np.isnan(data)
    for name, net, expected in _activations():
        out, grads = _run(net, x=data)
        assert np.array_equal(np.isnan(out), nan), name
        gradient = grads["x"]
        assert np.all(gradient[nan] != 0), name  # nan, too, is not 0
        assert not np.isnan(gradient[~nan]).any(), name
        if expected is not None:
            np.testing.assert_allclose(gradient[nan], expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("kernels", KERNELS)
def test_one_of_two_gets_the_gradient_where_one_is_nan(kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    x, y = np.float32([[np.nan, -1, 3, 2, 1]]), np.float32([[1, np.nan, 2, 2, 4]])
    for name in ("broadcast_maximum", "broadcast_minimum"):
        for rows in (1, 300):
            left = np.repeat(x, rows, 0)
            out, grads = _run(getattr(mx.sym, name)(_x, _y), x=left, y=y)
            assert np.array_equal(np.isnan(out[0]), [1, 1, 0, 0, 0])
            np.testing.assert_array_equal(grads["x"].sum(0) + grads["y"].sum(0), np.full(5, rows), name)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("shape", [(2, 1, 4, 4), (2, 3, 9, 9), (2, 64, 12, 12)])
def test_a_nan_is_the_maximum_of_its_window_and_gets_its_gradient(kernels, shape, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    data = np.random.default_rng(0).normal(size=shape).astype("float32")
    data[0, 0, 1, 1] = data[-1, -1, 2, 3] = np.nan
    nan = np.isnan(data)
    sizes = {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1)}
    for options in ({"kernel": (2, 2), "stride": (2, 2)}, sizes, {"kernel": (1, 1), "global_pool": True}):
        out, grads = _run(mx.sym.Pooling(_x, pool_type="max", **options), x=data)
        assert np.isnan(out).any()
        assert grads["x"].sum() == out.size  # each window gives its gradient to one element
        assert np.all(grads["x"][nan] >= 1)
    for net in (mx.sym.max(_x, axis=(2, 3)), mx.sym.min(_x, axis=1), mx.sym.max(_x)):
        out, grads = _run(net, x=data)
        assert np.isnan(out).any()
        assert np.all(grads["x"][nan] == 1)


def test_of_several_nans_the_first_has_the_gradient_of_the_window(monkeypatch):
    rng = np.random.default_rng(0)
    many = rng.normal(size=(2, 64, 16, 16)).astype("float32")
    many[rng.random(many.shape) < 0.2] = np.nan
    few = np.ones((1, 1, 2, 2), "float32")
    few[..., 0, 1] = few[..., 1, 0] = np.nan
    found = []
    for kernels in (*KERNELS, "compiled"):
        monkeypatch.setenv("MXLITE_KERNELS", kernels)
        _, grads = _run(mx.sym.Pooling(_x, kernel=(2, 2), pool_type="max"), x=few)
        np.testing.assert_array_equal(grads["x"][0, 0], [[0, 1], [0, 0]])
        net = mx.sym.Pooling(_x, kernel=(3, 3), stride=(2, 2), pool_type="max")
        found.append(_run(net, x=many)[1]["x"])
    for other in found:
        np.testing.assert_array_equal(other, found[1])


def _networks():
    conv = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 16}
    body = mx.sym.Convolution(_x, name="c1", **conv)
    yield "convolution, relu", mx.sym.relu(body)
    yield (
        "convolution, relu, pooling",
        mx.sym.Pooling(mx.sym.relu(body), kernel=(2, 2), stride=(2, 2), pool_type="max"),
    )
    for fixed in (False, True):
        normed = mx.sym.relu(mx.sym.BatchNorm(body, name="n1", fix_gamma=False, use_global_stats=fixed))
        yield f"norm of {fixed}, relu", normed
        yield f"norm of {fixed}, relu, convolution", mx.sym.Convolution(normed, name="c2", **conv)
        summed = mx.sym.relu(mx.sym.BatchNorm(body, name="n1", use_global_stats=fixed) + body)
        yield (
            f"norm of {fixed}, sum, relu",
            mx.sym.Pooling(summed, kernel=(2, 2), stride=(2, 2), pool_type="avg"),
        )
    dense = mx.sym.FullyConnected(_x, name="f1", num_hidden=32)
    for kind in ("relu", "sigmoid"):
        yield (
            f"dense, {kind}",
            mx.sym.FullyConnected(mx.sym.Activation(dense, act_type=kind), name="f2", num_hidden=4),
        )


@pytest.mark.parametrize("kernels", KERNELS)
def test_no_network_hides_a_nan_of_a_weight_from_its_gradients(kernels, monkeypatch):
    """One weight is nan: what it makes, the loss and the gradient that comes back to it are."""
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    for name, body in _networks():
        net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(body, name="last", num_hidden=3), name="softmax")
        executor = net.simple_bind(mx.cpu(), x=(4, 16, 8, 8), softmax_label=(4,))
        rng = np.random.default_rng(0)
        for key, array in executor.arg_dict.items():
            array[:] = rng.normal(size=array.shape) if key != "softmax_label" else np.array([0, 1, 2, 0])
        first = next(key for key in ("c1_weight", "f1_weight") if key in executor.arg_dict)
        weight = executor.arg_dict[first].asnumpy()
        weight[5].flat[0] = np.nan
        executor.arg_dict[first][:] = weight
        (out,) = executor.forward(is_train=True)
        executor.backward()
        assert np.isnan(out.asnumpy()).all(), name
        gradient = executor.grad_dict[first].asnumpy()
        assert np.isnan(gradient[5]).any(), (name, gradient[5].ravel()[:4])


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_rectified_recurrent_network_hides_no_nan(kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    net = mx.sym.RNN(_x, mode="rnn_relu", state_size=16, num_layers=1, name="r")
    executor = net.simple_bind(mx.cpu(), x=(5, 4, 8))
    for array in executor.arg_arrays:
        array[:] = np.random.default_rng(0).normal(size=array.shape) * 0.1
    data = executor.arg_dict["x"].asnumpy()
    data[2, 1, 3] = np.nan
    executor.arg_dict["x"][:] = data
    (out,) = executor.forward(is_train=True)
    executor.backward([mx.nd.ones(out.shape)])
    assert np.isnan(out.asnumpy()[2:, 1]).all()
    assert np.isnan(executor.grad_dict["x"].asnumpy()[2, 1]).all()
    assert np.isnan(executor.grad_dict["r_parameters"].asnumpy()).any()
