"""NDArray: values as numpy's, order as the program's, work after the call; on both engines."""

from __future__ import annotations

import copy
import gc
import inspect
import operator
import pickle
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mxlite as mx
from mxlite import ndarray as nd
from mxlite.core import (
    cpu,
    DeviceError,
    DTypeError,
    gpu,
    OpAttributeError,
    OperatorError,
    ShapeError,
    UnknownNameError,
)
from mxlite.engine import get_engine, use_engine
from mxlite.graph.opdef import Op
from mxlite.ndarray import NDArray
from mxlite.ndarray.calls.invoke import call_of, invoke
from mxlite.ops import TABLE
from tests.engine.watchdog import in_time


@pytest.fixture(autouse=True, params=["naive", "threaded"])
def engine(request):
    with use_engine(request.param) as engine:
        yield engine


def counting(*shape):
    return nd.array(np.arange(np.prod(shape, dtype=int)).reshape(shape))


def same(a, b):
    np.testing.assert_array_equal(a.asnumpy() if isinstance(a, NDArray) else a, b)


class slow_copy(Op):
    """Copies when the gate is open; fails if the first element is negative."""

    inputs = ("data",)
    gate = threading.Event()

    @staticmethod
    def forward(xp, a, data, *, out):
        assert slow_copy.gate.wait(20)
        if data.reshape(-1)[0] < 0:
            raise ArithmeticError("negative data")
        out[...] = data


class shift(Op):
    """Neighbouring sums: would be wrong in place, and does not say that it may be."""

    inputs = ("data",)

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = 0
        out[1:] += data[:-1]


class add_twice(Op):
    """lhs + 2 * rhs, in two steps: `out` may lie over `lhs` only."""

    inputs = ("lhs", "rhs")
    in_place = {"out": "lhs"}
    same_shape = True

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.add(lhs, rhs, out=out)
        xp.add(out, rhs, out=out)


def call(op, *arrays, out=None, **attrs):
    return invoke(call_of(op, attrs), arrays, out)


@pytest.fixture
def gate():
    slow_copy.gate.clear()
    yield slow_copy.gate
    slow_copy.gate.set()


# -- making --------------------------------------------------------------------------------------------


def test_arrays_are_float32_unless_told_otherwise_and_keep_an_ndarrays_dtype():
    for source in ([1, 2], np.array([1, 2]), np.array([1.0, 2.0]), np.array([True, False])):
        assert nd.array(source).dtype is np.float32
    assert nd.array([1, 2], dtype="int32").dtype is np.int32
    assert nd.array(nd.array([1], dtype="float64")).dtype is np.float64
    assert nd.array(5).shape == ()


def test_array_copies_its_source():
    source = np.ones(3, "float32")
    a = nd.array(source)
    source[:] = 7
    same(a, [1, 1, 1])


def test_numbers_as_text_become_an_array():
    """Programs split lines of a file and hand over the pieces."""
    x = nd.array([["1", "2.5"], ["-3", "4e2"]])
    assert x.dtype == np.float32 and x.asnumpy().tolist() == [[1, 2.5], [-3, 400]]
    assert nd.array(["7"], dtype="int32").asnumpy().tolist() == [7]
    with pytest.raises(TypeError, match=r"holds numbers.*'one'"):
        nd.array(["1", "one"])


def test_creation_functions():
    same(nd.zeros(3), [0, 0, 0])
    same(nd.ones((2, 1), dtype="int64"), [[1], [1]])
    same(nd.full((2,), 3.5), [3.5, 3.5])
    assert nd.empty((2, 3), dtype="float16").shape == (2, 3)
    same(nd.arange(5), [0, 1, 2, 3, 4])
    same(nd.arange(2, 6, repeat=2), [2, 2, 3, 3, 4, 4, 5, 5])
    same(nd.arange(5, 0, -2, dtype="int32"), [5, 3, 1])
    same(nd.eye(2, 3, 1), [[0, 1, 0], [0, 0, 1]])
    same(nd.concatenate([nd.ones((1, 2)), nd.zeros((2, 2))]), [[1, 1], [0, 0], [0, 0]])
    same(nd.concat(nd.ones((1, 2)), nd.zeros((1, 1)), dim=1), [[1, 1, 0]])
    same(nd.stack(nd.ones(2), nd.zeros(2), axis=1), [[1, 0], [1, 0]])


@pytest.mark.parametrize("shape", [(-1,), (2, -1), "ab", None, 2.5])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(ShapeError):
        nd.zeros(shape)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4), ()])
def test_arrays_without_elements_and_without_axes_are_arrays(shape):
    for make in (nd.zeros, nd.ones, nd.empty):
        a = make(shape)
        assert a.shape == shape and a.size == int(np.prod(shape)) and a.asnumpy().shape == shape
    same(nd.full(shape, 2) + 1, np.full(shape, 3))
    assert nd.array(np.zeros(shape)).shape == shape


def test_ranges_may_be_empty_and_joining_nothing_is_refused():
    assert nd.arange(0).shape == nd.arange(3, 1).shape == (0,)
    with pytest.raises(ShapeError):
        nd.concatenate([])


def test_a_device_without_a_backend_and_an_unknown_dtype_are_refused():
    with pytest.raises(DeviceError):
        nd.zeros(2, ctx=gpu(0))
    with pytest.raises(DTypeError, match="float32"):
        nd.zeros(2, dtype="float23")
    with pytest.raises(TypeError):
        nd.array(["a"])
    with pytest.raises(ShapeError):
        nd.array([[1], [1, 2]])


def test_attributes():
    a = nd.zeros((2, 3), ctx=cpu(1))
    assert (a.shape, a.ndim, a.size, a.dtype, a.stype) == ((2, 3), 2, 6, np.float32, "default")
    assert a.context == a.ctx == cpu(1) and len(a) == 2 and [r.shape for r in a] == [(3,), (3,)]
    assert (a + 1).context == cpu(1)
    assert nd.zeros((2, 3)).storage.ctypes.data % 64 == 0 and (a + 1).storage.ctypes.data % 64 == 0
    assert isinstance(hash(a), int) and a.var is not None


