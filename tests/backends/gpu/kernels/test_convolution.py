"""Convolutions of the GPU backend, run on the CPU: tiles, layouts and directions against the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import Backend, bind_call
from mxlite.backends.elementwise.epilogue import Applied, epilogue_of, RECTIFIER
from mxlite.backends.gpu.convolution import choice, columns, tiles, windowed
from mxlite.backends.gpu.convolution.by_cudnn import DATA, OUT, Tail, WEIGHT
from mxlite.backends.gpu.kernels.nn import convolution
from mxlite.ops.nn import conv
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICE = EmulatedDevice()
GPU = Backend("emulated", np, convolution.rows(DEVICE))
HOST = Backend("host", np)


def arrays(shapes: Any, dtype: Any, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def run(
    backend: Backend, op: Any, attrs: Any, inputs: Any, shapes: Any, wanted: Any = None
) -> dict[str, Any]:
    """Outputs by name, of memory that holds garbage; scratch has exactly the bytes that were asked for."""
    forward = op.forward_op or op
    dtype = next(x.dtype for x in inputs if x is not None)
    names = op.output_names(attrs)
    used = frozenset(wanted or names) | {n for n, x in zip(op.input_names(attrs), inputs) if x is not None}
    kernel = backend.choose(op, attrs, *shapes, dtype, (dtype,) * len(inputs), used)
    assert kernel.is_reference == (backend is HOST), kernel.name
    sizes = dict(zip(forward.input_names(attrs), shapes[0]))
    sizes |= dict(zip(forward.output_names(attrs), shapes[1]))
    made = [
        np.full(sizes[n.removeprefix("d_") if op is not forward else n], np.nan, dtype)
        if wanted is None or n in wanted
        else None
        for n in names
    ]
    work = DEVICE.empty(kernel.workspace)
    work.fill(0xFF)
    bind_call(kernel, np, op, attrs, inputs, made, work=work, train=True, shapes=shapes)()
    return {n: x for n, x in zip(names, made) if x is not None}


def close(got: dict[str, Any], want: dict[str, Any]) -> None:
    for name, y in want.items():
        tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[y.dtype.name]
        a, b = np.asarray(got[name], np.float64), np.asarray(y, np.float64)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1e-30), err_msg=name)


def compare(op: Any, data: Any, dtype: Any = "float32", **attrs: Any) -> None:
    """Forward and backward of an operator on both backends."""
    dtype = np.dtype(dtype)
    a = op.Attrs(**attrs)
    count = len(op.input_names(a))
    ins, outs = op.infer_shape(a, data, *(None,) * (count - 1))
    inputs = arrays(ins, dtype)
    close(run(GPU, op, a, inputs, (ins, outs)), run(HOST, op, a, inputs, (ins, outs)))
    (d_out,) = arrays(outs, dtype, 1)
    have = {"d_out": d_out, **dict(zip(op.input_names(a), inputs))}
    back = [have[n] for n in op.grad_op.input_names(a)]
    got = run(GPU, op.grad_op, a, back, (ins, outs))
    close(got, run(HOST, op.grad_op, a, back, (ins, outs)))
    for name, y in got.items():
        alone = run(GPU, op.grad_op, a, back, (ins, outs), (name,))[name]
        assert y.tobytes() == alone.tobytes(), name


LAST, FIRST = ops.ConvolutionChannelsLast, ops.Convolution


TILES = [(LAST, t) for t in tiles.TILES] + [(FIRST, t) for t in (tiles.TILES[0], tiles.TILES[-1])]


@pytest.mark.parametrize(
    ("op", "tile"), TILES, ids=lambda x: getattr(x, "op_name", None) or f"{x.rows}x{x.columns}"
)
def test_every_tile_with_its_edges(op, tile, monkeypatch):
    """More than one tile each way, none of them full; a group, a stride, steps that fill no slice."""
    monkeypatch.setattr(tiles, "TILES", (tile,))
    filters = tile.columns + 12 if tile.columns < 128 else 36
    data = (2, 9, 10, 20) if op is LAST else (2, 20, 9, 10)
    compare(op, data, kernel=(3, 3), num_filter=filters, pad=(1, 1), no_bias=op is LAST)


@pytest.mark.parametrize("dtype", ["float64", "float16", ml_dtypes.bfloat16], ids=str)
def test_every_type(dtype):
    compare(LAST, (2, 7, 6, 8), dtype, kernel=(3, 3), num_filter=12, pad=(1, 0), stride=(2, 1))


GEOMETRIES = {
    "stem": dict(data=(2, 15, 15, 3), kernel=(7, 7), num_filter=8, stride=(2, 2), pad=(3, 3), no_bias=True),
    "stride beyond the kernel": dict(data=(2, 11, 9, 4), kernel=(2, 1), num_filter=4, stride=(3, 4)),
    "stride and dilation share a factor": dict(
        data=(1, 16, 17, 5), kernel=(3, 4), num_filter=4, stride=(4, 6), dilate=(2, 4), pad=(3, 5)
    ),
    "taps that never meet data": dict(
        data=(2, 2, 3, 4), kernel=(5, 3), num_filter=4, pad=(4, 4), dilate=(2, 3)
    ),
    "groups": dict(data=(2, 6, 6, 24), kernel=(3, 3), num_filter=12, num_group=3),
    "1x1": dict(data=(3, 5, 5, 33), kernel=(1, 1), num_filter=40),
    "one position": dict(data=(4, 3, 3, 8), kernel=(3, 3), num_filter=5),
    "depthwise": dict(data=(2, 9, 8, 8), kernel=(3, 3), num_filter=8, num_group=8, stride=(2, 1), pad=(1, 0)),
    "depthwise, odd": dict(
        data=(2, 7, 8, 5), kernel=(3, 2), num_filter=5, num_group=5, stride=(1, 3), dilate=(2, 1), pad=(2, 1)
    ),
    "many depthwise": dict(data=(2, 6, 6, 136), kernel=(5, 7), num_filter=136, num_group=136, pad=(2, 3)),
    "a row": dict(data=(2, 30, 6), kernel=(5,), num_filter=7, stride=(3,), pad=(2,)),
    "a volume": dict(data=(1, 4, 5, 6, 4), kernel=(2, 3, 2), num_filter=4, stride=(2, 1, 3), pad=(1, 1, 0)),
    "no sample": dict(data=(0, 5, 5, 4), kernel=(3, 3), num_filter=4),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometry(name):
    compare(LAST, **GEOMETRIES[name])


def test_each_kind_of_convolution_has_its_kernel():
    kinds = {
        "depthwise": "cuda depthwise",
        "groups": "cuda convolution",
        "1x1": "cuda gemm",
        "stem": "cuda conv",
    }
    for name, wanted in kinds.items():
        attrs = dict(GEOMETRIES[name])
        a = LAST.Attrs(**{n: v for n, v in attrs.items() if n != "data"})
        count = len(LAST.input_names(a))
        shapes = LAST.infer_shape(a, attrs["data"], *(None,) * (count - 1))
        assert GPU.choose(LAST, a, *shapes, np.dtype("float32")).name.startswith(wanted)


def test_slices_of_positions_add_up_to_the_gradient(monkeypatch):
    """Of 1800 positions some slices; a smaller limit of scratch gives fewer, and the same numbers."""
    for least, limit in ((64, 1 << 20), (64, 10_000), (10_000, 1)):
        monkeypatch.setattr(windowed, "LEAST_POSITIONS", least)
        monkeypatch.setattr(windowed, "LIMIT", limit)
        choice._choose.cache_clear()
        compare(LAST, (2, 30, 30, 4), kernel=(3, 3), num_filter=8, pad=(1, 1), no_bias=False)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("limit", [1 << 20, 1])
@pytest.mark.parametrize("add", [False, True])
def test_columns_of_some_samples_at_a_time(dtype, limit, add):
    """Products with a column matrix, of all samples at once and of each by itself."""
    a = LAST.Attrs(kernel=(3, 2), num_filter=8, stride=(2, 1), pad=(1, 1), dilate=(1, 2))
    ins, outs = LAST.infer_shape(a, (3, 6, 7, 5), None, None)
    x, w, bias, d_out = arrays((*ins, *outs), dtype)
    g = conv.geometry(a, (3, 5, 6, 7), x.dtype)
    host = run(HOST, LAST, a, [x, w, bias], (ins, outs))
    host |= run(HOST, LAST.grad_op, a, [d_out, x, w], (ins, outs))
    for kind, name, first, second, shape in (
        (OUT, "out", x, w, outs[0]),
        (DATA, "d_data", d_out, w, ins[0]),
        (WEIGHT, "d_weight", x, d_out, ins[1]),
    ):
        adds = add and kind != WEIGHT
        way = columns.Columns(DEVICE, kind, g, Tail(bias=kind == OUT, addend=adds), limit)
        assert way.fits()
        out, work = np.full(shape, np.nan, dtype), DEVICE.empty(way.nbytes)
        work.fill(0xFF)
        want, more = host[name], {"bias": bias} if kind == OUT else {}
        if adds:
            out[...] = arrays([shape], dtype, 1)[0]
            want, more["addend"] = want + out, out
        way.connect(first, second, out, work, **more)()
        close({name: out}, {name: want})


def test_an_epilogue_may_write_over_its_addend():
    op = ops.ConvolutionEpilogue
    a = op.Attrs(kernel=(3, 3), num_filter=8, pad=(1, 1), add=True, epilogue=RECTIFIER)
    ins, outs = op.infer_shape(a, (2, 5, 6, 4), None, None, None)
    inputs = arrays(ins, "float32")
    want = run(HOST, op, a, inputs, (ins, outs))["out"]
    kernel = GPU.choose(op, a, ins, outs, np.dtype("float32"))
    assert kernel.workspace == 0
    bind_call(kernel, np, op, a, inputs, [inputs[3]], work=DEVICE.empty(0), shapes=(ins, outs))()
    close({"out": inputs[3]}, {"out": want})
    other = replace(
        a, epilogue=epilogue_of([Applied(ops.tanh, ops.tanh.Attrs(), "data")], np.dtype("float32"))
    )
    assert GPU.choose(op, other, ins, outs, np.dtype("float32")).is_reference


def test_addresses_that_allow_no_packs():
    """Arrays that begin at an odd element are read one by one."""
    op = LAST
    a = op.Attrs(kernel=(3, 3), num_filter=8, no_bias=True)
    ins, outs = op.infer_shape(a, (1, 5, 6, 4), None)
    x, w = arrays(ins, "float32")
    want = run(HOST, op, a, [x, w], (ins, outs))["out"]
    moved = [np.empty(v.size + 1, "float32")[1:].reshape(v.shape) for v in (x, w, want)]
    moved[0][...], moved[1][...] = x, w
    kernel = GPU.choose(op, a, ins, outs, np.dtype("float32"))
    bind_call(kernel, np, op, a, moved[:2], moved[2:], work=DEVICE.empty(0), shapes=(ins, outs))()
    close({"out": moved[2]}, {"out": want})


def test_what_cannot_be_counted_is_left_to_others():
    op = LAST
    a = op.Attrs(kernel=(1, 1), num_filter=1, no_bias=True)
    shapes = op.infer_shape(a, (2**20, 64, 64, 1), None)
    kernel = GPU.choose(op, a, *shapes, np.dtype("float32"))
    assert kernel.is_reference  # 2^32 positions
    a = op.Attrs(kernel=(1, 1), num_filter=64, no_bias=True)
    shapes = op.infer_shape(a, (2**14, 64, 64, 64), None)
    assert not GPU.choose(op, a, *shapes, np.dtype("float32")).is_reference  # 2^32 elements


def test_tiles_and_slices_follow_from_the_shape_alone():
    """Bits must not change with the machine: nothing asks how many multiprocessors it has."""
    few, many = EmulatedDevice(), EmulatedDevice()
    many.multiprocessors = 1000
    op = LAST.grad_op
    a = LAST.Attrs(kernel=(3, 3), num_filter=64, pad=(1, 1), no_bias=True)
    shapes = LAST.infer_shape(a, (64, 56, 56, 64), None)
    plans = [
        Backend("", np, convolution.rows(d)).choose(op, a, *shapes, np.dtype("float32")) for d in (few, many)
    ]
    assert plans[0].workspace == plans[1].workspace > 0
    assert plans[0].name == plans[1].name
