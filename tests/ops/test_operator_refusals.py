"""Single facts that random calls brought to light: what operators refuse and no longer get wrong."""

from __future__ import annotations

import numpy as np
import pytest
from mxlite.util import np_shape

import mxlite as mx
from mxlite import nd, ops, sym
from mxlite.backends import base
from mxlite.backends.cpu.backend import CPU
from mxlite.core.errors import (
    DTypeError,
    OpAttributeError,
    OperatorError,
    OutOfMemoryError,
    ShapeError,
)
from mxlite.engine import use_engine
from mxlite.graph.attrs import parse_attrs
from mxlite.graph.opdef import Op

internal = nd._internal


def array(shape, dtype="float64", value=0.25):
    return nd.array(np.full(shape, value), dtype=dtype)


# -- absurd sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: nd.tile(array((2,)), reps=(10**9,)), "tile makes .*2000000000.* float64: 16000000000 bytes"),
        (lambda: nd.one_hot(array((3,)), depth=10**10), "one_hot makes"),
        (lambda: internal._full(shape=(10**9,), value=1), "_full makes"),
    ],
)
def test_an_output_larger_than_the_machine_is_refused_before_it_is_made(make, text, monkeypatch):
    monkeypatch.setattr(base, "host_memory", lambda: 1 << 30)
    with pytest.raises(OutOfMemoryError, match=text):
        make()


def test_no_backend_array_is_larger_than_the_machine(monkeypatch):
    monkeypatch.setattr(base, "host_memory", lambda: 1 << 20)
    assert CPU.array((1 << 19,), np.dtype("uint8")).nbytes == 1 << 19
    with pytest.raises(OutOfMemoryError, match="An array of 2097152 bytes: this machine has 1048576"):
        CPU.array((1 << 21,), np.dtype("uint8"))


def test_what_the_system_does_not_give_is_an_error_of_ours(monkeypatch):
    monkeypatch.setattr(base, "host_memory", lambda: 2**63)
    with pytest.raises(OutOfMemoryError, match="no room for an array of 1152921504606846976 bytes"):
        CPU.empty(1 << 60)


def test_a_shape_beyond_any_memory_is_refused_by_calls_and_by_graphs():
    with pytest.raises(ShapeError, match=r"tile: 'out' cannot be .*beyond any memory"):
        nd.tile(array((2,)), reps=(10**18, 10**18))
    with pytest.raises(ShapeError, match="beyond any memory"):
        sym.tile(sym.Variable("x"), reps=(10**18, 10**18)).infer_shape(x=(2,))
    # numpy refuses the other lengths of an array without elements, too
    with pytest.raises(ShapeError, match="beyond any memory"):
        internal._linalg_maketrian(array((0, 6)), offset=2**31)


def test_a_negative_length_is_refused_by_calls_and_by_graphs():
    with pytest.raises(ShapeError, match=r"_random_exponential: 'out' would be \(2, 0, -1\)"):
        internal._random_exponential(lam=3.0, shape=(2, 0, -1))
    with pytest.raises(ShapeError, match="no axis can have a negative length"):
        sym._sample_uniform(sym.Variable("a"), sym.Variable("b"), shape=(3, -2)).infer_shape(a=(4,), b=(4,))


@pytest.mark.parametrize("count", [10**9, 0, -1])
def test_a_number_of_outputs_is_bounded(count):
    with pytest.raises(OpAttributeError, match=rf"SliceChannel cannot have {count} outputs; between 1 and"):
        nd.SliceChannel(array((2, 4)), num_outputs=count)


def test_a_whole_number_has_64_bits():
    with pytest.raises(OpAttributeError, match=r"'num_outputs' must be a whole number of 64 bits, got 10+\."):
        nd.SliceChannel(array((2, 4)), num_outputs=10**30)


def test_labels_of_rows_without_classes_are_refused():
    with np_shape(), pytest.raises(ShapeError, match=r"data \(6, 0\) has no class"):
        nd.softmax_cross_entropy(array((6, 0)), array((6,)))


def test_a_number_of_inputs_is_bounded_where_parameters_are_read():
    with pytest.raises(OpAttributeError, match="add_n cannot have 1000000000 inputs"):
        parse_attrs(ops.add_n, {"num_args": 10**9})


# -- what is said ----------------------------------------------------------------------------------------


def test_an_array_for_a_parameter_is_named():
    with pytest.raises(OpAttributeError, match="sum: 'axis' is a parameter, but got an array"):
        nd.sum(array((2, 3)), array((2, 3)))


def test_a_numpy_array_may_be_a_parameter():
    assert nd.sum(array((2, 3)), axis=np.array([0, 1])).asnumpy().tolist() == [1.5]
    assert nd.tile(array((2,)), reps=np.array([2, 2])).shape == (2, 4)


def test_a_dtype_that_there_is_not_names_the_operator():
    with pytest.raises(OpAttributeError, match="Cast: dtype 'tanh'"):
        nd.Cast(array((2,)), dtype="tanh")
    with pytest.raises(OpAttributeError, match="Cast 'c': parameter 'dtype'"):
        sym.Cast(sym.Variable("x"), dtype=object, name="c")