# -- looking -------------------------------------------------------------------------------------------


def test_what_looks_waits_and_gives_the_value():
    one = nd.full((1,), 2.5)
    assert float(one) == 2.5 and int(one) == 2 and bool(one) and one.asscalar() == np.float32(2.5)
    assert type(one.asscalar()) is np.float32 and one.item() == 2.5
    assert [10, 20, 30][nd.array([1], dtype="int32")] == 20
    assert repr(counting(2, 2)) == "\n[[0. 1.]\n [2. 3.]]\n<NDArray 2x2 @cpu(0)>"
    assert np.asarray(counting(3)).tolist() == [0, 1, 2] and np.asarray(one, dtype="int8").dtype == np.int8
    assert not nd.zeros(1)


def test_only_one_element_is_a_scalar():
    two = nd.ones(2)
    for look in (bool, float, int, NDArray.asscalar):
        with pytest.raises(ValueError, match=r"\(2,\)"):
            look(two)
    with pytest.raises(TypeError, match="index"):
        [1, 2][nd.ones(1)]
    with pytest.raises(TypeError):
        len(nd.array(5))


def test_asnumpy_is_a_copy():
    a = nd.ones(2)
    a.asnumpy()[:] = 9
    np.asarray(a)[:] = 9
    same(a, [1, 1])
    with pytest.raises(ValueError, match="dlpack"):
        np.asarray(a, copy=False)


# -- laziness ------------------------------------------------------------------------------------------


@in_time()
def test_calls_return_before_the_work_is_done():
    with use_engine("threaded"):
        slow_copy.gate.clear()
        a = call(slow_copy, nd.ones(3))
        b = a * 2
        b[1] = 7
        c = b[1:].sum()
        d = nd.zeros(3)
        d[:] = b
        slow_copy.gate.set()
        same(c, [9])
        same(d, [2, 7, 2])


@in_time()
def test_a_read_pushed_before_a_write_sees_the_old_value():
    with use_engine("threaded"):
        slow_copy.gate.clear()
        a = nd.ones(3)
        old = call(slow_copy, a)
        a += 1
        a[:] = 5
        slow_copy.gate.set()
        same(old, [1, 1, 1])
        same(a, [5, 5, 5])


def test_a_failing_operation_is_raised_at_the_look_with_its_name_and_line(gate):
    gate.set()
    bad = invoke(call_of(slow_copy, {}), (-nd.ones(2),))
    after = bad + 1
    line = inspect.currentframe().f_lineno - 2
    with pytest.raises(OperatorError, match=f"slow_copy.*{__file__}:{line}.*negative data"):
        after.asnumpy()
    with pytest.raises(OperatorError):
        bad.wait_to_read()
    bad[:] = 3  # a whole new value
    same(bad, [3, 3])


def test_writing_a_part_of_a_failed_array_does_not_heal_the_rest(gate):
    gate.set()
    for write in (
        lambda a: a.__setitem__(0, 1),
        lambda a: a[0:1].__setitem__(slice(None), 1),
        lambda a: nd.ones(1).copyto(a[0:1]),
        lambda a: nd.exp(nd.ones(1), out=a[0:1]),
        lambda a: nd.random.uniform(out=a[0:1]),
        lambda a: a.__setitem__([0], 1),
    ):
        bad = call(slow_copy, -nd.ones(2))
        write(bad)
        with pytest.raises(OperatorError):
            bad.asnumpy()
    bad = call(slow_copy, -nd.ones(2))
    bad.reshape((2, 1))[:] = 4
    same(bad, [4, 4])
    with pytest.raises(OperatorError):  # nobody has looked at this failure
        nd.waitall()


def test_shapes_dtypes_and_parameters_are_checked_at_the_call(engine):
    a = nd.ones((2, 3))
    before = engine.stats()["pushed"]
    for error, wrong in (
        (ShapeError, lambda: a + nd.ones((2, 2))),
        (ShapeError, lambda: nd.dot(a, a)),
        (ShapeError, lambda: a.reshape((4, 4))),
        (OpAttributeError, lambda: a.sum(axis="x")),
        (OpAttributeError, lambda: nd.clip(a, 0, 1, a_mix=2)),
        (OpAttributeError, lambda: nd.exp()),
        (OpAttributeError, lambda: nd.exp(a, data=a)),
        (TypeError, lambda: nd.exp(np.ones(2))),
        (UnknownNameError, lambda: call("sine", a)),
        (AttributeError, lambda: nd.sine),
    ):
        with pytest.raises(error):
            wrong()
    nd.waitall()
    assert engine.stats()["pushed"] == before + 1  # the other array of ones
    with pytest.raises(DTypeError, match="int32"):
        a + nd.ones((2, 3), dtype="int32")


# -- arithmetic ----------------------------------------------------------------------------------------

BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
    "pow": lambda a, b: a**b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_is_numpys_with_broadcasting_scalars_and_reflection(name):
    f = BINARY[name]
    x = np.array([[1, 2, 3], [2.5, 0.5, 1]], "float32")
    y = np.array([[2], [1]], "float32")
    a, b = nd.array(x), nd.array(y)
    for got, wanted in ((f(a, b), f(x, y)), (f(a, 2), f(x, 2)), (f(a, 0.5), f(x, 0.5)), (f(2, a), f(2, x))):
        assert got.dtype is np.float32
        np.testing.assert_allclose(got.asnumpy(), wanted.astype("float32"), rtol=1e-6)
    for scalar in (np.float32(2), np.float64(2), np.int64(2), True):
        np.testing.assert_allclose(
            f(a, scalar).asnumpy(), f(x, np.float32(scalar)).astype("float32"), rtol=1e-6
        )
        np.testing.assert_allclose(
            f(scalar, a).asnumpy(), f(np.float32(scalar), x).astype("float32"), rtol=1e-6
        )


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "mod", "pow"])
def test_in_place_forms_write_the_same_memory(name):
    x = np.array([[1, 2, 3], [2.5, 0.5, 1]], "float32")
    y = np.array([2, 1, 3], "float32")
    for other, value in ((3, 3), (nd.array(y), y), (0.5, 0.5)):
        a = nd.array(x)
        view, kept = a[1], a
        a = getattr(operator, f"i{dict(div='truediv').get(name, name)}")(a, other)
        assert a is kept
        wanted = BINARY[name](x, value)
        np.testing.assert_allclose(kept.asnumpy(), wanted, rtol=1e-6)
        np.testing.assert_allclose(view.asnumpy(), wanted[1], rtol=1e-6)


