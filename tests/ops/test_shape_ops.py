"""Single facts about operators of shape, look-up and order. The numbers were read off MXNet 1.9.1."""

import numpy as np
import pytest

import mxlite as mx
from mxlite import nd, ops
from mxlite.core.errors import MXLiteError, OpAttributeError, OperatorError, ShapeError
from tests.cases.index import ROWS as INDEX_ROWS
from tests.cases.shape import ROWS as SHAPE_ROWS

ROWS = {**SHAPE_ROWS, **INDEX_ROWS}
A = [[1, 2, 3], [4, 5, 6]]
C = [[3, 1, 2, 1], [0, 5, 5, 4]]


def test_what_can_be_differentiated_says_how_twice():
    """`derivative` is missing only where `backward` is."""
    for op in {c.op for c in ROWS.values()}:
        assert op.backward is None or op.derivative is not None, op.op_name


def show(result):
    return [r.asnumpy().tolist() for r in result] if isinstance(result, list) else result.asnumpy().tolist()


def array(values, dtype="float32"):
    return nd.array(values, dtype=dtype)


FACTS = {
    "pad constant": (
        lambda a: nd.pad(a.reshape((1, 1, 2, 3)), "constant", (0, 0, 0, 0, 1, 0, 0, 1), 7),
        [[[[7, 7, 7, 7], [1, 2, 3, 7], [4, 5, 6, 7]]]],
    ),
    "pad edge": (
        lambda a: nd.pad(a.reshape((1, 1, 2, 3)), mode="edge", pad_width=(0, 0, 0, 0, 1, 1, 2, 1)),
        [[[[1, 1, 1, 2, 3, 3], [1, 1, 1, 2, 3, 3], [4, 4, 4, 5, 6, 6], [4, 4, 4, 5, 6, 6]]]],
    ),
    "pad reflect": (
        lambda a: nd.pad(a.reshape((1, 1, 2, 3)), mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 2, 1)),
        [[[[6, 5, 4, 5, 6, 5], [3, 2, 1, 2, 3, 2], [6, 5, 4, 5, 6, 5], [3, 2, 1, 2, 3, 2]]]],
    ),
    "depth_to_space": (
        lambda a: nd.depth_to_space(nd.arange(8).reshape((1, 8, 1, 1)), 2),
        [[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]],
    ),
    "diag of three axes": (
        lambda a: nd.diag(nd.arange(24).reshape((2, 3, 4)), axis1=-1, axis2=0),
        [[0, 13], [4, 17], [8, 21]],
    ),
    "diag beyond the corner": (lambda a: nd.diag(a, k=3), []),
    "diag from a vector": (lambda a: nd.diag(nd.array([1, 2]), k=1), [[0, 1, 0], [0, 0, 2], [0, 0, 0]]),
    "shape_array": (lambda a: nd.shape_array(a), [2, 3]),
    "size_array": (lambda a: nd.size_array(a), [6]),
    "split_v2 at places": (lambda a: nd.split_v2(a, (1,), axis=1), [[[1], [4]], [[2, 3], [5, 6]]]),
    "split_v2 into parts": (lambda a: nd.split_v2(a, 2), [[[1, 2, 3]], [[4, 5, 6]]]),
    "split_v2 past the end": (lambda a: nd.split_v2(a, (2, 9)), [A, [], []]),
    "gather_nd": (lambda a: nd.gather_nd(a, nd.array([[-1, 0], [-2, 1]])), [5, 2]),
    "scatter_nd": (
        lambda a: nd.scatter_nd(nd.array([5, 6]), nd.array([[0, 1], [2, 0]]), shape=(2, 3)),
        [[0, 0, 5], [6, 0, 0]],
    ),
    "batch_take clips": (lambda a: nd.batch_take(a, array([7, -2], "int32")), [3, 4]),
    "pick cuts towards 0": (lambda a: nd.pick(a, nd.array([1.7, -0.5])), [2, 4]),
    "fill_element_0index": (
        lambda a: nd.fill_element_0index(a, nd.array([9, 8]), nd.array([1, 2])),
        [[1, 9, 3], [4, 5, 8]],
    ),
    "onehot_encode": (
        lambda a: nd.onehot_encode(nd.array([0, 2]), nd.ones((2, 3))),
        [[1, 0, 0], [0, 0, 1]],
    ),
    "sort": (lambda a: nd.sort(nd.array(C)), [[1, 1, 2, 3], [0, 4, 5, 5]]),
    "sort of all": (lambda a: nd.sort(nd.array(C), axis=None), [0, 1, 1, 2, 3, 4, 5, 5]),
    "argsort": (lambda a: nd.argsort(nd.array(C)), [[1, 3, 2, 0], [0, 3, 1, 2]]),
    "argsort down": (lambda a: nd.argsort(nd.array(C), is_ascend=False), [[0, 2, 1, 3], [1, 2, 3, 0]]),
    "argsort of all": (
        lambda a: nd.argsort(nd.array(C), axis=None, dtype="int32"),
        [4, 1, 3, 2, 0, 7, 5, 6],
    ),
    "topk": (lambda a: nd.topk(nd.array(C)), [[0], [1]]),
    "topk both": (
        lambda a: nd.topk(nd.array(C), k=2, ret_typ="both"),
        [[[3, 2], [5, 5]], [[0, 2], [1, 2]]],
    ),
    "topk mask": (lambda a: nd.topk(nd.array(C), k=2, ret_typ="mask"), [[1, 0, 1, 0], [0, 1, 1, 0]]),
    "topk of all": (lambda a: nd.topk(nd.array(C), k=2, axis=None), [5, 6]),
    "topk 0 is all": (lambda a: nd.topk(nd.array(C), k=0), [[0, 2, 1, 3], [1, 2, 3, 0]]),
    "ravel_multi_index": (
        lambda a: nd.ravel_multi_index(nd.array([[3, 6, 6], [4, 5, 1]]), shape=(7, 6)),
        [22, 41, 37],
    ),
    "unravel_index": (
        lambda a: nd.unravel_index(nd.array([22, 41, 37]), shape=(-1, 6)),
        [[3, 6, 6], [4, 5, 1]],
    ),
    "arange_like along an axis": (
        lambda a: nd.contrib.arange_like(a, axis=1, start=2, step=0.5),
        [2, 2.5, 3],
    ),
    "arange_like repeats": (lambda a: nd.contrib.arange_like(a, axis=1, repeat=2), [0, 0, 1]),
    "index_copy": (
        lambda a: nd.contrib.index_copy(nd.zeros((3, 2)), nd.array([2, 0]), nd.array([[1, 2], [3, 4]])),
        [[3, 4], [0, 0], [1, 2]],
    ),
    "index_array": (lambda a: nd.contrib.index_array(nd.ones((1, 2))), [[[0, 0], [0, 1]]]),
    "linspace": (lambda a: nd.linspace(0, 10, 5), [0, 2.5, 5, 7.5, 10]),
    "linspace without its end": (lambda a: nd.linspace(0, 10, 5, endpoint=False), [0, 2, 4, 6, 8]),
    "eye": (lambda a: nd._internal._eye(N=2, M=3, k=1), [[0, 1, 0], [0, 0, 1]]),
    "slice_assign": (
        lambda a: a.slice_assign(nd.array([[9], [8]]), begin=(0, 1), end=(2, 2), step=None),
        [[1, 9, 3], [4, 8, 6]],
    ),
    "slice_assign_scalar": (
        lambda a: a.slice_assign_scalar(9, begin=(0, 1), end=(2, 2), step=None),
        [[1, 9, 3], [4, 9, 6]],
    ),
    "moveaxis": (lambda a: nd.moveaxis(a, 0, -1), [[1, 4], [2, 5], [3, 6]]),
    "element_mask": (lambda a: nd.element_mask(a, nd.array([0, 1])), [[0, 0, 0], [4, 5, 6]]),
    "boolean_mask": (lambda a: nd.contrib.boolean_mask(a, nd.array([0, 1])), [[4, 5, 6]]),
    "boolean_mask of nothing": (lambda a: nd.contrib.boolean_mask(a, nd.array([0, 0])), []),
    "boolean_mask along an axis": (
        lambda a: nd.contrib.boolean_mask(a, nd.array([1, 0, 2]), axis=1),
        [[1, 3], [4, 6]],
    ),
    "amp_cast leaves whole numbers": (lambda a: nd.amp_cast(a.astype("int32"), dtype="float16"), A),
    "take wraps what is far out": (
        lambda a: nd.take(a, nd.array([5, -3]), axis=1, mode="wrap"),
        [[3, 1], [6, 4]],
    ),
    "roll": (lambda a: nd.roll(a, shift=1, axis=1), [[3, 1, 2], [6, 4, 5]]),
    "tril": (lambda a: nd.tril(a, k=-1), [[0, 0, 0], [4, 0, 0]]),
    "triu": (lambda a: nd.triu(a, k=1), [[0, 2, 3], [0, 0, 6]]),
    "scatter_elements adds up": (
        lambda a: nd.scatter_elements(a, nd.array([[0, 0]]), nd.array([[10, 20]]), axis=1, reduction="add"),
        [[31, 2, 3], [4, 5, 6]],
    ),
}


