"""Copies of the GPU, run on the CPU: every way that elements go, found by tracing reference kernels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends import Backend, bind_call
from mxlite.backends.gpu.handwritten.move import moved, single_source
from mxlite.backends.gpu.handwritten.move_together import all_moved
from mxlite.backends.gpu.kernels import table
from mxlite.graph.attrs import parse_attrs
from mxlite.ops import find_op
from mxlite.te.moves import axes_of, Move, Sheet, traced
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

TYPES = (np.int8, np.float32)


def launched(source, target, function, dtype=np.float32, fill=0):
    """`function(xp, source, target)` on sheets, run on arrays of these shapes; (what it left, kernels)."""
    device, log = EmulatedDevice(), []
    arrays = {
        "s": np.arange(np.prod(source)).astype(dtype).reshape(source),
        "t": np.full(target, fill, dtype),
    }
    sheets = [Sheet.whole(n, x.shape, x.dtype, log) for n, x in arrays.items()]
    assert traced(lambda xp: function(xp, *sheets), log) is not None
    for m in log:
        moved(device, m, arrays)()
    return arrays["t"], device.launched


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "shape, axes, kernel",
    [
        ((3, 40, 70), (0, 2, 1), "tiles"),
        ((65, 33), (1, 0), "tiles"),
        ((5, 4, 3, 16), (0, 2, 1, 3), "single"),
        ((2, 3, 50), (0, 2, 1), "single"),
        ((9, 2, 10, 3, 11), (4, 1, 2, 3, 0), "tiles"),
    ],
)
def test_axes_in_another_order(shape, axes, kernel, dtype):
    x = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    target = tuple(shape[i] for i in axes)
    got, kernels = launched(shape, target, lambda xp, s, t: xp.copyto(t, s.transpose(axes)), dtype)
    np.testing.assert_array_equal(got, x.transpose(axes))
    assert kernels == [kernel]


@pytest.mark.parametrize("begin", [0, 1, 4])
def test_parts_whose_rows_lie_on_no_pack(begin):
    """Rows copied in the largest units that lengths and offsets allow."""
    x = np.arange(7 * 24, dtype=np.float16).reshape(7, 24)
    part = (slice(1, 6), slice(begin, begin + 8))
    got, _ = launched((7, 24), (5, 8), lambda xp, s, t: xp.copyto(t, s[part]), np.float16)
    np.testing.assert_array_equal(got, x[part])

    def inside(xp, s, t):
        t[part] = s

    got, _ = launched((5, 8), (7, 24), inside, np.float16, fill=7)
    want = np.full((7, 24), 7, np.float16)
    want[part] = np.arange(40).reshape(5, 8)
    np.testing.assert_array_equal(got, want)


def test_backwards_steps_and_stretches():
    x = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)
    got, _ = launched((6, 10), (6, 5), lambda xp, s, t: xp.copyto(t, xp.flip(s, 0)[:, ::-2]))
    np.testing.assert_array_equal(got, x[::-1, ::-2])
    got, _ = launched((6, 1, 10), (6, 4, 10), lambda xp, s, t: xp.copyto(t, s))
    np.testing.assert_array_equal(got, np.repeat(x.reshape(6, 1, 10), 4, 1))
    got, _ = launched((4,), (3, 2, 4), lambda xp, s, t: xp.copyto(t.swapaxes(0, 1), s))
    np.testing.assert_array_equal(got, np.broadcast_to(np.arange(4), (3, 2, 4)))


@pytest.mark.parametrize("dtype, value", [(np.int8, -3), (np.float64, -2.25)])
def test_fills_of_parts(dtype, value):
    def fill(xp, s, t):
        t.fill(1)
        t[1:3, ::2] = value
        t[3, 2:10].fill(value)

    want = np.ones((5, 12), dtype)
    want[1:3, ::2] = want[3, 2:10] = value
    got, _ = launched((1,), (5, 12), fill, dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "shape, view, wanted",
    [
        ((4, 6), lambda x: x, (2, 2, 3, 2)),
        ((4, 6), lambda x: x[1:3], (12,)),
        ((4, 6), lambda x: x[:, ::2], (4, 3, 1)),
        ((2, 3, 4), lambda x: x[:, ::-1], (2, 1, 3, 2, 2)),
        ((2, 3, 4), lambda x: x[1], (-1, 2)),
        ((0, 3), lambda x: x, (3, 0)),
        ((4, 6), lambda x: x[:, :3], (12,)),
        ((4, 6), lambda x: x.transpose(), (24,)),
        ((4, 6), lambda x: x, (5, 5)),
    ],
)
def test_views_under_another_shape_are_numpys(shape, view, wanted):
    """The last three have none: numpy would copy, or refuse."""
    x = np.arange(np.prod(shape), dtype=np.int8).reshape(shape)
    sheet = view(Sheet.whole("x", shape, x.dtype, []))
    part = view(x)
    if wanted in [(12,), (24,), (5, 5)] and not (part.flags.c_contiguous and part.size == np.prod(wanted)):
        with pytest.raises(ValueError):
            sheet.reshape(wanted)
        return
    made = part.reshape(wanted)
    got = sheet.reshape(wanted)
    assert got.shape == made.shape
    if made.size:
        elements = [got.offset + sum(i * s for i, s in zip(at, got.strides)) for at in np.ndindex(made.shape)]
        np.testing.assert_array_equal(elements, made.reshape(-1))


def test_what_computes_is_refused():
    log: list[Move] = []
    x = Sheet.whole("x", (3, 4), np.dtype("float32"), log)
    y = Sheet.whole("y", (3, 4), np.dtype("float64"), log)
    for run in (
        lambda xp: xp.add(x, x, out=x),
        lambda xp: xp.copyto(y, x),
        lambda xp: np.sum(x),
        lambda xp: x[np.array([1, 2])],
        lambda xp: x.fill(x),
        lambda xp: float(x),
        lambda xp: x.__iadd__(x),
    ):
        assert traced(run, log) is None


def test_few_axes_are_left():
    log: list[Move] = []
    x, y = (Sheet.whole(n, (2, 3, 4, 5), np.dtype("int8"), log) for n in "xy")
    assert axes_of(x, y) == [(120, 1, 1)]
    assert axes_of(x[:, 1], y[:, 2]) == [(2, 60, 60), (20, 1, 1)]
    assert axes_of(x.transpose(3, 0, 1, 2), y.transpose(3, 0, 1, 2)) == [(120, 1, 1)]


def test_more_elements_than_32_bits_count():
    """Only the text: nobody has the memory here."""
    log: list[Move] = []
    x = Sheet.whole("x", (3, 2**31, 2), np.dtype("int8"), log)
    assert axes_of(x[:, 1:, 0], x[:, :-1, 1])[0] == (3, 2**32, 2**32)
    assert "int64 rest" in single_source(1, 2, True, False).text


def test_operators_leave_out_what_nobody_wants():
    """Of Concat's gradient and of a split, only the parts that are there; in place, nothing at all."""
    device = EmulatedDevice()
    backend = Backend("emulated", np, table(device))
    float32 = np.dtype("float32")

    def run(op, attrs, shapes, ins, outs):
        kernel = backend.choose(op, attrs, *shapes, float32, (float32,) * len(shapes[0]))
        device.launched.clear()
        bind_call(kernel, np, op, attrs, ins, outs, work=None, shapes=shapes)()
        return list(device.launched)

    concat = find_op("Concat")
    shapes = ((2, 3), (2, 4), (2, 1)), ((2, 8),)
    d = np.arange(16, dtype=np.float32).reshape(2, 8)
    part = np.empty((2, 4), np.float32)
    assert len(run(concat.grad_op, concat.Attrs(num_args=3), shapes, [d], [None, part, None])) == 1
    np.testing.assert_array_equal(part, d[:, 3:7])
    reshape = find_op("Reshape")
    flat = d.reshape(-1)
    assert run(reshape, reshape.Attrs(shape=(-1,)), (((2, 8),), ((16,),)), [d], [flat]) == []
    bf16 = np.dtype(ml_dtypes.bfloat16)
    ones = find_op("_ones")
    kernel = backend.choose(ones, ones.Attrs(shape=(3,), dtype="bfloat16"), (), ((3,),), float32, ())
    out = np.empty(3, bf16)
    bind_call(kernel, np, ones, ones.Attrs(shape=(3,), dtype="bfloat16"), [], [out])()
    assert (out == 1).all()