def test_an_array_with_itself_in_place():
    a = counting(4)
    a += a
    same(a, [0, 2, 4, 6])
    a -= a
    same(a, [0, 0, 0, 0])
    b = counting(2, 2)
    b += b[0]  # a view of b, and it broadcasts
    same(b, [[0, 2], [2, 4]])
    c = counting(4)
    c[1:] += c[:3]  # overlapping
    same(c, [0, 1, 3, 5])


def test_an_update_loop_in_the_manner_of_the_manual():
    w, g = nd.ones((2, 2)), nd.full((2, 2), 0.5)
    for eta in (0.1, 0.01):
        w -= eta * g
    np.testing.assert_allclose(w.asnumpy(), np.full((2, 2), 0.945), rtol=1e-6)


def test_zero_and_minus_zero_are_different_scalars():
    a = nd.ones(1)
    assert np.signbit((a * 0.0).asnumpy()) == [False]
    assert np.signbit((a * -0.0).asnumpy()) == [True]
    many = nd.ones(50000)  # for which there may be compiled code
    assert not np.signbit((many * 0.0).asnumpy()).any() and np.signbit((many * -0.0).asnumpy()).all()
    assert np.signbit(nd.clip(a * -2, -0.0, 1).asnumpy()) == [True]
    assert np.isnan((a + float("nan")).asnumpy()).all()


def test_whole_numbers_stay_whole():
    a = nd.array([-3], dtype="int32")
    same(a / 2, [-1])
    same(a + 1.5, [-2])
    assert (a / 2).dtype is np.int32


def test_division_by_zero_is_silent():
    with np.errstate(all="raise"):
        same(nd.ones(1) / 0, [np.inf])
        assert np.isnan((nd.zeros(1) / nd.zeros(1)).asnumpy()).all()
        assert np.isnan(nd.log(-nd.ones(1)).asnumpy()).all()


@pytest.mark.parametrize("other", [None, "x", np.ones(2), [1, 2]])
def test_what_is_no_array_and_no_number_is_a_type_error(other):
    a = nd.ones(2)
    for f in BINARY.values():
        with pytest.raises(TypeError):
            f(a, other)
        if not isinstance(other, str):  # "x" % a is formatting
            with pytest.raises(TypeError):
                f(other, a)
    with pytest.raises(TypeError):
        a += other


def test_whole_numbers_at_equal_distances_are_cut():
    assert nd.linspace(5.5, -4, 9, dtype="int32").asnumpy().tolist() == [5, 4, 3, 1, 0, 0, -1, -2, -4]
    assert nd.linspace(0, 10, 4, endpoint=False, dtype="uint8").asnumpy().tolist() == [0, 2, 5, 7]


def test_numpys_functions_give_numpy_arrays():
    a = nd.array([[1, 2], [3, -4]])
    for made, wanted in (
        (np.exp(a), np.exp(a.asnumpy())),
        (np.isnan(a), np.zeros((2, 2), bool)),
        (np.maximum(a, 2), [[2, 2], [3, 2]]),
        (np.maximum(a.asnumpy(), a), a.asnumpy()),
        (np.add.reduce(a, axis=1), [3, -1]),
        (np.matmul(a, a), a.asnumpy() @ a.asnumpy()),
    ):
        assert type(made) is np.ndarray
        np.testing.assert_array_equal(made, wanted)
    assert np.all(a == a) and not np.any(a > 5)
    assert type(np.add(a, 1)) is type(np.multiply(2, a)) is nd.NDArray
    with pytest.raises(TypeError, match="takes no out"):
        np.add(a, a, out=np.zeros((2, 2)))
    with pytest.raises(TypeError, match="cannot write into an NDArray"):
        np.exp(np.zeros((2, 2)), out=a)


def test_a_numpy_array_is_refused_with_advice():
    with pytest.raises(TypeError, match=r"mx\.nd\.array"):
        np.ones(2) + nd.ones(2)
    x = np.ones(2)
    with pytest.raises(TypeError):
        x += nd.ones(2)


# -- indexing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "shared"),
    [
        (1, 12), (-1, 12), (slice(0, 1), 12), ((1, 2), 4), ((1, slice(0, 2)), 8), ((1, 2, 3), 1), (..., 24),
        (slice(None), 24), (None, 24), ((None, 1), 12), ((), 24), (np.int64(0), 12),
        ((slice(None), 1), 0), (slice(None, None, -1), 0), ((0, ..., 1), 0), ((..., slice(0, 2)), 0),
    ],
)  # fmt: skip
def test_basic_indexing_is_numpys_and_shares_what_is_adjacent(key, shared):
    a, x = counting(2, 3, 4), np.arange(24.0).reshape(2, 3, 4)
    part = a[key]
    wanted = np.atleast_1d(x[key])
    assert part.shape == wanted.shape
    same(part, wanted)
    part[:] = -1
    assert (a.asnumpy() == -1).sum() == shared
    assert (part.var is a.var) == (shared > 0)


def test_reshape_and_detach_share_and_copies_do_not():
    a = counting(2, 6)
    for view in (a.reshape((3, 4)), a.reshape(-1), a.reshape(shape=(0, 2, 3)), a.detach(), a[1:2].reshape(6)):
        assert view.var is a.var and np.shares_memory(view.storage, a.storage)
    for other in (
        a.copy(),
        a.T,
        a.astype("float32"),
        a.expand_dims(0),
        a[:, 0],
        copy.copy(a),
        copy.deepcopy(a),
    ):
        assert other.var is not a.var and not np.shares_memory(other.storage, a.storage)
    assert a.astype("float32", copy=False) is a and a.as_in_context(cpu(0)) is a