@pytest.mark.parametrize("fact", FACTS)
def test_facts(fact):
    run, want = FACTS[fact]
    assert show(run(array(A))) == want


def test_indices_are_float32_unless_told():
    a = nd.array(C)
    assert nd.topk(a).dtype == nd.argsort(a).dtype == np.float32
    assert nd.topk(a, dtype="int64").dtype == np.int64 and nd.argsort(a, dtype="uint8").dtype == np.uint8
    values, indices = nd.topk(a.astype("float16"), k=2, ret_typ="both")
    assert values.dtype == np.float16 and indices.dtype == np.float32
    assert nd.topk(a.astype("int32"), ret_typ="mask").dtype == np.int32


def test_a_dtype_that_cannot_count_the_positions_is_refused():
    a = nd.zeros((1, 300))
    assert nd.argsort(a, dtype="float16").shape == (1, 300)
    for dtype in ("uint8", "bfloat16"):
        with pytest.raises(ShapeError, match="does not hold positions"):
            nd.argsort(a, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_order_knows_nan_infinity_and_both_zeros(dtype):
    x = array([np.nan, 0.0, np.inf, -0.0, -np.nan, -np.inf, -1.5], dtype)
    assert show(nd.argsort(x)) == [5, 6, 1, 3, 2, 0, 4]
    assert show(nd.argsort(x, is_ascend=False)) == [0, 4, 2, 1, 3, 6, 5]
    assert show(nd.topk(x, k=3, is_ascend=True, ret_typ="value")) == [-np.inf, -1.5, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_the_order_knows_the_ends_of_whole_numbers(dtype):
    ends = np.iinfo(dtype)
    x = nd.array(np.array([3, ends.max, ends.min, 1, ends.max - 1, ends.min + 1], dtype), dtype=dtype)
    np.testing.assert_array_equal(nd.sort(x).asnumpy(), np.sort(x.asnumpy()))
    assert show(nd.argsort(x)) == np.argsort(x.asnumpy(), kind="stable").tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16", "int8"])
def test_long_and_many_lines_are_sorted_stably(dtype):
    rng = np.random.default_rng(0)
    for shape, axis in (
        ((70_001,), 0),
        ((3000, 5), 0),
        ((2, 40_000, 2), 1),
        ((6000, 7), -1),
        ((3, 700), None),
    ):
        x = rng.integers(-100, 100, shape).astype(dtype)
        a = nd.array(x, dtype=dtype)
        np.testing.assert_array_equal(nd.sort(a, axis=axis).asnumpy(), np.sort(x, axis=axis))
        order = np.argsort(x, axis=axis, kind="stable")
        np.testing.assert_array_equal(nd.argsort(a, axis=axis, dtype="int32").asnumpy(), order)
        down = np.argsort(-x.astype("int64"), axis=axis, kind="stable")
        found = nd.topk(a, axis=axis, k=9 if axis != -1 else 2, dtype="int32").asnumpy()
        k = found.shape[axis if axis is not None else 0]
        np.testing.assert_array_equal(found, down.take(range(k), axis=axis if axis is not None else 0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["Embedding", "take", "take_along_axis", "gather_nd"])
def test_gradients_of_small_floats_are_added_up_in_float32(op, dtype):
    """3000 times 1 on one place: two-byte sums would stop at 2048, or 256."""
    n = 3000
    x = nd.ones((2, 3), dtype=dtype)
    x.attach_grad()
    with mx.autograd.record():
        if op == "Embedding":
            y = nd.Embedding(nd.ones((n,)), x, input_dim=2, output_dim=3)
        elif op == "take":
            y = nd.take(x, nd.ones((n,)))
        elif op == "take_along_axis":
            y = nd.take_along_axis(x, nd.ones((n, 3)), axis=0)
        else:
            y = nd.gather_nd(x, nd.ones((1, n)))
    y.backward()
    assert x.grad.astype("float32").asnumpy().tolist() == [[0, 0, 0], [n if dtype == "float16" else 3008] * 3]


def test_gradients_of_rows_are_numpys_sums():
    rng = np.random.default_rng(1)
    for shape, n, axis in (((7, 5), 9000, 0), ((3, 50, 40), 600, 1), ((2000, 6), 3, 1), ((4, 5000), 20, 0)):
        x = nd.array(rng.standard_normal(shape), dtype="float64")
        index = rng.integers(0, shape[axis], n)
        x.attach_grad()
        with mx.autograd.record():
            y = nd.take(x, nd.array(index), axis=axis)
        head = rng.standard_normal(y.shape)
        y.backward(nd.array(head, dtype="float64"))
        want = np.zeros(shape)
        np.add.at(want, (slice(None),) * axis + (index,), head)
        np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool", "float16", "bfloat16"])
def test_elements_of_any_dtype_are_moved(dtype):
    x = (
        np.array([[1, 0, 3], [0, 5, 1]]).astype(dtype)
        if dtype != "bfloat16"
        else np.array([[1, 0, 3], [0, 5, 1]])
    )
    a = nd.array(x, dtype=dtype)
    one = nd.array([1])
    results = {
        "transpose": (a.T, x.T),
        "reverse": (nd.flip(a, axis=1), x[:, ::-1]),
        "tile": (nd.tile(a, reps=(2, 1)), np.tile(x, (2, 1))),
        "repeat": (nd.repeat(a, repeats=2, axis=0), np.repeat(x, 2, 0)),
        "slice": (nd.slice(a, begin=(0, 1), end=(2, 3)), x[:, 1:]),
        "concat": (nd.concat(a, a, dim=0), np.concatenate([x, x])),
        "stack": (nd.stack(a, a), np.stack([x, x])),
        "pad": (nd.pad(a, "edge", (1, 0, 0, 1)), np.pad(x, ((1, 0), (0, 1)), "edge")),
        "diag": (nd.diag(a), np.diag(x)),
        "tril": (nd.tril(a), np.tril(x)),
        "take": (nd.take(a, one, axis=1), x[:, [1]]),
        "Embedding": (nd.Embedding(one, a, input_dim=2, output_dim=3, dtype=dtype), x[[1]]),
        "pick": (nd.pick(a, nd.array([0, 1])), np.array([x[0, 0], x[1, 1]])),
        "gather_nd": (nd.gather_nd(a, nd.array([[1], [1]])), x[[1], [1]]),
        "where": (nd.where(a, a, a), x),
        "sort": (nd.sort(a), np.sort(x)),
        "roll": (nd.roll(a, shift=1), np.roll(x, 1)),
        "split": (nd.split(a, num_outputs=3, axis=1)[2], x[:, 2:]),
        "reshape_like": (nd.reshape_like(a, nd.zeros((3, 2))), x.reshape(3, 2)),
    }
    for name, (got, want) in results.items():
        assert str(got.dtype) == dtype or np.dtype(got.dtype).name == dtype, name
        np.testing.assert_array_equal(got.asnumpy().astype(float), want.astype(float), err_msg=name)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int32", "int64", "float16", "bfloat16", "float64", "bool"]
)
def test_indices_come_in_any_dtype(dtype):
    a, index = array(A), array([1, 0], dtype)
    assert show(nd.take(a, index)) == [A[1], A[0]]
    assert show(nd.pick(a, index)) == [2, 4]
    assert show(nd.one_hot(index, depth=2)) == [[0, 1], [1, 0]]
    assert show(nd.Embedding(index, a, input_dim=2, output_dim=3)) == [A[1], A[0]]
    assert show(nd.where(index, a, -a)) == [A[0], [-4, -5, -6]]


NOTHING = {
    "transpose": lambda a: a.T,
    "tile": lambda a: nd.tile(a, reps=(2, 2)),
    "tile to nothing": lambda a: nd.tile(nd.ones((2, 3)), reps=(0, 1)),
    "repeat": lambda a: nd.repeat(a, repeats=2, axis=1),
    "repeat to nothing": lambda a: nd.repeat(nd.ones((2, 3)), repeats=0),
    "reverse": lambda a: nd.flip(a, axis=0),
    "roll": lambda a: nd.roll(a, shift=1, axis=0),
    "Flatten": lambda a: a.expand_dims(2).flatten(),
    "reshape": lambda a: a.reshape((3, -1)),
    "exact reshape": lambda a: nd._internal._reshape_to(a, shape=(3, 0)),
    "squeeze": lambda a: a.expand_dims(0).squeeze(0),
    "slice": lambda a: nd.slice(a, begin=(0, 1), end=(0, 2)),
    "slice_axis": lambda a: nd.slice_axis(nd.ones((2, 3)), axis=1, begin=3, end=3),
    "split": lambda a: nd.split(a, num_outputs=3, axis=1)[0],
    "stack": lambda a: nd.stack(a, a),
    "pad": lambda a: nd.pad(a, "constant", (0, 0, 1, 1)),
    "diag": lambda a: nd.diag(a),
    "tril": lambda a: nd.tril(a),
    "take": lambda a: nd.take(nd.ones((2, 3)), nd.zeros((0,))),
    "take of nothing": lambda a: nd.take(a, nd.zeros((0, 4)), axis=0),
    "Embedding": lambda a: nd.Embedding(a, nd.ones((4, 5)), input_dim=4, output_dim=5),
    "pick": lambda a: nd.pick(a, nd.zeros((0,))),
    "gather_nd": lambda a: nd.gather_nd(nd.ones((2, 3)), nd.zeros((1, 0))),
    "take_along_axis": lambda a: nd.take_along_axis(a, nd.zeros((0, 2)), axis=1),
    "one_hot": lambda a: nd.one_hot(a, depth=3),
    "where": lambda a: nd.where(a, a, a),
    "sort": lambda a: nd.sort(a),
    "sort along nothing": lambda a: nd.sort(a, axis=0),
    "argsort": lambda a: nd.argsort(a, axis=None),
    "topk": lambda a: nd.topk(a, k=2, ret_typ="value"),
    "unravel": lambda a: nd.unravel_index(a, shape=(2, 2)),
    "arange_like": lambda a: nd.contrib.arange_like(a),
    "cast": lambda a: nd.cast(a, dtype="int32"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_arrays_without_elements_go_through(name):
    result = NOTHING[name](nd.zeros((0, 3)))
    assert result.size == 0 and result.asnumpy().size == 0


def test_gradients_of_nothing_are_zero():
    x = nd.ones((3, 2))
    for run in (
        lambda: nd.take(x, nd.zeros((0,))),
        lambda: nd.slice_axis(x, axis=0, begin=1, end=1),
        lambda: nd.tile(x, reps=(0, 1)),
        lambda: nd.repeat(x, repeats=0, axis=1),
        lambda: nd.gather_nd(x, nd.zeros((1, 0))),
        lambda: nd.diag(x, k=5),
    ):
        x.attach_grad()
        with mx.autograd.record():
            y = run()
        y.backward()
        assert y.size == 0 and not x.grad.asnumpy().any()


def test_arrays_without_axes_go_through():
    s = nd.full((), 2)
    assert nd.stack(s, s, s).asnumpy().tolist() == [2, 2, 2]
    assert nd.transpose(s).shape == nd.tile(s, reps=()).shape == nd.cast(s, dtype="int32").shape == ()
    assert nd.tile(s, reps=(3,)).asnumpy().tolist() == nd.repeat(s, repeats=3).asnumpy().tolist() == [2, 2, 2]
    assert nd._internal._reshape_to(nd.ones((1, 1)), shape=()).shape == ()
    assert nd.expand_dims(s, axis=(0, 1)).shape == (1, 1) and nd.reshape(s, shape=(1,)).shape == (1,)
    assert nd.reshape_like(nd.ones((1,)), s).shape == () and nd.squeeze(nd.ones((1, 1))).shape == (1,)
    assert nd.take(array(A), nd.full((), 1)).asnumpy().tolist() == [4, 5, 6]
    assert nd.take(nd.array([7, 8]), nd.full((), 1)).shape == ()
    assert nd.one_hot(nd.full((), 1), depth=3).asnumpy().tolist() == [0, 1, 0]
    assert nd.where(s, s, -s).asnumpy() == 2 and nd.gather_nd(array(A), nd.array([1, 2])).asnumpy() == 6
    assert nd.shape_array(s).shape == (0,) and nd.size_array(s).asnumpy().tolist() == [1]
    assert nd.unravel_index(nd.full((), 7), shape=(2, 4)).asnumpy().tolist() == [1, 3]
    assert nd.ravel_multi_index(nd.array([1, 3]), shape=(2, 4)).shape == ()
    assert nd.sort(s, axis=None).shape == (1,) and nd.pad(s, "constant", ()).shape == ()
    for run in (lambda: nd.flip(s, axis=0), lambda: nd.sort(s), lambda: nd.diag(s), lambda: nd.flatten(s)):
        with pytest.raises(ShapeError):
            run()


def test_a_graph_of_arrays_without_axes_runs_and_has_gradients():
    x, i = mx.sym.Variable("x"), mx.sym.Variable("i")
    net = mx.sym.stack(mx.sym.take(x, i), mx.sym.take(x, i) * 2)
    executor = net.bind(
        None, {"x": nd.array([7, 8]), "i": nd.full((), 1)}, {"x": nd.ones(2)}, {"x": "write", "i": "null"}
    )
    assert executor.forward(is_train=True)[0].asnumpy().tolist() == [8, 16]
    executor.backward(nd.array([1, 10]))
    assert executor.grad_dict["x"].asnumpy().tolist() == [0, 21]


ERRORS = {
    "reflect too wide": (lambda a: nd.pad(a, "reflect", (2, 0, 0, 0)), "must be smaller"),
    "edge of nothing": (lambda a: nd.pad(nd.zeros((0, 2)), "edge", (1, 0, 0, 0)), "no edge"),
    "half a pad": (lambda a: nd.pad(a, "edge", (1,)), "two lengths"),
    "pad of another rank": (lambda a: nd.pad(a, "edge", (1, 1)), "two numbers for each axis"),
    "k too large": (lambda a: nd.topk(a, k=4), r"k=4 must be in \[0, 3\]"),
    "no such axis": (lambda a: nd.sort(a, axis=2), "axis 2 is not one of data"),
    "crop outside": (lambda a: nd.Crop(a.reshape((1, 1, 2, 3)), h_w=(2, 2), offset=(1, 0)), "does not fit"),
    "blocks that do not fit": (
        lambda a: nd.space_to_depth(a.reshape((1, 1, 2, 3)), block_size=2),
        "divisible",
    ),
    "places out of order": (lambda a: nd.split_v2(a, (2, 1), axis=1), "in order"),
    "parts of unequal length": (lambda a: nd.split_v2(a, 2, axis=1), "must divide"),
    "the same axis twice": (lambda a: nd.diag(a, axis1=1, axis2=-1), "one axis"),
    "too many coordinates": (lambda a: nd.gather_nd(a, nd.zeros((3, 1))), "up to the axes"),
    "nothing to take": (lambda a: nd.take(nd.zeros((0, 2)), nd.zeros(1)), "nothing that"),
    "shorter than its model": (lambda a: nd.slice_like(a, nd.zeros((2, 4))), "shorter"),
    "unlike": (lambda a: nd.reshape_like(a, nd.zeros((2, 2))), "do not hold as much"),
    "pick without an axis": (lambda a: nd.pick(a, nd.array([1]), axis=None), "needs an axis"),
    "one shift for two axes": (lambda a: nd.roll(a, shift=(1, 2), axis=0), "equally long"),
    "a length that is missing": (lambda a: nd.unravel_index(a, shape=()), "needs the parameter shape"),
    "moveaxis twice": (lambda a: nd.moveaxis(a, (0, 0), (1, 0)), "each once"),
    "moveaxis of different numbers": (lambda a: nd.moveaxis(a, (0, 1), 0), "equally many"),
    "mask of another length": (lambda a: nd.contrib.boolean_mask(a, nd.zeros(3)), "as long as axis 0"),
    "a table of another dtype": (
        lambda a: nd.Embedding(nd.zeros(1), a, input_dim=2, output_dim=3, dtype="float16"),
        "weight must be float16",
    ),
    "an array with open axes": (
        lambda a: nd._internal._zeros(shape=(0, 2)),
        "no axes of open or negative length",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_does_not_fit_is_refused_with_a_reason(name):
    run, message = ERRORS[name]
    with pytest.raises((ShapeError, OpAttributeError, MXLiteError), match=message):
        run(array(A))


@pytest.mark.parametrize(
    "run",
    [
        lambda a: nd.take(a, nd.array([5]), mode="raise"),
        lambda a: nd.take(a, nd.array([-1]), mode="raise"),
        lambda a: nd.gather_nd(a, nd.array([[0], [3]])),
        lambda a: nd.take_along_axis(a, nd.array([[-4]]), axis=1),
        lambda a: nd.scatter_nd(nd.array([1]), nd.array([[2]]), shape=(2,)),
        lambda a: nd.contrib.index_copy(a, nd.array([2]), nd.ones((1, 3))),
    ],
)
def test_indices_out_of_range_are_errors_when_they_are_read(run):
    with pytest.raises(OperatorError, match=r"indices must be in \["):
        run(array(A)).asnumpy()


def test_a_mask_is_refused_in_a_graph():
    with pytest.raises(ShapeError, match=r"mx\.nd\.contrib\.boolean_mask"):
        mx.sym.contrib.boolean_mask(mx.sym.Variable("x"), mx.sym.Variable("m"))


def test_masking_and_splitting_have_gradients():
    x = array(A)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.contrib.boolean_mask(x, nd.array([1, 0, 1]), axis=1) * 2
        z = x.split_v2((1,), axis=1)[1] * 10
    mx.autograd.backward([y, z])
    assert show(x.grad) == [[2, 10, 12], [2, 10, 12]]


def test_symbols_of_the_same_functions():
    x = mx.sym.Variable("x")
    parts = mx.sym.split_v2(x, (1, 3), axis=1, squeeze_axis=False)
    assert parts.infer_shape(x=(2, 5))[1] == [(2, 1), (2, 2), (2, 2)]
    assert [s[-1] for s in parts.list_outputs()] == ["0", "1", "2"]
    assert mx.sym.topk(x, ret_typ="both", name="t").list_outputs() == ["t_output0", "t_output1"]
    assert mx.sym.sort(x, name="s").list_outputs() == ["s_output"]
    assert mx.sym.eye(2, 3).eval()[0].asnumpy().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert mx.sym.linspace(0, 1, 3).eval()[0].asnumpy().tolist() == [0, 0.5, 1]


MXNET_METHODS = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort astype
    broadcast_axes broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp
    expand_dims expm1 fix flatten flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum
    norm one_hot ones_like pad pick prod radians rcbrt reciprocal relu repeat reshape reshape_like rint
    round rsqrt shape_array sigmoid sign sin sinh size_array slice slice_axis slice_like softmax softmin
    sort space_to_depth split split_v2 sqrt square squeeze sum swapaxes take tan tanh tile topk transpose
    trunc zeros_like
""".split()
"""The methods that MXNet 1.9.1's NDArray and Symbol have in common, but those of devices and evaluation."""


@pytest.mark.parametrize("name", MXNET_METHODS)
def test_mxnets_methods_are_there(name):
    assert callable(getattr(nd.ones((2, 2)), name))
    assert callable(getattr(mx.sym.Variable("x"), name))


def test_methods_are_the_functions():
    a = array(A)
    assert show(a.topk(k=1, ret_typ="value")) == [[3], [6]]
    assert show(a.sort(is_ascend=False)) == [[3, 2, 1], [6, 5, 4]]
    assert show(a.diag(1)) == [2, 6]
    assert show(a.pad("edge", (0, 0, 1, 0))) == [[1, 1, 2, 3], [4, 4, 5, 6]]
    assert show(a.slice_like(nd.zeros((1, 2)))) == [[1, 2]]
    assert show(a.split_v2((1,), axis=1)[0]) == [[1], [4]]
    assert show(a.reshape_like(nd.zeros((3, 2)))) == [[1, 2], [3, 4], [5, 6]]
    x = mx.sym.Variable("x")
    assert x.topk(k=2).infer_shape(x=(2, 3))[1] == [(2, 2)]
    assert x.split_v2(3, axis=1).infer_shape(x=(2, 3))[1] == [(2, 1)] * 3
    assert x.slice_like(mx.sym.Variable("y")).infer_shape(x=(2, 3), y=(1, 1))[1] == [(1, 1)]


def test_scatter_of_a_product_knows_zeros():
    """A factor of 0 gets the product of the others, the others get 0; with two zeros all get 0."""
    x = array([2.0, 0.0, 3.0])
    x.attach_grad()
    u = array([0.0, 5.0, 0.0, 7.0])
    u.attach_grad()
    with mx.autograd.record():
        y = nd.scatter_elements(x, nd.array([0, 1, 1, 2]), u, axis=0, reduction="mul")
    y.backward()
    assert show(y) == [0, 0, 21]
    assert show(x.grad) == [0, 0, 7] and show(u.grad) == [2, 0, 0, 3]


def test_equals_share_the_gradient_of_an_extreme():
    x, u = array([4.0, 1.0]), array([4.0, 3.0, 4.0, 1.0])
    x.attach_grad()
    u.attach_grad()
    with mx.autograd.record():
        y = nd.scatter_elements(x, nd.array([0, 0, 0, 1]), u, axis=0, reduction="max")
    y.backward(nd.array([6, 8]))
    assert show(x.grad) == [2, 4] and show(u.grad) == [2, 0, 2, 4]


def test_every_alias_of_mxnet_is_there():
    names = """
        Reshape reshape Flatten flatten expand_dims squeeze reshape_like transpose SwapAxis swapaxes tile
        repeat reverse flip Cast cast amp_cast amp_multicast slice crop slice_axis slice_like SliceChannel
        split _split_v2 Concat concat stack Pad pad Crop depth_to_space space_to_depth diag shape_array
        size_array Embedding take batch_take pick choose_element_0index fill_element_0index _onehot_encode
        one_hot where gather_nd scatter_nd _scatter_set_nd sort argsort topk ravel_multi_index
        _ravel_multi_index unravel_index _unravel_index _contrib_arange_like _contrib_index_copy
        _contrib_index_array _contrib_SparseEmbedding _zeros _ones _full _arange _eye _linspace
        _zeros_without_dtype _identity_with_attr_like_rhs _slice_assign _slice_assign_scalar _crop_assign
        _crop_assign_scalar
    """.split()
    assert [n for n in names if n not in ops.TABLE] == []
