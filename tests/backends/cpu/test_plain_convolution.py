"""Convolution and its transpose on arrays as users see them, on oneDNN and generated code."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends.cpu.onednn import library
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not installed")

GEOMETRIES = {
    "3x3": ((3, 16, 9, 7), dict(kernel=(3, 3), num_filter=24, pad=(1, 1))),
    "3x3-wide": ((2, 32, 8, 8), dict(kernel=(3, 3), num_filter=64, pad=(1, 1))),
    "stride": ((2, 20, 9, 8), dict(kernel=(3, 2), num_filter=18, stride=(2, 3), pad=(1, 1))),
    "image": ((2, 3, 16, 17), dict(kernel=(7, 7), num_filter=16, stride=(2, 2), pad=(3, 3))),
    "one-channel": ((2, 1, 12, 12), dict(kernel=(5, 5), num_filter=8)),
    "dilate": ((2, 8, 11, 12), dict(kernel=(3, 3), num_filter=16, dilate=(2, 3), pad=(2, 1))),
    "1x1": ((4, 24, 5, 6), dict(kernel=(1, 1), num_filter=16)),
    "1x1-stride": ((4, 24, 5, 6), dict(kernel=(1, 1), num_filter=16, stride=(2, 2))),
    "groups": ((2, 12, 6, 7), dict(kernel=(3, 3), num_filter=20, num_group=4, pad=(1, 0))),
    "depthwise": ((2, 24, 8, 9), dict(kernel=(3, 3), num_filter=24, num_group=24, pad=(1, 1), stride=(2, 2))),
    "one-channel-a-group": ((2, 6, 7), dict(kernel=(3,), num_filter=12, num_group=6)),
    "one-position": ((5, 16, 1, 1), dict(kernel=(3, 3), num_filter=16, pad=(1, 1))),
    "much-padding": ((2, 4, 4, 4), dict(kernel=(2, 1), num_filter=3, pad=(2, 1))),
    "1d": ((3, 20, 30), dict(kernel=(5,), num_filter=16, stride=(2,), pad=(2,))),
    "3d": ((2, 8, 4, 6, 5), dict(kernel=(2, 3, 3), num_filter=12, pad=(0, 1, 1))),
}
TRANSPOSED = {
    "4x4": ((2, 16, 5, 6), dict(kernel=(4, 4), num_filter=24, stride=(2, 2), pad=(1, 1))),
    "to-image": ((2, 16, 5, 6), dict(kernel=(4, 4), num_filter=3, stride=(2, 2), pad=(1, 1))),
    "adj": ((2, 8, 5, 6), dict(kernel=(3, 3), num_filter=16, stride=(3, 2), adj=(2, 1))),
    "target": ((2, 8, 5, 6), dict(kernel=(3, 3), num_filter=16, stride=(2, 2), target_shape=(10, 11))),
    "groups": ((2, 8, 5, 6), dict(kernel=(3, 3), num_filter=16, num_group=2, dilate=(2, 1))),
    "1x1": ((2, 8, 5, 6), dict(kernel=(1, 1), num_filter=16)),
    "1d": ((2, 8, 15), dict(kernel=(4,), num_filter=6, stride=(2,))),
    "3d": ((2, 8, 3, 4, 5), dict(kernel=(2, 3, 2), num_filter=10, stride=(2, 1, 2))),
}
# As far as sums of so many products may differ in another order; of 16-bit results the last bit.
TOLERANCE = {"float32": 1e-5, "bfloat16": 1.6e-2, "float16": 2e-3}


def _case(op, shape, attrs):
    names = op.input_names(op.Attrs(**attrs))
    ins, _ = op.infer_shape(op.Attrs(**attrs), shape, *(None for _ in names[1:]))
    return Case(op, attrs, [shape, *ins[1:]])


def _cases():
    for name, (shape, attrs) in GEOMETRIES.items():
        for bias in (True, False):
            yield (
                f"convolution-{name}{'-bias' * bias}",
                _case(ops.Convolution, shape, {**attrs, "no_bias": not bias}),
            )
    for name, (shape, attrs) in TRANSPOSED.items():
        for bias in (True, False):
            yield (
                f"deconvolution-{name}{'-bias' * bias}",
                _case(ops.Deconvolution, shape, {**attrs, "no_bias": not bias}),
            )


CASES = dict(_cases())


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kinds", ["onednn", "onednn,compiled"])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_the_references(name, kinds, dtype):
    case = CASES[name]
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    got = fast_kernels.run(case, dtype, kinds, arrays, heads)
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    fast_kernels.close(got, want, TOLERANCE[dtype])


@pytest.mark.parametrize("name", [n for n in CASES if n.endswith("-bias")])
def test_each_gradient_alone_is_the_same(name):
    call = Call.of(CASES[name], dtype="float32")
    arrays = CASES[name].inputs(dtype="float32")
    head = np.random.default_rng(7).standard_normal(call.shapes[1][0]).astype(np.float32)
    given = {"d_out": head, "data": arrays[0], "weight": arrays[1]}
    with fast_kernels.only("onednn,compiled"):
        every, _ = call.execute(call.op.grad_op, given)
        for wanted in (["d_data"], ["d_weight"], ["d_bias"], ["d_data", "d_bias"], ["d_weight", "d_bias"]):
            some, _ = call.execute(call.op.grad_op, given, wanted=wanted)
            for n in wanted:
                np.testing.assert_allclose(some[n], every[n], rtol=1e-5, atol=1e-4)
            assert all(some[n] is None for n in every if n not in wanted)


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_gradients_of_gradients_have_kernels_too(kind):
    """The operators that stand for the gradients, against the kernels of the gradients themselves."""
    shape, attrs = (GEOMETRIES if kind == "Convolution" else TRANSPOSED)["groups"]
    case = _case(ops.find_op(kind), shape, {**attrs, "no_bias": True})
    call = Call.of(case, dtype="float32")
    data, weight = case.inputs(dtype="float32")
    head = fast_kernels.heads_of(case, "float32")["out"]
    want = fast_kernels.run(case, "float32", "reference", [data, weight], {"out": head})
    for name, arrays in (("data", [head, weight, data]), ("weight", [head, data])):
        op = ops.find_op(f"_{kind.lower()}_d_{name}")
        own = Case(op, case.attrs, [x.shape for x in arrays])
        assert fast_kernels.kernel_name(Call.of(own, dtype="float32"), "onednn").startswith("onednn")
        got = fast_kernels.run(own, "float32", "onednn", arrays)["out"]
        np.testing.assert_allclose(got, want[f"d_{name}"], rtol=1e-4, atol=1e-4)
    assert call.op is case.op


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_bilinear_upsampling_is_the_references(scale):
    k = 2 * scale - scale % 2
    attrs = dict(scale=scale, sample_type="bilinear", num_filter=20, num_args=2)
    case = Case(ops.UpSampling, attrs, [(2, 20, 5, 6), (20, 1, k, k)])
    arrays, heads = case.inputs(dtype="float32"), fast_kernels.heads_of(case, "float32")
    got = fast_kernels.run(case, "float32", "onednn", arrays, heads)
    want = fast_kernels.run(case, "float32", "reference", arrays, heads)
    fast_kernels.close(got, want, 1e-5)
    assert fast_kernels.kernel_name(Call.of(case, dtype="float32"), "onednn").startswith("onednn")


def test_nan_and_infinities_spread_as_far_as_windows_reach():
    case = _case(ops.Convolution, (2, 16, 8, 8), dict(kernel=(3, 3), num_filter=16, pad=(1, 1), no_bias=True))
    data, weight = case.inputs(dtype="float32")
    data[0, 3, 2, 2], data[1, 5, 6, 6] = np.nan, np.inf
    got = fast_kernels.run(case, "float32", "onednn", [data, weight])["out"]
    want = fast_kernels.run(case, "float32", "reference", [data, weight])["out"]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_calls_on_arrays_take_the_kernels():
    shape, attrs = GEOMETRIES["3x3-wide"]
    case = _case(ops.Convolution, shape, {**attrs, "no_bias": True})
    data, weight = case.inputs(dtype="float32")
    with fast_kernels.only("onednn,compiled"):
        got = mx.nd.Convolution(mx.nd.array(data), mx.nd.array(weight), **case.attrs).asnumpy()
    want = fast_kernels.run(case, "float32", "reference", [data, weight])["out"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["3x3", "1x1", "groups", "depthwise", "1d", "3d", "image"])
def test_the_kernels_are_chosen(name):
    call = Call.of(CASES[f"convolution-{name}"], dtype="float32")
    for backward in (False, True):
        chosen = fast_kernels.kernel_name(call, "onednn", backward)
        assert chosen.startswith("onednn") and "ref" not in chosen
    wide = Call.of(CASES[f"convolution-{name}"], dtype="float64")
    assert fast_kernels.kernel_name(wide, "onednn") == "reference"
