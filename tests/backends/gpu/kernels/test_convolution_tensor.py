"""Convolutions on tensor cores, run on the CPU lane by lane: tiles, edges, directions, what is left alone."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend, bind_call
from mxlite.backends.elementwise.epilogue import RECTIFIER
from mxlite.backends.gpu.compiler import nvrtc
from mxlite.backends.gpu.convolution import choice, tensor, tiles
from mxlite.backends.gpu.convolution.windowed import LIMIT
from mxlite.backends.gpu.kernels.nn import convolution
from mxlite.ops.nn import conv
from tests.backends.gpu.kernels.test_convolution import arrays, close, HOST, LAST, run
from tests.emulators.emulated_device import compiler, EmulatedDevice

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DEVICE = EmulatedDevice()
GPU = Backend("emulated", np, convolution.rows(DEVICE))


@pytest.fixture(autouse=True)
def asked_anew():
    choice._choose.cache_clear()
    yield
    choice._choose.cache_clear()


def few_digits(shapes, dtype, seed=0):
    """Numbers with 8 binary digits, which TF32 has exactly."""
    return [x.astype(BFLOAT16).astype(dtype) for x in arrays(shapes, "float32", seed)]


def compare(data, dtype, op=LAST, **attrs):
    """Forward and backward against the reference; every direction is a kernel for tensor cores."""
    a, dtype = op.Attrs(**attrs), np.dtype(dtype)
    count = len(op.input_names(a))
    ins, outs = op.infer_shape(a, data, *(None,) * (count - 1))
    inputs = few_digits(ins, dtype)
    kernel = GPU.choose(op, a, ins, outs, dtype)
    assert kernel.name.startswith("cuda tensor convolution"), kernel.name
    close(run_on_gpu(op, a, inputs, (ins, outs)), run(HOST, op, a, inputs, (ins, outs)))
    if op.grad_op is None:
        return
    (d_out,) = few_digits(outs, dtype, 1)
    have = {"d_out": d_out, **dict(zip(op.input_names(a), inputs))}
    back = [have[n] for n in op.grad_op.input_names(a)]
    kernel = GPU.choose(op.grad_op, a, ins, outs, dtype)
    assert kernel.name.startswith("cuda tensor convolution") and "cuda tensor correlation" in kernel.name
    got = run_on_gpu(op.grad_op, a, back, (ins, outs))
    close(got, run(HOST, op.grad_op, a, back, (ins, outs)))
    for name, y in got.items():
        alone = run_on_gpu(op.grad_op, a, back, (ins, outs), (name,))[name]
        assert y.tobytes() == alone.tobytes(), name


def run_on_gpu(*arguments):
    return run(GPU, *arguments)


@needs_compiler
@pytest.mark.parametrize(
    ("tile", "dtype"), [*((t, BFLOAT16) for t in tiles.TENSOR), (tiles.TENSOR[-1], "float32")], ids=str
)
def test_every_tile_with_its_edges(tile, dtype, monkeypatch):
    """More than one tile each way, none of them full; steps that fill no slice."""
    monkeypatch.setattr(tiles, "TENSOR", (tile,))
    monkeypatch.setenv("MXLITE_ALLOW_TF32", "1")
    compare((2, 9, 8, 24), dtype, kernel=(3, 2), num_filter=tile.columns + 8, pad=(1, 1), no_bias=True)


GEOMETRIES = {
    "stride": dict(data=(2, 9, 8, 16), kernel=(3, 3), num_filter=8, stride=(2, 1), pad=(1, 0)),
    "stride beyond the kernel": dict(data=(2, 11, 9, 8), kernel=(2, 1), num_filter=8, stride=(3, 4)),
    "dilation": dict(
        data=(1, 9, 11, 8), kernel=(3, 4), num_filter=8, stride=(2, 3), dilate=(2, 2), pad=(3, 5)
    ),
    "groups": dict(data=(2, 6, 6, 48), kernel=(3, 3), num_filter=24, num_group=3),
    "one tap, with a stride": dict(data=(2, 7, 7, 40), kernel=(1, 1), num_filter=72, stride=(2, 2)),
    "many channels": dict(data=(1, 3, 3, 136), kernel=(2, 2), num_filter=16),
    "a row": dict(data=(2, 30, 8), kernel=(5,), num_filter=8, stride=(3,), pad=(2,)),
    "a volume": dict(data=(1, 4, 5, 6, 8), kernel=(2, 3, 2), num_filter=8, stride=(2, 1, 3), pad=(1, 1, 0)),
}


@needs_compiler
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry(name):
    compare(dtype="float16", **GEOMETRIES[name])


@needs_compiler
@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=str)
def test_bias_addend_and_rectifier(dtype):
    op = ops.ConvolutionEpilogue
    attrs = dict(kernel=(3, 3), num_filter=24, pad=(1, 1), add=True, epilogue=RECTIFIER)
    a = op.Attrs(**attrs)
    ins, outs = op.infer_shape(a, (2, 5, 6, 8), None, None, None)
    inputs = arrays(ins, dtype)
    want = run(HOST, op, a, inputs, (ins, outs))
    assert GPU.choose(op, a, ins, outs, np.dtype(dtype)).name.startswith("cuda tensor")
    close(run_on_gpu(op, a, inputs, (ins, outs)), want)


@needs_compiler
def test_transposed_convolutions():
    op = ops.DeconvolutionChannelsLast
    a = op.Attrs(kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=16)
    ins, outs = op.infer_shape(a, (2, 5, 4, 8), None)
    inputs = arrays(ins, "float16")
    assert GPU.choose(op, a, ins, outs, np.dtype("float16")).name.startswith("cuda tensor")
    close(run_on_gpu(op, a, inputs, (ins, outs)), run(HOST, op, a, inputs, (ins, outs)))


def test_float32_is_float32_unless_tf32_is_allowed(monkeypatch):
    g = conv.geometry(LAST.Attrs(kernel=(3, 3), num_filter=8), (1, 8, 5, 5), np.dtype("float32"))
    assert not tensor.can(g, True, False) and tensor.can(g, True, True)
    a = LAST.Attrs(kernel=(3, 3), num_filter=8, no_bias=True)
    shapes = LAST.infer_shape(a, (1, 5, 5, 8), None)
    for allowed, name in (("0", "cuda convolution"), ("1", "cuda tensor convolution")):
        monkeypatch.setenv("MXLITE_ALLOW_TF32", allowed)
        assert GPU.choose(LAST, a, *shapes, np.dtype("float32")).name.startswith(name)


@needs_compiler
def test_tf32_rounds_what_is_multiplied_to_nearest(monkeypatch):
    """As if the arrays had been rounded before, and in float32 otherwise."""
    monkeypatch.setenv("MXLITE_ALLOW_TF32", "1")
    a = LAST.Attrs(kernel=(2, 2), num_filter=8, no_bias=True)
    ins, outs = LAST.infer_shape(a, (1, 4, 5, 8), None)
    inputs = arrays(ins, "float32")
    rounded = [((x.view("uint32") + 0x1000) & 0xFFFFE000).view("float32") for x in inputs]
    got = run_on_gpu(LAST, a, inputs, (ins, outs))
    close(got, run(HOST, LAST, a, rounded, (ins, outs)))
    exact = run(HOST, LAST, a, inputs, (ins, outs))["out"]
    assert np.abs(got["out"] - exact).max() > 1e-4 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("channels", "filters", "dtype"), [(3, 8, "float16"), (8, 12, "float16"), (8, 8, "float64")]
)
def test_what_makes_no_packs_is_left_to_the_other_kernels(channels, filters, dtype):
    g = conv.geometry(LAST.Attrs(kernel=(3, 3), num_filter=filters), (1, channels, 5, 5), np.dtype(dtype))
    assert tensor.gather(DEVICE, g, True, False, True) is None
    assert tensor.correlate(DEVICE, g, True, LIMIT, True) is None
    even = conv.geometry(LAST.Attrs(kernel=(3, 3), num_filter=8), (1, 8, 5, 5), np.dtype("float16"))
    assert not tensor.can(even, False, True)  # channels behind the batch axis


@needs_compiler
def test_addresses_that_allow_no_packs():
    """Arrays that begin at an odd element are left to the kernels that read them one by one."""
    a = LAST.Attrs(kernel=(3, 3), num_filter=8, no_bias=True)
    ins, outs = LAST.infer_shape(a, (1, 5, 6, 8), None)
    x, w = arrays(ins, "float16")
    (d_out,) = arrays(outs, "float16", 1)
    cases = [(LAST, [x, w], ("out",)), (LAST.grad_op, [d_out, x, w], ("d_data", "d_weight"))]
    for op, inputs, names in cases:
        want = run(HOST, op, a, inputs, (ins, outs), names)
        moved = [np.empty(v.size + 1, "float16")[1:].reshape(v.shape) for v in inputs]
        for to, v in zip(moved, inputs):
            to[...] = v
        used = frozenset((*op.input_names(a), *names))
        kernel = GPU.choose(op, a, ins, outs, x.dtype, None, used)
        made = [np.empty_like(want[n]) if n in names else None for n in op.output_names(a)]
        work = DEVICE.empty(kernel.workspace)
        bind_call(kernel, np, op, a, moved, made, work=work, train=True, shapes=(ins, outs))()
        close({n: y for n, y in zip(op.output_names(a), made) if y is not None}, want)


@pytest.mark.skipif(not nvrtc.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("tile", tiles.TENSOR, ids=lambda t: f"{t.rows}x{t.columns}")
def test_two_blocks_fit_a_multiprocessor_and_nothing_is_spilled(architecture, dtype, tile):
    for source in (tiles.gather(dtype, tile, True, 8), tiles.correlate(dtype, tile, False, 8, 8)):
        _, log = nvrtc.compile(source, architecture)
        (found,) = nvrtc.usage(log).values()
        assert found.registers <= 128 and found.spilled_bytes == found.stack_bytes == 0, found
