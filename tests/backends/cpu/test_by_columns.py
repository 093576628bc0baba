"""Convolutions by columns: each tap of each window once, and no window's cost beside the data."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import convolution, onednn
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.convolution import by_columns, columns, fold
from mxlite.backends.cpu.convolution.direct import ByWeight
from mxlite.backends.cpu.runtime import cores, threads
from mxlite.ops.nn.conv_kernels import Geometry

float32 = np.dtype("float32")


def geometry(n, c, size, f, kernel, stride, pad):
    out = tuple((i + 2 * p - k) // s + 1 for i, k, s, p in zip(size, kernel, stride, pad))
    return Geometry(n, c, size, f, out, kernel, stride, (1,) * len(size), pad, 1, float32)


def places(g):
    """(window, where each of its taps lies in padded data) of every tap of every window."""
    for o in product(*map(range, g.out)):
        for tap in product(*map(range, g.kernel)):
            at = tuple(a * s + t for a, s, t in zip(o, g.stride, tap))
            yield (slice(None), *o), tap, (slice(None), *at)


def padded(g, data=None):
    """(data between zeros, its own place there)."""
    whole = np.zeros((g.n, *(i + 2 * p + k for i, p, k in zip(g.size, g.pad, g.kernel)), g.c))
    own = (slice(None), *(slice(p, p + i) for p, i in zip(g.pad, g.size)))
    if data is not None:
        whole[own] = data
    return whole, own


def reference(g, arrays):
    """Out, d_weight, d_data: every tap of every window by itself, in float64."""
    data, weight, d_out = (arrays[n].astype("f8") for n in ("data", "weight", "d_out"))
    there, own = padded(g, data)
    out, d_weight, d_data = np.zeros(d_out.shape), np.zeros(weight.shape), padded(g)[0]
    for o, tap, at in places(g):
        out[o] += there[at] @ weight[(..., *tap)].T
        d_weight[(..., *tap)] += d_out[o].T @ there[at]
        d_data[at] += d_out[o] @ weight[(..., *tap)]
    return out + arrays["bias"], d_weight, d_data[own]


GEOMETRIES = {
    "as wide as the data": (3, 1, (14, 40), 20, (3, 40), (1, 1), (0, 0)),
    "as wide and padded": (3, 2, (9, 12), 20, (3, 16), (1, 1), (1, 2)),
    "as large as the data": (2, 5, (6, 6), 9, (6, 6), (1, 1), (0, 0)),
    "as large, many samples": (40, 5, (3, 3), 9, (3, 3), (1, 1), (0, 0)),
    "of data one wide": (4, 12, (10, 1), 11, (3, 1), (1, 1), (0, 0)),
    "far apart": (1, 3, (48, 48), 10, (32, 32), (16, 16), (0, 0)),
    "far apart and padded": (1, 3, (40, 48), 10, (32, 32), (16, 16), (4, 8)),
    "patches": (2, 3, (12, 16), 24, (4, 4), (4, 4), (0, 0)),
    "few channels": (4, 1, (11, 13), 16, (5, 5), (2, 2), (2, 2)),
    "gaps": (2, 2, (11, 13), 16, (2, 2), (3, 3), (0, 0)),
    "pads beyond the window": (2, 2, (5, 5), 16, (2, 2), (1, 1), (3, 3)),
    "one axis": (2, 1, (90,), 16, (16,), (4,), (6,)),
    "three axes": (2, 1, (5, 6, 7), 16, (3, 3, 7), (1, 2, 1), (1, 0, 0)),
}


@pytest.mark.parametrize("short", [0, 1 << 30], ids=["tap by tap", "folded"])
@pytest.mark.parametrize("nbytes", [columns.COLUMNS, 4000], ids=["at once", "in parts"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_columns_give_output_and_gradients(name, nbytes, short, monkeypatch):
    g = geometry(*GEOMETRIES[name])
    monkeypatch.setattr(fold, "SHORT", short)
    monkeypatch.setattr(columns, "COLUMNS", nbytes)
    monkeypatch.setattr(columns, "LEAST_COLUMNS", nbytes)
    monkeypatch.setattr(columns, "MOST_COLUMNS", 1 << 30)
    rng = np.random.default_rng(0)
    shapes = dict(
        data=(g.n, *g.size, g.c), weight=(g.f, g.c, *g.kernel), bias=(g.f,), d_out=(g.n, *g.out, g.f)
    )
    a = {n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()}
    made = {n: np.full(shapes[n], np.nan, "f4") for n in ("d_out", "weight", "bias", "data")}
    added = {n: a[n].copy() for n in ("weight", "bias")}
    with cores.running(2):
        forward = by_columns.ColumnsForward(g, float32, True)
        by_weight, adding = (by_columns.ColumnsByWeight(g, float32, True, adds) for adds in (False, True))
        by_data = by_columns.ColumnsByData(g, float32)
        assert bool(by_data.folds) == (short > 0 and usable())
        # What is left in scratch must not count.
        work = {
            way: np.full(-(-way.nbytes // 4), np.nan, "f4").view("u1")
            for way in (forward, by_weight, adding, by_data)
        }
        forward.connect(a["data"], a["weight"], a["bias"], None, made["d_out"], work[forward])()
        by_weight.connect(a["d_out"], a["data"], made["weight"], made["bias"], work[by_weight])()
        adding.connect(a["d_out"], a["data"], added["weight"], added["bias"], work[adding])()
        by_data.connect(a["d_out"], a["weight"], made["data"], work[by_data])()
    out, d_weight, d_data = reference(g, a)
    d_bias = a["d_out"].sum(axis=tuple(range(a["d_out"].ndim - 1)), dtype="f8")
    for found, wanted in (
        (made["d_out"], out), (made["weight"], d_weight), (made["data"], d_data), (made["bias"], d_bias),
        (added["weight"] - a["weight"], d_weight), (added["bias"] - a["bias"], d_bias),
    ):  # fmt: skip
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * abs(wanted).max())


@pytest.mark.skipif(not usable(), reason="llvmlite is not installed")
@pytest.mark.parametrize("adds", [False, True])
def test_folded_taps_have_the_same_bits_on_any_number_of_threads(adds, monkeypatch):
    windows = fold.Windows(3, 3, (40, 30), (80, 60), (4, 4), (2, 2), (1, 1), False, adds)
    rng = np.random.default_rng(0)
    columns_of, before = (rng.standard_normal(s).astype("f4") for s in ((3, 40, 30, 4, 4, 3), (3, 80, 60, 3)))
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "_threads", count, raising=False)
        kernel, out = fold.Fold(windows), before.copy()
        assert not kernel.nbytes
        kernel.connect(columns_of, out)()
        found.append(out.tobytes())
    assert len(set(found)) == 1


def test_each_tap_in_the_data_is_in_one_block():
    for size, kernel, stride, pad in product(range(1, 8), range(1, 6), range(1, 5), range(4)):
        out = (size + 2 * pad - kernel) // stride + 1
        for start, stop in {(0, out), (0, out // 2), (out // 2, out)}:
            found = [
                (o, tap)
                for b in columns.blocks(size, stop - start, kernel, stride, pad, start)
                for o in range(b.start, b.stop)
                for tap in range(b.first, b.last)
            ]
            windows = product(range(start, stop), range(kernel))
            wanted = [(o, t) for o, t in windows if 0 <= o * stride + t - pad < size]
            assert sorted(found) == wanted
            found = [
                (o, tap)
                for b in columns.blocks(size, stop - start, kernel, stride, pad, start, at_once=True)
                for o in range(b.start, b.stop)
                for tap in range(b.first, b.last)
            ]
            assert sorted(found) == wanted


def _kernels(net, **shapes):
    exe = net.simple_bind(mx.cpu(), **shapes)
    return " ".join(line for line in exe.debug_str().splitlines() if "[" in line)


def test_bound_programs_have_it():
    if onednn.library() is None:
        pytest.skip("there is no oneDNN here")
    data = mx.sym.Variable("data")
    wide = mx.sym.Convolution(data, num_filter=20, kernel=(3, 60))
    found = _kernels(wide, data=(50, 1, 14, 60))
    assert found.count("by columns") == 3  # forwards, and either gradient
    up = mx.sym.Deconvolution(data, num_filter=5, kernel=(64, 64), stride=(32, 32), no_bias=True)
    assert "by columns" in _kernels(up, data=(1, 5, 4, 4))
    usual = mx.sym.Convolution(data, num_filter=16, kernel=(3, 3), stride=(2, 2), pad=(1, 1))
    assert "by columns" not in _kernels(usual, data=(2, 16, 32, 32))


def test_small_windows_and_those_mostly_beside_the_data_go_by_direct_kernels():
    assert by_columns.suits_columns(geometry(50, 1, (14, 300), 100, (3, 300), (1, 1), (0, 0)))
    assert not by_columns.suits_columns(geometry(*GEOMETRIES["as wide as the data"]))
    assert not by_columns.suits_columns(geometry(32, 128, (200, 1), 128, (1, 1), (1, 1), (0, 0)))
    assert not by_columns.suits_columns(geometry(64, 64, (1, 1), 64, (3, 3), (1, 1), (1, 1)))


def test_a_gradient_in_the_weight_is_not_made_by_the_columns_of_onednn():
    """They take many times the bytes, a whole sample's, and more time."""
    g = geometry(1, 21, (128, 128), 21, (64, 64), (32, 32), (0, 0))
    with cores.running(2):
        way = convolution.by_weight(g, float32, False)
    if way is None:
        pytest.skip("there is no oneDNN here")
    assert isinstance(way, by_columns.ColumnsByWeight)
    assert 10 * way.nbytes < ByWeight(g, float32, False, False).nbytes
