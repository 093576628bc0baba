"""Winograd's convolutions against the sum they stand for, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mxlite.backends.cpu import winograd
from mxlite.backends.cpu.compiled import storable, usable, width
from mxlite.backends.cpu.runtime.threads import set_num_threads
from mxlite.core.dtype import as_dtype
from mxlite.ops.nn.conv_kernels import Geometry
from mxlite.ops.norm.norm_arrays import PrologueArrays


def geometry(n, h, w, c, f, pad, dtype):
    """A convolution of 3x3 with stride 1."""
    size, one = (h, w), (1, 1)
    out = tuple(s + 2 * p - 2 for s, p in zip(size, pad))
    return Geometry(n, c, size, f, out, (3, 3), one, one, pad, 1, np.dtype(dtype))


pytestmark = pytest.mark.skipif(
    not usable() or not winograd.fits(geometry(1, 3, 3, 16, 16, (1, 1), np.float32)),
    reason="llvmlite is not installed, or this CPU has no vectors of 8 numbers",
)

GUARD = 64  # bytes before and after each array, which must stay as they are
ROUNDING = {"bfloat16": 5e-3, "float16": 6e-4}  # half of the last bit, and a little


class Guarded:
    """An array in C order at a multiple of 64 bytes, with a pattern on both sides."""

    def __init__(self, shape, dtype=np.float32, fill=None):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.block = np.full(nbytes + 2 * GUARD + 64, 0xA5, np.uint8)
        start = GUARD + -(self.block.ctypes.data + GUARD) % 64
        self.inside = slice(start, start + nbytes)
        self.array = self.block[self.inside].view(dtype).reshape(shape)
        self.array[...] = np.nan if fill is None else fill

    def check(self):
        outside = np.delete(self.block, self.inside)
        assert (outside == 0xA5).all(), "written outside the array"


def scratch(nbytes):
    made = Guarded((nbytes // 4 + 1,))
    return made, made.array.view(np.uint8)[:nbytes]


def direct(data, weight, pad):
    """The sum itself, float64."""
    d = np.pad(data.astype(np.float64), ((0, 0), (pad[0],) * 2, (pad[1],) * 2, (0, 0)))
    oh, ow = d.shape[1] - 2, d.shape[2] - 2
    w = weight.astype(np.float64)
    return sum(d[:, y : y + oh, x : x + ow] @ w[:, :, y, x].T for y in range(3) for x in range(3))


def close(found, wanted, tolerance):
    assert np.abs(found.astype(np.float64) - wanted).max() <= tolerance * max(1.0, np.abs(wanted).max())


SHAPES = st.tuples(
    st.integers(1, 3),  # images
    st.integers(1, 15),
    st.integers(1, 15),
    st.integers(1, 5),  # channels in, in vectors
    st.integers(1, 5),
    st.sampled_from([(0, 0), (1, 1), (0, 1), (1, 0)]),
    st.integers(1, 30),  # tiles at a time
    st.sampled_from([None, 1, 2]),  # channels of a part, in vectors
)


def cut(c, f, part, most):
    """Keywords that say how the work is cut: as the kernel likes, or in these parts."""
    if part is None:
        return {}
    parts = tuple((k // width() % part == 0 and part * width()) or width() for k in (c, f))
    return {"parts": parts, "group": 2 * most + 1, "most": most}


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.booleans(), st.integers(0, 2**31))
def test_forward_is_the_sum(shape, has_bias, seed):
    n, h, w, c, f, pad, most, part = shape
    h, w, c, f = max(h, 3 - 2 * pad[0]), max(w, 3 - 2 * pad[1]), c * width(), f * width()
    rng = np.random.default_rng(seed)
    data = Guarded((n, h, w, c), fill=rng.standard_normal((n, h, w, c)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    bias = Guarded((f,), fill=rng.standard_normal(f))
    kernel = winograd.forward(geometry(n, h, w, c, f, pad, np.float32), **cut(c, f, part, most))
    out = Guarded((n, kernel.oh, kernel.ow, f))
    guard, work = scratch(kernel.workspace)
    run = kernel.connect(data.array, weight.array, bias.array if has_bias else None, out.array, work)
    run()
    close(out.array, direct(data.array, weight.array, pad) + has_bias * bias.array, 1e-5)
    first = out.array.copy()
    run()
    assert (out.array == first).all()
    for a in (data, weight, bias, out, guard):
        a.check()


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(0, 2**31))
def test_gradient_in_data_is_the_sum(shape, seed):
    n, h, w, c, f, pad, most, part = shape
    h, w, c, f = max(h, 3 - 2 * pad[0]), max(w, 3 - 2 * pad[1]), c * width(), f * width()
    rng = np.random.default_rng(seed)
    kernel = winograd.d_data(geometry(n, h, w, c, f, pad, np.float32), **cut(f, c, part, most))
    d_out = Guarded((n, kernel.h, kernel.w, f), fill=rng.standard_normal((n, kernel.h, kernel.w, f)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    d_data = Guarded((n, h, w, c))
    guard, work = scratch(kernel.workspace)
    kernel.connect(d_out.array, weight.array, None, d_data.array, work)()
    turned = weight.array.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    close(d_data.array, direct(d_out.array, turned, (2 - pad[0], 2 - pad[1])), 1e-5)
    for a in (d_out, weight, d_data, guard):
        a.check()


def direct_weight(d_out, data, pad):
    """The gradient of the weights, float64."""
    d = np.pad(data.astype(np.float64), ((0, 0), (pad[0],) * 2, (pad[1],) * 2, (0, 0)))
    y = d_out.astype(np.float64)
    oh, ow = y.shape[1:3]
    taps = [
        [np.tensordot(y, d[:, r : r + oh, c : c + ow], axes=([0, 1, 2], [0, 1, 2])) for c in range(3)]
        for r in range(3)
    ]
    return np.moveaxis(np.array(taps), (0, 1), (2, 3))


@settings(max_examples=40, deadline=None)
@given(SHAPES, st.integers(1, 3), st.integers(0, 2**31))
def test_gradient_in_weight_is_the_sum(shape, splits, seed):
    n, h, w, c, f, pad, most, part = shape
    h, w, c, f = max(h, 3 - 2 * pad[0]), max(w, 3 - 2 * pad[1]), c * width(), f * width()
    rng = np.random.default_rng(seed)
    data = Guarded((n, h, w, c), fill=rng.standard_normal((n, h, w, c)))
    parts = None if part is None else cut(c, f, part, most)["parts"]
    kernel = winograd.d_weight(
        geometry(n, h, w, c, f, pad, np.float32), most=most, splits=splits, parts=parts
    )
    d_out = Guarded((n, kernel.oh, kernel.ow, f), fill=rng.standard_normal((n, kernel.oh, kernel.ow, f)))
    d_weight = Guarded((f, c, 3, 3))
    guard, work = scratch(kernel.workspace)
    run = kernel.connect(d_out.array, data.array, d_weight.array, work)
    run()
    close(d_weight.array, direct_weight(d_out.array, data.array, pad), 1e-5)
    first = d_weight.array.copy()
    run()
    assert (d_weight.array == first).all()
    for a in (data, d_out, d_weight, guard):
        a.check()


NORMED = st.tuples(
    st.integers(1, 2), st.integers(1, 14), st.integers(1, 14), st.integers(1, 3), st.integers(1, 3),
    st.tuples(st.integers(0, 2), st.integers(0, 2)), st.integers(1, 30), st.sampled_from([None, 1]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(NORMED, st.booleans(), st.integers(0, 2**31))
def test_what_is_read_is_normalized_and_padding_is_not(shape, relu, seed):
    n, h, w, c, f, pad, most, part = shape
    h, w, c, f = max(h, 3 - 2 * pad[0]), max(w, 3 - 2 * pad[1]), c * width(), f * width()
    rng = np.random.default_rng(seed)
    data = Guarded((n, h, w, c), fill=rng.standard_normal((n, h, w, c)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    line = [Guarded((c,), fill=rng.standard_normal(c) + far) for far in (0, 3)]  # far: seen in the padding
    arrays = [x.array for x in line]
    normalized = data.array.astype(np.float64) * arrays[0] + arrays[1]
    if relu:
        np.maximum(normalized, 0, out=normalized)
    prologue = winograd.Prologue(True, relu)
    kernel = winograd.forward(
        geometry(n, h, w, c, f, pad, np.float32), prologue=prologue, **cut(c, f, part, most)
    )
    out = Guarded((n, kernel.oh, kernel.ow, f))
    guard, work = scratch(kernel.workspace)
    kernel.connect(data.array, weight.array, None, out.array, work, line=arrays)()
    close(out.array, direct(normalized, weight.array, pad), 1e-5)
    guard.check()
    parts = None if part is None else cut(c, f, part, most)["parts"]
    kernel = winograd.d_weight(
        geometry(n, h, w, c, f, pad, np.float32), most=most, parts=parts, prologue=prologue
    )
    d_out = Guarded(out.array.shape, fill=rng.standard_normal(out.array.shape))
    d_weight = Guarded((f, c, 3, 3))
    guard, work = scratch(kernel.workspace)
    kernel.connect(d_out.array, data.array, d_weight.array, work, PrologueArrays(*arrays))()
    close(d_weight.array, direct_weight(d_out.array, normalized, pad), 1e-5)
    for a in (data, weight, out, d_out, d_weight, guard, *line):
        a.check()


@settings(max_examples=10, deadline=None)
@given(st.booleans(), st.booleans(), st.booleans(), st.integers(1, 11), st.integers(0, 2**31))
def test_what_follows_is_done_in_place(add, relu, has_bias, side, seed):
    c = f = 2 * width()
    rng = np.random.default_rng(seed)
    data = Guarded((2, side, side, c), fill=rng.standard_normal((2, side, side, c)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    bias = Guarded((f,), fill=rng.standard_normal(f)) if has_bias else None
    kernel = winograd.forward(geometry(2, side, side, c, f, (1, 1), np.float32), add=add, relu=relu)
    out = Guarded((2, side, side, f), fill=rng.standard_normal((2, side, side, f)))
    guard, work = scratch(kernel.workspace)
    wanted = direct(data.array, weight.array, (1, 1)) + (bias.array if bias else 0) + add * out.array
    kernel.connect(
        data.array, weight.array, bias and bias.array, out.array, work, out.array if add else None
    )()
    close(out.array, np.maximum(wanted, 0) if relu else wanted, 1e-5)
    for a in (data, weight, out, guard):
        a.check()


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_two_byte_arrays_are_converted_on_the_way(name):
    """Products and sums are of float32: one rounding of the result is all that is lost."""
    if name not in storable():
        pytest.skip(f"this CPU cannot convert {name}")
    kind = as_dtype(name)
    n, h, w, c, f, pad = 2, 9, 10, 2 * width(), width(), (1, 1)
    rng = np.random.default_rng(5)
    data = Guarded((n, h, w, c), kind, rng.standard_normal((n, h, w, c)))
    d_out = Guarded((n, h, w, f), kind, rng.standard_normal((n, h, w, f)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    bias = Guarded((f,), fill=rng.standard_normal(f))
    out, d_data, d_weight = Guarded((n, h, w, f), kind), Guarded((n, h, w, c), kind), Guarded((f, c, 3, 3))
    guards = []
    for make, args in (
        (winograd.forward, (data.array, weight.array, bias.array, out.array)),
        (winograd.d_data, (d_out.array, weight.array, None, d_data.array)),
        (winograd.d_weight, (d_out.array, data.array, d_weight.array)),
    ):
        kernel = make(geometry(n, h, w, c, f, pad, kind))
        guard, work = scratch(kernel.workspace)
        guards.append(guard)
        kernel.connect(*args, work)()
    turned = weight.array.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    close(out.array, direct(data.array, weight.array, pad) + bias.array, ROUNDING[name])
    close(d_data.array, direct(d_out.array, turned, pad), ROUNDING[name])
    close(d_weight.array, direct_weight(d_out.array, data.array, pad), 1e-5)
    for a in (data, weight, bias, out, d_out, d_data, d_weight, *guards):
        a.check()


@pytest.mark.parametrize("channels", [64, 512])
def test_error_stays_near_that_of_float32(channels):
    """The largest error is below 1e-5 of the largest output, with positive data as with normal data."""
    rng = np.random.default_rng(channels)
    for positive in (False, True):
        data = Guarded((1, 14, 14, channels), fill=rng.standard_normal((1, 14, 14, channels)))
        if positive:
            np.maximum(data.array, 0, out=data.array)
        weight = Guarded((64, channels, 3, 3), fill=rng.standard_normal((64, channels, 3, 3)))
        kernel = winograd.forward(geometry(1, 14, 14, channels, 64, (1, 1), np.float32))
        out = Guarded((1, 14, 14, 64))
        guard, work = scratch(kernel.workspace)
        kernel.connect(data.array, weight.array, None, out.array, work)()
        wanted = direct(data.array, weight.array, (1, 1))
        assert np.abs(out.array - wanted).max() < 1e-5 * np.abs(wanted).max()
        guard.check()


def test_nan_and_infinity_reach_the_output():
    """Wherever the sum has one; and as tiles are transformed whole, maybe in the rest of the tile."""
    c = f = width()
    data = Guarded((1, 8, 8, c), fill=1.0)
    data.array[0, 2, 3, 5] = np.nan
    data.array[0, 6, 6, 1] = np.inf
    weight = Guarded((f, c, 3, 3), fill=1.0)
    kernel = winograd.forward(geometry(1, 8, 8, c, f, (1, 1), np.float32))
    out = Guarded((1, 8, 8, f))
    guard, work = scratch(kernel.workspace)
    kernel.connect(data.array, weight.array, None, out.array, work)()
    with np.errstate(invalid="ignore"):
        wanted = direct(data.array, weight.array, (1, 1))
    assert not np.isfinite(out.array[~np.isfinite(wanted)]).any()
    guard.check()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(threads):
    """Which thread does an item does not change it, so runs repeat, here with 1 thread as with 3."""
    n, h, c, f = 3, 14, 4 * width(), 6 * width()
    rng = np.random.default_rng(0)
    data = Guarded((n, h, h, c), fill=rng.standard_normal((n, h, h, c)))
    weight = Guarded((f, c, 3, 3), fill=rng.standard_normal((f, c, 3, 3)))
    found = []
    before = set_num_threads(threads)
    try:
        for many in (threads, 1):
            set_num_threads(many)
            kernel = winograd.forward(
                geometry(n, h, h, c, f, (1, 1), np.float32), parts=(width(), 2 * width())
            )
            out = Guarded((n, h, h, f))
            guard, work = scratch(kernel.workspace)
            run = kernel.connect(data.array, weight.array, None, out.array, work)
            for _ in range(5):
                out.array[...] = np.nan
                run()
                found.append(out.array.copy())
            guard.check()
    finally:
        set_num_threads(before)
    assert all((found[0] == x).all() for x in found)


def test_what_does_not_fit_is_refused():
    c = width()
    assert winograd.fits(geometry(1, 8, 8, c, c, (1, 1), np.float32))
    assert not winograd.fits(geometry(1, 8, 8, c + 1, c, (1, 1), np.float32))
    assert not winograd.fits(geometry(1, 8, 8, c, 3, (1, 1), np.float32))
    assert not winograd.fits(geometry(1, 8, 8, c, c, (3, 3), np.float32))
    assert not winograd.fits(geometry(1, 1, 8, c, c, (0, 0), np.float32))
    assert not winograd.fits(geometry(0, 8, 8, c, c, (1, 1), np.float32))
    assert not winograd.fits(geometry(1, 8, 8, c, c, (1, 1), np.float64))
    assert winograd.forward(geometry(1, 8, 8, c, 3, (1, 1), np.float32)) is None
    assert winograd.d_weight(geometry(1, 8, 8, 3, c, (1, 1), np.float32)) is None
