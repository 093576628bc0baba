"""Attention on the GPU's kernels, run on the CPU: sizes around the tiles, every type, masks, dropout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite.backends import bind_call
from mxlite.backends.base import Backend
from mxlite.backends.gpu.kernels.nn import attention as rows
from mxlite.backends.gpu.matrix.attention import Attention
from mxlite.ops import scaled_dot_product_attention as op
from mxlite.ops.random.philox import RandomStream
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

GPU = Backend("emulated", np, rows.rows(EmulatedDevice()))
REFERENCE = Backend("reference", np, {})


def both(shapes, dtype="float32", kinds=(), wanted=None, train=True, seed=0, gpu=GPU, wild=False, **attrs):
    """(outputs and gradients) of the kernels, and of the reference in float64 for two-byte types.

    wild: a key of the first head is nan.
    """
    a = op.Attrs(**attrs)
    rng = np.random.default_rng(seed)
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    inputs = [rng.standard_normal(s).astype(kind) for s in shapes[:3]]
    for name, shape in zip(op.input_names(a)[3:], shapes[3:]):
        if name == "length":
            inputs.append(rng.integers(0, shapes[1][2] + 1, shape).astype(kinds[-1] if kinds else "int32"))
        elif kinds and kinds[0] == "bool":
            inputs.append(rng.uniform(size=shape) < 0.5)
        else:
            inputs.append(rng.standard_normal(shape).astype(kind))
    d_out = rng.standard_normal((*shapes[0][:3], shapes[2][3])).astype(kind)
    if wild:
        inputs[1][0, 0, 3] = np.nan
    results = []
    for backend in (gpu, REFERENCE):
        result = {}
        dtypes = tuple(x.dtype for x in inputs)
        outputs = (d_out.shape, d_out.shape[:3])
        stream = RandomStream(np.array([7, 3], np.uint64), 11)
        given = list(inputs)
        for which in (op, op.grad_op):
            kernel = backend.choose(which, a, shapes, outputs, dtypes[0], dtypes)
            assert kernel.is_reference == (backend is REFERENCE)
            work = np.full(kernel.workspace, 0xFF, np.uint8)
            made = {}
            for name in which.output_names(a):
                like = dict(zip(op.input_names(a), inputs)).get(name[2:], d_out)
                y = np.full(like.shape, 1 if like.dtype.kind in "bi" else np.nan).astype(like.dtype)
                if name == "log_sum":
                    y = np.full(d_out.shape[:3], np.nan, np.float64 if dtype == "float64" else np.float32)
                made[name] = y if wanted is None or name in wanted or which is op else None
            arrays = dict(zip(op.input_names(a), inputs)) | result | {"d_out": d_out}
            given = [arrays.get(n) for n in which.input_names(a)]
            bind_call(
                kernel, np, which, a, given, list(made.values()), work=work, rng=stream, train=train,
                shapes=(shapes, outputs),
            )()  # fmt: skip
            result |= made
        results.append(result)
    return results


def check(shapes, dtype="float32", **more):
    got, want = both(shapes, dtype, **more)
    tolerance = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for name, y in want.items():
        if y is None:
            assert got[name] is None
            continue
        x, y = np.asarray(got[name], np.float64), np.asarray(y, np.float64)
        scale = max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale, err_msg=name)


def sizes(b, h, n, s, e, v=None, g=None):
    return ((b, h, n, e), (b, g or h, s, e), (b, g or h, s, v or e))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_types(dtype):
    check(sizes(1, 2, 40, 33, 16), dtype, causal=True)


@pytest.mark.parametrize("n, s", [(1, 1), (1, 130), (64, 64), (65, 63), (130, 1), (3, 200)])
@pytest.mark.parametrize("causal", [False, True])
def test_sizes_around_the_tiles(n, s, causal):
    check(sizes(1, 1, n, s, 5, 7), causal=causal)


@pytest.mark.parametrize("e, v", [(1, 1), (64, 64), (65, 130), (20, 300)])
def test_widths(e, v):
    check(sizes(1, 2, 20, 70, e, v, g=1))


def test_a_key_that_is_no_number():
    check(sizes(1, 2, 20, 33, 5), wild=True)


def test_empty_arrays():
    for shapes in (sizes(0, 2, 3, 4, 5), sizes(1, 2, 0, 4, 5), sizes(1, 2, 3, 0, 5), sizes(2, 1, 3, 4, 0, 6)):
        check(shapes)
    check(((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 0)))


@pytest.mark.parametrize(
    "mask", [(2, 4, 70, 65), (1, 1, 70, 65), (4, 1, 65), (2, 1, 1, 65), (1, 4, 70, 1), (1,)]
)
def test_masks(mask):
    check((*sizes(2, 4, 70, 65, 4, g=2), mask), use_mask=True, causal=True)
    if len(mask) == 3:
        check((*sizes(2, 4, 70, 65, 4, g=2), mask), kinds=("bool",), use_mask=True, causal=True)


def test_lengths_of_another_type():
    check((*sizes(5, 2, 8, 70, 4), (5,)), kinds=("float32",), use_length=True)


@pytest.mark.parametrize("h, g, n, s", [(4, 2, 5, 6), (2, 2, 150, 530), (6, 3, 140, 200)])
def test_dropped_weights_are_the_references(h, g, n, s):
    """Blocks in which the reference counts its numbers: the last are smaller, along every axis."""
    check(sizes(1, h, n, s, 3, g=g), p=0.3, causal=n > 100)
    if n == 5:
        check(sizes(2, h, n, s, 3, g=g), p=0.3, train=False)


def test_bits_do_not_depend_on_what_is_wanted():
    shapes = (*sizes(2, 4, 70, 90, 8, g=2), (4, 1, 90))
    all_of_them, _ = both(shapes, use_mask=True)
    for name in ("d_query", "d_key", "d_value", "d_mask"):
        only, _ = both(shapes, use_mask=True, wanted=(name,))
        assert only[name].tobytes() == all_of_them[name].tobytes()


def test_packs_where_addresses_and_widths_allow():
    device = EmulatedDevice()
    a = op.Attrs()
    for e, v, packs in ((4, 8, 3), (4, 6, 1), (6, 4, 2), (5, 5, 0)):
        shapes = sizes(1, 1, 2, 2, e, v)
        how = Attention.of(device, a, shapes, (np.dtype("float32"),) * 3)
        assert how.sizes(None, False, (256, 512, 1024)).packs == packs
        assert how.sizes(None, False, (256, 516, 1024)).packs == 0


def test_sizes_that_are_refused():
    device = EmulatedDevice()
    float32 = (np.dtype("float32"),) * 3
    assert Attention.of(device, op.Attrs(), sizes(2**14, 2**12, 2**10, 4, 4), float32) is None
    assert Attention.of(device, op.Attrs(), sizes(1, 1, 2**31, 4, 4), float32) is None


def test_dropped_weights_are_the_references_where_samples_have_lengths():
    for dtype in ("float32", "bfloat16"):
        check((*sizes(3, 4, 70, 40, 4, g=2), (3,)), dtype, use_length=True, p=0.3)