@pytest.mark.parametrize(
    ("codes", "shape"),
    [
        ((-1,), (24,)), ((0, -1), (2, 12)), ((-3, 0), (6, 4)), ((-2,), (2, 3, 4)),
        ((-4, 1, 2, -2), (1, 2, 3, 4)), ((-4, -1, 2, -3), (1, 2, 12)), ((4, 6), (4, 6)),
    ],
)  # fmt: skip
def test_reshape_codes(codes, shape):
    assert counting(2, 3, 4).reshape(codes).shape == shape
    assert counting(2, 3, 4).reshape(*codes).shape == shape
    assert counting(2, 3, 4).reshape((-1, 0), reverse=True).shape == (6, 4)
    assert counting(2, 3, 4).reshape_like(nd.zeros((4, 6))).shape == (4, 6)


def axis_keys(length):
    ends = st.none() | st.integers(-length - 1, length + 1)
    steps = st.none() | st.sampled_from([1, 2, -1, -2])
    index = st.integers(-length, length - 1)
    return st.one_of(
        index,
        st.builds(slice, ends, ends, steps),
        st.just(None),
        st.just(...),
        st.lists(index, min_size=1, max_size=3),
        st.lists(index, min_size=2, max_size=2).map(np.array),
        st.lists(index, min_size=2, max_size=2).map(lambda v: np.array(v)[:, None]),
        st.lists(index, min_size=2, max_size=2).map(lambda v: nd.array(v)),
    )


def numpy_key(key):
    return tuple(k.asnumpy().astype(int) if isinstance(k, NDArray) else k for k in key)


@settings(max_examples=300, deadline=None)
@given(st.lists(axis_keys(3), min_size=1, max_size=4))
def test_any_mix_of_indices_reads_and_writes_as_in_numpy(key):
    key = tuple(key)
    x = np.arange(27, dtype="float32").reshape(3, 3, 3)
    a = nd.array(x)
    try:
        wanted = x[numpy_key(key)]
    except IndexError:
        with pytest.raises(IndexError):
            a[key]
        with pytest.raises(IndexError):
            a[key] = 1
        return
    got = a[key]
    assert got.shape == (wanted.shape or (1,))
    same(got, wanted.reshape(got.shape))
    value = np.arange(wanted.size, dtype="float32").reshape(wanted.shape) - 100
    expected = x.copy()
    expected[numpy_key(key)] = value
    a[key] = value
    same(a, expected)
    b = nd.array(x)
    b[key] = nd.array(value)
    same(b, expected)
    b[key] = 5
    expected[numpy_key(key)] = 5
    same(b, expected)


@pytest.mark.parametrize("key", [3, -4, (0, 3), [3], np.array([-4]), 1.5, "a", (0, 0, 0), (..., ...), {}])
def test_wrong_indices_are_errors_at_the_call(key):
    a = nd.zeros((3, 3))
    with pytest.raises(IndexError):
        a[key]
    with pytest.raises(IndexError):
        a[key] = 1


def test_an_ndarray_of_indices_is_read_when_its_turn_comes():
    a = counting(5)
    index = nd.array([0, 1])
    index += 2
    same(a[index], [2, 3])
    bad = a[index + 7]
    with pytest.raises(OperatorError, match="out of bounds"):
        bad.asnumpy()
    same(a, np.arange(5))


def test_comparisons_are_indices_and_masks_are_refused():
    a = counting(3)
    same(a[a > 1], [0, 0, 1])
    for mask in ([True, False, True], np.array([True, False, True]), True):
        with pytest.raises(IndexError, match="mask"):
            a[mask]


def test_assignment_broadcasts_converts_and_copies_its_source():
    a = nd.zeros((2, 3))
    source = np.array([1.0, 2, 3])
    a[:] = source
    source[:] = 9
    same(a, [[1, 2, 3], [1, 2, 3]])
    a[0] = nd.array([[7, 8, 9]], dtype="int32")
    same(a, [[7, 8, 9], [1, 2, 3]])
    a[:, 1] = a[:, 0] * 10
    same(a, [[7, 70, 9], [1, 10, 3]])
    a[0:2][1][0:1] = -1
    same(a, [[7, 70, 9], [-1, 10, 3]])
    for value in (np.ones(7), nd.ones((2, 2)), [1, 2]):
        with pytest.raises(ShapeError, match=r"\(2, 3\)"):
            a[:] = value
    for value in (None, "x"):
        with pytest.raises(TypeError):
            a[:] = value


# -- copies and conversions ----------------------------------------------------------------------------


def test_copyto_converts_the_dtype_and_wants_the_shape():
    a, b = counting(2, 2), nd.zeros((2, 2), dtype="int8")
    assert a.copyto(b) is b
    same(b, [[0, 1], [2, 3]])
    assert a.copyto(a) is a
    c = a.copyto(cpu(1))
    assert c.context == cpu(1) and c is not a
    with pytest.raises(ShapeError):
        a.copyto(nd.zeros(4))
    with pytest.raises(TypeError):
        a.copyto(np.zeros((2, 2)))
    with pytest.raises(DeviceError):
        a.as_in_context(gpu(0))


def test_copies_run_on_the_workers_for_copies(monkeypatch):
    kinds = []
    engine = get_engine()
    push = engine.push
    monkeypatch.setattr(
        engine, "push", lambda *a, **k: (kinds.append((k["name"], k.get("kind"))), push(*a, **k))[1]
    )
    a = nd.zeros(3)
    a.copyto(nd.zeros(3))
    assert ("copyto", "copy") in kinds and ("full", "compute") in kinds


@in_time()
def test_save_waits_for_pending_writes(tmp_path):
    with use_engine("threaded"):
        slow_copy.gate.clear()
        a = nd.zeros(3)
        call(slow_copy, nd.ones(3), out=a)
        threading.Timer(0.1, slow_copy.gate.set).start()
        nd.save(tmp_path / "a", a)
        same(nd.load(tmp_path / "a")[0], [1, 1, 1])