def test_a_kernel_that_refuses_a_value_is_named_by_its_operator():
    with pytest.raises(OperatorError, match="cross_entropy: label must be in"):
        nd.cross_entropy(array((2, 3)), nd.array([0, 5])).asnumpy()
    with pytest.raises(OperatorError, match="index_add: indices must be in"):
        nd.index_add(array((3,)), nd.array([5.0]), array((1,)), mode="raise").asnumpy()


def test_an_operator_of_one_shape_may_refuse_it_in_a_graph():
    with pytest.raises(ShapeError, match="_shuffle 'node': data must have at least 1 axis"):
        with mx.util.np_shape():
            sym._shuffle(sym.Variable("x"), name="node").infer_shape(x=())


def test_parameters_refused_with_the_shapes_name_the_operator():
    with pytest.raises(OpAttributeError, match=r"^_linspace: num must not be negative"):
        internal._linspace(start=0, stop=1, num=-1)


# -- arrays without axes ---------------------------------------------------------------------------------


UNARY = [ops.erf, ops.erfinv, ops.softsign, ops.smooth_l1, ops.round, ops.cos, ops.arcsin, ops.arccos]


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.op_name)
def test_an_array_without_axes_is_like_one_of_one_element(op):
    with use_engine("naive"):
        got, want = (getattr(nd.op, op.op_name)(array(s)) for s in ((), (1,)))
        assert got.shape == () and got.asnumpy() == want.asnumpy()[0]
        if op.backward is not None:
            grads = []
            for shape in ((), (1,)):
                x = array(shape)
                x.attach_grad()
                with mx.autograd.record():
                    y = getattr(nd.op, op.op_name)(x)
                y.backward()
                grads.append(x.grad.asnumpy())
            assert grads[0].shape == () and grads[0] == grads[1][0]


def test_moves_of_an_array_without_axes():
    x = array(())
    assert nd.Pad(x, mode="constant", pad_width=()).asnumpy() == 0.25
    assert nd.slice_like(x, x).asnumpy() == internal._grow_like(x, x).asnumpy() == 0.25
    assert nd.op.roll(x, shift=(), axis=()).asnumpy() == 0.25
    assert nd.op._rmod_scalar(x, scalar=1.0).asnumpy() == 0


# -- numbers ---------------------------------------------------------------------------------------------


def test_a_scalar_beyond_64_bits_wraps_round():
    x = nd.array([1, 2], dtype="int32")
    assert (x + float(2**80)).asnumpy().tolist() == [1, 2]
    assert (x + float(2**64 + 2**32 * 3)).asnumpy().tolist() == [1, 2]
    assert (x + -3.7).asnumpy().tolist() == [-2, -1]
    assert internal._full(shape=(2,), value=float(2**80), dtype="int32").asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x + np.nan,
        lambda x: nd.op._maximum_scalar(x, scalar=np.inf),
        lambda x: internal._full(shape=(2,), value=np.nan, dtype="int32"),
        lambda x: nd.one_hot(x, depth=3, off_value=np.nan, dtype="int32"),
        lambda x: nd.Pad(x, mode="constant", pad_width=(1, 1), constant_value=np.inf),
        lambda x: nd.op._slice_assign_scalar(x, begin="(0,)", end="(1,)", scalar=np.nan),
    ],
)
def test_whole_numbers_take_no_infinite_parameter(make):
    with pytest.raises(DTypeError, match=r"must be finite for int32, got (nan|inf)"):
        make(nd.array([1, 2], dtype="int32"))


def test_comparisons_of_whole_numbers_with_infinity_work():
    assert (nd.array([1, 2], dtype="int32") < np.inf).asnumpy().tolist() == [1, 1]


def test_smooth_l1_of_scale_zero_is_zero():
    assert nd.smooth_l1(nd.array([-2.0, 3.0]), scalar=0).asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
def test_rows_without_elements_are_scattered(reduction):
    index = nd.array(np.zeros((1, 4)), dtype="int64")
    out = nd.op.scatter_nd_update(array((5, 0)), index, array((4, 0)), reduction=reduction)
    assert out.asnumpy().shape == (5, 0)
    with mx.util.np_shape():
        assert nd.op.scatter_nd(array((4, 0)), index, shape=(5, 0)).asnumpy().shape == (5, 0)


def test_bounds_beyond_the_dtype_bound_nothing():
    x = nd.array([-5, 100], dtype="int8")
    assert nd.clip(x, a_min=-1e30, a_max=np.inf).asnumpy().tolist() == [-5, 100]
    assert nd.clip(x, a_min=0, a_max=1e30).asnumpy().tolist() == [0, 100]
    with pytest.raises(DTypeError, match="clip: a_min must be finite"):
        nd.clip(x, a_min=np.nan, a_max=1)


def test_images_are_scaled_by_positive_numbers():
    for scale in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(OpAttributeError, match="scale_height must be above 0"):
            nd.contrib.BilinearResize2D(array((1, 1, 2, 2)), scale_height=scale, scale_width=1.0)


