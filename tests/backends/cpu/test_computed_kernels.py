"""Kernels of operators that declare a computation, against the reference kernels, at sizes that conformance
rows have not: several vectors, several threads, sums in parts, and every type.
"""

from __future__ import annotations

import numpy as np
import pytest

from mxlite import ops
from mxlite.backends.cpu.runtime import threads
from mxlite.core.errors import OperatorError, PlaceError
from mxlite.core.machine_code import native
from tests.backends.cpu import fast_kernels
from tests.conformance.case import Case, integers, positive
from tests.conformance.conformance import Call, check_in_place

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not there")

SHAPES = {
    "rows": (300, 700),
    "columns": (70_000, 3),
    "image": (4, 24, 19, 23),
    "vector": (300_007,),
    "few": (3, 90_001),
}
AXES = {
    "rows": [0, 1, None],
    "columns": [0, 1],
    "image": [(0, 2, 3), (1,), (2, 3), (0, 3)],
    "vector": [None],
    "few": [0, 1],
}
REDUCTIONS = ["sum", "mean", "nansum", "norm", "max", "min", "logsumexp", "any"]
CASES = {
    f"{name}-{shape}-{axis}": Case(getattr(ops, name), {"axis": axis}, [SHAPES[shape]])
    for name in REDUCTIONS
    for shape, all_axes in AXES.items()
    for axis in all_axes
}
CASES |= {
    f"moments-{shape}-{axis}": Case(ops.moments, {"axes": axis}, [SHAPES[shape]])
    for shape, all_axes in AXES.items()
    for axis in all_axes
}
CASES |= {
    f"{n}-{axis}": Case(getattr(ops, n), {"axis": axis}, [(300, 700)])
    for n in ("argmax", "argmin")
    for axis in (0, 1)
}
IMAGE = (4, 24, 19, 23)


def boxes(rng, shape):
    """Corners of boxes with an area, (..., 4)."""
    low = rng.uniform(0, 0.6, (*shape[:-1], 2))
    return np.concatenate([low, low + rng.uniform(0.1, 0.4, low.shape)], -1)


CASES |= {
    "RMSNorm": Case(ops.RMSNorm, {}, [(300, 700), (700,)]),
    "RMSNorm-columns": Case(ops.RMSNorm, {"axis": 1}, [(30, 70, 40), (70,)]),
    "LayerNorm": Case(ops.LayerNorm, {"axis": 1}, [(30, 70, 40), (70,), (70,)]),
    "InstanceNorm": Case(ops.InstanceNorm, {}, [IMAGE, (24,), (24,)]),
    "GroupNorm": Case(ops.GroupNorm, {"num_groups": 8}, [IMAGE, (8,), (8,)]),
    "L2Normalization": Case(ops.L2Normalization, {}, [(300, 700)]),
    "L2Normalization-channel": Case(ops.L2Normalization, {"mode": "channel"}, [IMAGE]),
    "L2Normalization-spatial": Case(ops.L2Normalization, {"mode": "spatial"}, [IMAGE]),
    "softmax": Case(ops.softmax, {}, [(300, 700)]),
    "softmax-columns": Case(ops.softmax, {"axis": 1, "temperature": 0.5}, [IMAGE]),
    "softmin": Case(ops.softmin, {}, [(300, 701)]),
    "log_softmax": Case(ops.log_softmax, {}, [(300, 700)]),
    "SoftmaxActivation": Case(ops.SoftmaxActivation, {"mode": "channel"}, [IMAGE]),
    "broadcast_mul": Case(ops.broadcast_mul, {}, [(300, 700), (1, 700)]),
    "broadcast_div": Case(ops.broadcast_div, {}, [(30, 70, 40), (1, 70, 1)], make={"rhs": positive}),
    "broadcast_sub": Case(ops.broadcast_sub, {}, [(300, 1, 70), (1, 40, 70)]),
    "broadcast_to": Case(ops.broadcast_to, {"shape": (300, 40, 70)}, [(300, 1, 70)]),
}  # fmt: skip
LABELS = {"label": integers(0, 40), "weight": positive}
for name in ("cross_entropy", "nll_loss"):
    for reduction in ("none", "sum", "mean"):
        for weighted in (False, True):
            shapes = [(60, 40, 9, 7), (60, 9, 7), (40,)][: 3 if weighted else 2]
            attrs = {"reduction": reduction, "use_weight": weighted, "ignore_index": 3}
            CASES[f"{name}-{reduction}-{weighted}"] = Case(getattr(ops, name), attrs, shapes, make=LABELS)