def test_pickle_keeps_values_dtype_and_device():
    for dtype in ("float32", "int64", "bfloat16"):
        a = nd.array([[1, 2], [3, 4]], ctx=cpu(1), dtype=dtype)
        b = pickle.loads(pickle.dumps(a[1]))
        assert b.dtype is a.dtype and b.context == cpu(1)
        same(b, a[1].asnumpy())


def test_memory_is_given_back():
    a = nd.ones((10, 10))
    b = a + 1
    c = b[2]
    del b
    nd.waitall()
    memory = weakref.ref(c.storage.base)
    same(c, [2] * 10)
    del c
    gc.collect()
    assert memory() is None


# -- DLPack --------------------------------------------------------------------------------------------


def test_numpy_shares_memory_both_ways():
    a = nd.zeros(3)
    x = np.from_dlpack(a)
    a += 1
    a.wait_to_read()
    assert x.tolist() == [1, 1, 1]
    source = np.zeros((2, 2), "int32")
    b = nd.from_dlpack(source)
    b[0] = 7
    b.wait_to_read()
    assert source.tolist() == [[7, 7], [0, 0]] and b.dtype is np.int32
    same(nd.from_dlpack(nd.to_dlpack_for_write(a)), [1, 1, 1])
    same(nd.from_dlpack(np.arange(6.0).reshape(2, 3).T), np.arange(6.0).reshape(2, 3).T)
    with pytest.raises(DTypeError):
        nd.from_dlpack(np.zeros(2, "complex64"))


@in_time()
def test_an_export_waits_for_readers_and_writers():
    with use_engine("threaded"):
        slow_copy.gate.clear()
        a = nd.ones(3)
        read = call(slow_copy, a)
        threading.Timer(0.1, slow_copy.gate.set).start()
        x = np.from_dlpack(a)
        x[:] = 9
        same(read, [1, 1, 1])


@pytest.mark.torch
def test_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    a = nd.zeros((2, 2))
    t = torch.from_dlpack(a)
    t += 3
    same(a, [[3, 3], [3, 3]])
    u = torch.ones(3)
    b = nd.from_dlpack(u)
    b *= 5
    b.wait_to_read()
    assert u.tolist() == [5, 5, 5]
    assert torch.utils.dlpack.from_dlpack(nd.to_dlpack_for_read(a)).tolist() == [[3, 3], [3, 3]]


def test_from_numpy_shares_or_copies():
    x = np.zeros(2, "float32")
    shared, copied = nd.from_numpy(x), nd.from_numpy(x, zero_copy=False)
    shared[0] = 4
    shared.wait_to_read()
    assert x.tolist() == [4, 0]
    same(copied, [0, 0])
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 5  # somebody may be reading it
    again = nd.from_numpy(x)
    again[1] = 3
    again.wait_to_read()  # the engine knows nothing of the memory that both share
    same(shared, [4, 3])
    frozen = np.zeros(2)
    frozen.flags.writeable = False  # not by us
    with pytest.raises(ShapeError, match="writable"):
        nd.from_numpy(frozen)
    with pytest.raises(ShapeError, match="zero_copy=False"):
        nd.from_numpy(np.zeros((2, 3), "float32").T)


# -- functions of operators ----------------------------------------------------------------------------


def test_every_operator_is_a_function_with_signature_and_help():
    for name, op in TABLE.items():
        if name in vars(nd) and not hasattr(vars(nd)[name], "__signature__"):
            continue  # `random` is a module
        function = getattr(nd, name)
        assert function.__name__ == name and function.__doc__ and "out:" in function.__doc__
        assert list(op.inputs) == list(inspect.signature(function).parameters)[: len(op.inputs)]
    assert nd._internal._plus_scalar is nd._plus_scalar and "exp" in dir(nd) and nd.op.exp is nd.exp


def test_arguments_by_position_and_by_name():
    a = counting(2, 3)
    for clipped in (
        nd.clip(a, 1, 2), nd.clip(a, a_min=1, a_max=2), nd.clip(data=a, a_min="1", a_max=2.0), a.clip(1, 2),
    ):  # fmt: skip
        same(clipped, [[1, 1, 2], [2, 2, 2]])
    same(nd.Concat(a, a, dim=0), nd.concatenate([a, a]).asnumpy())
    same(nd.Concat([a, a], dim=0, num_args=2), nd.Concat(arg0=a, arg1=a, dim=0).asnumpy())
    with pytest.raises(OpAttributeError, match="num_args"):
        nd.Concat(a, a, num_args=3)
    with pytest.raises(OpAttributeError, match="a_min"):
        nd.clip(a, a_mni=1, a_max=2)
    with pytest.raises(OpAttributeError, match="at most"):
        nd.exp(a, 1, 2)


def test_optional_inputs_may_be_left_out():
    x, w, b = counting(2, 3), nd.ones((4, 3)), nd.ones(4)
    same(nd.FullyConnected(x, w, b, num_hidden=4), [[4] * 4, [13] * 4])
    same(nd.FullyConnected(x, w, num_hidden=4, no_bias=True), [[3] * 4, [12] * 4])
    same(nd.FullyConnected(x, w, None, 4, True), [[3] * 4, [12] * 4])
    with pytest.raises(OpAttributeError, match="bias"):
        nd.FullyConnected(x, w, num_hidden=4)
    with pytest.raises(ShapeError, match="weight"):
        nd.FullyConnected(x, nd.ones((4, 2)), b, num_hidden=4)


def test_several_outputs_are_a_list():
    a, b = nd.SliceChannel(counting(2, 4), num_outputs=2, axis=1)
    same(a, [[0, 1], [4, 5]])
    same(b, [[2, 3], [6, 7]])
    out = [nd.zeros((2, 2)), nd.zeros((2, 2))]
    assert nd.SliceChannel(counting(2, 4), num_outputs=2, axis=1, out=out)[0] is out[0]
    same(out[1], [[2, 3], [6, 7]])
    with pytest.raises(ShapeError, match="same memory"):
        nd.SliceChannel(counting(2, 4), num_outputs=2, axis=1, out=[out[0], out[0]])
    with pytest.raises(ShapeError, match="2 outputs"):
        nd.SliceChannel(counting(2, 4), num_outputs=2, axis=1, out=out[:1])