def connected(name, attrs, shapes, dtype="float32", wanted=None):
    """An operator on arrays of these shapes by the GPU's kernel and by the reference; kernels launched."""
    op = find_op(name)
    parsed = parse_attrs(op, attrs)
    given = tuple(map(tuple, shapes))
    _, outs = op.infer_shape(parsed, *given)
    kinds = (np.dtype(dtype),) * len(given)
    device = EmulatedDevice()
    rng = np.random.default_rng(0)
    ins = [rng.standard_normal(s).astype(dtype) for s in given]
    results = []
    for backend in (Backend("emulated", np, table(device)), Backend("reference", np)):
        kernel = backend.choose(op, parsed, given, outs, kinds[0], kinds)
        made = [np.full(s, 7, dtype) for s in outs]
        if wanted is not None:
            made = [x if i in wanted else None for i, x in enumerate(made)]
        bind_call(kernel, np, op, parsed, ins, made, shapes=(given, outs), work=np.empty(64, np.uint8))()
        results.append(made)
    for got, want in zip(*results):
        if got is not None:
            np.testing.assert_array_equal(got, want)
    return device.launched


@pytest.mark.parametrize(
    "shapes, dim, launches",
    [
        ([(6, 4), (6, 8), (6, 12)], 1, 1),
        ([(5, 3), (5, 8), (5, 4)], 1, 1),  # odd offsets: one unit for all
        ([(2, 4, 3, 4), (2, 8, 3, 4)], 1, 1),
        ([(3, 4), (2, 4)], 0, 1),
        ([(2, 1)] * 40, 1, 2),  # more than fit a launch
        ([(6, 4), (6, 0)], 1, 1),
    ],
)
def test_parts_of_a_concat_are_one_launch(shapes, dim, launches):
    names = connected("Concat", {"dim": dim, "num_args": len(shapes)}, shapes)
    assert len(names) == launches
    assert ("parts" in names) == (len(shapes) > 2 or 0 not in shapes[1])