CASES |= {
    "softmax_cross_entropy": Case(ops.softmax_cross_entropy, {}, [(900, 40), (900,)], make=LABELS),
    "SoftmaxOutput": Case(ops.SoftmaxOutput, {"smooth_alpha": 0.1}, [(900, 40), (900,)], make=LABELS),
    "SoftmaxOutput-valid": Case(
        ops.SoftmaxOutput,
        {"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": 3},
        [(60, 40, 9, 7), (60, 63)],
        make=LABELS,
    ),
    "SVMOutput": Case(ops.SVMOutput, {}, [(900, 40), (900,)], make=LABELS),
}
LENGTHS = {"sequence_length": integers(-1, 50)}
PLACES = {"indices": integers(-9, 90), "index": integers(-9, 90), "rhs": integers(-9, 90)}
CASES |= {
    "SequenceMask": Case(
        ops.SequenceMask, {"use_sequence_length": True, "value": 0.3}, [(40, 70, 33), (70,)], make=LENGTHS
    ),
    "SequenceMask-columns": Case(
        ops.SequenceMask, {"use_sequence_length": True, "axis": 1}, [(70, 40), (70,)], make=LENGTHS
    ),
    "SequenceReverse": Case(
        ops.SequenceReverse, {"use_sequence_length": True}, [(40, 70, 33), (70,)], make=LENGTHS
    ),
    "SequenceLast": Case(
        ops.SequenceLast, {"use_sequence_length": True}, [(40, 70, 33), (70,)], make=LENGTHS
    ),
    "SequenceLast-columns": Case(
        ops.SequenceLast, {"use_sequence_length": True, "axis": 1}, [(70, 40), (70,)], make=LENGTHS
    ),
    "batch_take": Case(ops.batch_take, {}, [(300, 70), (300,)], make=PLACES),
    "_pick_add": Case(ops.PickAdd, {"axis": 1}, [(30, 70, 40), (30, 40), (30, 40)], make=PLACES),
    "fill_element_0index": Case(ops.fill_element_0index, {}, [(300, 70), (300,), (300,)], make=PLACES),
    "element_mask": Case(ops.element_mask, {}, [(300, 7, 11), (300,)]),
    "tril": Case(ops.tril, {"k": 3}, [(3, 70, 90)]),
    "triu": Case(ops.triu, {"k": -5}, [(70, 90)]),
    "div_sqrt_dim": Case(ops._contrib_div_sqrt_dim, {}, [(300, 70)]),
    "all_finite": Case(ops.all_finite, {}, [(300, 700)]),
}
MAP = {"transform_type": "affine", "target_shape": (21, 35)}
CASES |= {
    "BilinearSampler": Case(ops.BilinearSampler, {}, [(3, 40, 19, 23), (3, 2, 21, 35)]),
    "BilinearSampler-one": Case(ops.BilinearSampler, {}, [(1, 40, 19, 23), (1, 2, 21, 35)]),
    "SpatialTransformer": Case(
        ops.SpatialTransformer, MAP | {"sampler_type": "bilinear"}, [(3, 40, 19, 23), (3, 6)]
    ),
    "GridGenerator": Case(ops.GridGenerator, MAP, [(30, 6)]),
    "GridGenerator-warp": Case(ops.GridGenerator, {"transform_type": "warp"}, [(3, 2, 60, 70)]),
    "BilinearResize2D": Case(ops.BilinearResize2D, {"height": 33, "width": 50}, [IMAGE]),
    "BilinearResize2D-down": Case(
        ops.BilinearResize2D, {"height": 9, "width": 17, "align_corners": False}, [(4, 24, 40, 50)]
    ),
    "resize": Case(ops.resize, {"sizes": (4, 24, 33, 23), "mode": "linear"}, [IMAGE]),
    "resize-volume": Case(
        ops.resize,
        {"sizes": (6, 11, 30), "axes": (1, 2, 3), "mode": "linear"},
        [(3, 5, 9, 17)],
    ),
    "_resize_d_data": Case(
        ops.ResizeDataGradient, {"sizes": (4, 24, 33, 23), "mode": "linear"}, [(4, 24, 33, 23), IMAGE]
    ),
}
BOXES = {"samples": integers(0, 2), "matches": integers(-1, 9), "anchors": boxes, "refs": boxes}
CASES |= {
    "box_iou": Case(ops.box_iou, {}, [(30, 4), (4, 70, 4)], make={"lhs": boxes, "rhs": boxes}),
    "box_iou-center": Case(ops.box_iou, {"format": "center"}, [(4, 4), (70, 4)], make={"lhs": positive}),
    "box_encode": Case(
        ops.box_encode, {}, [(3, 300), (3, 300), (3, 300, 4), (3, 9, 4), (4,), (4,)],
        make=BOXES | {"stds": positive},
    ),
    "box_decode": Case(
        ops.box_decode, {"format": "corner", "clip": 0.7, "std1": 0.1, "std2": 0.2},
        [(3, 300, 4), (1, 300, 4)], make={"anchors": boxes},
    ),
    "image_normalize": Case(ops._image_normalize, {"mean": (1, 2, 3), "std": (2, 3, 4)}, [(3, 3, 60, 70)]),
}  # fmt: skip
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 4e-3}
EXTREMES = ("max", "min", "any", "argm", "all_finite")


