"""Layers of neural networks: against PyTorch, against numbers of MXNet 1.9.1, and what only they promise."""

import itertools

import numpy as np
import pytest

from mxlite.backends.cpu.backend import CPU
from mxlite.core.errors import OpAttributeError, ShapeError
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.elementwise.leaky import LeakyReLU
from mxlite.ops.loss.loss import MAERegressionOutput, MakeLoss, SoftmaxOutput
from mxlite.ops.nn.conv import Convolution
from mxlite.ops.nn.dense import FullyConnected
from mxlite.ops.nn.dropout import Dropout
from mxlite.ops.nn.pool import Pooling
from mxlite.ops.nn.pool_kernels import index_type
from mxlite.ops.norm.norm import BatchNorm
from mxlite.ops.random.philox import RandomStream
from mxlite.ops.scratch import BLOCK


class Layer:
    """One operator on arrays given by name, run as a program runs it, without a graph."""

    def __init__(self, op, dtype="float64", train=True, **attrs):
        self.op, self.a, self.dtype, self.train = op, parse_attrs(op, attrs), np.dtype(dtype), train
        self.have = {}

    def services(self, signature, nbytes):
        rng = RandomStream(np.array([7, 3], np.uint64), 5)
        work = CPU.empty(nbytes)
        work.fill(0xFF)
        every = {"work": work, "train": self.train, "rng": rng, "shapes": self.shapes}
        return {k: v for k, v in every.items() if k in signature.services}

    def forward(self, **arrays):
        names = self.op.input_names(self.a)
        self.shapes = self.op.infer_shape(self.a, *(arrays[n].shape if n in arrays else None for n in names))
        types = self.op.infer_type(self.a, *(arrays[n].dtype if n in arrays else None for n in names))
        for n, s, d in zip(names, self.shapes[0], types[0]):
            self.have[n] = arrays[n] if n in arrays else np.zeros(s, d)
        made = {
            n: np.full(s, 77, d) for n, s, d in zip(self.op.output_names(self.a), self.shapes[1], types[1])
        }
        nbytes = self.op.workspace(self.a, *self.shapes, self.dtype)
        self.op.forward(
            np,
            self.a,
            *(self.have[n] if n in names else None for n in self.op.inputs),
            **made,
            **self.services(self.op.signature, nbytes),
        )
        self.have |= made
        return made["out"]

    def backward(self, d_out=None):
        have = self.have | {"d_out": d_out}
        grad = self.op.grad_op
        used = grad.input_names(self.a)
        made = dict.fromkeys(grad.outputs)
        for n in grad.output_names(self.a):
            made[n] = np.full_like(have[n.removeprefix("d_")], 77)
        nbytes = self.op.backward_workspace(self.a, *self.shapes, self.dtype)
        grad.forward(
            np,
            self.a,
            *(have[n] if n in used else None for n in grad.inputs),
            **made,
            **self.services(grad.signature, nbytes),
        )
        return made


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got, want, tolerance=1e-11):
    want = np.asarray(want.detach().numpy() if hasattr(want, "detach") else want, "float64")
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(np.asarray(got, "float64"), want, rtol=0, atol=tolerance * scale)


CONVOLUTIONS = [
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(3, 3), pad=(1, 1))),
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_group=2)),
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(3, 2), dilate=(2, 2), pad=(2, 1), num_group=2)),
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(1, 1))),
    ((40, 16, 2, 2), dict(num_filter=12, kernel=(1, 1))),
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(1, 1), stride=(2, 2))),
    ((5, 4, 7, 8), dict(num_filter=6, kernel=(1, 1), pad=(1, 1))),
    ((90, 24, 6, 6), dict(num_filter=40, kernel=(3, 3), pad=(1, 1))),  # several rounds of scratch
    ((70, 24, 9, 9), dict(num_filter=20, kernel=(3, 3), pad=(1, 1), stride=(2, 2))),
    ((5, 4, 9), dict(num_filter=4, kernel=(3,), pad=(1,), num_group=4)),
    ((3, 4, 5, 6, 4), dict(num_filter=4, kernel=(3, 2, 3), pad=(1, 0, 1), num_group=2)),
    ((3, 4, 5, 6, 4), dict(num_filter=4, kernel=(3, 2, 3), stride=(2, 1, 2), pad=(1, 0, 1))),
]


