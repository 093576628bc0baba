"""Generated code: every function of it against numpy in float64, loops against loops."""

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends.cpu import compiled
from mxlite.backends.cpu.compiled import functions
from mxlite.core import native

pytestmark = pytest.mark.skipif(not native.available(), reason="llvmlite is not installed")

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
SIZES = (0, 1, 3, 15, 16, 17, 63, 64, 65, 127, 1000, 1023)


def address(x):
    return x.__array_interface__["data"][0]


def compiled_map(emit, dtype="float32", unroll=1):
    """y = emit(f, x), element by element, as a function of arrays."""
    module = compiled.Module()
    f = module.function("map")
    x, y = f.pointer(0), f.pointer(1)
    first, last = f.share(f.integer(2), f.width)
    f.sweep(
        first,
        last,
        lambda i, mask: f.store(emit(f, f.load(x, i, dtype, mask)), y, i, dtype, mask),
        unroll=unroll,
    )
    f.done()
    code = compiled.load(module)

    def run(x, threads=1):
        y = np.full_like(x, 77)
        compiled.call(code, "map", [address(x), address(y), x.size], threads)()
        return y

    return run


def every_float():
    """A float32 of every kind: each 1499th bit pattern, and the special ones."""
    some = np.arange(0, 2**32, 1499, dtype=np.uint64).astype(np.uint32).view(np.float32)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38]
    near = np.linspace(-120, 120, 400_001)
    return np.concatenate([some, np.array(special, np.float32), near.astype(np.float32)])


def ulps(found, wanted):
    """The largest distance in units of the last place; what is infinite or NaN must be so in both."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(np.float32)
    ordinary = np.isfinite(rounded)
    # Just below the largest number it may already be infinite, and the other way round.
    edge = np.abs(wanted) > 3.4028e38
    np.testing.assert_array_equal(found[~ordinary & ~edge], rounded[~ordinary & ~edge])
    at = ordinary & ~edge
    assert np.isfinite(found[at]).all()
    spacing = np.spacing(np.abs(rounded[at])).astype(np.float64)
    return float(np.max(np.abs(found[at] - wanted[at]) / spacing))


def log1p_of(x):
    return np.where(x < 0, np.nan, np.log1p(np.maximum(x, 0)))


def erf_of(x):
    return np.vectorize(erf, otypes=[np.float64])(x)


@pytest.mark.parametrize(
    "name, oracle, most",
    [
        ("exp", np.exp, 1.2),
        ("expm1", np.expm1, 2.0),
        ("log", np.log, 1.2),
        ("tanh", np.tanh, 2.5),
        ("sigmoid", lambda x: np.where(x < 0, np.exp(x), 1.0) / (1 + np.exp(-np.abs(x))), 2.5),
        ("softplus", lambda x: np.logaddexp(0, x), 2.5),
        ("erf", erf_of, 2.5),
        ("sqrt", np.sqrt, 0.5),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 1.5),
    ],
)
def test_function_is_within_its_stated_error(name, oracle, most):
    x = every_float()
    if name == "erf":
        x = np.ascontiguousarray(x[::7])
    with np.errstate(all="ignore"):
        wanted = oracle(x.astype(np.float64))
    found = compiled_map(getattr(functions, name))(x)
    assert ulps(found, wanted) <= most


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unroll", [1, 4])
@pytest.mark.parametrize("threads", [1, 2])
def test_sweep_writes_every_element_once_and_none_beside(dtype, unroll, threads, monkeypatch):
    monkeypatch.setenv("MXLITE_NUM_THREADS", str(threads))
    if dtype not in compiled.storable():
        pytest.skip(f"this CPU does not convert {dtype}")
    module = compiled.Module()
    f = module.function("twice")
    x, y = f.pointer(0), f.pointer(1)
    first, last = f.share(f.integer(2), f.width)
    f.sweep(
        first,
        last,
        lambda i, mask: f.store(f.mul(f.load(x, i, dtype, mask), f.const(2.0)), y, i, dtype, mask),
        unroll=unroll,
    )
    f.done()
    code = compiled.load(module)
    rng = np.random.default_rng(0)
    for n in SIZES:
        x = rng.normal(size=n + 3).astype(DTYPES[dtype])
        y = np.full(n + 3, 7, DTYPES[dtype])
        compiled.call(code, "twice", [address(x), address(y), n], threads)()
        np.testing.assert_array_equal(y[:n], x[:n] * DTYPES[dtype](2))
        np.testing.assert_array_equal(y[n:], 7)