def test_out_must_fit_and_may_be_an_input():
    a, out = counting(3), nd.zeros(3)
    assert nd.exp(a, out=out) is out
    np.testing.assert_allclose(out.asnumpy(), np.exp([0, 1, 2]), rtol=1e-6)
    with pytest.raises(ShapeError, match="out"):
        nd.exp(a, out=nd.zeros(4))
    with pytest.raises(DTypeError, match="out"):
        nd.exp(a, out=nd.zeros(3, dtype="float64"))
    nd.square(a, out=a)
    same(a, [0, 1, 4])


def test_an_operator_that_is_not_in_place_gets_a_temporary():
    a = counting(4)
    call(shift, a, out=a)
    same(a, [0, 0, 1, 2])
    b = nd.ones((2, 2))
    nd.dot(b, b, out=b)
    same(b, [[2, 2], [2, 2]])
    c = counting(2, 2)
    nd.transpose(c, out=c)
    same(c, [[0, 2], [1, 3]])
    d = counting(6)
    nd.exp(d[0:4] * 0, out=d[0:4])
    nd.square(d[0:4], out=d[2:6])  # overlaps
    same(d, [1, 1, 1, 1, 1, 1])


def test_in_place_for_one_input_does_not_mean_for_another():
    a = counting(3)
    call(add_twice, a, nd.ones(3), out=a)
    same(a, [2, 3, 4])
    call(add_twice, a, a, out=a)
    same(a, [6, 9, 12])
    call(add_twice, nd.ones(3), a, out=a)
    same(a, [13, 19, 25])
    call(add_twice, a[:2], a[1:], out=a[:2])
    same(a, [51, 69, 25])


def test_mutated_inputs_are_written():
    w, g, m = nd.ones(3), nd.ones(3), nd.zeros(3)
    for _ in range(2):
        nd.sgd_mom_update(w, g, m, out=w, lr=0.5, momentum=0.5)
    np.testing.assert_allclose(m.asnumpy(), [-0.75] * 3)
    np.testing.assert_allclose(w.asnumpy(), [-0.25] * 3)


@in_time()
def test_a_mutated_input_is_ordered_like_an_output():
    with use_engine("threaded"):
        slow_copy.gate.clear()
        w, g, m = nd.ones(3), nd.ones(3), nd.zeros(3)
        nd.sgd_mom_update(w, call(slow_copy, g), m, out=w, lr=0.5, momentum=0.5)
        later = m + 0
        time.sleep(0.05)  # time enough to go wrong
        slow_copy.gate.set()
        same(later, [-0.5] * 3)


def test_operators_run_as_for_inference():
    a = counting(2, 3)
    same(nd.Dropout(a, p=0.5), a.asnumpy())
    x = nd.array(np.arange(8.0).reshape(2, 4, 1, 1))
    one, zero, mean, var = nd.ones(4), nd.zeros(4), nd.ones(4), nd.full((4,), 4)
    y = nd.BatchNorm(x, one, zero, mean, var, fix_gamma=False, eps=1e-12)
    assert isinstance(y, NDArray)
    np.testing.assert_allclose(y.asnumpy(), (x.asnumpy() - 1) / 2, rtol=1e-5)
    same(mean, [1] * 4)


def test_operators_take_arrays_without_elements():
    empty = nd.zeros(3)[1:1]
    assert empty.shape == (0,) and not empty
    assert (empty + 1).shape == (0,) and (empty * empty).exp().shape == (0,)
    rows = nd.zeros((0, 3))
    assert (
        rows.T.shape == (3, 0) and rows.flatten().shape == (0, 3) and rows.expand_dims(1).shape == (0, 1, 3)
    )
    same(rows.sum(), [0])
    same(rows.sum(axis=0), [0, 0, 0])
    assert rows.sum(axis=1).shape == (0,)
    same(nd.concat(rows, nd.ones((1, 3)), dim=0), [[1, 1, 1]])
    copy = rows.copyto(nd.ones((0, 3)))
    assert copy.shape == (0, 3) and rows.astype("int32").dtype == np.int32


def test_operators_take_arrays_without_axes():
    scalar = nd.full((), 2)
    assert scalar.shape == () and scalar.size == 1 and scalar.asscalar() == 2
    same(scalar + 1, 3)
    same((scalar * scalar).sqrt(), 2)
    assert scalar.expand_dims(0).shape == (1,) and scalar.T.shape == ()
    same(scalar.broadcast_to((2, 2)), [[2, 2], [2, 2]])
    same(nd.broadcast_add(scalar, nd.ones((2, 1))), [[3], [3]])


METHODS = {
    "sum": lambda a: a.sum(axis=1),
    "mean": lambda a: a.mean(axis=0, keepdims=True),
    "max": lambda a: a.max(axis=1),
    "min": lambda a: a.min(axis=1),
    "argmax": lambda a: a.argmax(axis=1),
    "abs": abs,
    "neg": lambda a: -a,
    "T": lambda a: a.T,
    "transpose": lambda a: a.transpose((1, 0)),
    "dot": lambda a: a.dot(a.T),
    "clip": lambda a: a.clip(-1, 1),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_numpys(name):
    x = np.array([[1, -2, 3], [0.5, 4, -6]], "float32")
    np.testing.assert_allclose(METHODS[name](nd.array(x)).asnumpy(), METHODS[name](x), rtol=1e-5)


def test_other_methods():
    a = nd.array([[3, 4]])
    assert float(a.norm()) == 5 and a.sum().shape == (1,) and float(a.mean()) == 3.5
    same(a.square().sqrt(), [[3, 4]])
    same(nd.ones(1).log(), [0])
    same(a.slice(begin=(0, 1), end=(1, 2)), [[4]])
    same(a.slice_axis(axis=1, begin=0, end=None), [[3, 4]])
    same(a.broadcast_to((2, 2)), [[3, 4], [3, 4]])
    assert a.expand_dims(1).shape == (1, 1, 2) and a.reshape((1, 2, 1)).flatten().shape == (1, 2)
    np.testing.assert_allclose(a.softmax().sum().asnumpy(), [1], rtol=1e-6)
    assert a.argmax().shape == (1,)


# -- the front end's memory ----------------------------------------------------------------------------


def test_parameters_that_look_equal_are_not_confused():
    a = counting(1, 2, 3)
    for keepdims in (True, False, 1, 0, "True", "False"):
        shape = a.sum(axis=1, keepdims=keepdims).shape
        assert shape == ((1, 1, 3) if keepdims in (True, 1, "True") else (1, 3))
    assert a.sum(axis=[0, 1]).shape == a.sum(axis=(0, 1)).shape == (3,)


def test_many_different_scalars_do_not_pile_up():
    from mxlite.ndarray.calls import plan as module

    a = nd.zeros(1)
    for i in range(4096 + 256):
        a += i * 1e-3
    assert len(module._calls) <= 4096


def test_many_threads_may_call_at_once():
    a = nd.zeros(8)

    def add():
        for _ in range(200):
            nd.broadcast_add(a, nd.ones(8), out=a)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(a, [800] * 8)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "iadd", "imul", "view", "set", "copyto", "out", "sum", "index"]),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=25,
)


