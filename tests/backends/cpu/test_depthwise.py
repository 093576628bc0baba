"""The generated weight gradient of depthwise convolutions, against sums written out in float64."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from mxlite.backends.cpu.compiled import storable, usable
from mxlite.backends.cpu.compiled.depthwise import spans
from mxlite.backends.cpu.convolution.choice import by_weight
from mxlite.backends.cpu.convolution.depthwise import DepthwiseByWeight, suits_depthwise
from mxlite.backends.cpu.runtime import threads
from mxlite.core.dtype import as_dtype
from mxlite.ops.nn.conv_kernels import Geometry

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")


def geometry(
    n: int, c: int, size: Any, kernel: Any, stride: Any = 1, dilate: Any = 1, pad: Any = 0
) -> Geometry:
    def each(x: Any) -> tuple[int, ...]:
        return (x,) * len(size) if isinstance(x, int) else tuple(x)

    kernel, stride, dilate, pad = each(kernel), each(stride), each(dilate), each(pad)
    axes = zip(size, kernel, stride, dilate, pad)
    out = tuple((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, d, p in axes)
    return Geometry(
        n=n, c=c, f=c, groups=c, size=tuple(size), out=out, kernel=kernel, stride=stride, dilate=dilate,
        pad=pad, dtype=as_dtype("float32"),
    )  # fmt: skip


CASES = {
    "common": geometry(2, 40, (9, 7), 5, pad=2),
    "stride": geometry(2, 33, (12, 11), 5, 2, pad=2),
    "image smaller than the window": geometry(3, 48, (4, 3), 7, pad=3),
    "one number": geometry(1, 3, (1, 1), 3, pad=1),
    "no padding": geometry(2, 17, (6, 8), (2, 5)),
    "uneven": geometry(2, 20, (8, 9), (5, 3), (1, 2), (2, 1), (3, 1)),
    "dilated": geometry(2, 16, (11, 10), 3, 1, 3, 2),
    "padding beyond the window": geometry(1, 5, (3, 4), 3, 2, 1, 4),
    "rows": geometry(3, 24, (20,), 5, 1, 2, 4),
    "many channels": geometry(1, 200, (5, 5), 5, pad=2),
    "last positions unread": geometry(2, 16, (10, 9), 4, 3, pad=1),
}


def written_out(g: Geometry, data: np.ndarray, d_out: np.ndarray) -> np.ndarray:
    """(C, 1, *kernel) in float64."""
    far = [(p, p + d * k + s) for p, d, k, s in zip(g.pad, g.dilate, g.kernel, g.stride)]
    padded = np.pad(data.astype(np.float64), [(0, 0), *far, (0, 0)])
    found = np.zeros((g.c, 1, *g.kernel))
    axes = tuple(range(1 + len(g.kernel)))
    for tap in np.ndindex(*g.kernel):
        where = tuple(slice(t * d, t * d + o * s, s) for t, d, o, s in zip(tap, g.dilate, g.out, g.stride))
        found[(slice(None), 0, *tap)] = (padded[(slice(None), *where)] * d_out).sum(axes)
    return found


def arrays(g: Geometry, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(prod(g.size))
    return (
        rng.standard_normal((g.n, *g.size, g.c)).astype(as_dtype(dtype)),
        rng.standard_normal((g.n, *g.out, g.c)).astype(as_dtype(dtype)),
    )


def gradient(
    g: Geometry, data: np.ndarray, d_out: np.ndarray, before: np.ndarray | None = None
) -> np.ndarray:
    made = np.full((g.c, 1, *g.kernel), np.nan, np.float32) if before is None else before.copy()
    layer = DepthwiseByWeight(g, before is not None)
    layer.connect(d_out, data, made, np.full(layer.workspace, 255, np.uint8))()
    return made


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_sum_over_samples_and_positions(name):
    g = CASES[name]
    data, d_out = arrays(g)
    want = written_out(g, data, d_out)
    tolerance = 1e-6 * g.n * prod(g.out)
    np.testing.assert_allclose(gradient(g, data, d_out), want, rtol=1e-5, atol=tolerance)
    before = np.ones((g.c, 1, *g.kernel), np.float32)
    np.testing.assert_allclose(gradient(g, data, d_out, before), 1 + want, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_arrays_of_16_bits_are_read_as_they_are(dtype):
    if dtype not in storable():
        pytest.skip(f"this CPU cannot load {dtype}")
    g = CASES["common"]
    data, d_out = arrays(g, dtype)
    small = replace(g, dtype=as_dtype(dtype))
    want = gradient(g, data.astype(np.float32), d_out.astype(np.float32))
    np.testing.assert_array_equal(gradient(small, data, d_out), want)


def test_bits_do_not_depend_on_the_number_of_threads():
    g = geometry(4, 80, (24, 24), 5, pad=2)  # more work than one thread takes
    data, d_out = arrays(g)
    found = []
    for count in (1, 2, 3):
        before = threads.set_num_threads(count)
        try:
            found.append(gradient(g, data, d_out))
        finally:
            threads.set_num_threads(before)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_spans_are_those_positions_whose_taps_are_inside():
    rng = np.random.default_rng(0)
    for _ in range(300):
        size, kernel, stride, dilate, pad = (int(rng.integers(1, m)) for m in (12, 8, 4, 4, 6))
        out = (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1
        if out < 1:
            continue
        table = spans(size, out, kernel, stride, dilate, pad)
        begin, end = table[kernel, :2]
        inside = [{o for o in range(out) if 0 <= o * stride + k * dilate - pad < size} for k in range(kernel)]
        whole = set(range(begin, end))
        assert whole == set.intersection(*inside) or not whole
        for (a, b, c, d), want in zip(table[:kernel], inside):
            pieces = [*range(a, b), *whole, *range(c, d)]
            assert sorted(pieces) == sorted(want)


def test_it_is_chosen_where_onednn_pads_every_group():
    wide, narrow = geometry(2, 32, (8, 8), 5, pad=2), geometry(2, 32, (8, 8), 3, pad=1)
    float32 = as_dtype("float32")
    way = by_weight(wide, float32, False)
    assert way.name == "compiled depthwise" and way.nbytes < 4 * 32 * 25 * 2
    assert by_weight(narrow, float32, False).name in (
        "onednn jit_dw:avx512_core",
        "onednn jit_dw:avx2",
        way.name,
    )
    assert not suits_depthwise(replace(narrow, f=64))