@pytest.mark.torch
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 2e-6), ("float16", 2e-3)])
@pytest.mark.parametrize("shape, attrs", CONVOLUTIONS)
def test_convolution_agrees_with_torch(shape, attrs, dtype, tolerance):
    torch = pytest.importorskip("torch")
    rank = len(shape) - 2
    layer = Layer(Convolution, dtype, **attrs)
    shapes, _ = Convolution.infer_shape(layer.a, shape, None, None)
    arrays = [normal(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
    out = layer.forward(**dict(zip(Convolution.inputs, arrays)))
    d_out = normal(*out.shape, dtype=dtype, seed=9)
    grads = layer.backward(d_out)
    x, w, b = (torch.tensor(v.astype("float64"), requires_grad=True) for v in arrays)
    conv = getattr(torch.nn.functional, f"conv{rank}d")
    names = dict(stride="stride", padding="pad", dilation="dilate", groups="num_group")
    y = conv(x, w, b, **{t: attrs[m] for t, m in names.items() if m in attrs})
    y.backward(torch.tensor(d_out.astype("float64")))
    for got, want in (
        (out, y),
        *zip((grads["d_data"], grads["d_weight"], grads["d_bias"]), (x.grad, w.grad, b.grad)),
    ):
        close(got, want, tolerance)


def test_convolution_scratch_stays_small_however_large_the_batch():
    for shape, attrs in CONVOLUTIONS:
        a = parse_attrs(Convolution, attrs)
        for n in (64, 4096):
            shapes, outs = Convolution.infer_shape(a, (n, *shape[1:]), None, None)
            weight = int(np.prod(shapes[1])) * 4
            size = np.dtype("float32")
            assert Convolution.workspace(a, shapes, outs, size) <= (1 << 20) + (1 << 18)
            rows = 4 * n * a.num_filter  # the bias's partial sums
            assert Convolution.backward_workspace(a, shapes, outs, size) <= max(rows, 2 << 20) + 2 * weight


@pytest.mark.parametrize("skip", [s for s in itertools.product([0, 1], repeat=3) if 0 < sum(s) < 3])
def test_convolution_gradients_do_not_depend_on_which_are_wanted(skip):
    for shape, attrs in CONVOLUTIONS[:6]:
        a = parse_attrs(Convolution, attrs)
        shapes, outs = Convolution.infer_shape(a, shape, None, None)
        data, weight, _ = (normal(*s, seed=i) for i, s in enumerate(shapes))
        found = []
        for dropped in ((0, 0, 0), skip):
            grads = [None if d else np.full(s, np.nan) for d, s in zip(dropped, shapes)]
            work = CPU.empty(Convolution.backward_workspace(a, shapes, outs, np.dtype("float64")))
            Convolution.backward(
                np,
                a,
                normal(*outs[0], seed=5),
                data,
                weight,
                d_data=grads[0],
                d_weight=grads[1],
                d_bias=grads[2],
                work=work,
            )
            found.append(grads)
        for want, got in zip(*found):
            assert got is None or np.array_equal(want, got)


@pytest.mark.torch
@pytest.mark.parametrize("pad, stride, ceil", [*itertools.product([0, 1], [1, 2, 3], [False, True])])
@pytest.mark.parametrize("kind", ["max", "avg", "inside"])
def test_pooling_agrees_with_torch(kind, pad, stride, ceil):
    torch = pytest.importorskip("torch")
    if ceil and pad and stride == 3:
        pytest.skip("torch drops a last window that starts in the padding; MXNet keeps it")
    data = np.random.default_rng(0).permutation(2 * 3 * 8 * 8).reshape(2, 3, 8, 8).astype("float64")
    layer = Layer(
        Pooling,
        kernel=(3, 3),
        stride=(stride,) * 2,
        pad=(pad,) * 2,
        pool_type="max" if kind == "max" else "avg",
        count_include_pad=kind != "inside",
        pooling_convention="full" if ceil else "valid",
    )
    out = layer.forward(data=data)
    d_out = normal(*out.shape)
    x = torch.tensor(data, requires_grad=True)
    if kind == "max":
        y = torch.nn.functional.max_pool2d(x, 3, stride, pad, ceil_mode=ceil)
    else:
        y = torch.nn.functional.avg_pool2d(x, 3, stride, pad, ceil, kind != "inside")
    assert tuple(y.shape) == out.shape
    y.backward(torch.tensor(d_out))
    close(out, y)
    close(layer.backward(d_out)["d_data"], x.grad)


def test_first_of_equal_maxima_gets_the_gradient():
    layer = Layer(Pooling, kernel=(2, 2), stride=(2, 2))
    layer.forward(data=np.ones((1, 1, 2, 4)))
    d_data = layer.backward(np.array([[[[3.0, 5.0]]]]))["d_data"]
    assert d_data.tolist() == [[[[3, 0, 5, 0], [0, 0, 0, 0]]]]


def test_pooling_index_is_a_byte_for_small_windows_only():
    assert index_type(parse_attrs(Pooling, dict(kernel=(15, 15)))) == np.uint8
    assert index_type(parse_attrs(Pooling, dict(kernel=(16, 16)))) == np.int32
    for window in (15, 16):
        layer = Layer(Pooling, kernel=(window, window))
        data = np.zeros((1, 1, window, window))
        data[0, 0, -1, -1] = 1
        layer.forward(data=data)
        assert layer.backward(np.ones((1, 1, 1, 1)))["d_data"].tolist() == data.tolist()


def test_lp_pooling_as_mxnet():
    """Numbers of MXNet 1.9.1; note the missing absolute values."""
    data = np.array([[[[1, -2, 3, 0.5], [0, 1, -1, 2], [2, 2, 0.5, -3.0]]]])
    layer = Layer(Pooling, kernel=(2, 2), pool_type="lp", p_value=3)
    close(
        layer.forward(data=data), [[[[-1.817121, 2.668402, 3.243577], [2.571282, 2.010363, -2.708751]]]], 1e-6
    )
    want = [
        0.302853,
        1.773182,
        2.119429,
        0.023762,
        0,
        0.841977,
        0.619211,
        0.925357,
        0.605007,
        1.594724,
        0.09593,
        1.226604,
    ]
    close(layer.backward(np.ones((1, 1, 2, 3)))["d_data"].ravel(), want, 1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(6, 5, 4, 3), (9, 5), (3, 5, 11, 13)])
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-10), ("float32", 1e-5), ("float16", 3e-3)])
def test_batch_norm_agrees_with_torch(shape, dtype, tolerance):
    torch = pytest.importorskip("torch")
    wide = "float64" if dtype == "float64" else "float32"
    data = normal(*shape, dtype=dtype) * np.dtype(dtype).type(3) + np.dtype(dtype).type(2)
    gamma, beta = normal(5, dtype=wide, seed=1), normal(5, dtype=wide, seed=2)
    layer = Layer(BatchNorm, dtype, fix_gamma=False, eps=1e-3)
    out = layer.forward(data=data, gamma=gamma, beta=beta)
    d_out = normal(*shape, dtype=dtype, seed=3)
    grads = layer.backward(d_out)
    x, g, b = (torch.tensor(v.astype("float64"), requires_grad=True) for v in (data, gamma, beta))
    y = torch.nn.functional.batch_norm(x, None, None, g, b, True, 0.1, 1e-3)
    y.backward(torch.tensor(d_out.astype("float64")))
    for got, want in (
        (out, y),
        (grads["d_data"], x.grad),
        (grads["d_gamma"], g.grad),
        (grads["d_beta"], b.grad),
    ):
        close(got, want, tolerance)