def run(program):
    arrays = [nd.array(np.arange(4.0) + i) for i in range(4)]
    for what, i, j, k in program:
        a, b = arrays[i], arrays[j]
        match what:
            case "add":
                arrays[k] = a + b
            case "iadd":
                a += b
            case "imul":
                a *= 0.5
            case "view":
                a[k : k + 2] += 1
            case "set":
                a[k] = b[k]
            case "copyto":
                a.copyto(b)
            case "out":
                nd.broadcast_sub(a, b, out=arrays[k])
            case "sum":
                arrays[k] = a.sum().broadcast_to((4,))
            case "index":
                arrays[k] = a[nd.clip(b, 0, 3)]
    return [x.asnumpy() for x in arrays]


@settings(max_examples=150, deadline=None)
@given(OPERATIONS)
def test_random_programs_give_the_same_on_both_engines(program):
    with use_engine("naive"):
        wanted = run(program)
    with use_engine("threaded"):
        for x, y in zip(wanted, run(program)):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    "name, plain",
    [
        ("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply), ("divide", np.divide),
        ("true_divide", np.divide), ("modulo", np.mod), ("power", np.power), ("maximum", np.maximum),
        ("minimum", np.minimum), ("equal", np.equal), ("not_equal", np.not_equal), ("greater", np.greater),
        ("greater_equal", np.greater_equal), ("lesser", np.less), ("lesser_equal", np.less_equal),
    ],
)  # fmt: skip
def test_functions_of_two_take_arrays_and_numbers_in_any_mixture(name, plain):
    function = getattr(nd, name)
    x, y = np.array([[1, 2, 3], [4, 5, 6]], "float32"), np.array([2, 3, 1], "float32")
    for left, right in ((x, y), (y, x), (x, 2), (2, x), (2.5, y), (y, np.float32(3))):
        given = [nd.array(v) if isinstance(v, np.ndarray) else v for v in (left, right)]
        got = function(*given)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got.asnumpy(), plain(left, right), rtol=1e-6)
    for left, right in ((3, 2), (2, 3), (2, 2)):
        number = function(left, right)
        assert not isinstance(number, nd.NDArray)
        assert number == plain(left, right)


def test_functions_of_two_refuse_what_is_neither_array_nor_number():
    with pytest.raises(TypeError, match="numpy array"):
        nd.maximum(nd.ones(2), np.ones(2))
    with pytest.raises(TypeError, match="str"):
        nd.add("1", nd.ones(2))
    with pytest.raises(TypeError, match="str"):
        nd.equal(1, "1")


