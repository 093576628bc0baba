"""Ways of a convolution with its channels last, each against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mxlite import ops
from mxlite.backends import bind_call
from mxlite.backends.cpu import convolution
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.cpu.convolution import direct
from mxlite.backends.cpu.onednn import library
from mxlite.backends.elementwise.epilogue import RECTIFIER
from mxlite.ops.nn.conv_channels_last import ChannelsLastAttrs, EpilogueAttrs

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN's library is not installed")

TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def _dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def _run(op, attrs, arrays, made, kinds):
    """Run `op` with the kernel chosen for `kinds`; `made` are shapes of its outputs, None if unwanted."""
    forward = op.forward_op or op
    dtype = kinds[0]
    data, weight = arrays["data"], arrays["weight"]
    shapes = (data.shape, weight.shape, *([(attrs.num_filter,)] if not attrs.no_bias else []))
    if getattr(attrs, "add", False):
        shapes += (arrays["addend"].shape,)
    _, outs = forward.infer_shape(attrs, *shapes)
    used = frozenset(n for n in (*arrays, *(n for n, s in made.items() if s is not None)))
    kernel = CPU.choose(op, attrs, shapes, outs, dtype, (dtype,) * len(shapes), used)
    assert kernel.name != "reference"
    ins = [arrays.get(n) for n in op.input_names(attrs)]
    results = {n: None if s is None else np.full(s, np.nan, dtype) for n, s in made.items()}
    guard = 4096
    block = np.full(kernel.workspace + 2 * guard, 0xFF, np.uint8)
    work = block[guard : guard + kernel.workspace]
    run = bind_call(
        kernel, np, op, attrs, ins, [results.get(n) for n in op.output_names(attrs)], work=work,
        shapes=(shapes, outs),
    )  # fmt: skip
    run()
    first = {n: None if x is None else x.copy() for n, x in results.items()}
    work[:] = 0x01
    run()
    for n, x in results.items():
        if x is not None:
            assert x.tobytes() == first[n].tobytes(), f"{n} depends on what scratch held"
    assert (block[:guard] == 0xFF).all() and (block[guard + kernel.workspace :] == 0xFF).all()
    return results, kernel


def _exact(op, attrs, arrays, made):
    wide = {n: x.astype("float64") for n, x in arrays.items()}
    shapes = [wide["data"].shape, wide["weight"].shape, *([(attrs.num_filter,)] if not attrs.no_bias else [])]
    if getattr(attrs, "add", False):
        shapes.append(wide["addend"].shape)
    forward = op.forward_op or op
    _, outs = forward.infer_shape(attrs, *shapes)
    ask = forward.backward_workspace if op.forward_op else op.workspace
    work = np.empty(ask(attrs, tuple(shapes), outs, np.dtype("float64")), np.uint8)
    results = {n: np.empty(s) for n, s in made.items() if s is not None}
    chosen = CPU.reference(op, attrs, tuple(shapes), outs, np.dtype("float64"))
    ins = [wide.get(n) for n in op.input_names(attrs)]
    bind_call(
        chosen, np, op, attrs, ins, [results.get(n) for n in op.output_names(attrs)], work=work,
        shapes=(tuple(shapes), outs),
    )()  # fmt: skip
    return results


SHAPES = {
    "3x3": (dict(kernel=(3, 3), pad=(1, 1), num_filter=32), (6, 9, 7, 16)),
    "wide": (dict(kernel=(3, 3), pad=(1, 1), num_filter=64), (6, 9, 8, 32)),
    "stride": (dict(kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=16), (6, 9, 7, 16)),
    "1x1": (dict(kernel=(1, 1), num_filter=24), (6, 4, 5, 10)),
    "stem": (dict(kernel=(7, 7), stride=(2, 2), pad=(3, 3), num_filter=16), (6, 21, 20, 3)),
    "groups": (dict(kernel=(3, 3), pad=(1, 1), num_filter=16, num_group=2), (6, 6, 6, 8)),
}


@pytest.mark.parametrize(
    "dtype, part",
    [("float32", None), ("float16", None), ("float16", 20_000), ("bfloat16", None), ("bfloat16", 20_000)],
)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [False, True])
def test_every_direction_is_the_reference(shape, dtype, bias, part, monkeypatch):
    if part:
        monkeypatch.setattr(direct, "PART", part)  # so small that there are several
        convolution.choice._once.cache_clear()
    given, data = SHAPES[shape]
    attrs = ChannelsLastAttrs(**given, no_bias=not bias)
    rng = np.random.default_rng(0)
    kind = _dtype(dtype)
    _, weight, *_ = ops.ConvolutionChannelsLast.infer_shape(attrs, data, None, None)[0]
    (out,) = ops.ConvolutionChannelsLast.infer_shape(attrs, data, None, None)[1]
    arrays = {
        "data": rng.standard_normal(data).astype(kind),
        "weight": (rng.standard_normal(weight) / np.prod(weight[1:]) ** 0.5).astype(kind),
    }
    if bias:
        arrays["bias"] = rng.standard_normal(attrs.num_filter).astype(kind)
    op = ops.ConvolutionChannelsLast
    got, _ = _run(op, attrs, arrays, {"out": out}, [kind])
    want = _exact(op, attrs, arrays, {"out": out})
    _near(got, want, dtype)
    back = {
        "d_out": rng.standard_normal(out).astype(kind),
        "data": arrays["data"],
        "weight": arrays["weight"],
    }
    made = {"d_data": data, "d_weight": weight, **({"d_bias": (attrs.num_filter,)} if bias else {})}
    for wanted in (tuple(made), ("d_data",), ("d_weight",), ("d_bias",)):
        if not set(wanted) <= set(made):
            continue
        shapes = {n: s if n in wanted else None for n, s in made.items()}
        got, _ = _run(op.grad_op, attrs, back, shapes, [kind])
        _near(got, _exact(op.grad_op, attrs, back, shapes), dtype)
    if part:
        convolution.choice._once.cache_clear()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("add, relu", [(True, False), (False, True), (True, True)])
def test_epilogues(add, relu, dtype):
    kind = _dtype(dtype)
    attrs = EpilogueAttrs(
        kernel=(3, 3), pad=(1, 1), num_filter=16, add=add, epilogue=RECTIFIER if relu else None
    )
    rng = np.random.default_rng(1)
    arrays = {
        "data": rng.standard_normal((2, 6, 5, 16)).astype(kind),
        "weight": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(kind),
        "bias": rng.standard_normal(16).astype(kind),
    }
    if add:
        arrays["addend"] = rng.standard_normal((2, 6, 5, 16)).astype(kind)
    got, _ = _run(ops.ConvolutionEpilogue, attrs, arrays, {"out": (2, 6, 5, 16)}, [kind])
    _near(got, _exact(ops.ConvolutionEpilogue, attrs, arrays, {"out": (2, 6, 5, 16)}), dtype)


def _near(got, want, dtype):
    for name, x in want.items():
        error = np.abs(got[name].astype("float64") - x).max() / np.abs(x).max()
        assert error < TOLERANCE[dtype], (name, error)


def test_infinities_and_nans_pass():
    attrs = ChannelsLastAttrs(kernel=(3, 3), pad=(1, 1), num_filter=16, no_bias=True)
    data = np.ones((1, 8, 8, 16), "f")
    data[0, 2, 3, 4] = np.nan
    weight = np.ones((16, 16, 3, 3), "f")
    got, _ = _run(
        ops.ConvolutionChannelsLast, attrs, {"data": data, "weight": weight}, {"out": (1, 8, 8, 16)},
        [np.dtype("float32")],
    )  # fmt: skip
    bad = np.isnan(got["out"]).any(axis=(0, 3))
    assert bad[1:4, 2:5].all()
