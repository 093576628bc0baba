"""Single facts of transposed convolution, resampling, sampling and detection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mxlite as mx
from mxlite import ops
from mxlite.core.errors import DTypeError, OpAttributeError, OperatorError, ShapeError
from mxlite.graph.attrs import parse_attrs
from mxlite.graph.gradient import backward
from mxlite.graph.ir import Entry, Graph, Node, variable
from mxlite.ops.scratch import carve, scratch_bytes
from mxlite.ops.vision.boxes import descending, order_pieces, suppress
from mxlite.symbol import Symbol
from tests.ops.test_ops_nn import close, Layer, normal


def _double_backward(op, attrs, arrays, wrt):
    """Gradients of sum(g * g) for the gradients g of sum(out * head), in every input and in `head`."""
    names = op.input_names(parse_attrs(op, attrs))
    variables = {n: variable(n) for n in (*names, "head")}
    node = Node(op, parse_attrs(op, attrs), tuple(variables[n] for n in names), "conv")
    _, grads = backward(
        Graph((Entry(node),)), [variables[n] for n in wrt], {0: variables["head"]}, ops.find_op
    )
    twos = {
        i: Entry(Node(ops._mul_scalar, ops._mul_scalar.Attrs(2.0), (g,), f"two{i}"))
        for i, g in enumerate(grads)
    }
    _, seconds = backward(Graph(tuple(grads)), list(variables.values()), twos, ops.find_op)
    net = Symbol(tuple(g for g in seconds if g is not None))
    exe = net.bind(
        None, {n: mx.nd.array(arrays[n], dtype="float64") for n in net.list_arguments()}, grad_req="null"
    )
    found = iter(exe.forward())
    return {n: None if g is None else next(found).asnumpy() for n, g in zip(variables, seconds)}


@pytest.mark.torch
@pytest.mark.parametrize(
    "name, shape, attrs",
    [
        ("Convolution", (3, 4, 6, 5), dict(kernel=(3, 2), num_filter=6, pad=(1, 0), num_group=2)),
        ("Convolution", (3, 4, 7), dict(kernel=(3,), num_filter=2, stride=(2,), dilate=(2,))),
        (
            "Deconvolution",
            (3, 4, 3, 4),
            dict(kernel=(3, 3), num_filter=6, stride=(2, 2), adj=(1, 0), num_group=2),
        ),
    ],
)
def test_double_backward_of_convolutions_agrees_with_torch(name, shape, attrs):
    torch = pytest.importorskip("torch")
    op = ops.find_op(name)
    attrs = {**attrs, "no_bias": True}
    a = parse_attrs(op, attrs)
    (_, weight, *_), (out,) = op.infer_shape(a, shape, None)
    arrays = {"data": normal(*shape), "weight": normal(*weight, seed=1), "head": normal(*out, seed=2)}
    got = _double_backward(op, attrs, arrays, ["data", "weight"])
    t = {n: torch.tensor(x, requires_grad=True) for n, x in arrays.items()}
    rank = len(shape) - 2
    how = dict(stride=a.stride or 1, padding=a.pad or 0, dilation=a.dilate or 1, groups=a.num_group)
    if name == "Deconvolution":
        how["output_padding"] = a.adj
    call = getattr(torch.nn.functional, f"conv{'_transpose' * (name == 'Deconvolution')}{rank}d")
    grads = torch.autograd.grad(
        (call(t["data"], t["weight"], **how) * t["head"]).sum(), [t["data"], t["weight"]], create_graph=True
    )
    sum((g * g).sum() for g in grads).backward()
    for n in arrays:
        close(got[n], t[n].grad)


@pytest.mark.parametrize(
    "op, attrs, text",
    [
        ("Convolution", dict(kernel=(3, 3), num_filter=2, layout="NHWC"), "'NHWC' is not supported"),
        ("Deconvolution", dict(kernel=(3, 3), num_filter=2, stride=(2, 2), adj=(2, 0)), "adj must be"),
        ("Deconvolution", dict(kernel=(3, 3), num_filter=3, num_group=2), "num_group=2 must divide"),
        ("Deconvolution", dict(kernel=(3,), num_filter=3, target_shape=(4, 4)), "target_shape must have 1"),
        ("Pooling", dict(kernel=(2, 2), pad=(1, 1), pooling_convention="same"), "goes without padding"),
        ("Pooling", dict(kernel=(2,), pad=(0, 0, 2), pooling_convention="same"), "goes without padding"),
        ("Pooling", dict(kernel=(2,), pad=(0, 0, 0)), "pad must have 1"),
        ("UpSampling", dict(scale=2, sample_type="bilinear"), "needs num_filter"),
        ("resize", dict(mode="linear"), "either sizes or scales"),
        ("resize", dict(sizes=(2,), axes=(0, 1)), "equally long"),
        ("GridGenerator", dict(transform_type="affine"), "target_shape must be"),
        ("Correlation", dict(kernel_size=2), "must be odd"),
        ("ROIPooling", dict(pooled_size=(2,), spatial_scale=1.0), "pooled_size"),
        ("col2im", dict(kernel=(2, 2), output_size=(4,)), "output_size must be 2 numbers"),
        ("_contrib_MultiBoxPrior", dict(sizes=(0.5,), ratios=(0.0,)), "above 0"),
        ("_contrib_MultiBoxDetection", dict(variances=(1.0, 1.0)), "four numbers"),
        ("_contrib_AdaptiveAvgPooling2D", dict(output_size=(0,)), "at least 1"),
        ("_contrib_PSROIPooling", dict(spatial_scale=2.0, output_dim=1, pooled_size=2), r"in \[0, 1\]"),
        ("_contrib_PSROIPooling", dict(spatial_scale=1.0, output_dim=0, pooled_size=2), "output_dim must be"),
        (
            "_contrib_DeformablePSROIPooling",
            dict(spatial_scale=1.0, output_dim=1, pooled_size=2, group_size=0),
            "group_size must be",
        ),
        ("_contrib_DeformableConvolution", dict(kernel=(3,), num_filter=1), "two numbers"),
        (
            "_contrib_DeformableConvolution",
            dict(kernel=(3, 3), num_filter=1, num_deformable_group=0),
            "num_deformable_group must be",
        ),
    ],
)
def test_parameters_that_make_no_sense_are_named(op, attrs, text):
    with pytest.raises(OpAttributeError, match=text):
        parse_attrs(ops.find_op(op), attrs)


@pytest.mark.parametrize(
    "op, attrs, shapes, text",
    [
        (
            "Deconvolution",
            dict(kernel=(3, 3), num_filter=2, target_shape=(9, 9)),
            [(1, 2, 3, 3), None],
            "larger than",
        ),
        (
            "Deconvolution",
            dict(kernel=(1, 1), num_filter=2, pad=(1, 1)),
            [(1, 2, 2, 2), None],
            "leaves nothing",
        ),
        (
            "UpSampling",
            dict(scale=2, sample_type="nearest", num_args=2),
            [(1, 2, 2, 2), (1, 2, 3, 4)],
            "repeated",
        ),
        (
            "UpSampling",
            dict(scale=2, sample_type="bilinear", num_filter=3),
            [(1, 2, 2, 2), None],
            "num_filter=3",
        ),
        ("col2im", dict(kernel=(2, 2), output_size=(4, 4)), [(1, 4, 8)], "9"),
        ("BilinearSampler", {}, [(2, 1, 3, 3), (1, 2, 3, 3)], "grid"),
        ("Correlation", dict(max_displacement=4), [(1, 1, 4, 4)] * 2, "leave nothing"),
        ("ROIPooling", dict(pooled_size=(2, 2), spatial_scale=1.0), [(1, 1, 4, 4), (3, 4)], r"rois \(R, 5\)"),
        ("_contrib_box_nms", {}, [(3, 5)], "at least 6"),
        ("_contrib_MultiBoxTarget", {}, [(1, 6, 4), (2, 3, 5), (2, 3, 7)], r"cls_pred must be \(2, K, 6\)"),
        (
            "_contrib_box_encode",
            {},
            [(2, 3), (2, 4), (2, 3, 4), (2, 5, 4), (4,), (4,)],
            r"matches must be \(2, 3",
        ),
        ("_contrib_box_decode", {}, [(2, 3, 4), (2, 3, 4)], r"anchors must be \(1, 3, 4\)"),
        ("_contrib_bipartite_matching", dict(threshold=0.5), [(3,)], "must be"),
        (
            "_contrib_PSROIPooling",
            dict(spatial_scale=1.0, output_dim=2, pooled_size=3),
            [(1, 17, 4, 4), (1, 5)],
            r"at least 2 \* 3 \* 3 channels",
        ),
        (
            "_contrib_DeformablePSROIPooling",
            dict(spatial_scale=1.0, output_dim=4, pooled_size=2, group_size=1),
            [(1, 4, 4, 4), (1, 5), (1, 6, 2, 2)],
            "a K that divides output_dim 4",
        ),
        (
            "_contrib_DeformableConvolution",
            dict(kernel=(3, 3), num_filter=2, num_deformable_group=3),
            [(1, 4, 5, 5), None, None, None],
            "num_deformable_group=3 must divide",
        ),
        ("_contrib_Proposal", {}, [(2, 24, 3, 3), (2, 48, 3, 3), (2, 3)], "MultiProposal"),
    ],
)
def test_shapes_that_do_not_fit_are_named(op, attrs, shapes, text):
    op = ops.find_op(op)
    with pytest.raises(ShapeError, match=text):
        op.infer_shape(parse_attrs(op, attrs), *shapes)


def test_whole_numbers_are_refused_but_by_nearest_resizing():
    integers = np.dtype("int32")
    for op, attrs in (("Convolution", dict(kernel=(1,), num_filter=1)), ("Pooling", dict(kernel=(2,)))):
        with pytest.raises(DTypeError):
            ops.find_op(op).infer_type(parse_attrs(ops.find_op(op), attrs), integers, None, None)
    with pytest.raises(DTypeError):
        ops.resize.infer_type(parse_attrs(ops.resize, dict(sizes=(2,), mode="linear")), integers)
    x = np.array([[1 << 30, 3]], "int32")
    layer = Layer(ops.resize, "int32", sizes=(1, 4))
    assert layer.forward(data=x).tolist() == [[1 << 30, 1 << 30, 3, 3]]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_infinity_stays_where_it_is_when_resized(mode):
    x = np.zeros((1, 40))
    x[0, 20] = np.inf
    with np.errstate(invalid="ignore"):  # inf - inf, next to it
        out = Layer(ops.resize, sizes=(1, 80), mode=mode).forward(data=x)
    away = np.r_[0:34, 48:80]
    assert (out[0, away] == 0).all() and not np.isfinite(out[0, 40:42]).any()


def test_bilinear_upsampling_as_mxnet():
    data, weight = mx.nd.ones((1, 1, 3, 3)), mx.nd.ones((1, 1, 4, 4))
    row = np.array([1, 2, 2, 2, 2, 1])
    how = dict(scale=2, sample_type="bilinear", num_filter=1)
    for out in (mx.nd.UpSampling(data, weight, **how), mx.nd.UpSampling(weight=weight, data=data, **how)):
        assert (out.asnumpy() == np.outer(row, row)).all()
    assert mx.nd.UpSampling(data, scale=2, sample_type="nearest").shape == (1, 1, 6, 6)


def test_upsampling_fills_in_its_weight():
    up = mx.sym.UpSampling(mx.sym.Variable("x"), scale=3, sample_type="bilinear", num_filter=4, name="up")
    assert up.list_arguments() == ["x", "up_weight"]
    assert up.infer_shape(x=(2, 4, 5, 6)) == ([(2, 4, 5, 6), (4, 1, 5, 5)], [(2, 4, 15, 18)], [])
    several = mx.sym.UpSampling(mx.sym.Variable("x"), mx.sym.Variable("y"), scale=2, sample_type="nearest")
    assert several.infer_shape(x=(2, 3, 4, 4), y=(2, 1, 8, 8))[1] == [(2, 4, 8, 8)]


def test_region_pooling_as_mxnet():
    x, roi = np.arange(48.0).reshape(1, 1, 8, 6), np.array([[0.0, 0, 0, 4, 4]])
    for scale, want in ((1.0, [[14, 16], [26, 28]]), (0.7, [[7, 9], [19, 21]])):
        layer = Layer(ops.ROIPooling, pooled_size=(2, 2), spatial_scale=scale)
        assert layer.forward(data=x, rois=roi)[0, 0].tolist() == want


def test_of_equal_maxima_in_a_region_the_first_gets_the_gradient():
    x = np.zeros((1, 1, 4, 4))
    x[0, 0, [1, 2], [2, 1]] = 1
    layer = Layer(ops.ROIPooling, pooled_size=(1, 1), spatial_scale=1.0)
    layer.forward(data=x, rois=np.array([[0.0, 0, 0, 3, 3]]))
    grad = layer.backward(np.ones((1, 1, 1, 1)))["d_data"]
    assert grad[0, 0, 1, 2] == 1 and grad.sum() == 1


@pytest.mark.parametrize("op", ["ROIPooling", "_contrib_ROIAlign"])
def test_a_region_of_an_image_that_is_not_there_is_an_error(op):
    layer = Layer(ops.find_op(op), pooled_size=(2, 2), spatial_scale=1.0)
    with pytest.raises(OperatorError, match=r"rois\[0\] names the image 2, but data has 2"):
        layer.forward(data=np.zeros((2, 1, 4, 4)), rois=np.array([[2.0, 0, 0, 3, 3]]))


def test_backward_keeps_no_more_than_it_reads():
    kept = {
        ("Pooling", "max"): {"index"},
        ("Pooling", "avg"): set(),
        ("ROIPooling", None): {"rois", "index"},
        ("_contrib_ROIAlign", None): {"rois"},
        ("_contrib_box_nms", None): {"index"},
        ("SpatialTransformer", None): {"data", "loc"},
    }
    attrs = {
        "Pooling": dict(kernel=(2, 2)),
        "ROIPooling": dict(pooled_size=(2, 2), spatial_scale=1.0),
        "_contrib_ROIAlign": dict(pooled_size=(2, 2), spatial_scale=1.0),
        "SpatialTransformer": dict(transform_type="affine", sampler_type="bilinear", target_shape=(2, 2)),
        "UpSampling": dict(scale=2, sample_type="nearest", num_args=2),
        "resize": dict(scales=(2.0,)),
        "im2col": dict(kernel=(2, 2)),
        "GridGenerator": dict(transform_type="warp"),
    }
    for name in ("UpSampling", "resize", "im2col", "GridGenerator", "_contrib_BilinearResize2D"):
        kept[name, None] = set()
    for (name, kind), want in kept.items():
        op = ops.find_op(name)
        a = parse_attrs(op, {**attrs.get(name, {}), **({"pool_type": kind} if kind else {})})
        names = {n for n in op.grad_op.input_names(a) if not n.startswith("d_")}
        assert names == want, name


@pytest.mark.parametrize(
    "op, attrs, shape",
    [
        ("Deconvolution", dict(kernel=(4, 4), num_filter=16, stride=(2, 2), pad=(1, 1)), (16, 14, 14)),
        ("_contrib_BilinearResize2D", dict(height=56, width=56), (16, 28, 28)),
        ("resize", dict(sizes=(0, 0, 21, 21), mode="cubic"), (16, 28, 28)),
        ("_contrib_AdaptiveAvgPooling2D", dict(output_size=(7,)), (16, 28, 28)),
    ],
)
def test_scratch_does_not_grow_with_the_batch(op, attrs, shape):
    op = ops.find_op(op)
    a = parse_attrs(op, attrs)
    for size in ("workspace", "backward_workspace"):
        few, many = (
            getattr(op, size)(
                a,
                *op.infer_shape(a, (n, *shape), *[None] * (len(op.input_names(a)) - 1)),
                np.dtype("float32"),
            )
            for n in (64, 4096)
        )
        assert few == many <= 4 << 20


_floats = st.floats(allow_nan=False, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(_floats, st.sampled_from([0.5, 1.0, -1.0])), max_size=40),
    st.sampled_from(["float32", "float64"]),
)
def test_order_by_falling_score_is_stable(values, dtype):
    scores = np.array(values, dtype) + 0  # no negative zero
    if dtype == "float64":
        scores = scores * (1 + 2.0**-40 * (np.arange(len(scores)) % 3))  # differences in the lower half
    pieces = order_pieces(len(scores), scores.dtype)
    order = descending(np, scores, carve(np.empty(scratch_bytes(pieces), np.uint8), pieces))
    assert order.tolist() == np.argsort(-scores, kind="stable").tolist()


def _iou(a, b):
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = np.prod(np.maximum(sides, 0))
    whole = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared
    return shared / whole if whole > 0 else 0.0


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("by_kind", [False, True])
def test_suppression_is_the_plain_double_loop(threshold, by_kind):
    rng = np.random.default_rng(5)
    n = 60
    corner = rng.integers(0, 3, (n, 2)) / 3 + rng.uniform(0, 0.02, (n, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0.4, 0.43, (n, 2))], axis=1)
    kinds = rng.integers(0, 2, n).astype(float)
    want = np.ones(n, bool)
    for i in range(n):
        for j in range(i + 1, n):
            if want[i] and (not by_kind or kinds[i] == kinds[j]) and _iou(boxes[i], boxes[j]) > threshold:
                want[j] = False
    stays = np.ones(n, bool)
    suppress(
        np, boxes.T.copy(), kinds if by_kind else None, stays, threshold, np.empty((3, n)), np.empty(n, bool)
    )
    assert stays.tolist() == want.tolist() and 1 < stays.sum() < n


def test_negative_samples_are_at_least_the_minimum():
    layer = Layer(
        ops.find_op("_contrib_MultiBoxTarget"), negative_mining_ratio=1.0, minimum_negative_samples=3
    )
    anchors = np.array([[[i / 8, 0, (i + 1) / 8, 1] for i in range(8)]])
    label, pred = np.array([[[2.0, 0, 0, 1 / 8, 1]]]), np.zeros((1, 2, 8))
    pred[0, 1] = np.arange(8)  # the last ones look least like background
    a = layer.a
    op = layer.op
    made = {
        n: np.empty(s)
        for n, s in zip(op.outputs, op.infer_shape(a, anchors.shape, label.shape, pred.shape)[1])
    }
    work = np.empty(
        op.workspace(a, (anchors.shape, label.shape, pred.shape), (), np.dtype("float64")), np.uint8
    )
    op.forward(np, a, anchors, label, pred, **made, work=work)
    assert made["cls_target"].tolist() == [[3, -1, -1, -1, -1, 0, 0, 0]]


def test_pooling_convention_same_covers_all_with_windows_from_the_start():
    out = Layer(ops.Pooling, kernel=(3,), stride=(2,), pooling_convention="same").forward(
        data=np.arange(6.0).reshape(1, 1, 6)
    )
    assert out.tolist() == [[[2, 4, 5]]]


_SAME = [
    ("max", 2, 2, [3, 4, 9, 6, 5, 5], [6, 0, 12, 0, 0, 18, 0, 24, 30, 0, 36]),
    ("max", 3, 2, [4, 5, 9, 6, 5, 5], [0, 0, 6, 0, 12, 18, 0, 24, 30, 0, 36]),
    ("max", 3, 1, [4, 4, 5, 9, 9, 9, 6, 6, 5, 5, 5], [0, 0, 18, 0, 18, 90, 0, 90, 54, 0, 126]),
    ("avg", 2, 2, [2, 2.5, 7, 4, 4, 5], [3, 3, 6, 6, 9, 9, 12, 12, 15, 15, 36]),
    ("avg", 3, 2, [8 / 3, 10 / 3, 16 / 3, 13 / 3, 13 / 3, 5], [2, 2, 6, 4, 10, 6, 14, 8, 18, 10, 46]),
    ("sum", 3, 2, [8, 10, 16, 13, 13, 5], [6, 6, 18, 12, 30, 18, 42, 24, 54, 30, 66]),
]
"""Kind, kernel, stride, and what MXNet 1.9.1 gives without oneDNN: values, gradients for heads 6, 12, ..."""


@pytest.mark.parametrize("kernels", ["", "reference"])
@pytest.mark.parametrize("pad", [(), 0, (0,), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("kind, kernel, stride, values, slopes", _SAME)
def test_pooling_convention_same_takes_three_zeros_of_padding_as_mxnet_asks_for(
    kind, kernel, stride, values, slopes, pad, kernels, monkeypatch
):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    parameters = dict(
        kernel=kernel, stride=stride, pad=pad, pool_type=kind, pooling_convention="same", name="pooling"
    )
    x = mx.nd.array([[[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]]])
    head = mx.nd.array([[6 * np.arange(1, len(values) + 1)]])
    x.attach_grad()
    with mx.autograd.record():
        out = mx.nd.Pooling(x, **parameters)
    out.backward(head)
    executor = mx.sym.Pooling(mx.sym.Variable("x"), **parameters).bind(mx.cpu(), [x], [mx.nd.zeros(x.shape)])
    executor.forward(is_train=True)
    executor.backward([head])
    for made, grad in ((out, x.grad), (executor.outputs[0], executor.grad_arrays[0])):
        np.testing.assert_allclose(made.asnumpy(), [[values]], rtol=1e-6)
        np.testing.assert_allclose(grad.asnumpy(), [[slopes]], rtol=1e-6)


def test_two_labels_that_overlap_one_prior_box_most_take_two_prior_boxes():
    layer = Layer(ops.find_op("_contrib_MultiBoxTarget"), overlap_threshold=0.9)
    anchors = np.array([[[0.0, 0, 1, 1], [0, 0, 1, 0.4], [0.8, 0.8, 1, 1]]])
    label = np.array([[[0.0, 0, 0, 1, 0.9], [1, 0, 0, 1, 0.8]]])  # both like the first, the first label more
    op, pred = layer.op, np.zeros((1, 3, 3))
    shapes = op.infer_shape(layer.a, anchors.shape, label.shape, pred.shape)
    made = {n: np.empty(s) for n, s in zip(op.outputs, shapes[1])}
    work = np.empty(op.workspace(layer.a, *shapes, np.dtype("float64")), np.uint8)
    op.forward(np, layer.a, anchors, label, pred, **made, work=work)
    assert made["cls_target"].tolist() == [[1, 2, 0]]


def test_cubic_weights_outside_are_left_out():
    x, a = np.array([[3.0, -1, 2, 5]]), -0.5
    got = Layer(ops.resize, sizes=(1, 8), mode="cubic", cubic_coeff_a=a, exclude_outside=True).forward(data=x)

    def keys(d):
        d = abs(d)
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        return near if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0

    for o in range(8):
        weights = np.array([keys((o + 0.5) / 2 - 0.5 - i) for i in range(4)])
        assert got[0, o] == pytest.approx(weights @ x[0] / weights.sum())


def test_an_undeformed_convolution_is_a_convolution():
    data, weight, bias = (mx.nd.array(normal(*s)) for s in ((2, 4, 6, 5), (6, 2, 3, 3), (6,)))
    how = dict(kernel=(3, 3), num_filter=6, pad=(1, 1), num_group=2)
    want = mx.nd.Convolution(data, weight, bias, **how).asnumpy()
    still = mx.nd.zeros((2, 18, 6, 5))
    got = mx.nd.contrib.DeformableConvolution(data, still, weight, bias, **how)
    np.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-5)
    got = mx.nd.contrib.ModulatedDeformableConvolution(
        data, still, 0.5 * mx.nd.ones((2, 9, 6, 5)), weight, 2 * bias, **how
    )
    np.testing.assert_allclose(
        2 * got.asnumpy() - 3 * bias.asnumpy()[:, None, None], want, rtol=1e-4, atol=1e-4
    )


def test_offsets_that_are_not_finite_read_nothing():
    data, weight = mx.nd.ones((1, 1, 3, 3)), mx.nd.ones((1, 1, 1, 1))
    offset = np.zeros((1, 2, 3, 3))
    offset[0, 0, 0, :2] = np.nan, 1e30
    offset[0, 1, 1, 0] = -np.inf
    got = mx.nd.contrib.DeformableConvolution(
        data, mx.nd.array(offset), weight, kernel=(1, 1), num_filter=1, no_bias=True
    )
    assert got.asnumpy()[0, 0].tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 1]]


def test_the_offset_of_a_deformed_convolution_is_inferred():
    net = mx.sym.contrib.DeformableConvolution(
        mx.sym.Variable("data"), kernel=(3, 3), num_filter=6, num_deformable_group=2, name="conv"
    )
    args, outs, _ = net.infer_shape(data=(2, 4, 7, 5))
    assert dict(zip(net.list_arguments(), args))["conv_offset"] == (2, 36, 5, 3)
    assert outs == [(2, 6, 5, 3)]
    with pytest.raises(ShapeError, match=r"conv_offset.*\(2, 36, 5, 3\)"):
        net.infer_shape(data=(2, 4, 7, 5), conv_offset=(2, 18, 5, 3))


@pytest.mark.parametrize("name", ["PSROIPooling", "DeformablePSROIPooling"])
def test_regions_of_no_image_are_zeros_and_of_too_many_an_error(name):
    attrs = dict(spatial_scale=1.0, output_dim=2, pooled_size=2, group_size=1)
    if name == "DeformablePSROIPooling":
        attrs["no_trans"] = True
    data, call = mx.nd.ones((1, 2, 4, 4)), getattr(mx.nd.contrib, name)
    data.attach_grad()
    with mx.autograd.record():
        out = call(data, mx.nd.array([[-1, 0, 0, 3, 3], [0, 0, 0, 3, 3]]), **attrs)
    out.backward()
    assert not out.asnumpy()[0].any() and (out.asnumpy()[1] == 1).all()
    assert data.grad.asnumpy().sum() == pytest.approx(8)
    with pytest.raises(OperatorError, match=r"rois\[0\] names the image 1"):
        call(data, mx.nd.array([[1, 0, 0, 3, 3]]), **attrs).wait_to_read()