@pytest.mark.parametrize(
    "name, plain",
    [
        ("sign", np.sign), ("rint", lambda x: np.ceil(x - 0.5)), ("floor", np.floor), ("ceil", np.ceil),
        ("round", lambda x: np.copysign(np.floor(abs(x) + 0.5), x)), ("relu", lambda x: np.maximum(x, 0)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("tanh", np.tanh), ("sin", np.sin), ("cos", np.cos),
        ("reciprocal", lambda x: 1 / x), ("log1p", np.log1p), ("expm1", np.expm1), ("squeeze", np.squeeze),
        ("rsqrt", lambda x: 1 / np.sqrt(x)), ("zeros_like", np.zeros_like), ("ones_like", np.ones_like),
    ],
)  # fmt: skip
def test_operators_of_one_array_are_methods(name, plain):
    x = np.array([[[0.5], [1.5], [2.25]], [[-0.5], [-2.5], [-0.25]]], "float32")
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(getattr(nd.array(x), name)().asnumpy(), plain(x), rtol=1e-6)


def test_operators_with_parameters_are_methods_too():
    x = np.arange(1, 7, dtype="float32").reshape(2, 3)
    a, row = nd.array(x), nd.array([0, 2])
    for got, want in [
        (a.prod(), [720]),
        (a.prod(axis=0, keepdims=True), x.prod(0, keepdims=True)),
        ((-a).argmin(axis=1), [2, 2]),
        (a.swapaxes(0, 1), x.T),
        (a.transpose(axes=(1, 0)), x.T),
        (a.flip(axis=1), x[:, ::-1]),
        (a.tile((2, 1)), np.tile(x, (2, 1))),
        (a.repeat(2, axis=0), x.repeat(2, 0)),
        (a.repeat(2), x.repeat(2)),
        (a.take(nd.array([1, 9])), x[[1, 1]]),
        (a.take(row, axis=1), x[:, [0, 2]]),
        (a.pick(row), [1, 6]),
        (a.pick(nd.array([1, 0, 1]), axis=0, keepdims=True), [[4, 2, 6]]),
        (row.one_hot(3, on_value=2, off_value=-1), [[2, -1, -1], [-1, -1, 2]]),
        (a.split(3, squeeze_axis=True)[1], x[:, 1]),
        (nd.array(x[0]).broadcast_to((2, 3)), [x[0], x[0]]),
        (nd.array(x[:, :1]).broadcast_like(a), [[1, 1, 1], [4, 4, 4]]),
    ]:
        np.testing.assert_array_equal(got.asnumpy(), want)
    with pytest.raises(TypeError, match="'axis'"):
        a.transpose(axis=(1, 0))
    with pytest.raises(TypeError, match="'axes'"):
        a.transpose(1, 0, axes=(1, 0))
    with pytest.raises(ShapeError):
        a.broadcast_to((3,))


# -- as MXNet's own programs call it -------------------------------------------------------------


def test_methods_share_memory_if_asked_to():
    a = mx.nd.zeros((2, 1, 3))
    for view in (a.squeeze(inplace=True), a.expand_dims(-1, inplace=True), a.flatten(inplace=True)):
        view += 1
    assert view.shape == (2, 3)
    assert a.asnumpy().ravel().tolist() == [3] * 6
    assert a.squeeze(axis=1, inplace=True).shape == (2, 3)
    assert a.expand_dims(1, inplace=True).shape == (2, 1, 1, 3)
    copy = a.squeeze()
    copy += 1
    assert a.asnumpy().max() == 3
    x = mx.nd.ones((2, 1))
    x.attach_grad()
    with mx.autograd.record():
        y = (x.squeeze(inplace=True) * mx.nd.array([2, 3])).expand_dims(0, inplace=True)
    y.backward()
    assert x.grad.asnumpy().ravel().tolist() == [2, 3]


def test_methods_take_what_the_functions_take():
    a = mx.nd.array([[1, 2], [3, 4]])
    assert (a.softmax(temperature=2).asnumpy() == mx.nd.softmax(a, temperature=2).asnumpy()).all()
    assert a.norm(out_dtype="float64").dtype == np.float64
    like = mx.nd.ones((1, 5))
    assert mx.nd.ones((1, 9)).broadcast_like(rhs=like, lhs_axes=(0,), rhs_axes=(0,)).shape == (1, 9)
    assert mx.nd.ones((4, 1)).broadcast_like(like, lhs_axes=(1,), rhs_axes=(1,)).shape == (4, 5)
    with pytest.raises(mx.ShapeError, match="name no axis"):
        mx.nd.ones((1, 5)).broadcast_like(like, lhs_axes=(), rhs_axes=())
    assert mx.nd.hypot(3, a).asnumpy()[1, 1] == mx.nd.hypot(a, mx.nd.array([3]))[1, 1] == 5
    assert a.reshape_like(rhs=mx.nd.ones((4,))).shape == (4,)


def test_arrays_are_of_the_default_storage_type():
    assert mx.nd.zeros((2,), stype="default").stype == mx.nd.empty((2,), stype=None).stype == "default"
    assert mx.nd.ones((2,)).tostype("default").asnumpy().tolist() == [1, 1]
    for act in (lambda: mx.nd.zeros((2,), stype="cs"), lambda: mx.nd.ones((2,)).tostype("rows")):
        with pytest.raises(mx.OpAttributeError, match="stype must be 'default', 'csr' or 'row_sparse'"):
            act()


@pytest.mark.parametrize(
    "name, dtype",
    [("half", "float16"), ("single", "float32"), ("double", "float64"), ("int", "int64")],
)
def test_types_have_numpy_s_other_names(name, dtype):
    assert mx.nd.zeros((2,), dtype=name).dtype == np.dtype(dtype)


def test_distributions_that_cannot_be_are_refused():
    with pytest.raises(mx.OpAttributeError, match="scale must be at least 0, got -1"):
        mx.nd.random.normal(0, -1, shape=(2,))
    with pytest.raises(mx.OpAttributeError, match="low must be at most high"):
        mx.nd.random.uniform(1, 0, shape=(2,))
    assert mx.nd.random.uniform(1, 1, shape=(2,)).asnumpy().tolist() == [1, 1]


def test_a_histogram_counts_as_in_mxnet():
    """Numbers and types of MXNet 1.9.1."""
    a = mx.nd.array([0, 1, 2.0, 3, 3.1, -1, float("nan")])
    counts, edges = mx.nd.histogram(a, bins=3, range=(0, 3))
    assert counts.asnumpy().tolist() == [1, 1, 2] and edges.asnumpy().tolist() == [0, 1, 2, 3]
    assert counts.dtype == np.int64 and edges.dtype == np.float32
    counts, edges = mx.nd.histogram(a, bins=mx.nd.array([0, 1, 3]))
    assert counts.asnumpy().tolist() == [1, 3] and edges.asnumpy().tolist() == [0, 1, 3]
    counts, edges = mx.nd.histogram(a[:6], bins=3)
    assert counts.asnumpy().tolist() == [2, 1, 3] and counts.dtype == np.float32
    np.testing.assert_allclose(edges.asnumpy(), [-1, 0.36666664, 1.7333332, 3.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("bins", "ends", "text"),
    [
        (0, (0, 1), "bins must be at least 1, got 0"),
        (3, 1, r"range must be \(lowest, highest\), got 1"),
        (3, (0, 1, 2), r"range must be \(lowest, highest\), got \(0, 1, 2\)"),
        ([0, 1], None, r"bins must be a whole number, got \[0, 1\]"),
        (mx.nd.array([1.0, 0.0]), None, "2 rising edges or more"),
    ],
)
def test_a_histogram_refuses_what_makes_no_bins(bins, ends, text):
    with pytest.raises((ValueError, TypeError), match=text):
        mx.nd.histogram(mx.nd.array([0.5]), bins, ends)


def test_assignment_in_another_order_is_not_recorded_as_a_copy():
    target, value = nd.zeros(3), nd.array([1, 2, 3])
    value.attach_grad()
    with mx.autograd.record():
        made = value * 2
        with pytest.raises(mx.StateError, match="Inplace operations"):
            target[::-1] = made
        target[::-1] = made.detach()
        same(target, [6, 4, 2])
        target[:] = made
        (target * nd.array([10, 20, 30])).sum().backward()
    same(target, [2, 4, 6])
    same(value.grad, [20, 40, 60])
    matrix = nd.zeros((2, 2))
    matrix[::-1] = nd.array([[1, 0], [0, 2]]).tostype("csr")
    same(matrix, [[0, 2], [1, 0]])