def _arrays(case, dtype):
    arrays = case.inputs(dtype=dtype)
    # Large enough that what a mean of many float16 numbers passes on is no denormal number.
    heads = {n: x * x.dtype.type(64) for n, x in fast_kernels.heads_of(case, dtype).items()}
    return arrays, heads if Call.of(case, dtype=dtype).op.grad_op is not None else None


def _runs(case, name):
    """True if generated loops are chosen: the gradient of an extreme reads bits, which they do not."""
    call = Call.of(case, dtype="float32")
    backward = not name.startswith(EXTREMES) and call.op.grad_op is not None
    return "loop nest" in fast_kernels.kernel_name(call, "compiled", backward)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", CASES)
def test_they_are_the_references_and_so_are_gradients(name, dtype):
    case = CASES[name]
    arrays, heads = _arrays(case, dtype)
    if not name.startswith(("max", "min", "any")):
        assert _runs(case, name)
    before = threads.set_num_threads(3)
    try:
        got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
    finally:
        threads.set_num_threads(before)
    want = fast_kernels.run(case, dtype, "reference", arrays, heads)
    if name.startswith("logsumexp") and dtype != "float32":
        del got["d_data"], want["d_data"]  # exp(data - out) of two rounded numbers
    fast_kernels.close(got, want, TOLERANCE[dtype], name)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(EXTREMES)])
def test_bits_are_the_same_on_three_threads(name):
    fast_kernels.same_on_threads(CASES[name])


@pytest.mark.parametrize(
    "name", ["RMSNorm", "LayerNorm", "GroupNorm", "softmax", "log_softmax", "broadcast_mul"]
)
def test_in_place_they_are_the_same(name):
    with fast_kernels.only("compiled"):
        check_in_place(CASES[name])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8"])