def _mxnet_batch_norm(train=True, **attrs):
    layer = Layer(BatchNorm, "float32", train, fix_gamma=False, **attrs)
    out = layer.forward(
        data=(np.arange(12).reshape(3, 2, 2) ** 1.5).astype("float32"),
        gamma=np.array([1, 2], "float32"),
        beta=np.array([0.5, 0], "float32"),
        moving_mean=np.array([1, 2], "float32"),
        moving_var=np.array([3, 4], "float32"),
    )
    return layer, out, (np.arange(12).reshape(3, 2, 2) % 5).astype("float32")


def test_batch_norm_moves_its_averages_in_backward_only_as_mxnet():
    """Numbers of MXNet 1.9.1."""
    layer, out, d_out = _mxnet_batch_norm()
    close(out[0], [[-0.645635, -0.547167], [-2.470381, -2.090469]], 1e-5)
    assert layer.have["moving_mean"].tolist() == [1, 2] and layer.have["moving_var"].tolist() == [3, 4]
    grads = layer.backward(d_out)
    close(grads["d_gamma"], [6.820538, -4.376837], 1e-5)
    close(grads["d_beta"], [12, 9], 1e-6)
    close(grads["d_data"][2], [[-0.022693, 0.02758], [-0.114868, 0.091225]], 1e-5)
    close(layer.have["moving_mean"], [2.063463, 3.622457], 1e-6)
    close(layer.have["moving_var"], [13.013549, 19.136503], 1e-5)


