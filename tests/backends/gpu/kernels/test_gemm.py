"""Matrix products of the GPU, run on the CPU: layouts, batches, split sums, epilogues, every dtype."""

from __future__ import annotations

from dataclasses import replace
from math import erf

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends.gpu.matrix.gemm import fits, Product, product, workspace
from mxlite.backends.gpu.matrix.tiled_gemm import packs, tiling
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def gelu_slope(x):
    return 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))) + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


def gelu_tanh_slope(x):
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)


SLOPES = {"relu": lambda y: y > 0, "gelu": gelu_slope, "gelu_tanh": gelu_tanh_slope}


def kind(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def matrices(rng, shape, strides, more, summed, pitch, dtype):
    """A block that holds a matrix (rows, columns) for every (outer, inner, term), and a view of them."""
    (rows, columns), (outer, inner) = shape, strides[1]
    item = kind(dtype).itemsize
    steps = (*strides[0], more, pitch, 1)
    lengths = (outer, inner, summed, rows, columns)
    size = 1 + sum(s * max(0, n - 1) for s, n in zip(steps, lengths))
    if kind(dtype).kind in "iu":
        block = rng.integers(-9, 9, size).astype(kind(dtype))
    else:
        block = rng.standard_normal(size).astype(kind(dtype))
    view = np.lib.stride_tricks.as_strided(block, lengths, [s * item for s in steps])
    return block, view


def check(p, rng=None, device=None, apart=False):
    """The product against numpy's in double; what lies between the rows of c stays.

    `apart`: what beta multiplies lies elsewhere, and c may hold anything.
    """
    rng = rng or np.random.default_rng(0)
    device = device or EmulatedDevice()
    assert fits(p)
    a_shape = (p.k, p.m) if p.trans_a else (p.m, p.k)
    b_shape = (p.n, p.k) if p.trans_b else (p.k, p.n)
    a_block, a = matrices(rng, a_shape, (p.strides_a, p.batch), p.more_a, p.summed, p.pitch_a, p.dtype)
    b_block, b = matrices(rng, b_shape, (p.strides_b, p.batch), p.more_b, p.summed, p.pitch_b, p.dtype)
    c_block, c = matrices(rng, (p.m, p.n), (p.strides_c, p.batch), 0, 1, p.pitch_c, p.made)
    before = c_block.copy()
    wide = np.int64 if kind(p.dtype).kind in "iu" else np.float64
    x, y = (v.astype(wide) for v in (a, b))
    x, y = x.swapaxes(-1, -2) if p.trans_a else x, y.swapaxes(-1, -2) if p.trans_b else y
    want = p.alpha * (x @ y).sum(2)
    scale = np.abs(want).max(initial=1)
    if p.beta:
        want = want + p.beta * c[:, :, 0].astype(wide)
    added = c_block.copy() if apart else c_block
    if apart or not p.beta:
        c[...] = 0 if wide is np.int64 else np.nan  # must not be read
    bias = rng.standard_normal({"columns": p.n, "rows": p.m, "": 0}[p.bias]).astype(kind(p.made))
    if p.bias:
        want = want + (bias[:, None] if p.bias == "rows" else bias).astype(wide)
    if p.activation == "relu":
        want = np.maximum(want, 0)
    elif p.activation == "gelu":
        want = want * 0.5 * (1 + np.vectorize(erf)(want / np.sqrt(2)))
    elif p.activation == "gelu_tanh":
        want = 0.5 * want * (1 + np.tanh(np.sqrt(2 / np.pi) * (want + 0.044715 * want**3)))
    known_block, known = matrices(rng, (p.m, p.n), (p.strides_c, p.batch), 0, 1, p.pitch_c, p.made)
    if p.slope:
        want = want * SLOPES[p.slope](known[:, :, 0].astype(wide))
    sums = np.full(p.m, 7).astype(kind(p.made))
    nbytes = workspace(device, p)
    work = device.empty(nbytes)
    work[:] = 0xFF  # nan
    addresses = [device.address(v) for v in (a_block, b_block, c_block, bias, work, known_block, sums, added)]
    run = product(device, p, *addresses)
    run()
    if p.row_sums:
        total = x[0, 0, 0].sum(-1)
        digits = {"float64": 1e-13, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[p.made]
        np.testing.assert_allclose(sums.astype(wide), total, rtol=digits, atol=digits * p.k**0.5)
    first = c.copy()
    if not p.beta:
        c[...] = 0
        run()
        assert c.tobytes() == first.tobytes()
    got = first[:, :, 0]
    if wide is np.int64:
        np.testing.assert_array_equal(got, want.astype(kind(p.made)))
    else:
        digits = {"float64": 1e-14, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
        tolerance = max(digits[p.made], digits[p.dtype] if p.dtype in ("float32", "float64") else 1e-6) * 4
        np.testing.assert_allclose(got.astype(wide), want, rtol=tolerance, atol=tolerance * scale)
    gaps = np.ones(c_block.shape, bool)
    inside = np.lib.stride_tricks.as_strided(gaps, c.shape, [s // c.itemsize for s in c.strides])
    inside[...] = False
    assert c_block[gaps].tobytes() == before[gaps].tobytes()
    return first


SHAPES = [(1, 1, 1), (5, 3, 7), (33, 40, 20), (64, 32, 48), (31, 130, 17)]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_layouts(trans_a, trans_b):
    for m, n, k in SHAPES:
        check(Product(m, n, k, "float32", trans_a=trans_a, trans_b=trans_b))
        p = Product(m, n, k, "float32", trans_a=trans_a, trans_b=trans_b)
        check(replace(p, lda=p.pitch_a + 3, ldb=p.pitch_b + 5, ldc=p.pitch_c + 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int64"])
def test_dtypes(dtype):
    check(Product(35, 41, 50, dtype))
    check(Product(32, 48, 64, dtype, trans_a=True, trans_b=True, beta=1.0))
    assert not fits(Product(3, 4, 5, "bool"))


@pytest.mark.parametrize("dtype, out", [("bfloat16", "float32")])
def test_results_of_another_type(dtype, out):
    check(Product(9, 12, 30, dtype, out=out, bias="columns"))


def test_large_tiles():
    p = Product(140, 131, 2100, "float32", trans_b=True)
    assert tiling(p).rows == 128 and tiling(p).parts > 1
    check(p)


def test_large_tiles_of_a_batch_without_splitting():
    p = Product(
        70,
        68,
        40,
        "float32",
        batch=(9, 15),
        strides_a=(0, 2800),
        strides_b=(2720, 0),
        strides_c=(71400, 4760),
    )
    assert tiling(p).rows == 128 and tiling(p).parts == 1
    check(p)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_split(dtype):
    p = Product(3, 5, 5000, dtype, trans_a=True, bias="rows", beta=0.5, activation="relu")
    assert tiling(p).parts > 4
    check(p)


def test_a_split_sum_has_the_same_bits_on_every_device():
    p = Product(10, 20, 3000, "float32")
    small, big = EmulatedDevice(), EmulatedDevice()
    big.multiprocessors = 132
    assert check(p, device=small).tobytes() == check(p, device=big).tobytes()


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_added_lies_in_the_result_or_elsewhere(apart):
    """In sums that are split, batches and results with gaps too."""
    split = Product(33, 40, 5000, "float32", beta=1.0)
    assert tiling(split).parts > 1
    several = Product(5, 6, 7, "float16", batch=(2, 3), strides_a=(105, 35), strides_b=(126, 42), ldc=8,
                      strides_c=(120, 40), beta=-0.5, bias="columns", activation="relu")  # fmt: skip
    for p in (split, several, Product(20, 30, 10, "int32", beta=2.0)):
        check(p, apart=apart)


def test_batches_and_terms():
    p = Product(
        6, 7, 10, "float32", batch=(2, 3), strides_a=(60 * 3, 60), strides_b=(0, 70), strides_c=(126, 42)
    )
    check(p)
    check(replace(p, strides_a=(61, 200), beta=1.0))
    heads = Product(4, 4, 8, "float32", trans_b=True, lda=96, ldb=96, batch=(1, 4))
    check(replace(heads, strides_a=(0, 24), strides_b=(0, 24), strides_c=(0, 16)))
    terms = Product(6, 7, 10, "float32", trans_b=True, summed=5, more_a=60, more_b=70)
    check(terms)
    check(replace(terms, k=33, lda=40, ldb=40, more_a=240, more_b=280, summed=40))
    check(replace(terms, k=32, lda=40, ldb=40, more_a=240, more_b=280, summed=3))


@pytest.mark.parametrize("activation", ["", "relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("bias", ["", "columns", "rows"])
def test_epilogues(activation, bias):
    check(Product(20, 36, 11, "float32", activation=activation, bias=bias, alpha=0.3, beta=0.5))


@pytest.mark.parametrize("slope", ["relu", "gelu", "gelu_tanh"])
def test_slopes(slope):
    for dtype in ("float32", "bfloat16"):
        check(Product(20, 36, 11, dtype, slope=slope))
    batch = {"batch": (1, 3), "strides_a": (0, 54), "strides_b": (0, 48), "strides_c": (0, 72)}
    check(Product(9, 8, 6, "float32", slope=slope, **batch))
    check(Product(3, 5, 5000, "float32", slope=slope, trans_a=True))  # a split sum


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_sums_of_rows_beside_the_product(dtype):
    p = Product(20, 12, 40, dtype, trans_a=True, row_sums=True)
    check(p)
    check(replace(p, k=1200, m=40))
    check(replace(p, m=1, beta=1.0))
    assert not fits(replace(p, trans_a=False)) and not fits(replace(p, lda=24))


def test_nothing_to_add_up_and_nothing_to_write():
    check(Product(4, 5, 0, "float32", bias="columns"))
    check(Product(4, 5, 0, "float32", beta=1.0))
    for p in (
        Product(0, 5, 3, "float32"),
        Product(4, 0, 3, "float32"),
        Product(4, 5, 3, "float32", batch=(0, 1)),
    ):
        product(EmulatedDevice(), p, 0, 0, 0)()


def test_addresses_that_are_not_aligned():
    device = EmulatedDevice()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(41 * 41).astype(np.float32) for _ in range(2))
    for skip in (1, 2, 4):
        a, b = x[skip : skip + 1600].reshape(40, 40), y[skip : skip + 1600].reshape(40, 40)
        c = np.empty(1601, np.float32)[1:].reshape(40, 40)
        product(device, Product(40, 40, 40, "float32"), *(device.address(v) for v in (a, b, c)))()
        np.testing.assert_allclose(c, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_packs_only_where_every_row_of_every_matrix_allows():
    """The emulated device reads packs anywhere, a GPU does not."""
    p = Product(40, 40, 40, "float32", batch=(2, 2), strides_a=(80, 40), strides_b=(80, 40), more_a=8)
    p = replace(p, strides_c=(80, 40))
    at = (256, 512, 1024)
    assert packs(p, tiling(p), *at) == 7
    for change, left in (
        ({"lda": 41}, 6),
        ({"strides_a": (80, 2)}, 6),
        ({"strides_a": (81, 4)}, 6),
        ({"more_a": 1}, 6),
        ({"ldb": 42}, 5),
        ({"strides_b": (2, 4)}, 5),
        ({"more_b": 3}, 5),
        ({"ldc": 43}, 3),
        ({"strides_c": (2, 4)}, 3),
    ):
        assert packs(replace(p, **change), tiling(p), *at) == left
    assert [packs(p, tiling(p), *(x + 8 * (i == n) for i, x in enumerate(at))) for n in range(3)] == [6, 5, 3]
    q = replace(p, dtype="bfloat16", strides_b=(4, 8))
    assert packs(q, tiling(q), 256, 512, 1024 + 8) == 5