def test_picked_elements_are_numpys_for_any_index(dtype):
    """Also for one out of range, a fraction, and nan."""
    rng = np.random.default_rng(1)
    data = rng.standard_normal((60, 50)).astype("f")
    index = rng.uniform(-3, 60, 60) if dtype == "float32" else rng.integers(0, 60, 60)
    if dtype == "float32":
        index[-3:] = np.nan, np.inf, -np.inf
    index = index.astype(dtype)
    whole = np.clip(np.nan_to_num(index.astype("f8"), nan=0), 0, 49).astype(int)
    turned = np.ascontiguousarray(data.T)
    table = {"input_dim": 50, "output_dim": 60}
    cube = rng.standard_normal((6, 50, 7)).astype("f")
    picked = np.take_along_axis(cube, whole[:42].reshape(6, 1, 7), 1)[:, 0]
    for op, attrs, arrays, want in (
        (ops.pick, {"axis": 1}, {"data": data, "index": index}, data[np.arange(60), whole]),
        (ops.pick, {"axis": 1}, {"data": cube, "index": index[:42].reshape(6, 7)}, picked),
        (ops.take, {"axis": 1}, {"a": data, "indices": index}, data[:, whole]),
        (ops.take, {"axis": 1}, {"a": cube, "indices": index}, cube[:, whole]),
        (ops.take, {}, {"a": turned, "indices": index}, turned[whole]),
        (ops.Embedding, table, {"data": index, "weight": turned}, turned[whole]),
    ):
        types = {n: str(x.dtype) for n, x in arrays.items()}
        case = Case(op, attrs, [x.shape for x in arrays.values()], "float32", types)
        with fast_kernels.only("compiled"):
            call = Call.of(case)
            got, _ = call.execute(call.op, arrays)
        np.testing.assert_array_equal(got["out"], want, err_msg=f"{op.op_name} {dtype}")