def test_parts_of_a_split_are_one_launch():
    assert connected("SliceChannel", {"num_outputs": 3}, [(5, 12)]) == ["parts"]
    assert connected("SliceChannel", {"num_outputs": 3}, [(5, 12)], wanted=(0, 2)) == ["parts"]
    assert connected("SliceChannel", {"num_outputs": 4, "axis": 0, "squeeze_axis": True}, [(4, 6)]) == [
        "parts"
    ]
    assert connected("stack", {"num_args": 3}, [(4, 6)] * 3, "float16") == ["parts"]
    assert connected("SliceChannel", {"num_outputs": 3, "axis": 1}, [(2, 3, 4, 5)]) == ["parts"]


def test_copies_that_touch_each_other_stay_in_their_order():
    def function(xp, s, t):
        xp.copyto(t[:4], s[:4])
        xp.copyto(t[2:6], s[4:8])
        xp.copyto(s[:2], t[1:3])
        xp.copyto(t[6:8], s[0:2])

    device, log = EmulatedDevice(), []
    arrays = {"s": np.arange(8, dtype=np.float32), "t": np.zeros(8, np.float32)}
    want = {n: x.copy() for n, x in arrays.items()}
    function(np, *want.values())
    traced(lambda xp: function(xp, *(Sheet.whole(n, x.shape, x.dtype, log) for n, x in arrays.items())), log)
    all_moved(device, log, arrays)()
    for name, x in want.items():
        np.testing.assert_array_equal(arrays[name], x)
    assert "parts" not in device.launched