def test_parts_of_another_rank_are_refused():
    with pytest.raises(ShapeError, match="_unconcat"):
        nd.op._unconcat(array((2, 6)), array((2, 4)), array((2,)))


def test_the_last_of_steps_without_elements():
    assert nd.SequenceLast(array((5, 3, 0))).asnumpy().shape == (3, 0)


def test_linspace_of_no_numbers():
    assert internal._linspace(start=-2, stop=3, num=0).shape == (0,)


def test_arange_without_end_is_refused():
    with pytest.raises(OpAttributeError, match=r"_arange: from nan to 3\.0 by 1\.0 is no finite count"):
        internal._arange(start=np.nan, stop=3)


# -- regions ---------------------------------------------------------------------------------------------


def test_a_region_far_larger_than_the_image_is_pooled_in_little_memory():
    data = array((1, 1, 4, 4), value=1.0)
    rois = nd.array([[0, 0, 0, 1e9, 1e9]], dtype="float64")
    with use_engine("naive"):
        out = nd.contrib.ROIAlign(data, rois, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=-1)
    # A part is 5e8 wide and the image 5 of that, counted from -1: nearly all samples are outside.
    assert out.shape == (1, 1, 2, 2) and abs(out.asnumpy()).max() < 1e-6


def test_regions_without_end_are_pooled():
    data = array((1, 1, 4, 4))
    for value in (1e30, np.inf, np.nan):
        rois = nd.array([[0, 0, 0, value, value]], dtype="float64")
        for name in ("ROIPooling", "_contrib_ROIAlign"):
            out = getattr(nd.op, name)(data, rois, pooled_size=(2, 2), spatial_scale=1.0)
            assert np.isfinite(out.asnumpy()).all()


def test_proposals_need_a_stride():
    with pytest.raises(OpAttributeError, match="feature_stride must be at least 1, got 0"):
        parse_attrs(ops.Proposal, {"feature_stride": 0})


# -- operators that are gradients ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, shapes, attrs",
    [
        ("_dot_to_lhs", [(3, 5), (5, 4), (3, 4)], {}),
        ("_dot_to_rhs", [(), (), ()], {}),
        ("_convolution_d_data", [(3, 6, 1, 6), (6, 3, 3), (3, 4, 1, 6)], {"kernel": (3, 3), "num_filter": 6}),
        (
            "_deconvolution_d_data",
            [(1, 6, 5, 6), (4, 3, 3, 3), (1, 4, 5, 6)],
            {"kernel": (3, 3), "num_filter": 6},
        ),
        ("_convolution_d_weight", [(3, 6, 1, 6), (3, 4, 6)], {"kernel": (3, 3), "num_filter": 6}),
        ("_resize_d_data", [(3,), (3, 4, 5)], {"sizes": (7, 3), "axes": (1, 2), "mode": "linear"}),
        ("_AdaptiveAvgPooling2D_d_data", [(), ()], {}),
        ("_AdaptiveAvgPooling2D_d_data", [(3, 2, 9), (3, 2, 3, 7)], {"output_size": (2, 9)}),
        ("_grid_d_data", [(3, 2, 3, 4), (3, 6)], {"transform_type": "warp", "target_shape": (3, 4)}),
        ("_uncrop", [(2,), (2,)], {}),
    ],
)
def test_gradient_operators_refuse_arrays_that_do_not_fit(name, shapes, attrs):
    with pytest.raises(ShapeError, match=name):
        getattr(nd.op, name)(*[array(s) for s in shapes], **attrs)


def test_uncrop_needs_two_offsets():
    with pytest.raises(OpAttributeError, match=r"_uncrop: offset must be two numbers, got \(\)"):
        nd.op._uncrop(array((1, 1, 2, 2)), array((1, 1, 3, 3)), offset=())


def test_no_channels_are_transformed():
    out = nd.SpatialTransformer(
        array((3, 0, 5, 4)),
        array((3, 6)),
        transform_type="affine",
        sampler_type="bilinear",
        target_shape=(3, 4),
    )
    assert out.shape == (3, 0, 3, 4) and out.asnumpy().size == 0


# -- optimizers ------------------------------------------------------------------------------------------


def test_ftml_refuses_a_decay_outside_of_0_to_1():
    for beta in ("beta1", "beta2"):
        with pytest.raises(OpAttributeError, match="ftml_update: beta1 and beta2 must be in"):
            parse_attrs(ops.ftml_update, {"lr": 0.1, "t": 1, beta: -0.5})


def test_updates_of_many_weights_refuse_a_number_of_arrays_that_does_not_fit():
    op: type[Op] = ops.preloaded_multi_sgd_update
    with pytest.raises(OpAttributeError, match="num_weights=2 needs 6 arrays, got 1"):
        sym_of = getattr(sym, op.op_name)
        sym_of(sym.Variable("x"), num_weights=2).infer_type(x="float32")
    with pytest.raises(OpAttributeError, match="lrs must have"):
        parse_attrs(
            ops.multi_sgd_update, {"num_args": 2, "num_weights": 10**18, "lrs": (0.1,), "wds": (0.1,)}
        )