@pytest.mark.parametrize("train, attrs", [(True, {"use_global_stats": True}), (False, {})])
def test_batch_norm_takes_moving_averages_as_constants_as_mxnet(train, attrs):
    """Numbers of MXNet 1.9.1 with use_global_stats."""
    layer, out, d_out = _mxnet_batch_norm(train, **attrs)
    close(out[0], [[-0.077254, 0.5], [0.828324, 3.195753]], 1e-5)
    grads = layer.backward(d_out)
    close(grads["d_data"][0], [[0, 0.577254], [1.99975, 2.999625]], 1e-5)
    close(grads["d_gamma"], [113.651085, 45.727104], 1e-5)
    assert layer.have["moving_mean"].tolist() == [1, 2] and layer.have["moving_var"].tolist() == [3, 4]


def test_batch_norm_keeps_its_digits_where_the_mean_is_large():
    data = normal(64, 2, 8, 8, dtype="float32") + np.float32(3000)
    exact = data.astype("float64")
    layer = Layer(BatchNorm, "float32", fix_gamma=True)
    layer.forward(data=data)
    close(layer.have["var"], 1 / np.sqrt(exact.var((0, 2, 3)) + 1e-3), 1e-4)


def test_batch_norm_with_fixed_gamma_counts_it_as_one():
    layer = Layer(BatchNorm)
    out = layer.forward(data=normal(8, 3, 4), gamma=np.full(3, 7.0))
    close(out.std((0, 2)), np.ones(3), 1e-2)
    assert layer.backward(normal(8, 3, 4, seed=1))["d_gamma"].tolist() == [0, 0, 0]
    assert layer.have["gamma"].tolist() == [7, 7, 7]


def test_batch_norm_of_planes_a_little_larger_than_a_block():
    """What is left of such a plane is less than a row of positions, and more than there are channels."""
    layer = Layer(BatchNorm)
    data = normal(1, 1, BLOCK + 40)
    close(layer.forward(data=data).std(), (1 + 1e-3 / data.var()) ** -0.5, 1e-9)
    close(layer.backward(np.ones_like(data))["d_data"], np.zeros_like(data), 1e-9)