SUMS = {
    "take": Case(ops.take, {}, [(50, 30), (7, 90)], make={"indices": integers(-9, 70)}),
    "take-columns": Case(ops.take, {"axis": 1}, [(40, 50), (7, 90)], make={"indices": integers(-9, 70)}),
    "take-middle": Case(ops.take, {"axis": 1}, [(9, 50, 30), (70,)], make={"indices": integers(-9, 70)}),
    "index_add": Case(ops.index_add, {}, [(40, 70), (90,), (90, 70)], make={"indices": integers(-9, 70)}),
    "index_add-columns": Case(
        ops.index_add, {"axis": 1}, [(40, 70), (90,), (40, 90)], make={"indices": integers(-9, 70)}
    ),
    "Embedding": Case(
        ops.Embedding,
        {"input_dim": 30, "output_dim": 70},
        [(7, 20), (30, 70)],
        make={"data": integers(-9, 40)},
    ),
    "take_along_axis": Case(
        ops.take_along_axis, {"axis": 1}, [(30, 20, 7), (30, 40, 7)], make={"indices": integers(-20, 20)}
    ),
    "take_along_axis-last": Case(
        ops.take_along_axis, {"axis": -1}, [(30, 20), (30, 70)], make={"indices": integers(-20, 20)}
    ),
    "gather_nd": Case(ops.gather_nd, {}, [(6, 5, 33), (2, 70)], make={"indices": integers(-5, 5)}),
    "scatter_nd_update": Case(
        ops.scatter_nd_update,
        {"reduction": "add"},
        [(6, 5, 33), (2, 70), (70, 33)],
        make={"indices": integers(-5, 5)},
    ),
    "scatter_elements": Case(
        ops.scatter_elements,
        {"axis": 1, "reduction": "add"},
        [(30, 20, 7), (30, 40, 7), (30, 40, 7)],
        make={"indices": integers(-20, 20)},
    ),
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", SUMS)
def test_sums_at_an_index_have_the_bits_of_the_reference(name, dtype):
    """Terms are added in the order of their indices, those of 16 bits in float32."""
    case = SUMS[name]
    arrays, heads = case.inputs(dtype=dtype), fast_kernels.heads_of(case, dtype)
    assert "loop nest" in fast_kernels.kernel_name(Call.of(case, dtype=dtype), "compiled", True)
    got = fast_kernels.run(case, dtype, "compiled", arrays, heads)
    for n, x in fast_kernels.run(case, dtype, "reference", arrays, heads).items():
        np.testing.assert_array_equal(got[n].astype("f"), x.astype("f"), err_msg=f"{name} {n}")


@pytest.mark.parametrize("name", [n for n, case in SUMS.items() if case.op.in_place])
def test_sums_at_an_index_are_the_same_in_place(name):
    with fast_kernels.only("compiled"):
        check_in_place(SUMS[name])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("name", ["gather_nd", "take_along_axis", "scatter_nd_update", "scatter_elements"])
def test_an_index_beyond_its_axis_is_refused_by_generated_code_too(name, dtype):
    case = SUMS[name]
    case = Case(case.op, case.attrs, case.shapes, "float32", {"indices": dtype}, make=case.make)
    call = Call.of(case)
    given = dict(zip(call.names()[0], case.inputs()))
    assert "loop nest" in fast_kernels.kernel_name(call, "compiled")
    for wrong in (90, -90):
        given["indices"].reshape(-1)[3] = wrong
        with fast_kernels.only("compiled"), pytest.raises(PlaceError, match=f"{name}: .*90"):
            call.execute(call.op, given)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_label_that_is_no_class_is_refused_by_generated_code_too(name):
    case = Case(getattr(ops, name), {}, [(60, 40), (60,)])
    data, label = np.zeros((60, 40), "f"), np.zeros(60, "f")
    label[17] = 40
    with pytest.raises(OperatorError, match=r"label must be in \[0, 40\).*got 40"):
        fast_kernels.run(case, "float32", "compiled", [data, label])


@pytest.mark.parametrize("kinds", ["reference", "compiled"])
def test_the_mean_of_very_many_float16_numbers_has_a_gradient(kinds):
    """Their number is infinite as a float16, and the gradient divided by it was 0."""
    for op, attrs in ((ops.mean, {"axis": 1}), (ops.moments, {"axes": 1})):
        case = Case(op, attrs, [(2, 100_000)])
        heads = {n: np.full_like(x, 1000) for n, x in fast_kernels.heads_of(case, "float16").items()}
        zeros = [np.zeros((2, 100_000), "float16")]
        got = fast_kernels.run(case, "float16", kinds, zeros, heads)["d_data"]
        np.testing.assert_allclose(got, 0.01, rtol=1e-3)


@pytest.mark.parametrize("wanted", ["d_lhs", "d_rhs"])
def test_one_of_the_gradients_of_a_broadcast_may_be_wanted_alone(wanted):
    """Of a node that was bound for both, also the one that is no sum."""
    call = Call.of(Case(ops.broadcast_mul, {}, [(1, 40), (30, 40)]), dtype="float32")
    rng = np.random.default_rng(3)
    shapes = {"d_out": (30, 40), "lhs": (1, 40), "rhs": (30, 40)}
    given = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    with fast_kernels.only("compiled"):
        both, _ = call.execute(call.op.grad_op, given)
        one, _ = call.execute(call.op.grad_op, given, wanted=(wanted,))
    np.testing.assert_array_equal(one[wanted], both[wanted])


@pytest.mark.parametrize("op", [ops.RMSNorm, ops.LayerNorm])
@pytest.mark.parametrize("shape", [(70_000, 3), (7, 30_000), (3000, 40), (600, 900)], ids=str)
def test_any_of_the_gradients_may_be_wanted_alone_in_the_scratch_that_was_planned(op, shape):
    """It has the bits that it has with the others, though sums of columns alone would be taken otherwise."""
    case = Case(op, {}, [shape, *[shape[1:]] * (1 if op is ops.RMSNorm else 2)])
    call = Call.of(case, dtype="float32")
    arrays, heads = _arrays(case, "float32")
    given = {**dict(zip(call.names()[0], arrays)), **{f"d_{n}": x for n, x in heads.items()}}
    with fast_kernels.only("compiled"):
        full = {n: given.get(n) for n in call.op.grad_op.input_names(call.attrs)}
        every, _ = call.execute(call.op.grad_op, full)
        for name, want in every.items():
            one, _ = call.execute(call.op.grad_op, full, wanted=(name,))
            np.testing.assert_array_equal(one[name], want, err_msg=name)
