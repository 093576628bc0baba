"""Normalizations, softmax, losses, attention: single facts. Numbers "as mxnet" were read off MXNet 1.9.1."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.core.errors import (
    DerivativeError,
    DTypeError,
    OpAttributeError,
    OperatorError,
    ShapeError,
)
from mxlite.graph.attrs import parse_attrs
from mxlite.ops.nn import attention_kernels
from tests.ops.test_ops_nn import close, Layer, normal

ATTENTION = ops.scaled_dot_product_attention
F32 = np.dtype("float32")


def attention(query, key, value, mask=None, length=None, causal=False, scale=None):
    """Attention in one piece, from its formula; queries that see nothing give 0."""
    shared = query.shape[1] // key.shape[1]
    key, value = (np.repeat(x, shared, axis=1) for x in (key, value))
    scores = query @ key.swapaxes(2, 3) * (1 / math.sqrt(query.shape[3]) if scale is None else scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    places = np.arange(key.shape[2])
    if length is not None:
        scores = np.where(places < length[:, None, None, None], scores, -np.inf)
    if causal:
        scores = np.where(places <= np.arange(query.shape[2])[:, None], scores, -np.inf)
    most = scores.max(axis=3, keepdims=True, initial=-1e300)
    weights = np.exp(scores - most)
    total = weights.sum(axis=3, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value


@pytest.mark.parametrize("seed", range(40))
def test_attention_is_the_same_in_blocks_of_any_size(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    for name in ("_ROWS", "_COLUMNS"):
        monkeypatch.setattr(attention_kernels, name, int(rng.integers(1, 5)))
    monkeypatch.setattr(attention_kernels, "_BLOCK", int(rng.integers(1, 60)))
    b, g, shared, n, s, e, v = rng.integers(1, [3, 4, 4, 9, 9, 4, 4])
    h = g * shared
    arrays = {"query": (b, h, n, e), "key": (b, g, s, e), "value": (b, g, s, v)}
    arrays = {k: rng.standard_normal(shape) for k, shape in arrays.items()}
    if rng.integers(2):
        ones = rng.integers(2, size=4)
        shape = tuple(np.where(ones, 1, (b, h, n, s)))[int(rng.integers(4)) :]
        arrays["mask"] = rng.standard_normal(shape) if rng.integers(2) else rng.uniform(size=shape) < 0.6
    if rng.integers(2):
        arrays["length"] = rng.integers(0, s + 2, b)
    causal = bool(rng.integers(2))
    layer = Layer(ATTENTION, causal=causal, use_mask="mask" in arrays, use_length="length" in arrays)
    close(layer.forward(**arrays), attention(**arrays, causal=causal), 1e-12)
    head = rng.standard_normal(layer.have["out"].shape)
    grads = layer.backward(head)
    for name, grad in grads.items():
        x = arrays[name[2:]] if grad is not None else np.zeros(0, bool)
        if x.dtype == bool:
            continue
        step = 1e-6 * rng.standard_normal(x.shape)
        ahead, behind = (attention(**{**arrays, name[2:]: x + k * step}, causal=causal) for k in (1, -1))
        assert np.vdot(ahead - behind, head) / 2 == pytest.approx(np.vdot(grad, step), rel=1e-5, abs=1e-11), (
            name
        )


@pytest.mark.parametrize("kind", ["bool", "added", "length"])
def test_a_query_that_sees_no_key_gives_zero_and_gradients_of_zero(kind):
    arrays = {n: normal(2, 2, 3, 4, seed=i) for i, n in enumerate(ATTENTION.inputs[:3])}
    if kind == "length":
        arrays["length"] = np.array([0, 3])
    else:
        seen = np.ones((2, 1, 3, 3), bool)
        seen[0] = False
        arrays["mask"] = seen if kind == "bool" else np.where(seen, 0, -np.inf)
    layer = Layer(ATTENTION, use_mask="mask" in arrays, use_length="length" in arrays)
    out = layer.forward(**arrays)
    assert not out[0].any() and out[1].all()
    grads = layer.backward(np.ones(out.shape))
    for name in ("d_query", "d_key", "d_value"):
        assert not grads[name][0].any() and grads[name][1].any(), name
        assert np.isfinite(grads[name]).all()


def attention_bytes(n, dtype="float16"):
    """What an attention of n positions keeps from forward to backward, and the scratch of both."""
    a = parse_attrs(ATTENTION, {"causal": True})
    ins, outs = ATTENTION.infer_shape(a, *[(1, 2, n, 64)] * 3)
    kinds = dict(zip(ATTENTION.output_names(a), ATTENTION.infer_type(a, *[np.dtype(dtype)] * 3)[1]))
    kept = [
        math.prod(s) * kinds[o].itemsize
        for o, s in zip(ATTENTION.output_names(a), outs)
        if o in ATTENTION.grad_op.input_names(a)
    ]
    scratch = (ATTENTION.workspace, ATTENTION.backward_workspace)
    return sum(kept), [f(a, ins, outs, np.dtype(dtype)) for f in scratch]


def test_attention_memory_grows_with_the_length_not_its_square():
    (kept, work), (kept_long, work_long) = attention_bytes(256), attention_bytes(2048)
    assert kept_long == 8 * kept
    assert kept == 2 * 256 * (64 * 2 + 4)  # out and one float32 for each query
    assert all(long <= 8 * short for short, long in zip(work, work_long))
    assert work_long[0] < 2 << 20 and work_long[1] < 5 << 20
    assert attention_bytes(4 * 2048)[1][0] == work_long[0], "forward's scratch has a fixed size"


def test_attention_drops_weights_in_training_only():
    one = {"query": normal(1, 1, 60, 4), "key": normal(1, 1, 50, 4, seed=1), "value": np.eye(50)[None, None]}
    weights = Layer(ATTENTION).forward(**one)
    assert np.array_equal(Layer(ATTENTION, p=0.25, train=False).forward(**one), weights)
    dropped = Layer(ATTENTION, p=0.25).forward(**one)
    gone = dropped == 0
    assert abs(gone.mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / gone.size)
    close(dropped[~gone], weights[~gone] / 0.75)


def test_attention_blocks_drop_different_weights(monkeypatch):
    monkeypatch.setattr(attention_kernels, "_ROWS", 8)
    monkeypatch.setattr(attention_kernels, "_COLUMNS", 8)
    monkeypatch.setattr(attention_kernels, "_BLOCK", 128)
    one = {"query": np.zeros((2, 4, 24, 1)), "key": np.zeros((2, 2, 24, 1))}
    one["value"] = np.broadcast_to(np.eye(24), (2, 2, 24, 24)).copy()
    dropped = Layer(ATTENTION, p=0.5).forward(**one) == 0
    blocks = dropped.reshape(2, 4, 3, 8, 3, 8).transpose(0, 1, 2, 4, 3, 5).reshape(-1, 64)
    assert len(np.unique(blocks, axis=0)) == len(blocks)


@pytest.mark.parametrize(
    "shapes, attrs, text",
    [
        ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], {}, "query must be"),
        ([(2, 3, 4, 5), (2, 3, 4, 6), (2, 3, 4, 6)], {}, r"key must be \(2, heads, positions, 5\)"),
        ([(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 3, 5)], {}, "value must be"),
        ([(2, 3, 4, 5), (2, 2, 4, 5), (2, 2, 4, 5)], {}, "2 heads of key must divide the 3"),
        ([(2, 3, 4, 5)] * 3 + [(3, 4, 5)], {"use_mask": True}, r"mask must broadcast to \(2, 3, 4, 4\)"),
        ([(2, 3, 4, 5)] * 3 + [(3,)], {"use_length": True}, r"length must be \(2,\)"),
    ],
)
def test_attention_names_what_does_not_fit(shapes, attrs, text):
    with pytest.raises(ShapeError, match=text):
        ATTENTION.infer_shape(parse_attrs(ATTENTION, attrs), *shapes)


def test_attention_refuses_masks_that_would_be_misread():
    a = parse_attrs(ATTENTION, {"use_mask": True})
    with pytest.raises(DTypeError, match="mask must be bool or float32 as query, got int8"):
        ATTENTION.infer_type(a, F32, F32, F32, np.dtype("int8"))
    with pytest.raises(DTypeError, match="floating type"):
        ATTENTION.infer_type(parse_attrs(ATTENTION, {}), *[np.dtype("int32")] * 3)


@pytest.mark.torch
def test_group_norm_takes_one_gamma_for_each_channel():
    torch = pytest.importorskip("torch")
    data, gamma, beta = normal(3, 6, 4), normal(6, seed=1), normal(6, seed=2)
    layer = Layer(ops.GroupNorm, num_groups=3)
    out = layer.forward(data=data, gamma=gamma, beta=beta)
    head = normal(3, 6, 4, seed=3)
    grads = layer.backward(head)
    tensors = [torch.tensor(x, requires_grad=True) for x in (data, gamma, beta)]
    want = torch.nn.functional.group_norm(tensors[0], 3, *tensors[1:], 1e-5)
    want.backward(torch.tensor(head))
    close(out, want)
    for name, tensor in zip(("d_data", "d_gamma", "d_beta"), tensors):
        close(grads[name], tensor.grad, 1e-9)


@pytest.mark.parametrize("op", [ops.LayerNorm, ops.GroupNorm, ops.InstanceNorm])
def test_normalization_keeps_its_digits_where_the_mean_is_large(op):
    data = normal(4, 2, 300, dtype="float32") + np.float32(3000)
    exact = data.astype("float64")
    axes = {"LayerNorm": (2,), "GroupNorm": (1, 2), "InstanceNorm": (2,)}[op.op_name]
    size = {"LayerNorm": 300, "GroupNorm": 1, "InstanceNorm": 2}[op.op_name]
    out = Layer(op, "float32", eps=1e-5).forward(
        data=data, gamma=np.ones(size, F32), beta=np.zeros(size, F32)
    )
    want = exact - exact.mean(axes, keepdims=True)
    close(out, want / np.sqrt(exact.var(axes, keepdims=True) + 1e-5), 2e-4)


@pytest.mark.parametrize(
    "op, attrs, needs",
    [
        (ops.LayerNorm, {}, {"d_out", "data", "gamma"}),
        (ops.RMSNorm, {}, {"d_out", "data", "gamma"}),
        (ops.InstanceNorm, {}, {"d_out", "data", "gamma"}),
        (ops.L2Normalization, {}, {"d_out", "data"}),
        (ops.LRN, {"nsize": 3}, {"d_out", "data"}),
        (ops.softmax, {"use_length": True}, {"d_out", "out"}),
        (ops.log_softmax, {}, {"d_out", "out"}),
        (ops.softplus, {}, {"d_out", "out"}),
        (ops.log_sigmoid, {}, {"d_out", "out"}),
        (ops.gelu, {}, {"d_out", "data"}),
        (ops.Activation, {"act_type": "tanh"}, {"d_out", "out"}),
        (ops.Activation, {"act_type": "mish"}, {"d_out", "data"}),
        (ops.nll_loss, {}, {"d_out", "label"}),
        (ops.cross_entropy, {}, {"d_out", "data", "label"}),
        (ops.softmax_cross_entropy, {}, {"d_out", "data", "label"}),
        (ops.SVMOutput, {}, {"out", "label"}),
        (ops.Dropout, {}, {"d_out"}),
        (ATTENTION, {}, {"d_out", "query", "key", "value", "out", "log_sum"}),
    ],
)
def test_backward_keeps_no_more_than_this(op, attrs, needs):
    assert set(op.grad_op.input_names(parse_attrs(op, attrs))) == needs


def test_layer_norm_gives_the_standard_deviation_as_mxnet():
    data = (np.arange(24.0) % 7).reshape(2, 3, 4)
    layer = Layer(ops.LayerNorm, output_mean_var=True)
    layer.forward(data=data, gamma=np.ones(4), beta=np.zeros(4))
    assert layer.have["mean"].shape == (2, 3, 1)
    close(layer.have["std"].ravel(), [1.118038, 2.277611, 1.118038, 2.549512, 1.118038, 2.277611], 1e-6)


def test_softmax_of_no_length_is_zero():
    data, length = normal(3, 5), np.array([0, 2, 9])
    for op in (ops.softmax, ops.softmin, ops.log_softmax):
        layer = Layer(op, use_length=True)
        out = layer.forward(data=data, length=length)
        assert not out[0].any() and not out[1, 2:].any() and out[2].all()
        grads = layer.backward(normal(3, 5, seed=1))
        assert not grads["d_data"][0].any() and not grads["d_data"][1, 2:].any()


def test_softmax_with_lengths_as_mxnet():
    data = (np.arange(24.0) % 7).reshape(2, 3, 4)
    layer = Layer(ops.softmax, axis=1, use_length=True, temperature=2.0)
    out = layer.forward(data=data, length=np.array([[1, 2, 3, 0], [0, 3, 2, 1]], np.int32))
    close(out[0], [[1, 0.119203, 0.099624, 0], [0, 0.880797, 0.736125, 0], [0, 0, 0.164252, 0]], 1e-6)
    d_data = layer.backward(np.arange(24.0).reshape(2, 3, 4) / 10)["d_data"]
    want = [[0, -0.039832, -0.020999, 0], [0, 0.02617, 0.020999, 0], [0, 0.013662, 0, 0]]
    close(d_data[1], want, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_softmax_of_many_small_floats_adds_up(dtype):
    out = Layer(ops.softmax, dtype).forward(data=np.zeros((2, 70_000), dtype))
    assert abs(float(out.astype("float64").sum()) - 2) < 0.02


def test_softmax_of_a_type_of_its_own():
    data = normal(3, 4, dtype="float16")
    layer = Layer(ops.softmax, "float16")
    layer.a = parse_attrs(ops.softmax, {"dtype": "float64"})
    out = layer.forward(data=data)
    wide = np.exp(data.astype("float64"))
    assert out.dtype == np.float64
    close(out, wide / wide.sum(1, keepdims=True), 1e-12)


def test_softmax_activation_takes_the_last_axis_as_mxnet():
    data = (np.arange(12.0) % 5).reshape(1, 3, 4)
    out = Layer(ops.SoftmaxActivation).forward(data=data)
    close(out[0, 1], [0.830953, 0.015219, 0.041371, 0.112457], 1e-6)


def test_gradients_of_gradients_are_refused_where_there_are_none():
    for op, attrs in ((ops.log_softmax, {"use_length": True}), (ops.softmax, {"dtype": "float64"})):
        with pytest.raises(DerivativeError):
            op.derivative(None, parse_attrs(op, attrs), {}, {"out": None}, {"out": None})


EXTREMES = np.array([-1e4, -800.0, -90.0, 0.0, 90.0, 800.0, 1e4])
LIMITS = {
    "gelu": np.maximum(EXTREMES, 0),
    "silu": np.maximum(EXTREMES, 0),
    "mish": np.maximum(EXTREMES, 0),
    "hard_swish": np.maximum(EXTREMES, 0),
    "softplus": np.where(EXTREMES, np.maximum(EXTREMES, 0), math.log(2)),
    "log_sigmoid": np.where(EXTREMES, np.minimum(EXTREMES, 0), -math.log(2)),
    "sigmoid": np.where(EXTREMES, EXTREMES > 0, 0.5),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", LIMITS)
def test_activations_have_their_limits(name, dtype):
    layer = Layer(ops.find_op(name), dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        out = layer.forward(data=EXTREMES.astype(dtype))
        slopes = layer.backward(np.ones(7, dtype))["d_data"]
    close(out, LIMITS[name], 1e-3 if dtype == "float16" else 1e-6)
    assert np.isfinite(slopes).all()
    if name not in ("sigmoid", "log_sigmoid"):
        close(slopes[[0, 1, 2, 4, 5, 6]], [0, 0, 0, 1, 1, 1], 1e-3)


def test_gelu_has_all_its_digits_far_below_zero():
    x = np.array([-1.0, -5.0, -10.0, -20.0])
    want = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x]
    np.testing.assert_allclose(Layer(ops.gelu).forward(data=x), want, rtol=1e-13)


def test_hard_swish_at_its_corners():
    layer = Layer(ops.hard_swish)
    assert layer.forward(data=np.array([-3.0, 3.0])).tolist() == [0, 3]
    assert layer.backward(np.ones(2))["d_data"].tolist() == [0, 1]


LRN_MXNET = {
    1: [0, 0.707107, 0.894427, 0.948683, 0.970143, 0.980581, 0.986394, 0.98995, 0.992278, 0.993884],
    3: [0, 0.480384, 0.722315, 0.842927, 0.901975, 0.933859, 0.952661, 0.964562, 1.365312, 1.351691],
    4: [0, 0.534522, 0.816497, 0.960769, 1.032796, 1.072113, 1.095445, 1.110272, 1.568929, 1.554963],
    7: [0, 0.27735, 0.469545, 0.60521, 0.93909, 1.008683, 1.408635, 1.412157, 1.87818, 1.820931],
}


# The shape of prelu's gamma, and that in which it broadcasts to data of the shape (32, 16, 9, 7).
_SLOPES = [
    ((), (1, 1, 1, 1)),
    ((1,), (1, 1, 1, 1)),
    ((1, 1), (1, 1, 1, 1)),
    ((16,), (1, 16, 1, 1)),
    ((1, 16), (1, 16, 1, 1)),
    ((32,), (32, 1, 1, 1)),
    ((32, 1), (32, 1, 1, 1)),
    ((32, 16), (32, 16, 1, 1)),
]


@pytest.mark.parametrize("kernels", ["", "reference"])
@pytest.mark.parametrize("shape, view", _SLOPES, ids=str)
def test_prelus_slopes_are_matched_with_samples_and_channels_as_in_mxnet(shape, view, kernels, monkeypatch):
    """Between other functions of each element, which backends make one kernel of."""
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    monkeypatch.setenv("MXLITE_CHECK_REWRITES", "1")
    rng = np.random.default_rng(0)
    data, gamma = rng.normal(size=(32, 16, 9, 7)), np.asarray(rng.normal(size=shape))
    head = rng.normal(size=data.shape)
    x, slope = mx.sym.Variable("x"), mx.sym.Variable("slope", shape=shape)
    net = mx.sym.LeakyReLU(x * 0.5 + 0.25, slope, act_type="prelu") * 2
    executor = net.simple_bind(mx.cpu(), x=data.shape, slope=shape)
    executor.forward(is_train=True, x=mx.nd.array(data), slope=mx.nd.array(gamma))
    executor.backward([mx.nd.array(head)])
    inner, broadcast = data * 0.5 + 0.25, gamma.reshape(view)
    by_slope = np.minimum(inner, 0) * head * 2
    axes = tuple(i for i, n in enumerate(view) if n == 1)
    for found, want in (
        (executor.outputs[0], np.where(inner > 0, inner, inner * broadcast) * 2),
        (executor.grad_dict["x"], head * np.where(inner > 0, 1, broadcast)),
        (executor.grad_dict["slope"], by_slope.sum(axes).reshape(shape)),
    ):
        assert found.shape == want.shape
        np.testing.assert_allclose(found.asnumpy(), want, rtol=1e-4, atol=1e-4 * max(1, abs(want).max()))


@pytest.mark.parametrize(
    "data, gamma",
    [
        ((3, 4, 5), (5,)),
        ((3, 4, 5), (1, 4, 1)),
        ((3, 4, 5), (3, 4, 5)),
        ((3, 4, 5), (4, 1)),
        ((3, 4), (2,)),
        ((3, 4), (1, 3)),
        ((7,), (1, 1)),
        ((4, 1, 5), (3,)),
    ],
)
def test_slopes_that_mxnet_refuses_are_named(data, gamma):
    with pytest.raises(ShapeError, match=r"gamma of shape .* fits no data of shape"):
        mx.nd.LeakyReLU(mx.nd.ones(data), mx.nd.ones(gamma), act_type="prelu")


@pytest.mark.parametrize("nsize", LRN_MXNET)
def test_lrn_as_mxnet(nsize):
    data = np.arange(10.0).reshape(1, 5, 2, 1)
    out = Layer(ops.LRN, nsize=nsize, alpha=1.0, beta=0.5, knorm=1.0).forward(data=data)
    close(out.ravel(), LRN_MXNET[nsize], 1e-6)


SCORES = np.array([[1, 2, 3], [0.5, -1, 0.2], [5, 0, 0]])


@pytest.mark.parametrize(
    "linear, want",
    [
        (False, [[1.8, 0, 3.8], [-0.3, 0, 1], [0, 0.8, 0.8]]),
        (True, [[0.5, 0, 0.5], [-0.5, 0, 0.5], [0, 0.5, 0.5]]),
    ],
)
def test_svm_output_as_mxnet(linear, want):
    layer = Layer(ops.SVMOutput, margin=0.8, regularization_coefficient=0.5, use_linear=linear)
    assert np.array_equal(layer.forward(data=SCORES, label=np.array([1.0, 0, 0])), SCORES)
    close(layer.backward()["d_data"], want)


def test_sparse_regularization_moves_its_average_in_backward_as_mxnet():
    layer = Layer(ops.IdentityAttachKLSparseReg, sparseness_target=0.2, penalty=0.5, momentum=0.7)
    data = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.9]])
    layer.forward(data=data, moving_avg=np.array([0.3, 0.4]))
    assert layer.have["moving_avg"].tolist() == [0.3, 0.4]
    d_data = layer.backward(np.arange(1.0, 7).reshape(3, 2))["d_data"]
    close(d_data, [[1.238095, 2.469196], [3.238095, 4.469196], [5.238095, 6.469196]], 1e-6)
    close(layer.have["moving_avg"], [0.3, 0.43])


def test_softmax_cross_entropy_as_mxnet():
    layer = Layer(ops.softmax_cross_entropy)
    close(layer.forward(data=SCORES, label=np.array([1.7, 0.2, 0])), [2.095949], 1e-6)
    d_data = layer.backward(np.array([2.0]))["d_data"]
    close(d_data[0], [0.18006115, -1.5105431, 1.3304819], 1e-6)


def test_softmax_cross_entropy_leaves_out_labels_that_are_no_class():
    layer = Layer(ops.softmax_cross_entropy)
    some = layer.forward(data=SCORES, label=np.array([1.0, -1, 3]))
    close(some, layer.forward(data=SCORES[:1], label=np.array([1.0])))
    layer.forward(data=SCORES, label=np.array([1.0, -1, 3]))
    d_data = layer.backward(np.ones(1))["d_data"]
    assert d_data[0].all() and not d_data[1:].any()


@pytest.mark.parametrize("op", [ops.cross_entropy, ops.nll_loss])
def test_class_losses_refuse_labels_that_are_no_class(op):
    layer = Layer(op)
    with pytest.raises(OperatorError, match=r"label must be in \[0, 3\) or ignore_index=-100, got 3"):
        layer.forward(data=SCORES, label=np.array([0, 3, 1]))


@pytest.mark.parametrize("op", [ops.cross_entropy, ops.nll_loss])
def test_the_mean_of_no_losses_is_no_number_and_has_no_gradient(op):
    layer = Layer(op)
    assert np.isnan(layer.forward(data=SCORES, label=np.array([-100] * 3)))
    assert not layer.backward(np.ones(1))["d_data"].any()


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_fully_connected_adds_small_floats_in_float32(dtype):
    rows, width = 3, 4096
    layer = Layer(ops.FullyConnected, dtype, num_hidden=2, no_bias=True)
    out = layer.forward(data=np.ones((rows, width), dtype), weight=np.ones((2, width), dtype))
    assert (out == width).all()  # in float16 the sum would stop at 2048, in bfloat16 at 256
    data = np.ones((width, 1), dtype)
    layer = Layer(ops.FullyConnected, dtype, num_hidden=1)
    layer.forward(data=data, weight=np.ones((1, 1), dtype), bias=np.ones(1, dtype))
    grads = layer.backward(np.ones((width, 1), dtype))
    assert grads["d_weight"].item() == width and grads["d_bias"].item() == width


@pytest.mark.parametrize("shape", [(300, 700), (5, 1030), (257, 513)])
def test_products_of_small_floats_go_in_blocks(shape):
    data, weight = normal(*shape, dtype="float16"), normal(40, shape[1], dtype="float16", seed=1)
    layer = Layer(ops.FullyConnected, "float16", num_hidden=40, no_bias=True)
    out = layer.forward(data=data, weight=weight)
    close(out, data.astype("float64") @ weight.astype("float64").T, 1e-3)
    head = normal(shape[0], 40, dtype="float16", seed=2)
    grads = layer.backward(head)
    close(grads["d_weight"], head.astype("float64").T @ data.astype("float64"), 1e-3)
    close(grads["d_data"], head.astype("float64") @ weight.astype("float64"), 1e-3)


@pytest.mark.parametrize(
    "net, arguments, outputs, states",
    [
        (
            mx.sym.LayerNorm(mx.sym.Variable("data"), name="g"),
            ["data", "g_gamma", "g_beta"],
            ["g_output"],
            [],
        ),
        (
            mx.sym.GroupNorm(mx.sym.Variable("data"), name="g", output_mean_var=True),
            ["data", "g_gamma", "g_beta"],
            ["g_output", "g_mean", "g_std"],
            [],
        ),
        (mx.sym.make_loss(mx.sym.Variable("data"), name="g"), ["data"], ["g_loss"], []),
        (mx.sym.MakeLoss(mx.sym.Variable("data"), name="g"), ["data"], ["g_output"], []),
        (mx.sym.SVMOutput(mx.sym.Variable("data"), name="g"), ["data", "g_label"], ["g_output"], []),
        (mx.sym.Softmax(mx.sym.Variable("data"), name="g"), ["data", "g_label"], ["g_output"], []),
        (
            mx.sym.softmax(mx.sym.Variable("data"), name="g", use_length=True),
            ["data", "g_length"],
            ["g_output"],
            [],
        ),
        (
            mx.sym.IdentityAttachKLSparseReg(mx.sym.Variable("data"), name="g"),
            ["data"],
            ["g_output"],
            ["g_moving_avg"],
        ),
        (
            mx.sym.BatchNorm_v1(mx.sym.Variable("data"), name="g", output_mean_var=True),
            ["data", "g_gamma", "g_beta"],
            ["g_output", "g_mean", "g_var"],
            ["g_moving_mean", "g_moving_var"],
        ),
        (
            mx.sym.contrib.SyncBatchNorm(mx.sym.Variable("data"), name="g", key="k"),
            ["data", "g_gamma", "g_beta"],
            ["g_output"],
            ["g_moving_mean", "g_moving_var"],
        ),
    ],
)
def test_names_are_mxnets(net, arguments, outputs, states):
    assert net.list_arguments() == arguments
    assert net.list_outputs() == outputs
    assert net.list_auxiliary_states() == states


@pytest.mark.parametrize(
    "op, attrs, text",
    [
        (ops.LayerNorm, {"eps": -1}, "eps must be at least 0"),
        (ops.GroupNorm, {"num_groups": 0}, "num_groups must be at least 1"),
        (ops.LRN, {}, "needs the parameter 'nsize'"),
        (ops.LRN, {"nsize": 0}, "nsize must be at least 1"),
        (ops.softmax, {"temperature": 0}, "temperature must be above 0"),
        (ops.softmax, {"dtype": "int32"}, "dtype must be float16"),
        (ops.softplus, {"beta": 0}, "beta must be above 0"),
        (ops.gelu, {"approximate": "erf"}, "approximate"),
        (ATTENTION, {"p": 1}, r"p must be in \[0, 1\)"),
        (ops.cross_entropy, {"reduction": "max"}, "reduction"),
        (ops.IdentityAttachKLSparseReg, {"sparseness_target": 1}, "sparseness_target"),
    ],
)
def test_wrong_parameters_are_named(op, attrs, text):
    with pytest.raises(OpAttributeError, match=text):
        parse_attrs(op, attrs)


@pytest.mark.parametrize(
    "op, attrs, shapes, text",
    [
        (ops.LayerNorm, {"axis": 2}, [(2, 3), None, None], "axis 2 is not an axis"),
        (ops.GroupNorm, {"num_groups": 2}, [(2, 3, 4), None, None], "num_groups=2 must divide axis 1"),
        (ops.GroupNorm, {"num_groups": 2}, [(2, 4, 4), (3,), None], r"gamma must be \(2,\) or \(4,\)"),
        (ops.InstanceNorm, {}, [(2, 3), None, None], "at least 3 axes"),
        (ops.L2Normalization, {"mode": "channel"}, [(2, 3)], "at least 3 axes"),
        (ops.softmax, {"use_length": True}, [(2, 3), (3,)], r"length must be \(2,\)"),
        (ops.cross_entropy, {}, [(2, 3, 4), (2, 3)], r"label must be \(2, 4\)"),
        (ops.softmax_cross_entropy, {}, [(2, 3, 4), None], "see cross_entropy"),
        (ops.SVMOutput, {}, [(2, 3), (3,)], r"label must be \(2,\)"),
        (
            ops.ContribInterleavedMatmulSelfattQk,
            {"heads": 4},
            [(5, 2, 18)],
            "queries_keys_values must be .* a multiple of 12",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(op, attrs, shapes, text):
    with pytest.raises(ShapeError, match=text):
        op.infer_shape(parse_attrs(op, attrs), *shapes)


@pytest.mark.parametrize("axes, p", [*itertools.product([(), (0,), (1, -1)], [0.0, 0.5, 1.0])])
def test_dropout_at_its_limits_and_along_axes(axes, p):
    layer = Layer(ops.Dropout, p=p, axes=axes)
    data = np.ones((40, 30, 20))
    out = layer.forward(data=data)
    assert set(np.unique(out)) == {0.0: {1.0}, 0.5: {0.0, 2.0}, 1.0: {0.0}}[p]
    assert np.array_equal(layer.backward(data)["d_data"], out)
    for axis in axes:
        assert (out == np.take(out, [0], axis=axis)).all()
    if not axes and p == 0.5:
        assert abs(out.mean() - 1) < 4 / math.sqrt(out.size)


def test_sync_batch_norm_shows_the_variance_itself():
    rng = np.random.default_rng(3)
    x, head = (rng.standard_normal((6, 3, 2), np.float32) for _ in range(2))
    grads, moved = [], []
    for shown in (False, True):
        params = [mx.nd.array(v) for v in ([1.0] * 3, [0.0] * 3, [0.0] * 3, [1.0] * 3)]
        data = mx.nd.array(x)
        data.attach_grad()
        with mx.autograd.record():
            made = mx.nd.contrib.SyncBatchNorm(data, *params, key="k", output_mean_var=shown, eps=0.1)
        out, *statistics = made if shown else [made]
        out.backward(mx.nd.array(head))
        grads.append(data.grad.asnumpy())
        moved.append(params[3].asnumpy())
    np.testing.assert_allclose(statistics[1].asnumpy(), x.var((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(*grads, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(*moved, rtol=1e-5)