LOGITS = np.array([[1, 2, 3], [1, 0, -1.0], [0, 0, 1]])
CUBE = np.arange(12).reshape(2, 3, 2) / 5
ROWS, PLANES = [[0, 1, 0], [1, 1, 0]], [[0, 1], [1, 2]]
# data, label, parameters, gradient by MXNet 1.9.1
SOFTMAX = [
    (LOGITS, [0, 2, -1], {"smooth_alpha": 0.1}, [-0.809969, 0.194728, 0.615241, 0.615241, 0.194728, -0.809969, 0.161942, 0.161942, 0.526117]),  # noqa: E501
    (LOGITS, [0, 2, -1], {"normalization": "valid", "ignore_label": 0}, [-0.454985, 0.122364, 0.33262, 0.33262, 0.122364, -0.454985, 0.105971, 0.105971, 0.288058]),  # noqa: E501
    (LOGITS, [0, 2, -1], {"normalization": "valid", "use_ignore": True, "ignore_label": 0}, [0, 0, 0, 0.33262, 0.122364, -0.454985, 0.105971, 0.105971, 0.288058]),  # noqa: E501
    (LOGITS, [0, 2, -1], {"use_ignore": True, "ignore_label": 0, "smooth_alpha": 0.2}, [0, 0, 0, 0.565241, 0.144728, -0.709969, 0.111942, 0.111942, 0.476117]),  # noqa: E501
    (LOGITS, [0.9, 1.5, 5], {}, [-0.909969, 0.244728, 0.665241, 0.665241, -0.755272, 0.090031, 0.211942, 0.211942, 0.576117]),  # noqa: E501
    (LOGITS, [[0.2, 0.3, 0.5], [1, 0, 0], [0, 0, 1]], {"normalization": "batch", "grad_scale": 2}, [-0.219939, -0.110543, 0.330482, -0.669518, 0.489457, 0.180061, 0.423883, 0.423883, -0.847766]),  # noqa: E501
    (CUBE, ROWS, {}, [-0.904573, 0.116555, 0.142361, 0.17388, 0.212378, 0.259399, 0.095427, -0.883445, 0.142361, 0.17388, 0.212378, 0.259399]),  # noqa: E501
    (CUBE, ROWS, {"normalization": "batch"}, [-0.150762, 0.019426, 0.023727, 0.02898, 0.035396, 0.043233, 0.015905, -0.147241, 0.023727, 0.02898, 0.035396, 0.043233]),  # noqa: E501
    (CUBE, ROWS, {"preserve_shape": True, "normalization": "valid", "use_ignore": True, "ignore_label": 1}, [-0.183278, 0.183278, 0, 0, -0.183278, 0.183278, 0, 0, 0, 0, -0.183278, 0.183278]),  # noqa: E501
    (CUBE, PLANES, {"multi_output": True}, [-0.394009, 0.105991, 0.158121, -0.341879, 0.235888, 0.235888, 0.105991, 0.105991, -0.341879, 0.158121, 0.235888, -0.264112]),  # noqa: E501
    (CUBE, PLANES, {"multi_output": True, "normalization": "batch"}, [-0.197004, 0.052996, 0.07906, -0.17094, 0.117944, 0.117944, 0.052996, 0.052996, -0.17094, 0.07906, 0.117944, -0.132056]),  # noqa: E501
    (CUBE, PLANES, {"multi_output": True, "normalization": "valid"}, [-0.197004, 0.052996, 0.07906, -0.17094, 0.117944, 0.117944, 0.052996, 0.052996, -0.17094, 0.07906, 0.117944, -0.132056]),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize("data, label, attrs, want", SOFTMAX)
def test_softmax_output_gradient_as_mxnet(data, label, attrs, want):
    layer = Layer(SoftmaxOutput, **attrs)
    layer.forward(data=data, label=np.array(label, "float64"))
    close(layer.backward()["d_data"].ravel(), want, 2e-6)


def test_softmax_output_multiplies_by_the_head_gradient_only_when_asked():
    want = Layer(SoftmaxOutput)
    want.forward(data=LOGITS, label=np.array([0.0, 1, 2]))
    assert "d_out" not in SoftmaxOutput.grad_op.input_names(want.a)
    asked = Layer(SoftmaxOutput, out_grad=True)
    asked.forward(data=LOGITS, label=np.array([0.0, 1, 2]))
    head = normal(3, 3)
    close(asked.backward(head)["d_data"], want.backward()["d_data"] * head)


def test_softmax_output_does_not_take_a_column_of_labels():
    with pytest.raises(ShapeError, match=r"label must be one of \[\(3,\), \(3, 4\)\] .*got \(3, 1\)"):
        SoftmaxOutput.infer_shape(SoftmaxOutput.Attrs(), (3, 4), (3, 1))


def test_mae_regression_takes_the_sign_of_zero_as_minus_one():
    layer = Layer(MAERegressionOutput, grad_scale=2)
    layer.forward(data=np.array([[1.0, 2, 3]]), label=np.array([[0.0, 2, 4]]))
    close(layer.backward()["d_data"], [[2 / 3, -2 / 3, -2 / 3]])


@pytest.mark.parametrize(
    "attrs, want",
    [
        ({"normalization": "batch", "grad_scale": 2}, 2 / 3),
        ({"normalization": "valid", "valid_thresh": 0.5}, 0.2),
    ],
)
def test_make_loss_normalizes_as_mxnet(attrs, want):
    layer = Layer(MakeLoss, **attrs)
    layer.forward(data=LOGITS)
    close(layer.backward()["d_data"], np.full((3, 3), want))


@pytest.mark.parametrize(("shape", "rows"), [((4,), 1), ((4, 3), 4), ((4, 3, 2), 12), ((2, 3, 4, 5), 24)])
def test_make_loss_divides_by_rows_as_mxnet(shape, rows):
    layer = Layer(MakeLoss, normalization="batch")
    layer.forward(data=np.ones(shape))
    close(layer.backward()["d_data"], np.full(shape, 1 / rows))


def test_leaky_rectifiers_as_mxnet():
    """Numbers of MXNet 1.9.1 at -2, -0.5, 0, 0.5, 2, save selu's slope below zero, where MXNet is wrong."""
    data = np.array([[-2, -0.5, 0, 0.5, 2]])
    wanted = {
        "leaky": ([-0.5, -0.125, 0, 0.5, 2], [0.25, 0.25, 0.25, 1, 1]),
        "elu": ([-0.216166, -0.098367, 0, 0.5, 2], [0.033834, 0.151633, 0.25, 1, 1]),
        "selu": (
            [-1.520167, -0.691758, 0, 0.525351, 2.101402],
            [0.237933, 1.066341, 1.758099, 1.050701, 1.050701],
        ),
        "gelu": ([-0.0455, -0.154269, 0, 0.345731, 1.9545], [-0.085232, 0.132505, 0.5, 0.867495, 1.085232]),
    }
    for kind, (out, slope) in wanted.items():
        layer = Layer(LeakyReLU, act_type=kind)
        close(layer.forward(data=data), [out], 1e-6)
        close(layer.backward(np.ones((1, 5)))["d_data"], [slope], 1e-6)


def test_dropout_keeps_about_as_many_as_it_says_and_uses_the_same_mask_backward():
    layer = Layer(Dropout, "float32", p=0.3)
    data = np.ones((200, 300), "float32")
    out = layer.forward(data=data)
    assert abs((out == 0).mean() - 0.3) < 0.01
    close(out[out != 0], np.full((out != 0).sum(), 1 / 0.7), 1e-6)
    assert np.array_equal(layer.backward(data)["d_data"], out)


def test_dropout_draws_the_numbers_of_its_stream_in_order():
    layer = Layer(Dropout, "float32", p=0.5)
    out = layer.forward(data=np.ones((30, 1000), "float32"))
    numbers = np.empty(30000, "float32")
    stream = RandomStream(np.array([7, 3], np.uint64), 5)
    stream.fill_uniform(np, numbers, CPU.empty(RandomStream.WORK_BYTES))
    assert np.array_equal(out.ravel() != 0, numbers >= 0.5)


def test_dropout_along_axes_shares_its_draw():
    out = Layer(Dropout, p=0.5, axes=(1, 2)).forward(data=np.ones((50, 4, 3)))
    assert (out == out[:, :1, :1]).all() and 0 < (out == 0).mean() < 1


@pytest.mark.parametrize("flatten, shape", [(True, (4, 3, 2)), (False, (4, 3, 2)), (True, (4,))])
def test_fully_connected_shapes_as_mxnet(flatten, shape):
    a = FullyConnected.Attrs(5, flatten=flatten)
    width = {3: 6 if flatten else 2, 1: 1}[len(shape)]
    out = (4, 5) if flatten else (4, 3, 5)
    assert FullyConnected.infer_shape(a, shape, None, None) == ((shape, (5, width), (5,)), (out,))


@pytest.mark.parametrize(
    "op, attrs, message",
    [
        (Convolution, dict(kernel=(3, 3), num_filter=4, stride=(1,)), r"stride must have 2 numbers"),
        (
            Convolution,
            dict(kernel=(3, 3), num_filter=4, num_group=3),
            r"num_group=3 must divide num_filter=4",
        ),
        (Convolution, dict(kernel=(3, 3), num_filter=4, layout="NHWC"), r"layout 'NHWC' is not supported"),
        (Pooling, dict(pool_type="max"), r"kernel must have 1, 2 or 3 numbers"),
        (Pooling, dict(kernel=(2, 2), pool_type="lp"), r"p_value must be 1, 2 or 3"),
        (Dropout, dict(p=1.5), r"p must be in \[0, 1\]"),
        (BatchNorm, dict(eps=0), r"eps must be above 0"),
        (LeakyReLU, dict(act_type="rrelu"), r"'rrelu' is not supported"),
    ],
)
def test_wrong_parameters_are_named(op, attrs, message):
    with pytest.raises(OpAttributeError, match=message):
        parse_attrs(op, attrs)


def test_a_kernel_larger_than_the_data_says_so():
    a = Convolution.Attrs(kernel=(5, 5), num_filter=2)
    with pytest.raises(ShapeError, match=r"kernel \(5, 5\) does not fit data of 3x3 padded by \(0, 0\)"):
        Convolution.infer_shape(a, (1, 1, 3, 3), None, None)


def test_a_pooling_layout_of_more_axes_than_the_data_has_says_so():
    with pytest.raises(ShapeError, match=r"layout 'NCHW' is not that of data \(1, 1, 3\), which is 'NCW'"):
        Pooling.infer_shape(Pooling.Attrs(kernel=(2,), layout="NCHW"), (1, 1, 3))
